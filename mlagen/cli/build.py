"""`mlagen build`: a schedule and a problem become an artifact."""

from __future__ import annotations

import click

from mlagen.cli.options import build_options, json_option
from mlagen.cli.progress import progress_bar
from mlagen.cli.report import print_facts, print_json, say
from mlagen.errors import ConfigError
from mlagen.request import BuildTexts


@click.command("build")
@click.argument("kernel", metavar="KERNEL|FILE.py")
@build_options
@click.option("--tuned", is_flag=True, help="Take the best knobs that mlagen tune knows.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=SIZE",
              help="With --tuned: a size of the calls that it is for.")  # fmt: skip
@click.option("-o", "--out", metavar="DIR", help="Write here instead of into the store.")
@json_option
def command(
    kernel: str,
    texts: BuildTexts,
    tuned: bool,
    shapes: tuple[str, ...],
    out: str | None,
    as_json: bool,
) -> None:
    """Build KERNEL, a schedule's name or a schedule file, and say what it takes."""
    from mlagen.cli.subjects import built
    from mlagen.request import keep
    from mlagen.summary import build_facts, build_summary

    if tuned:
        from mlagen.tune.lookup import build_best_from_text

        if texts.knobs or texts.allow_unproved:
            raise ConfigError("--tuned takes neither --knob nor --allow-unproved")
        with progress_bar(f"building {kernel}"):
            artifact, choice = build_best_from_text(
                kernel, texts.fields, shapes, target=texts.target, templates=texts.templates
            )
        say(f"knobs: {choice}", err=True)
    else:
        if shapes:
            raise ConfigError("--shape goes with --tuned")
        artifact = built(kernel, texts)
    directory = keep(artifact, out)
    if as_json:
        print_json("build", build_summary(artifact, directory))
    else:
        print_facts(build_facts(artifact, directory))
