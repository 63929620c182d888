"""`mlagen mutate`: defects put into a kernel, and how many of them the checkers notice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mlagen.cli.options import build_options, json_option, problem_option, seed_option
from mlagen.cli.printing import print_facts, print_table, say
from mlagen.cli.progress import progress_bar
from mlagen.cli.replacing import force_option, forced
from mlagen.cli.types import NAME, OUT_FOLDER

if TYPE_CHECKING:
    from mlagen.app.texts import BuildTexts
    from mlagen.mutation import CampaignReport, SubjectSource

CLASSES = ("waits", "barriers", "nops", "swizzle", "arrivals", "fences", "registers", "phases",
           "descriptors", "copies", "values")  # fmt: skip
JUDGES = ("emulator", "audit")


@click.command("mutate")
@click.argument("kernel", type=NAME, metavar="KERNEL|FILE.py|ARTIFACT_DIR|FILE.ptx")
@build_options
@click.option(
    "--class",
    "classes",
    multiple=True,
    type=click.Choice(CLASSES),
    help="What is mutated; may be given several times.  [default: all that the target has, but"
    " values]",
)
@click.option("--sample", "count", type=int, metavar="N", help="Judge N of the mutants only.")
@seed_option
@click.option("--processes", default=2, show_default=True, help="That judge at the same time.")
@click.option(
    "--judge",
    "judges",
    multiple=True,
    type=click.Choice(JUDGES),
    help="Who judges mutants of PTX.  [default: both]",
)
@click.option(
    "--launch",
    "launches",
    multiple=True,
    metavar="FILE",
    help="How FILE.ptx is launched: a launch file; may be given several times.",
)
@click.option("--allow-outside", is_flag=True, help="The launch files' paths may lead anywhere.")
@problem_option
@click.option(
    "-o",
    "--out",
    type=OUT_FOLDER,
    metavar="DIR",
    help="Write the report and the missed mutants here.",
)
@force_option
@json_option
def command(
    kernel: str,
    texts: BuildTexts,
    classes: tuple[str, ...],
    count: int | None,
    seed: int,
    processes: int,
    out: str | None,
    as_json: bool,
    **more: Any,
) -> None:
    """Make mutants of KERNEL and judge by them who is to notice: the emulator and its sanitizer,
    for PTX the audit too, or, for --class values, what `mlagen verify` runs by default.

    Each mutant is one defect in the assembly text. FILE.ptx may be anyone's; --launch says how it
    runs. Exit code 4: some mutant was missed.
    """
    import msgspec

    from mlagen.mutation import missed_files, mutate

    source, text, suffix = _source(kernel, texts, **more)
    with progress_bar("judging mutants", long=count is None) as progress:
        report = mutate(
            source,
            classes=classes,
            count=count,
            seed=seed,
            processes=processes,
            progress=progress,
        )
    told = msgspec.json.format(msgspec.json.encode(report.to_json()), indent=2)
    if out is not None:
        from pathlib import Path

        from mlagen.disk import require_own, write_files

        files = {**missed_files(text, suffix, report), "mutate.json": told}
        for name in () if forced() else files:
            require_own(Path(out) / name)
        write_files(Path(out), files)
    if as_json:
        click.echo(told)
    else:
        _print(report)
    if error := report.error():
        raise error


def _source(
    kernel: str,
    texts: BuildTexts,
    *,
    judges: tuple[str, ...],
    launches: tuple[str, ...],
    allow_outside: bool,
    problem_file: str | None,
) -> tuple[SubjectSource, str, str]:
    """What is mutated, its text, and the suffix of a file of it."""
    from pathlib import Path

    from mlagen.errors import ConfigError

    if kernel.endswith(".ptx"):
        from mlagen.emulator.launching import Files
        from mlagen.mutation.ptx.subject import LaunchSource, text_of

        if not launches:
            raise ConfigError(
                f"{kernel} needs a launch file", hint=f"mlagen emulate {kernel} --template"
            )
        files = Files(allow_outside=allow_outside)
        source = LaunchSource(Path(kernel), tuple(map(Path, launches)), files, judges=judges)
        return source, text_of(Path(kernel)), ".ptx"
    if launches:
        raise ConfigError("--launch is of a PTX file; artifacts run on the calls of verify")
    from mlagen.cli.subjects import artifact_of
    from mlagen.mutation import ArtifactSource
    from mlagen.targets.registry import vendor_of

    artifact = artifact_of(kernel, texts)
    problem = problem_file or (kernel if kernel.endswith(".py") else None)
    suffix = Path(vendor_of(artifact.manifest.target).text).suffix
    return ArtifactSource(artifact, problem, judges), artifact.text, suffix


def _print(report: CampaignReport) -> None:
    print_table("mutants", report.columns, report.rows())
    say()
    for title, verdicts in (("equivalent", report.equivalents()), ("missed", report.misses())):
        if verdicts:
            say(title)
            for place, why in verdicts:
                say(f"  {place}: {why}")
            say()
    print_facts(report.facts())
