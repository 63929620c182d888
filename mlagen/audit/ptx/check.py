"""The audit of a PTX file: the static rules, and every path of one block of each kernel."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mlagen.audit.launch import NOT_KNOWN, KnownLaunch
from mlagen.audit.ptx import resources, tensor, wgmma
from mlagen.audit.ptx.boxes import GUESS as BOXES
from mlagen.audit.ptx.boxes import solve
from mlagen.audit.ptx.causes import by_cause
from mlagen.audit.ptx.explore import Explored, explore, told_unreached, unreached
from mlagen.audit.ptx.program import EntryProgram, Setting
from mlagen.audit.ptx.protocol import PROTOCOL
from mlagen.audit.ptx.report import EntryReport, Evidence, Finding, Notes, Report
from mlagen.audit.ptx.source import Beside
from mlagen.errors import ConfigError, UnsupportedError
from mlagen.ptx import Entry, Instruction, Kind, Module, read_ptx, wellformed
from mlagen.ptx.effects import read
from mlagen.severity import ERROR, of
from mlagen.targets.sm_90a.limits import SM_90A
from mlagen.untrusted import Spent, within

# A block without .reqntid and .maxntid is taken to be one warpgroup.
DEFAULT_THREADS = 128
_CLUSTERS = (1, 2)  # blocks, where nobody tells them
MAX_CLUSTER = 16  # blocks; more than 8 only where a launch allows what is not portable
_MODELLED = (SM_90A.name, SM_90A.name.removesuffix("a"))
# Of an entry whose paths are not followed: what is looked at, and what is not.
_BY_TEXT = ("the form of instructions", "the size of shared memory", "numbers of setmaxnreg")
_TEXT_ONLY = "only its text was read, as it has tcgen05, whose commits are not modelled"
_NOT_BY_TEXT = (
    "; not looked at: mbarriers, named barriers, the order of accesses to shared and tensor memory,"
    " fences, copies, divergence"
)


@dataclass(frozen=True, slots=True)
class Given:
    """What a caller tells of the launch. `boxes`: bytes that a copy through a tensor map moves, by
    the map's parameter. `shared_bytes`: static and dynamic; 0: not known. `threads`: of a block,
    where the entry does not say. `trips`: how many rounds of a loop of unknown length are followed;
    0 derives it from the kernel's ring (twice its slots and two more). `cluster`: blocks of a CTA
    cluster; 0: as the entry says. `launch`: what is known of it; what is said besides has to agree
    with it. `kernel`: the one entry that is audited, "" for all."""

    boxes: Mapping[str, int] = field(default_factory=dict)
    shared_bytes: int = 0
    threads: int = 0
    trips: int = 0
    cluster: int = 0
    beside: Beside = field(default_factory=Beside)
    launch: KnownLaunch = NOT_KNOWN
    kernel: str = ""

    def filled(self) -> Given:
        """With what the manifest beside says, where the caller says nothing."""
        return replace(
            self,
            boxes={**self.beside.boxes, **self.boxes},
            shared_bytes=self.shared_bytes or self.beside.shared_bytes or 0,
            threads=self.threads or self.beside.threads,
        )


_NOTHING = Given()


def audit_ptx(
    text: str, given: Given = _NOTHING, *, first: bool = False, seconds: float = 0
) -> Report:
    """Audits PTX text. `first`: one path with an error is enough. `seconds`: of CPU time, after
    which what was not looked at is told as a gap; 0: any.
    Raises UnsupportedError where the text is no PTX, or is not read within the seconds;
    ConfigError for threads that no block has."""
    started = time.process_time()
    if not 0 <= given.threads <= SM_90A.max_block_threads:
        raise ConfigError(
            f"{given.threads} threads of a block; it has 1 to {SM_90A.max_block_threads}"
        )
    try:
        with within(seconds):
            module = read_ptx(text)
    except Spent as spent:
        raise UnsupportedError(f"reading this text met {spent}") from None
    left = max(seconds - (time.process_time() - started), 0.1) if seconds else 0
    return audit_module(module, given.filled(), first=first, seconds=left)


def audit_module(
    module: Module,
    given: Given,
    *,
    first: bool = False,
    evidence: bool = False,
    seconds: float = 0,
) -> Report:
    """Audits what `read_ptx` read. `evidence`: also gather what tells equivalent mutants."""
    audits = [
        _Audit(module, entry, given, first, evidence)
        for entry in module.entries
        if given.kernel in ("", entry.name)
    ]
    reports: list[EntryReport] = []
    try:
        with within(seconds):
            for audit in audits:
                try:
                    reports.append(audit.report())
                except (RecursionError, MemoryError) as error:
                    deep = isinstance(error, RecursionError)
                    reports.append(audit.ended("nesting that is too deep" if deep else "no memory"))
    except Spent as spent:
        reports += [audit.ended(str(spent)) for audit in audits[len(reports) :]]
    return Report(target=module.target, version=module.version, entries=tuple(reports))


class _Audit:
    """The audit of one entry."""

    def __init__(
        self, module: Module, entry: Entry, given: Given, first: bool, evidence: bool
    ) -> None:
        self.module, self.entry, self.given = module, entry, given
        self.first, self.wants_evidence = first, evidence
        self.notes = Notes(entry.name)
        self.facts: dict[str, Any] = {}
        self.evidence: Evidence | None = None
        self.threads = 0
        self.program: EntryProgram | None = None
        self.told_cluster = False  # somebody says its blocks
        self.guess = ""  # what the paths that are followed rest on
        self.certain: dict[tuple[object, ...], Finding] = {}  # what was found without it

    def ended(self, why: str) -> EntryReport:
        """What is known of an entry whose audit could not go on."""
        self.evidence = None
        self.facts["paths"] = self.notes.paths
        if self.guess:
            self._rest(set())
        told = f"the audit ended before it had followed all of this kernel: it met {why}"
        left = told_unreached(self.program, self.notes.reached) if self.program else ""
        if not self.notes.paths:
            self.notes.unfollowed = f"it met {why}"
        self.notes.unchecked = {
            told: None, **({left: None} if left else {}), **self.notes.unchecked
        }  # fmt: skip
        return self._told()

    def report(self) -> EntryReport:
        """Follows the rules, then the paths."""
        if self.module.target not in _MODELLED:
            self.notes.gap(f"target {self.module.target}: the rules are those of sm_90a")
        wellformed.check(self.entry)
        program = self.program = EntryProgram(self.entry)
        setting = self._setting(program)
        self.threads = setting.threads
        resources.check(program, setting.shared_bytes, setting.threads, self.notes)
        spare = wgmma.check(program.graph, program.wgmma, self.notes)
        self.facts["paths"] = 0
        if looked_at := tensor.check(self.entry, program.graph, self.notes):
            self.notes.checked = (*_BY_TEXT, *looked_at)
            self.notes.unfollow(_TEXT_ONLY, _NOT_BY_TEXT)
            return self._told()
        protocol = any(kind in PROTOCOL - {Kind.EXIT, Kind.TRAP} for kind in program.graph.kinds)
        if setting.shared_bytes > resources.FOLLOWED:
            self.notes.unfollow(f"no block has {setting.shared_bytes} bytes of shared memory")
        elif not (protocol or self.wants_evidence):
            self.notes.idle = True
        elif not self.told_cluster and _reaches_another(self.entry):
            self._with_a_cluster(program, setting, spare)
        else:
            self._follow(program, setting, spare, first=self.first)
        return self._told()

    def _follow(
        self, program: EntryProgram, setting: Setting, spare: list[Instruction], *, first: bool
    ) -> None:
        """Follows the paths; `first`: one with an error is enough."""
        if not (first and self.notes.wrong):
            setting = solve(program, setting, self.notes)
            self.facts["boxes"] = dict(setting.boxes)
        if not (first and self.notes.wrong):
            before = dict(self.notes.found)
            self._paths(program, setting, spare, first)
            if any(f.guess == BOXES for f in before.values()):
                for key, finding in self.notes.found.items():
                    if finding.rule.startswith("smem-") and finding.severity == ERROR:
                        self.notes.found[key] = before.get(key, finding.resting_on(BOXES))
            if not (self.notes.paths or self.notes.wrong):
                self.notes.unfollow("none was followed to its end")

    def _with_a_cluster(
        self, program: EntryProgram, setting: Setting, spare: list[Instruction]
    ) -> None:
        """Follows the paths with as many blocks as make a kernel without an error, which nobody
        told: the kernel was written for some number. With each of them wrong, it is wrong."""
        told, self.certain = self.notes, dict(self.notes.found)

        def follow(blocks: int, first: bool) -> Notes:
            self.notes = told.copy()
            self.guess = _guess(blocks)
            self.facts["cluster"] = blocks
            self.notes.assume(self.guess)
            self._follow(program, replace(setting, blocks=blocks), spare, first=first)
            return self.notes

        if told.wrong and self.first:
            return
        for blocks in _CLUSTERS:
            if self.first or not follow(blocks, True).wrong:
                break
        if self.notes.wrong or self.first:
            tried = {blocks: follow(blocks, self.first) for blocks in _CLUSTERS}
            wrong = {blocks: _places(of(notes.found.values(), ERROR))
                     for blocks, notes in tried.items()}  # fmt: skip
            blocks = min(wrong, key=lambda one: len(wrong[one]))
            self.notes, self.facts["cluster"], self.guess = tried[blocks], blocks, _guess(blocks)
            if wrong[blocks]:
                always = set.intersection(*wrong.values())
                self._rest(always or wrong[blocks])
        self.guess = ""

    def _rest(self, always: set[tuple[str, int]]) -> None:
        """Errors that were not found without the guess rest on it, but those at the rules and
        lines of `always`."""
        for key, finding in self.notes.found.items():
            rests = key not in self.certain and (finding.rule, finding.line) not in always
            if rests and finding.severity == ERROR:
                self.notes.found[key] = finding.resting_on(self.guess)

    def _told(self) -> EntryReport:
        findings = [
            replace(f, message=self._short(f.message), needs=self._short(f.needs),
                    when=self._short(f.when))
            for f in by_cause(self.notes.found.values())
        ]  # fmt: skip
        if boxes := self.facts.get("boxes"):
            self.facts["boxes"] = {self._short(name): size for name, size in boxes.items()}
        return EntryReport(
            self.entry.name,
            self.threads,
            tuple(placed(finding, self.module, self.given.beside) for finding in findings),
            tuple(map(self._short, self.notes.unchecked)),
            self.facts,
            self.evidence,
            self.notes.unfollowed,
            self.notes.checked,
            self.notes.idle,
        )

    def _short(self, text: str) -> str:
        """Without the kernel's name, which compilers put before those of its parameters."""
        return text.replace(f"{self.entry.name}_param_", "param_")

    def _setting(self, program: EntryProgram) -> Setting:
        entry, given, notes = self.entry, self.given, self.notes
        check_launch(entry, given.launch, given.threads, given.cluster)
        block = given.launch.block or entry.block
        threads = math.prod(block) if block else given.threads
        if not threads:
            threads = DEFAULT_THREADS
            notes.assume(f"a block was taken to have {threads} threads (--threads tells)")
        elif not entry.exact_threads and not given.launch.block:
            self.facts["threads_from"] = ".maxntid" if entry.block else "given"
            if _wants_shape(entry):
                shape = " x ".join(map(str, entry.block or (threads,)))
                notes.assume(f"a block was taken to have {shape} threads (--launch tells)")
        symbols, total = self._shared()
        boxes = _by_parameter(entry, given.boxes)
        return Setting(
            threads,
            total,
            symbols,
            boxes,
            boxes,
            blocks=self._blocks(),
            flow=self.wants_evidence,
            launch=given.launch,
        )

    def _shared(self) -> tuple[dict[str, int], int]:
        """Addresses of shared variables, and the bytes that a block has."""
        entry, given = self.entry, self.given
        symbols, static = _layout(entry)
        dynamic = [symbols[variable.name] for variable in entry.shared if not variable.size]
        if given.launch.dynamic_bytes is not None:
            return symbols, max([static, *dynamic]) + given.launch.dynamic_bytes
        total = max(given.shared_bytes, static)
        if dynamic and not given.shared_bytes and given.beside.shared_bytes is None:
            total = SM_90A.smem_bytes
            self.notes.assume(
                f"as much shared memory as there is, {total} bytes, was taken to be asked for"
                " (--smem or --launch tells)"
            )
        return symbols, total

    def _blocks(self) -> int:
        """Blocks of the CTA cluster."""
        entry, launch = self.entry, self.given.launch
        said = math.prod(entry.cluster) if entry.cluster else entry.max_cluster_rank
        told = self.given.cluster or math.prod(launch.cluster or ()) * bool(launch.cluster)
        blocks = told or said or 1
        self.told_cluster = bool(told or launch.grid or said)
        if blocks > MAX_CLUSTER:
            raise ConfigError(f"a CTA cluster of {blocks} blocks; it has up to {MAX_CLUSTER}")
        if blocks > 1:
            self.facts["cluster"] = blocks
        return blocks

    def _paths(
        self, program: EntryProgram, setting: Setting, spare: list[Instruction], first: bool
    ) -> None:
        found = self._explored(program, setting, first)
        self.facts["paths"] = found.runs
        if found.truncated:
            self.facts["rounds"] = found.rounds
        if self.wants_evidence:
            seen = found.seen
            self.evidence = Evidence(
                flow=found.flow,
                blind=found.blind or setting.blocks > 1 or setting.guessed or not found.complete,
                through_global=_through_global(self.entry),
                spare_wgmma_fences=frozenset(fence.line for fence in spare),
                spare_fences=frozenset(seen.fences - seen.effective),
                unwaited_arrivals=frozenset(seen.arrived - seen.useful),
                unreached=frozenset(unreached(program, seen.reached)),
            )

    def _explored(self, program: EntryProgram, setting: Setting, first: bool) -> Explored:
        """All paths. Warps in step tell no more than a warpgroup at once: where only some of them
        told others what it did, findings are those that are left with each warp by itself."""
        told = self.notes.copy()
        found = explore(program, setting, self.given.trips, self.notes, first=first)
        if len(self.notes.found) == len(told.found) or not found.seen.in_parts:
            return found
        self.notes = replace(told, reached=self.notes.reached)
        return explore(program.warp_by_warp(), setting, self.given.trips, self.notes, first=first)


