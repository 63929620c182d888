"""`mlagen tune`: the best variant of a kernel, and the store of what was found."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import click

from mlagen.cli import terminal
from mlagen.cli.options import json_option, seed_option
from mlagen.cli.printing import print_facts, print_json, print_table, say
from mlagen.cli.progress import progress_bar
from mlagen.cli.replacing import force_option
from mlagen.cli.types import COUNT, NAME, OUT_FILE, Amount
from mlagen.disk import checked_output
from mlagen.errors import MissingError

if TYPE_CHECKING:
    from mlagen.tune import Store
    from mlagen.tune.tuner import Progress

store_option = click.option(
    "--store",
    "store_path",
    type=NAME,
    metavar="FILE",
    help="Default: $MLAGEN_TUNING, or in the cache.",
)


class _Verbs(click.Group):
    """`mlagen tune KERNEL` is `mlagen tune run KERNEL`."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and args[0] not in self.commands:
            args = ["run", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = [*takewhile(terminal.FLAGS.__contains__, args)]
        rest = args[len(own) :]
        if rest and rest[0].startswith("-") and rest[0] not in ("-h", "--help"):
            args = [*own, "run", *rest]
        return super().parse_args(ctx, args)


@click.group("tune", cls=_Verbs)
def command() -> None:
    """Find a kernel's best variant: mlagen tune KERNEL --set .. --shape .."""


@command.command("run")
@click.argument("kernel", type=NAME, metavar="KERNEL|FILE.py")
@click.option("--target", type=NAME, help="What to tune for. Default: what the schedule is for.")
@click.option("--set", "fields", multiple=True, metavar="FIELD=VALUE", help="A problem field.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=SIZE",
              help="A size of the call, as for verify.")  # fmt: skip
@click.option("--knob", "knobs", multiple=True, metavar="NAME=CHOICE[,CHOICE]",
              help="Keep to these choices of a knob.")  # fmt: skip
@click.option("--cost", type=click.Choice(["predicted", "measured"]),
              help="Default: predicted for gfx950, measured for others.")  # fmt: skip
@click.option("--sampler", default="auto", show_default=True,
              help="auto, exhaustive, descent, tpe, random or genetic.")  # fmt: skip
@click.option("--trials", type=click.IntRange(0), help="Stop after judging so many.")
@click.option("--minutes", type=Amount(0), help="Stop after so long.")
@click.option("--limit", default=120.0, show_default=True, type=Amount(1),
              help="Seconds that a trial may take.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1),
              help="Trials at once. Default: one a core; one where a GPU measures.")  # fmt: skip
@click.option("--scheduler", metavar="ADDRESS", help="Of Dask: its workers judge.")
@click.option(
    "--local-workers",
    type=click.IntRange(1),
    help="Start a Dask scheduler and so many workers, each with a GPU where one measures.",
)
@seed_option
@store_option
@json_option
def run(
    kernel: str,
    target: str | None,
    fields: tuple[str, ...],
    shapes: tuple[str, ...],
    knobs: tuple[str, ...],
    cost: Any,
    sampler: str,
    trials: int | None,
    minutes: float | None,
    limit: float,
    jobs: int | None,
    scheduler: str | None,
    local_workers: int | None,
    seed: int,
    store_path: str | None,
    as_json: bool,
) -> None:
    """Search among a kernel's knobs. It may be stopped at any time and goes on where it was."""
    from mlagen.app.texts import assignments
    from mlagen.tune import TuneRequest, open_store, tune
    from mlagen.tune.text import TRIAL_COLUMNS, facts, trial_rows

    request = TuneRequest(
        kernel, assignments("--set", fields), shapes, assignments("--knob", knobs), target, cost,
        sampler, trials, None if minutes is None else 60 * minutes, limit, jobs, seed,
        scheduler, local_workers,
    )  # fmt: skip
    store = open_store(store_path)
    checked_output(store.path)
    with closing(store), _Live() as live:
        result = tune(request, store, watch=live)
    if as_json:
        print_json("tune", {"study": result.study, "winner": result.winner,
                            "trials": result.trials, "search": result.search})  # fmt: skip
        return
    space = result.described.space
    for line in space.left_out:
        say(f"left out: {line}")
    print_facts([*facts(result.study, result.trials, result.winner),
                 ("space", f"{space.size} variants, {result.search} search")])  # fmt: skip
    say()
    print_table("trials", TRIAL_COLUMNS, trial_rows(result.study, result.trials, 10))


class _Live:
    """A line with the best so far: renewed on a terminal, a new one for each gain elsewhere."""

    def __init__(self) -> None:
        self._quiet = terminal.verbosity() is terminal.Verbosity.QUIET
        self._terminal = terminal.live()
        self._best: int | None = None

    def __enter__(self) -> _Live:
        if self._terminal:
            click.echo("preparing the search …", nl=False, err=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            click.echo("\r\x1b[K", nl=False, err=True)

    def __call__(self, progress: Progress) -> None:
        from mlagen.tune.text import progress_text

        reference = progress.reference.knobs if progress.reference else {}
        line = progress_text(progress, reference)
        if self._terminal:
            width = shutil.get_terminal_size().columns
            click.echo(f"\r\x1b[K{line[: width - 1]}", nl=False, err=True)
        elif not self._quiet and progress.best is not None and progress.best.id != self._best:
            self._best = progress.best.id
            say(line, err=True)


@command.command("show")
@click.argument("study", required=False)
@click.option("--lines", type=COUNT, default=20, show_default=True, help="Trials spelled out.")
@store_option
@json_option
def show(study: str | None, lines: int, store_path: str | None, as_json: bool) -> None:
    """What the store holds; with STUDY (its key or the first letters), its trials."""
    with _reading(store_path) as store:
        if study is None:
            _show_studies(store, as_json)
        else:
            _show_study(store, study, lines, as_json)


@contextmanager
def _reading(path: str | None) -> Iterator[Store]:
    """The store, for a command that only reads: nothing is made, and one that is named is there."""
    from mlagen.tune import open_store

    with closing(open_store(path)) as store:
        if path is not None and not store.path.exists():
            raise MissingError(
                f"there is no store {path}", hint="mlagen tune KERNEL --store FILE makes one"
            )
        yield store


def _show_studies(store: Store, as_json: bool) -> None:
    from mlagen.tune.text import row_of

    rows = [row_of(store, one) for one in store.studies()]
    if as_json:
        print_json("tune.show", {"studies": rows})
        return
    print_table(
        "studies",
        ("key", "what", "judged", "gain", "confirmed", "best"),
        [
            (row.key, row.title, str(row.judged), f"{row.gain:.4f}x" if row.gain else "-",
             "yes" if row.confirmed else "no", row.knobs)
            for row in rows
        ],
    )  # fmt: skip


def _show_study(store: Store, study: str, lines: int, as_json: bool) -> None:
    from mlagen.tune.text import KNOB_COLUMNS, TRIAL_COLUMNS, facts, knob_rows, newest, trial_rows

    found = store.find(study)
    trials, winner = newest(store.trials(found)), store.winner(found)
    if as_json:
        print_json("tune.study", {"study": found, "winner": winner, "trials": trials})
        return
    print_facts(facts(found, trials, winner))
    say()
    print_table("knobs, what mattered most first", KNOB_COLUMNS, knob_rows(trials))
    say()
    print_table("trials", TRIAL_COLUMNS, trial_rows(found, trials, lines))


@command.command("export")
@click.argument("studies", nargs=-1, metavar="[STUDY]..")
@click.option("-o", "--out", type=OUT_FILE, required=True, metavar="FILE.json",
              help="Winners of other questions that it holds stay.")  # fmt: skip
@force_option
@store_option
def export(studies: tuple[str, ...], out: str, store_path: str | None) -> None:
    """Write confirmed winners, of all studies or of those named, as a file to review."""
    from mlagen.tune.tuned_file import export_to

    with _reading(store_path) as store:
        for line in export_to(store, studies, out):
            say(line)


@command.command("import")
@click.argument("path", type=NAME, metavar="FILE.json")
@store_option
def import_(path: str, store_path: str | None) -> None:
    """Put the winners of an exported file into the store: launches take them from now on."""
    from mlagen.tune import open_store
    from mlagen.tune.tuned_file import import_from

    with closing(open_store(store_path)) as store:
        for line in import_from(store, path):
            say(line)


@command.command("plot")
@click.argument("study")
@click.option(
    "-o", "--out", type=OUT_FILE, required=True, metavar="FILE.html|FILE.png", help="What to write."
)
@force_option
@store_option
def plot(study: str, out: str, store_path: str | None) -> None:
    """Best so far, what mattered, predicted against measured."""
    from pathlib import Path

    from mlagen.tune.plots import write_plots

    with _reading(store_path) as store:
        with progress_bar("drawing"):
            told = write_plots(store, store.find(study), Path(out))
        say(told)
