"""`mlagen audit FILE.co…`: what it prints of gfx950 code objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mlagen.cli.printing import print_facts, print_table, say
from mlagen.cli.progress import ProgressBar, progress_bar
from mlagen.cli.side_by_side import side_by_side
from mlagen.cli.weighing import Demand, line_of
from mlagen.errors import ConfigError, FindingsError, MissingError, MlagenError, UnprovedError
from mlagen.names import short_name
from mlagen.severity import (
    ADVICE,
    ERROR,
    LETTER,
    UNPROVED,
    counted,
    failing,
    of,
    rank,
)
from mlagen.untrusted import printable

if TYPE_CHECKING:
    from mlagen.audit.gfx950 import Finding, KernelAudit
    from mlagen.audit.gfx950.budget import Watch
    from mlagen.audit.launch import KnownLaunch
    from mlagen.binary import CodeObject, KernelCode
    from mlagen.emulator.launching import LaunchFile

SCHEMA = "mlagen.audit.gfx950/3"
_AROUND = 2  # instructions shown before and after the two of a finding


@dataclass(frozen=True)
class AuditedFile:
    """One file's kernels, each with its disassembly by offset where that is printed; or why it
    could not be read."""

    file: str
    kernels: tuple[tuple[KernelAudit, dict[int, str]], ...]
    error: MlagenError | None = None


@dataclass(frozen=True)
class ObjectAuditRequest:
    """How an object is to be audited. `kernel`: None for all; `threads`: of a workgroup, 0 where
    the object says; `limit`: steps of each part, 0 for the default. `file`: how it is launched;
    `lds`: LDS asked for at launch, None where nobody says."""

    kernel: str | None = None
    threads: int = 0
    limit: int = 0
    file: LaunchFile | None = None
    lds: int | None = None

    def chosen(self, code: CodeObject) -> list[KernelCode]:
        """The kernels of an object that are audited: those of the launch file, where there is one.
        ConfigError where it names another than `kernel`."""
        named = self.kernel
        if self.file is not None:
            if named is not None and self.file.kernel not in (None, named):
                raise ConfigError(f"--kernel {named}, but the launch file has {self.file.kernel}")
            return [code.kernel(named or self.file.kernel)]
        return list(code.kernels.values()) if named is None else [code.kernel(named)]

    def launch(self, kernel: KernelCode) -> KnownLaunch:
        """What is known of a kernel's launch. ConfigError for a launch file that does not fit."""
        from mlagen.audit.launch import KnownLaunch

        if self.file is None:
            return KnownLaunch(dynamic_bytes=self.lds)
        from mlagen.emulator.launching import argument_bytes

        if self.lds is not None and self.lds != self.file.dynamic_lds:
            raise ConfigError(
                f"--lds {self.lds}, but the launch file asks for {self.file.dynamic_lds} bytes"
            )
        arguments = argument_bytes(kernel, self.file)
        grid, block = self.file.grid, self.file.block
        return KnownLaunch(grid, block, None, self.file.dynamic_lds, arguments)


def audit_files(
    paths: Sequence[Path],
    asked: ObjectAuditRequest,
    advice: bool,
    jobs: int,
    shown: int,
    demand: Demand,
    as_json: bool,
) -> None:
    """Audit every file. Findings that fail the `demand` raise FindingsError; UnprovedError where
    one was not covered for want of steps, or where a strict `demand` is not met."""
    if jobs < 1:
        raise ConfigError(f"--jobs {jobs}: at least one process audits")
    from mlagen.audit.gfx950 import RULES

    counts: Counter[tuple[str, str]] = Counter()
    wrong: list[Finding] = []
    unproved, unchecked, short = 0, 0, ""
    unread: MlagenError | None = None
    listed = as_json or len(paths) == 1
    for done in _audited(paths, asked, jobs, listed=listed):
        if done.error is not None:
            if len(paths) == 1:
                raise done.error
            named = done.error.message.startswith(f"{done.file}: ")
            told = done.error.message if named else f"{done.file}: {done.error.message}"
            say(told, err=True, verdict=True)
            unread = unread or done.error
        for audit, listing in done.kernels:
            for finding in audit.findings:
                counts[finding.rule, finding.severity] += 1
            wrong += failing(audit.findings, demand.fail_on)
            unproved += len(of(audit.findings, UNPROVED))
            unchecked += len(audit.unchecked)
            if audit.limited:
                short = short or audit.kernel
            if as_json:
                _print_lines(done.file, audit, listing)
            elif len(paths) == 1:
                _print(audit, listing, advice, shown)
            else:
                _print_line(done.file, audit)
    if not as_json and len(paths) > 1:
        rows = [(rule, sev, str(n), RULES[rule]) for (rule, sev), n in sorted(counts.items())]
        print_table("rules", ("rule", "severity", "findings", "demands"), rows)
    if wrong:
        first = min(wrong, key=lambda finding: rank(finding.severity))
        files = "1 file" if len(paths) == 1 else f"{len(paths)} files"
        place = f"{first.rule} at {first.pc:#x} of {short_name(first.kernel)}"
        raise FindingsError(f"{counted(wrong)} in {files}, first: {place}")
    if unread is not None:
        raise MissingError(f"not all files could be read, first: {unread.message}")
    if short:
        raise UnprovedError(
            f"the audit of {short_name(short)} ran out of steps: nothing was found, but not all "
            "was covered",
            hint="see unchecked; --limit STEPS takes more",
        )
    demand.require_proved(unproved, unchecked)


