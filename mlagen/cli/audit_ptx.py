"""`mlagen audit FILE.ptx`: what it prints of PTX text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mlagen.cli.printing import print_facts, print_json, print_table, say
from mlagen.cli.progress import progress_bar
from mlagen.cli.ptx_files import named, read_text
from mlagen.cli.side_by_side import side_by_side
from mlagen.cli.weighing import Demand, line_of
from mlagen.errors import ConfigError, FindingsError, MissingError, MlagenError, UnprovedError
from mlagen.names import short_name
from mlagen.severity import UNPROVED, counted, failing, of, rank

if TYPE_CHECKING:
    from mlagen.audit.ptx import EntryReport, Given, MutationReport, Report
    from mlagen.emulator.launching import LaunchFile

_GAPS = 100  # that are spelled out


@dataclass(frozen=True)
class PtxAuditRequest:
    """How PTX is to be audited. `manifest`: its file, None for the one beside the text. `seconds`:
    of CPU time a file. `file`: how it is launched. `advice`: also what costs speed only."""

    boxes: tuple[str, ...] = ()
    smem: int = 0
    threads: int = 0
    trips: int = 0
    cluster: int = 0
    manifest: str | None = None
    seconds: float = 0
    file: LaunchFile | None = None
    advice: bool = False

    def given(self, path: Path) -> Given:
        """What the command line, the manifest beside the text and the launch file tell of the
        launch. ConfigError where they do not fit the kernel."""
        from mlagen.audit.ptx import Beside, Given, read_manifest

        beside_path = Path(self.manifest) if self.manifest else path.with_name("manifest.json")
        known = self.manifest or beside_path.is_file()
        beside = read_manifest(beside_path) if known else Beside()
        boxes = _boxes(self.boxes)
        given = Given(boxes, self.smem, self.threads, self.trips, self.cluster, beside)
        return given if self.file is None else _launched(path, given, self.file)


def _launched(path: Path, given: Given, launch: LaunchFile) -> Given:
    """With what a launch file tells of the kernel that it names, which alone is audited."""
    from mlagen.audit.launch import KnownLaunch
    from mlagen.emulator.launching import argument_bytes, entry_of
    from mlagen.ptx import read_ptx

    with named(str(path)):
        entry = entry_of(read_ptx(read_text(path)), launch.kernel)
    known = KnownLaunch(
        launch.grid,
        launch.block,
        launch.cluster,
        launch.dynamic_shared,
        argument_bytes(entry, launch),
    )
    return replace(given, launch=known, kernel=entry.name)


@dataclass(frozen=True)
class _Audited:
    """A file, called so in messages, with its report; or why it could not be read."""

    file: str
    report: Report | None
    error: MlagenError | None = None


def audit_files(
    paths: Sequence[tuple[Path, str]],
    asked: PtxAuditRequest,
    jobs: int,
    shown: int,
    demand: Demand,
    as_json: bool,
) -> None:
    """Audit PTX files, each with what it is called in messages; docs/ptx_audit.md has the rules.
    Several have a line each. Findings that fail the `demand` raise FindingsError; UnprovedError
    where no path was followed, or where a strict `demand` is not met."""
    if jobs < 1:
        raise ConfigError(f"--jobs {jobs}: at least one process audits")
    done: list[_Audited] = []
    for one in _audited(paths, asked, jobs):
        if one.report is None:
            assert one.error is not None
            if len(paths) == 1:
                raise one.error
            say(one.error.message, err=True, verdict=True)
        elif as_json:
            _print_json(one.file, one.report, alone=len(paths) == 1)
        elif len(paths) == 1:
            _print(one.file, one.report, shown)
        else:
            empty = any(entry.unfollowed for entry in one.report.entries)
            more = ", no path followed" if empty else ""
            left = len(one.report.unchecked)
            say(line_of(one.file, one.report.findings, left, more), verdict=True)
        done.append(one)
    _print_rules(done if len(paths) > 1 and not as_json else [])
    _judge(done, demand)


def _judge(done: Sequence[_Audited], demand: Demand) -> None:
    """Ends with the error that the files' reports ask for."""
    reports = [(one.file, one.report) for one in done if one.report is not None]
    wrong = [(file, f) for file, r in reports for f in failing(r.findings, demand.fail_on)]
    if wrong:
        files = reports[0][0] if len(done) == 1 else f"{len(done)} files"
        file, first = min(wrong, key=lambda pair: rank(pair[1].severity))
        within = "" if len(done) == 1 else f" of {file}"
        found = counted([finding for _, finding in wrong])
        raise FindingsError(f"{found} in {files}, first: {first.rule} at line {first.line}{within}")
    if unread := next((one.error for one in done if one.error is not None), None):
        raise MissingError(f"not all files could be read, first: {unread.message}")
    for file, report in reports:
        for entry in report.entries:
            if entry.unfollowed:
                name = short_name(entry.function)
                raise UnprovedError(
                    f"{file}: no path of {name} was followed: {entry.unfollowed}",
                    hint="nothing was found, and nearly nothing was looked at: see unchecked",
                )
    unproved = sum(len(of(report.findings, UNPROVED)) for _, report in reports)
    demand.require_proved(unproved, sum(len(report.unchecked) for _, report in reports))


def _audited(
    paths: Sequence[tuple[Path, str]], asked: PtxAuditRequest, jobs: int
) -> Iterator[_Audited]:
    """The files one after the other, in the order given."""
    work = [(path, file, asked) for path, file in paths]
    if jobs == 1 or len(work) == 1:
        for one in work:
            with progress_bar(f"auditing {one[1]}"):
                done = _audit(one)
            yield done
        return
    yield from side_by_side(_audit, work, jobs, "auditing files")


def _audit(work: tuple[Path, str, PtxAuditRequest]) -> _Audited:
    from mlagen.audit.ptx import advise_ptx, audit_ptx

    path, file, asked = work
    audit = advise_ptx if asked.advice else audit_ptx
    try:
        text = read_text(path)
        given = asked.given(path)
        with named(file):
            report = audit(text, given, seconds=asked.seconds)
    except MlagenError as error:
        return _Audited(file, None, error)
    told = tuple(replace(entry, evidence=None) for entry in report.entries)
    return _Audited(file, replace(report, entries=told))


def _print_json(file: str, report: Report, *, alone: bool) -> None:
    told = asdict(report)
    for entry in told["entries"]:
        del entry["evidence"]
    print_json("audit.ptx", {"file": file, **told}, version=3, a_line=not alone)


def _print_rules(done: Sequence[_Audited]) -> None:
    """How often each rule is broken, in all files."""
    from mlagen.audit.ptx import RULES

    counts = Counter((f.rule, f.severity) for one in done if one.report
                     for f in one.report.findings)  # fmt: skip
    if counts:
        rows = [(rule, sev, str(n), RULES[rule]) for (rule, sev), n in sorted(counts.items())]
        print_table("rules", ("rule", "severity", "findings", "demands"), rows)


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
    for entry in report.entries:
        if entry.unadvised:
            say(f"no advice: {short_name(entry.function)}: {entry.unadvised}")
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
