"""`mlagen doctor`: what was found, what is missing, and the command that installs it."""

from __future__ import annotations

import click

from mlagen.cli.options import json_option
from mlagen.cli.progress import progress_bar
from mlagen.cli.report import print_json, print_table, say


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Examine this machine. Exits with 5 when building or verifying is not possible."""
    from mlagen.doctor import examine

    with progress_bar("looking for tools"):
        report = examine()
    if as_json:
        print_json("doctor", report)
        return report.exit_code
    for group in report.groups:
        rows = [(check.name, check.state, check.version, check.detail) for check in group.checks]
        print_table(group.title, ("what", "state", "version", "where, or why not"), rows)
        say()
    for line in report.advice:
        say(line, verdict=True)
    return report.exit_code