def mutate_file(
    path: Path, asked: ObjectAuditRequest, sample: int, seed: int, as_json: bool
) -> None:
    """Audit the mutants of one kernel; raises FindingsError when one is not told."""
    from mlagen.audit.gfx950 import DEFAULT_LIMIT, audit_mutants
    from mlagen.binary import read_code_object

    loaded = read_code_object(path)
    code = loaded.kernel(asked.kernel) if asked.file is None else asked.chosen(loaded)[0]
    with progress_bar("auditing mutants", long=not sample) as progress:
        judged = audit_mutants(
            code,
            threads=asked.threads,
            launch=asked.launch(code),
            sample=sample,
            seed=seed,
            limit=asked.limit or DEFAULT_LIMIT,
            progress=progress,
        )
    if as_json:
        for one in judged:
            told = [asdict(finding) for finding in one.told]
            _line({"type": "mutant", "file": str(path), **asdict(one.mutant), "told": told})
    counts: Counter[tuple[str, str]] = Counter()
    silent: Counter[tuple[str, str]] = Counter()
    for one in judged:
        counts[one.mutant.kind, one.mutant.operator] += 1
        silent[one.mutant.kind, one.mutant.operator] += not one.told
    if not as_json:
        rows = [
            (kind, operator, str(n), str(n - silent[kind, operator]))
            for (kind, operator), n in sorted(counts.items())
        ]
        print_table("mutants", ("kind", "operator", "made", "told"), rows)
        for one in judged:
            if not one.told:
                say(f"not told: {one.mutant.pc:#07x}  {one.mutant.before}: {one.mutant.what}")
    missed = sum(silent.values())
    if missed:
        raise FindingsError(
            f"{missed} of {len(judged)} mutants are not told",
            hint="a wait may be stricter than needed (--advice), a barrier may be one too many",
        )


def _audited(
    paths: Sequence[Path],
    asked: ObjectAuditRequest,
    jobs: int,
    *,
    listed: bool,
) -> Iterator[AuditedFile]:
    """The files one after the other, in the order given."""
    work = [(str(path), asked, listed) for path in paths]
    if jobs == 1 or len(work) == 1:
        for one in work:
            with progress_bar(f"auditing {one[0]}") as progress:
                done = _audit(one, _watch(progress))
            yield done
        return
    yield from side_by_side(_audit, work, jobs, "auditing files")


def _watch(progress: ProgressBar | None) -> Watch | None:
    if progress is None:
        return None
    return lambda part, steps: progress.say(f"{part}: {steps / 1e6:.1f} M steps")


def _audit(work: tuple[str, ObjectAuditRequest, bool], watch: Watch | None = None) -> AuditedFile:
    from mlagen.audit.gfx950 import DEFAULT_LIMIT, audit_kernel
    from mlagen.binary import read_code_object

    file, asked, listed = work
    try:
        loaded = read_code_object(file)
        found = []
        for one in asked.chosen(loaded):
            listing = {ins.offset: str(ins) for ins in one.instructions} if listed else {}
            limit = asked.limit or DEFAULT_LIMIT
            launch = asked.launch(one)
            audit = audit_kernel(one, asked.threads, launch=launch, limit=limit, watch=watch)
            found.append((audit, listing))
        return AuditedFile(file, tuple(found))
    except MlagenError as error:
        return AuditedFile(file, (), error)


def _around(listing: dict[int, str], *places: int | None) -> list[tuple[int, str, bool]]:
    """Offset, text and whether it is one of `places`, for the instructions near them."""
    offsets = list(listing)
    index_of = {offset: index for index, offset in enumerate(offsets)}
    wanted = set()
    for place in places:
        if place is not None:
            at = index_of[place]
            wanted |= set(range(max(0, at - _AROUND), min(len(offsets), at + _AROUND + 1)))
    return [(offsets[i], listing[offsets[i]], offsets[i] in places) for i in sorted(wanted)]


