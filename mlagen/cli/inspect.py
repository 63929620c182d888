"""`mlagen inspect`: what each cluster of a kernel does, its registers, LDS, waits and mix."""

from __future__ import annotations

import click

from mlagen.cli.options import json_option
from mlagen.cli.patience import at_most, seconds_option
from mlagen.cli.report import print_facts, print_json, print_table, say


@click.command("inspect")
@click.argument("path", metavar="ARTIFACT|FILE.co")
@click.option("--kernel", metavar="NAME", help="Which kernel of a code object with several.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Every cluster, wait and scalar register, not only those of the loops.",
)
@click.option("--html", "page", metavar="FILE", help="Write a page to look at.")
@seconds_option
@json_option
def command(
    path: str,
    kernel: str | None,
    everything: bool,
    page: str | None,
    max_seconds: int,
    as_json: bool,
) -> None:
    """Show what is inside an artifact, or any gfx950 code object.

    Clusters by role, registers and where they are alive, LDS with bank phases, waits, instructions.
    """
    from mlagen.inspect import inspect_path
    from mlagen.inspect.tables import facts, tables

    with at_most(max_seconds, f"inspecting {path}"):
        report = inspect_path(path, kernel)
    if page is not None:
        from mlagen.inspect.page import write_page

        write_page(report, page)
    if as_json:
        print_json("inspect", report)
        return
    print_facts(facts(report))
    for table in tables(report, everything=everything):
        say()
        print_table(table.title, table.columns, table.rows)
    for limit in report.limits:
        say(f"\nnot known: {limit}")
    if report.timeline.why:
        say(f"\nno timeline: {report.timeline.why}")
    if page is not None:
        say(f"\npage       {page}")
