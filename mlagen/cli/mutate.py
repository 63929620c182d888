"""`mlagen mutate`: defects put into a kernel, and how many of them the emulator notices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mlagen.cli.options import build_options, json_option, problem_option, seed_option
from mlagen.cli.progress import progress_bar
from mlagen.cli.report import print_facts, print_table, say
from mlagen.cli.types import NAME, OUT_FOLDER

if TYPE_CHECKING:
    from mlagen.mutation import Report
    from mlagen.request import BuildTexts

ORDER = ("waits", "barriers", "nops", "swizzle")
CLASSES = (*ORDER, "values")


@click.command("mutate")
@click.argument("kernel", type=NAME, metavar="KERNEL|FILE.py|ARTIFACT_DIR")
@build_options
@click.option(
    "--class",
    "classes",
    multiple=True,
    type=click.Choice(CLASSES),
    default=ORDER,
    show_default=True,
    help="What is mutated; may be given several times.",
)
@click.option("--sample", "count", type=int, metavar="N", help="Judge N of the mutants only.")
@seed_option
@click.option("--processes", default=2, show_default=True, help="That judge at the same time.")
@problem_option
@click.option(
    "-o",
    "--out",
    type=OUT_FOLDER,
    metavar="DIR",
    help="Write the report and the missed mutants here.",
)
@json_option
def command(
    kernel: str,
    texts: BuildTexts,
    classes: tuple[str, ...],
    count: int | None,
    seed: int,
    processes: int,
    problem_file: str | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Make mutants of KERNEL and judge by them who is to notice: the emulator and its sanitizer,
    or, for --class values, what `mlagen verify` runs by default.

    Each mutant is one defect in the assembly text. Exit code 4: some mutant was missed.
    """
    import msgspec

    from mlagen.cli.subjects import artifact_of
    from mlagen.mutation import missed_files, mutate

    artifact = artifact_of(kernel, texts)
    with progress_bar("judging mutants", long=count is None) as progress:
        report = mutate(
            artifact,
            classes=classes,
            count=count,
            seed=seed,
            processes=processes,
            problem_file=problem_file or (kernel if kernel.endswith(".py") else None),
            progress=progress,
        )
    text = msgspec.json.format(msgspec.json.encode(report.to_json()), indent=2)
    if out is not None:
        from pathlib import Path

        from mlagen.disk import write_files

        write_files(Path(out), {**missed_files(artifact, report), "mutate.json": text})
    if as_json:
        click.echo(text)
    else:
        _print(report)
    if error := report.error():
        raise error


def _print(report: Report) -> None:
    print_table("mutants", report.columns, report.rows())
    say()
    for title, verdicts in (("equivalent", report.equivalents()), ("missed", report.misses())):
        if verdicts:
            say(title)
            for place, why in verdicts:
                say(f"  {place}: {why}")
            say()
    print_facts(report.facts())
