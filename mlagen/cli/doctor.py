"""`mlagen doctor`: what was found, what is missing, and the command that installs it."""

from __future__ import annotations

import click

from mlagen.cli.options import json_option
from mlagen.cli.printing import print_json, print_table, say
from mlagen.cli.progress import progress_bar


@click.command("doctor")
@click.option("--all", "everything", is_flag=True, help="Also each tool, package and variable.")
@json_option
def command(everything: bool, as_json: bool) -> int:
    """Say what can be done on this machine, and what to install for the rest.

    Exits with 5 where no kernel can be built, or none of them can run: neither in the emulator nor
    on a GPU.
    """
    from mlagen.app.doctor import examine

    with progress_bar("looking for tools"):
        report = examine()
    if as_json:
        print_json("doctor", report)
        return report.exit_code
    cells = [(each.target, each.build, each.verify, each.launch) for each in report.abilities]
    print_table("here", ("target", "build", "verify", "launch on a GPU"), cells)
    say()
    for group in report.groups if everything else ():
        rows = [(check.name, check.state, check.version, check.detail) for check in group.checks]
        print_table(group.title, ("what", "state", "version", "where, or why not"), rows)
        say()
    for line in report.advice:
        say(line, verdict=True)
    if not everything:
        say("mlagen doctor --all shows each tool, package and variable that was looked for.")
    return report.exit_code
