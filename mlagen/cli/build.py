"""`mlagen build`: a schedule and a problem become an artifact."""

from __future__ import annotations

import gc

import click

from mlagen.app.texts import BuildTexts
from mlagen.cli.options import build_options, json_option
from mlagen.cli.printing import print_facts, print_json, say
from mlagen.cli.progress import progress_bar
from mlagen.cli.replacing import force_option, forced
from mlagen.cli.types import NAME, OUT_FOLDER
from mlagen.errors import ConfigError


@click.command("build")
@click.argument("kernel", type=NAME, metavar="KERNEL|FILE.py")
@build_options
@click.option("--tuned", is_flag=True, help="Take the best knobs that mlagen tune knows.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=SIZE",
              help="With --tuned: a size of the calls that it is for.")  # fmt: skip
@click.option(
    "-o", "--out", type=OUT_FOLDER, metavar="DIR", help="Write here instead of into the store."
)
@force_option
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
    # A build leaves next to nothing in circles: to look for them takes a tenth of its time.
    gc.disable()
    click.get_current_context().call_on_close(gc.enable)
    from mlagen.app.build import keep
    from mlagen.app.summary import build_facts, build_summary
    from mlagen.app.texts import assignments, parse_sizes
    from mlagen.cli.subjects import built

    if tuned:
        from mlagen.tune.lookup import build_best

        if texts.knobs or texts.allow_unproved:
            raise ConfigError("--tuned takes neither --knob nor --allow-unproved")
        with progress_bar(f"building {kernel}"):
            artifact, choice = build_best(
                kernel,
                assignments("--set", texts.fields),
                target=texts.target,
                templates=texts.templates,
                shape=parse_sizes(shapes) or None,
            )
        say(f"knobs: {choice}", err=True)
    else:
        if shapes:
            raise ConfigError("--shape goes with --tuned")
        artifact = built(kernel, texts)
    directory = keep(artifact, out, force=forced())
    if as_json:
        print_json("build", build_summary(artifact, directory))
    else:
        print_facts(build_facts(artifact, directory))
