"""`mlagen audit FILE.ptx`: what it prints of PTX text."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlagen.cli.progress import progress_bar
from mlagen.cli.report import print_facts, print_json, print_table, say
from mlagen.cli.text import named, read_text
from mlagen.cli.weighing import Demand
from mlagen.errors import ConfigError, FindingsError, UnprovedError
from mlagen.names import short_name
from mlagen.severity import UNPROVED, counted, failing, of

if TYPE_CHECKING:
    from mlagen.audit.ptx import EntryReport, Given, MutationReport, Report
    from mlagen.emulator.launching import LaunchFile

_GAPS = 100  # that are spelled out


def given_of(
    path: Path,
    boxes: tuple[str, ...],
    smem: int,
    threads: int,
    trips: int,
    cluster: int,
    manifest: str | None,
) -> Given:
    """What the command line and the manifest beside the text tell of the launch."""
    from mlagen.audit.ptx import Beside, Given, read_manifest

    beside_path = Path(manifest) if manifest else path.with_name("manifest.json")
    beside = read_manifest(beside_path) if manifest or beside_path.is_file() else Beside()
    return Given(_boxes(boxes), smem, threads, trips, cluster, beside)


def launched(path: Path, given: Given, launch: LaunchFile) -> Given:
    """With what a launch file tells of the kernel that it names, which alone is audited.
    ConfigError where it does not fit the kernel."""
    from mlagen.audit.launch import Launch
    from mlagen.emulator.launching import argument_bytes, entry_of
    from mlagen.ptx import read_ptx

    with named(str(path)):
        entry = entry_of(read_ptx(read_text(path)), launch.kernel)
    known = Launch(
        launch.grid,
        launch.block,
        launch.cluster,
        launch.dynamic_shared,
        argument_bytes(entry, launch),
    )
    return replace(given, launch=known, kernel=entry.name)


def audit_file(
    path: Path,
    file: str,
    given: Given,
    limit: float,
    shown: int,
    demand: Demand,
    as_json: bool,
) -> None:
    """Audit a PTX file, called `file` in messages; docs/ptx_audit.md has the rules.
    Findings that fail the `demand` raise FindingsError; UnprovedError where no path was followed,
    or where a strict `demand` is not met."""
    from mlagen.audit.ptx import audit_ptx

    text = read_text(path)
    with progress_bar(f"auditing {file}"), named(file):
        report = audit_ptx(text, given, seconds=limit)
    if as_json:
        told = asdict(report)
        for entry in told["entries"]:
            del entry["evidence"]
        print_json("audit.ptx", {"file": file, **told}, version=3)
    else:
        _print(file, report, shown)
    if wrong := failing(report.findings, demand.fail_on):
        raise FindingsError(
            f"{counted(wrong)} in {file}, first: {wrong[0].rule} at line {wrong[0].line}"
        )
    for entry in report.entries:
        if entry.unfollowed:
            raise UnprovedError(
                f"{file}: no path of {short_name(entry.function)} was followed: {entry.unfollowed}",
                hint="nothing was found, and nearly nothing was looked at: see unchecked",
            )
    demand.require_proved(len(of(report.findings, UNPROVED)), len(report.unchecked))


def mutate_file(path: Path, file: str, given: Given, sample: int, seed: int, as_json: bool) -> None:
    """Audit the mutants of a PTX file; raises FindingsError when one is not told."""
    from mlagen.audit.ptx import mutate

    text = read_text(path)
    with progress_bar("auditing mutants", long=not sample) as progress, named(file):
        mutants = mutate(text, given, sample=sample, seed=seed, progress=progress)
    _print_mutants(file, mutants, as_json)
    if mutants.missed:
        raise FindingsError(mutants.summary())


def _boxes(given: tuple[str, ...]) -> dict[str, int]:
    """`NAME=BYTES`, commas too."""
    found: dict[str, int] = {}
    for item in (piece for text in given for piece in text.split(",")):
        name, equals, size = item.partition("=")
        if not equals or not name or not (size.isascii() and size.isdigit() and len(size) < 16):
            raise ConfigError(f"--box {item!r} is not NAME=BYTES", hint="--box map_a=16384")
        found[name.strip()] = int(size)
    return found


def _print(file: str, report: Report, shown: int) -> None:
    for entry in report.entries:
        if entry.unfollowed:
            say(
                f"unchecked: {short_name(entry.function)}: no path was followed: {entry.unfollowed}"
            )
    findings = report.findings
    for finding in findings[:shown]:
        say(finding.render())
        say()
    if len(findings) > shown:
        say(f"… and {len(findings) - shown} more (--max {len(findings)})\n")
    for entry in report.entries:
        if entry.checked:
            say(
                f"checked: {short_name(entry.function)}: by the text alone, "
                f"{', '.join(entry.checked)}"
            )
    for gap in report.unchecked[:_GAPS]:
        say(f"unchecked: {gap}")
    if len(report.unchecked) > _GAPS:
        say(f"unchecked: {len(report.unchecked) - _GAPS} more (--json has all)")
    if report.unchecked:
        say()
    print_facts(
        [
            ("file", file),
            ("target", f"{report.target}, PTX {report.version}"),
            *(
                (short_name(entry.function), f"{entry.threads} threads, {_paths(entry)}")
                for entry in report.entries
            ),
            ("findings", counted(findings)),
            ("unchecked", str(len(report.unchecked))),
        ]
    )


def _paths(entry: EntryReport) -> str:
    if entry.idle:
        return "nothing that a path could show"
    return "no path followed" if entry.unfollowed else f"{entry.facts.get('paths', 0)} paths"


def _print_mutants(file: str, report: MutationReport, as_json: bool) -> None:
    if as_json:
        rows = [{**asdict(mutant), "outcome": mutant.outcome} for mutant in report.mutants]
        print_json("audit.ptx.mutants", {"file": file, "mutants": rows})
        return
    print_table(
        "mutants",
        ("line", "instruction", "change", "outcome"),
        [
            (
                str(mutant.line),
                mutant.before.partition(" ")[0].partition(".mbarrier::")[0]
                if not mutant.before.startswith("@")
                else mutant.before.split(" ")[1],
                mutant.change,
                ", ".join(mutant.rules) or f"{mutant.outcome} {mutant.excuse}".strip(),
            )
            for mutant in report.mutants
        ],
    )
    say()
    say(report.summary(), verdict=True)
    if reasons := report.why_unjudged():
        for reason in reasons:
            say(f"not judged: {reason}")
        say("`mlagen mutate` judges mutants in the emulator.")
