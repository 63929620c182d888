"""`mlagen build`: a schedule and a problem become an artifact."""

from __future__ import annotations

import click

from mlagen.cli.options import build_options, json_option
from mlagen.cli.report import print_facts, print_json


@click.command("build")
@click.argument("kernel", metavar="KERNEL|FILE.py")
@build_options
@click.option("-o", "--out", metavar="DIR", help="Write here instead of into the store.")
@json_option
def command(
    kernel: str,
    target: str | None,
    fields: tuple[str, ...],
    knobs: tuple[str, ...],
    templates: str | None,
    allow_unproved: bool,
    out: str | None,
    as_json: bool,
) -> None:
    """Build KERNEL, a schedule's name or a schedule file, and say what it takes."""
    from mlagen.request import build_from_text, keep
    from mlagen.summary import build_facts, build_summary

    artifact = build_from_text(
        kernel,
        fields,
        knobs,
        target=target,
        templates=templates,
        allow_unproved=allow_unproved,
    )
    directory = keep(artifact, out)
    if as_json:
        print_json("build", build_summary(artifact, directory))
    else:
        print_facts(build_facts(artifact, directory))
