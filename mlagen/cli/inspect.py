"""`mlagen inspect`: what each cluster of a kernel does, its registers, LDS, waits and mix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from mlagen.cli.options import json_option, schedule_options
from mlagen.cli.patience import at_most, seconds_option
from mlagen.cli.printing import print_facts, print_json, print_table, say
from mlagen.cli.progress import progress_bar
from mlagen.cli.replacing import force_option
from mlagen.cli.types import NAME, OUT_FILE
from mlagen.errors import ConfigError
from mlagen.inspect.tables import CodeTable


@click.command("inspect")
@click.argument("subject", type=NAME, metavar="SCHEDULE|FILE.py|ARTIFACT|FILE.co")
@schedule_options
@click.option("--kernel", metavar="NAME", help="Which kernel of a code object with several.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Every cluster, wait and scalar register, not only those of the loops.",
)
@click.option("--html", "page", type=OUT_FILE, metavar="FILE", help="Write a page to look at.")
@seconds_option
@force_option
@json_option
def command(
    subject: str,
    target: str | None,
    fields: tuple[str, ...],
    knobs: tuple[str, ...],
    templates: str | None,
    kernel: str | None,
    everything: bool,
    page: str | None,
    max_seconds: int,
    as_json: bool,
) -> None:
    """Show what a schedule says and what is derived from it, or what is inside an artifact or any
    gfx950 code object.

    Clusters by role, registers, LDS or SMEM, waits, instructions. --set, --knob, --target and
    --templates are for schedules, as mlagen build takes them; --kernel and --html are for what is
    built.
    """
    from mlagen.app.texts import names_schedule

    asked = {"--set": fields, "--knob": knobs, "--target": target, "--templates": templates}
    if names_schedule(subject):
        _refuse({"--kernel": kernel, "--html": page}, f"what is built; {subject} is a schedule")
        _schedule(subject, fields, knobs, target, templates, everything, as_json)
        return
    _refuse(asked, f"schedules; {subject} is built already")
    _built(subject, kernel, everything, page, max_seconds, as_json)


def _refuse(options: Mapping[str, object], why: str) -> None:
    for option, given in options.items():
        if given:
            raise ConfigError(f"{option} is for {why}")


def _print(facts: Sequence[tuple[str, str]], tables: Sequence[CodeTable]) -> None:
    print_facts(facts)
    for table in tables:
        say()
        print_table(table.title, table.columns, table.rows)


def _schedule(
    name: str,
    fields: tuple[str, ...],
    knobs: tuple[str, ...],
    target: str | None,
    templates: str | None,
    everything: bool,
    as_json: bool,
) -> None:
    from mlagen.app.texts import BuildTexts, view_from_text
    from mlagen.schedule_view.tables import facts, tables

    with progress_bar(f"deriving {name}"):
        view = view_from_text(name, BuildTexts(fields, knobs, target, templates))
    if as_json:
        print_json("inspect.schedule", view, version=2)
    else:
        _print(facts(view), tables(view, everything=everything))


def _built(
    path: str, kernel: str | None, everything: bool, page: str | None, max_seconds: int,
    as_json: bool,
) -> None:  # fmt: skip
    from mlagen.inspect import inspect_path
    from mlagen.inspect.tables import facts, tables

    with progress_bar(f"inspecting {path}"), at_most(max_seconds, f"inspecting {path}"):
        report = inspect_path(path, kernel)
    if page is not None:
        from mlagen.inspect.page import write_page

        write_page(report, page)
    if as_json:
        print_json("inspect", report)
        return
    _print(facts(report), tables(report, everything=everything))
    for limit in report.limits:
        say(f"\nnot known: {limit}")
    if report.timeline.why:
        say(f"\nno timeline: {report.timeline.why}")
    if page is not None:
        say(f"\npage       {page}")