def check_launch(entry: Entry, launch: KnownLaunch, threads: int, cluster: int) -> None:
    """ConfigError where a launch is none of the entry's, or not what else is said of it (0 for
    nothing)."""
    if launch.block is not None:
        launched = math.prod(launch.block)
        if not 1 <= launched <= SM_90A.max_block_threads:
            raise ConfigError(
                f"the launch has {launched} threads in a block; it has 1 to "
                f"{SM_90A.max_block_threads}"
            )
        own = math.prod(entry.block) if entry.block else launched
        if launched > own or (entry.exact_threads and launched != own):
            exact = "" if entry.exact_threads else "at most "
            raise ConfigError(
                f"the launch has {launched} threads in a block; {entry.name} has {exact}{own}"
            )
        if threads and threads != launched:
            raise ConfigError(f"{threads} threads, but the launch has {launched} in a block")
    if launch.cluster is not None:
        blocks, own = math.prod(launch.cluster), math.prod(entry.cluster)
        if (entry.cluster and blocks != own) or (cluster and blocks != cluster):
            raise ConfigError(
                f"the launch has clusters of {blocks} blocks, not of {cluster or own}",
                hint="the entry, --cluster and the launch file have to agree",
            )


def _reaches_another(entry: Entry) -> bool:
    """Whether a kernel reaches into another block of its cluster."""
    return any(i.name == "mapa" or "multicast::cluster" in i.parts for i in entry.instructions)


