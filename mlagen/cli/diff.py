"""`mlagen diff`: what differs between two kernels."""

from __future__ import annotations

import click

from mlagen.cli.options import json_option
from mlagen.cli.patience import at_most, seconds_option
from mlagen.cli.printing import print_facts, print_json, print_table, say
from mlagen.cli.progress import progress_bar
from mlagen.cli.replacing import force_option
from mlagen.cli.types import NAME, OUT_FILE


@click.command("diff")
@click.argument("a", type=NAME, metavar="ARTIFACT|FILE.co")
@click.argument("b", type=NAME, metavar="ARTIFACT|FILE.co")
@click.option("--kernel-a", metavar="NAME", help="Which kernel of the first, of several.")
@click.option("--kernel-b", metavar="NAME", help="Which kernel of the second, of several.")
@click.option("--all", "everything", is_flag=True, help="Also each thing that is equal.")
@click.option("--html", "page", type=OUT_FILE, metavar="FILE", help="Write a page to look at.")
@seconds_option
@force_option
@json_option
def command(
    a: str,
    b: str,
    kernel_a: str | None,
    kernel_b: str | None,
    everything: bool,
    page: str | None,
    max_seconds: int,
    as_json: bool,
) -> None:
    """Show two kernels side by side: clusters, registers, LDS, waits, knobs, tools.

    Either may be an artifact or any gfx950 code object. The exit code is 0 whether or not they
    differ.
    """
    from mlagen.inspect import compare, inspect_path
    from mlagen.inspect.diff_tables import diff_facts, diff_tables

    what = f"comparing {a} and {b}"
    with progress_bar(what), at_most(max_seconds, what):
        report = compare(inspect_path(a, kernel_a), inspect_path(b, kernel_b))
    if page is not None:
        from mlagen.inspect.page import write_diff_page

        write_diff_page(report, page)
    if as_json:
        print_json("diff", report.to_json())
        return
    print_facts(diff_facts(report))
    if report.facts_note:
        say(f"\n{report.facts_note}")
    for table in diff_tables(report, everything=everything):
        say()
        print_table(table.title, table.columns, table.rows)
    if page is not None:
        say(f"\npage  {page}")