def _print(audit: KernelAudit, listing: dict[int, str], advice: bool, shown: int) -> None:
    wanted = audit.findings if advice else of(audit.findings, ERROR, UNPROVED, LETTER)
    for finding in wanted[:shown]:
        say(f"{finding.severity}[{finding.rule}] {short_name(finding.kernel)}: {finding.message}.")
        if finding.needs:
            at = f" at {finding.changes[0]:#x}" if finding.changes else ""
            if len(finding.changes) > 1:
                more = len(finding.changes) - 1
                at += f" and at {more} more {'place' if more == 1 else 'places'}"
            say(f"  {'enough' if finding.severity == ADVICE else 'needs'}: {finding.needs}{at}")
        last = None
        for offset, text, is_place in _around(
            listing, finding.pc, finding.other_pc, *finding.changes[:1]
        ):
            if last is not None and offset not in (last + 4, last + 8, last + 12, last + 16):
                say("                    …")
            mark = ">" if is_place else " "
            say(f"  {mark} {offset:#07x} {audit.entry + offset:#8x}  {text}")
            last = offset
        say()
    if len(wanted) > shown:
        say(f"… and {len(wanted) - shown} more (--max {len(wanted)})\n")
    for gap in audit.unchecked:
        say(f"unchecked: {gap}")
    if audit.unchecked:
        say()
    print_facts(_facts(audit))


def _facts(audit: KernelAudit) -> list[tuple[str, str]]:
    by_rule: Counter[str] = Counter(f.rule for f in audit.findings)
    rules = ", ".join(f"{number} {rule}" for rule, number in sorted(by_rule.items()))
    return [
        ("kernel", audit.kernel),
        ("entry", f"{audit.entry:#x} in the ELF file: the second column of addresses"),
        ("workgroup", f"{audit.threads} threads"),
        ("instructions", str(audit.instructions)),
        ("registers", f"{audit.vgprs} VGPR (a0 is {audit.accum_offset}), {audit.sgprs} SGPR"),
        ("waves a SIMD", str(audit.waves_per_simd)),
        ("LDS", f"{audit.lds_bytes} bytes"),
        ("scratch", f"{audit.scratch_bytes} bytes"),
        *(("banks", told) for told in [_banks(audit)] if told),
        ("waits", str(len(audit.waits))),
        ("findings", counted(audit.findings) if audit.findings else "0 errors"),
        ("errors show in", f"{sum(len(f.places) for f in audit.errors)} places"),
        ("by rule", rules or "none"),
        ("covered", _covered(audit)),
    ]


def _banks(audit: KernelAudit) -> str:
    """Bank conflicts of the LDS instructions whose cycles are known, "" where there are none of
    these: the worst of them. Of others nothing is said."""
    known = [(one.cycles, one.ideal, one) for one in (audit.lds.accesses if audit.lds else ())
             if one.cycles is not None and one.ideal is not None]  # fmt: skip
    slow = [(cycles - ideal, cycles, ideal, one) for cycles, ideal, one in known if cycles > ideal]
    if not known:
        return ""
    if not slow:
        return f"no conflicts in the {len(known)} LDS instructions whose cycles are known"
    _, cycles, ideal, worst = max(slow, key=lambda row: row[0])
    name = worst.asm.partition(" ")[0]
    return (
        f"conflicts in {len(slow)} of {len(known)} LDS instructions whose cycles are known, at "
        f"worst {cycles} cycles for {ideal} ({name} at {worst.pc:#x})"
    )


def _covered(audit: KernelAudit) -> str:
    if not audit.unchecked:
        return "all of it"
    return f"not all of it: {len(audit.unchecked)} unchecked" + ", limit" * audit.limited


def _print_line(file: str, audit: KernelAudit) -> None:
    limit = ", out of steps" if audit.limited else ""
    say(line_of(file, audit.findings, len(audit.unchecked), limit), verdict=True)


def _print_lines(file: str, audit: KernelAudit, listing: dict[int, str]) -> None:
    """JSON lines: the kernel, then one line for each finding, each with the schema's name."""
    facts = asdict(audit)
    findings: list[Finding] = list(audit.findings)
    del facts["findings"]
    numbers = Counter(finding.severity for finding in findings)
    facts |= {"errors": numbers[ERROR], "unproved": numbers[UNPROVED], "letter": numbers[LETTER],
              "advice": numbers[ADVICE]}  # fmt: skip
    _line({"type": "kernel", "file": file, **facts})
    for finding in findings:
        around = [
            {"pc": offset, "address": audit.entry + offset, "asm": text, "here": here}
            for offset, text, here in _around(
                listing, finding.pc, finding.other_pc, *finding.changes[:1]
            )
        ]
        told: dict[str, Any] = {**asdict(finding), "around": around}
        for place in (told, *told["places"]):
            other = place["other_pc"]
            place["address"] = audit.entry + place["pc"]
            place["other_address"] = None if other is None else audit.entry + other
        _line({"type": "finding", "file": file, "count": len(finding.places), **told})


def _line(fields: dict[str, Any]) -> None:
    click.echo(printable(msgspec.json.encode({"schema": SCHEMA, **fields}).decode()))