def _guess(blocks: int) -> str:
    told = f"{blocks} block{'s' * (blocks != 1)}"
    return f"the CTA cluster was taken to have {told} (--cluster or --launch tells)"


def _places(findings: Iterable[Finding]) -> set[tuple[str, int]]:
    return {(finding.rule, finding.line) for finding in findings}


def _wants_shape(entry: Entry) -> bool:
    names = {name for i in entry.instructions for name in read(i)}
    return any(name in ("%tid.y", "%tid.z") or name.startswith("%ntid") for name in names)


def _through_global(entry: Entry) -> bool:
    """Whether threads may read global memory that others of the block wrote."""
    writes = reads = False
    for instruction in entry.instructions:
        parts = instruction.parts
        if instruction.name in ("atom", "red"):
            return True
        if instruction.name == "st" and "shared" not in instruction.opcode:
            writes = True
        if instruction.name == "ld" and not {"nc", "param", "const"} & set(parts):
            reads |= "shared" not in instruction.opcode
    return writes and reads


def _layout(entry: Entry) -> tuple[dict[str, int], int]:
    """Addresses of shared variables, and the bytes of the static ones."""
    symbols: dict[str, int] = {}
    at = 0
    for variable in entry.shared:
        if variable.size:
            at = -(-at // variable.align) * variable.align
            symbols[variable.name] = at
            at += variable.size
    for variable in entry.shared:
        if not variable.size:
            symbols[variable.name] = -(-at // 1024) * 1024
    return symbols, at


def _by_parameter(entry: Entry, boxes: Mapping[str, int]) -> dict[str, int]:
    """Boxes by parameter name, which may be given without the kernel's name before it: `param_1`,
    or `param_1+128` for a map inside a parameter."""
    found = dict(boxes)
    for name in (parameter.name for parameter in entry.parameters):
        tail = name.removeprefix(f"{entry.name}_")
        for given, size in boxes.items():
            if given.partition("+")[0] == tail:
                found.setdefault(name + given.removeprefix(tail), size)
    return found


def placed(finding: Finding, module: Module, beside: Beside) -> Finding:
    """With the lines around it and, where a manifest tells, the schedule's line."""
    context = []
    first, last = max(finding.line - 1, 1), min(finding.line + 1, len(module.lines))
    for number in range(first, last + 1) if finding.line else ():
        mark = ">" if number == finding.line else " "
        context.append(f"{mark} {number}: {_short(module.lines[number - 1])}")
    return replace(
        finding,
        text=_short(finding.text),
        other_text=_short(finding.other_text),
        context=tuple(context),
        place=beside.places.get(finding.line, ""),
        other_place=beside.places.get(finding.other_line, ""),
    )


def _short(text: str, width: int = 110) -> str:
    """One line, without the middle of long register lists."""
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 30]} … {text[-27:]}"
