"""`mlagen verify`: a kernel against its oracles, in the emulator."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mlagen.cli.options import build_options, json_option, problem_option, seed_option
from mlagen.cli.printing import print_facts, print_json, print_table, say
from mlagen.cli.progress import progress_bar
from mlagen.cli.types import COUNT, NAME
from mlagen.cli.weighing import Demand, demand_options
from mlagen.errors import ConfigError
from mlagen.severity import UNPROVED, Severity, of

if TYPE_CHECKING:
    from mlagen.app.texts import BuildTexts
    from mlagen.verify import ThoroughReport, VerifyReport


@click.command("verify")
@click.argument("kernel", type=NAME, metavar="KERNEL|FILE.py|ARTIFACT_DIR")
@build_options
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=SIZE",
    help="A size of this call, such as batch, seq_len, num_keys or start_pos of prefill. Where "
    "sequences have their own: lengths=300,0,1.",
)
@click.option(
    "--sample",
    type=int,
    metavar="N",
    help="Run and compare N workgroups only, drawn from the seed: for large shapes.",
)
@problem_option
@click.option(
    "--data", metavar="KIND", help="The kind of inputs; realistic where a shape is given."
)
@seed_option
@click.option(
    "--mode",
    "modes",
    multiple=True,
    type=click.Choice(["latest", "earliest", "random"]),
    default=("latest", "earliest"),
    show_default=True,
    help="When asynchronous transfers complete; one run for each.",
)
@click.option(
    "--max",
    "shown",
    type=COUNT,
    default=10,
    show_default=True,
    help="Kinds of findings spelled out.",
)
@click.option(
    "--list-missed",
    "missed",
    is_flag=True,
    help="List the code that the call does not cover, where it has a shape.",
)
@click.option("--heads", is_flag=True, help="Print the errors of each head too.")
@click.option(
    "--prove-again",
    "again",
    is_flag=True,
    help="Run nothing: build the schedule of an ARTIFACT_DIR again, with its proof, and compare "
    "text, code and manifest. A manifest's proof is a claim; this shows it.",
)
@demand_options
@json_option
def command(
    kernel: str,
    texts: BuildTexts,
    shapes: tuple[str, ...],
    sample: int | None,
    problem_file: str | None,
    data: str | None,
    seed: int,
    modes: tuple[str, ...],
    shown: int,
    missed: bool,
    heads: bool,
    again: bool,
    demand: Demand,
    as_json: bool,
) -> None:
    """Verify an artifact, or build KERNEL and verify that.

    Without --shape, --data and --sample: by the calls that reach all of its code. With one of them
    the report says how much of the code this call covers.

    Exit code 3: a wrong result. 4: errors of the sanitizer. 6: nothing wrong, but --strict and
    something is unproved, or some of the code was not run.
    """
    if again:
        asked = {"--target": texts.target, "--set": texts.fields, "--knob": texts.knobs,
                 "--shape": shapes, "--sample": sample,
                 "--allow-unproved": texts.allow_unproved}  # fmt: skip
        if given := [name for name, value in asked.items() if value]:
            raise ConfigError(f"{', '.join(given)}: --prove-again takes them from the manifest")
        _prove_again(kernel, problem_file, texts.templates, as_json)
        return
    from mlagen.app.texts import verify_from_text
    from mlagen.cli.subjects import artifact_of

    artifact = artifact_of(kernel, texts)
    with progress_bar("emulating") as progress:
        report = verify_from_text(
            artifact,
            shapes,
            data=data,
            seed=seed,
            modes=modes,
            sample=sample,
            problem_file=problem_file,
            progress=progress,
        )
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(report.to_json()), indent=2))
    else:
        _print(report, shown, missed, heads, demand.fail_on)
    if error := report.error(demand.fail_on):
        # The findings are printed above; the error is their headline.
        raise type(error)(error.message.partition("\n")[0])
    coverage = report.coverage
    missing = coverage.total - coverage.reached if coverage is not None else 0
    demand.require_proved(len(of(report.findings, UNPROVED)), missing)


def _prove_again(
    path: str, schedule_file: str | None, templates: str | None, as_json: bool
) -> None:
    from mlagen.app.reprove import prove_again
    from mlagen.artifact import read_artifact

    with progress_bar("building again, with its proof"):
        found = prove_again(read_artifact(path), schedule_file=schedule_file, templates=templates)
    if as_json:
        print_json(
            "prove_again",
            {"artifact": path, "proved": found.proved, "same": found.same, **asdict(found)},
        )
    else:
        print_facts([("artifact", path), *found.facts()])
    if error := found.error():
        raise error


def _print(
    report: VerifyReport | ThoroughReport,
    shown: int,
    missed: bool,
    heads: bool,
    fail_on: Severity,
) -> None:
    from mlagen.locate import alike
    from mlagen.verify import ThoroughReport

    print_table("errors", report.ERROR_COLUMNS, report.error_rows())
    say()
    if heads:
        print_table("errors by head, the worst run", report.HEAD_COLUMNS, report.head_rows())
        say()
    groups = alike(report.findings)
    for finding, count in groups[:shown]:
        say(finding.render())
        if count > 1:
            say(f"  And {count - 1} more of this kind between these lines of the schedule.")
        say()
    if len(groups) > shown:
        say(f"… and {len(groups) - shown} more pairs of lines (--max {len(groups)})\n")
    several = isinstance(report, ThoroughReport)
    if (coverage := report.coverage) and not coverage.complete and (missed or several):
        rows = coverage.rows(report.artifact.manifest.schedule_file)
        title = "not covered by these calls" if several else "not covered by this call"
        print_table(title, coverage.COLUMNS, rows[:shown])
        if len(rows) > shown:
            say(f"  … and {len(rows) - shown} more operations (--max {len(rows)})")
        say()
    print_facts(report.facts(fail_on))
