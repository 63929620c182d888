"""How much the audit sees: each synchronisation of a kernel removed or altered, then audited.

A mutant is reported, missed, or equivalent; the last only for a reason that is told with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from mlagen.audit.ptx.check import audit_ptx
from mlagen.audit.ptx.effects import Kind
from mlagen.audit.ptx.graph import Graph
from mlagen.audit.ptx.report import Report
from mlagen.audit.ptx.source import Beside
from mlagen.audit.ptx.syntax import Entry, Instruction, Memory, parse
from mlagen.errors import FindingsError

Progress = Callable[[int, int], None]

_REMOVED = {
    Kind.WGMMA_FENCE, Kind.WGMMA_COMMIT, Kind.WGMMA_WAIT, Kind.MBARRIER_INIT,
    Kind.MBARRIER_ARRIVE, Kind.MBARRIER_EXPECT, Kind.BULK_LOAD, Kind.BULK_COMMIT, Kind.BULK_WAIT,
    Kind.ASYNC_COMMIT, Kind.ASYNC_WAIT, Kind.ASYNC_ARRIVE, Kind.PROXY_FENCE, Kind.INIT_FENCE,
    Kind.BARRIER, Kind.WARP_BARRIER, Kind.REGISTERS,
}  # fmt: skip
WARPGROUP = 128  # threads
_GUARDED = {Kind.MBARRIER_ARRIVE, Kind.MBARRIER_EXPECT, Kind.BULK_LOAD}
_ON_MBARRIER = {Kind.MBARRIER_ARRIVE, Kind.MBARRIER_EXPECT, Kind.ASYNC_ARRIVE, Kind.BULK_LOAD}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change and what the audit said to it."""

    function: str
    line: int
    change: str
    before: str
    after: str
    rules: tuple[str, ...] = ()
    # Why the change alters nothing; only looked at where the audit is silent.
    excuse: str = ""

    @property
    def outcome(self) -> str:
        """`reported`, `equivalent` or `MISSED`."""
        if self.rules:
            return "reported"
        return "equivalent" if self.excuse else "MISSED"


@dataclass(frozen=True, slots=True)
class MutationReport:
    """All mutants of a file."""

    mutants: tuple[Mutant, ...]

    def count(self, outcome: str) -> int:
        """Mutants of an outcome."""
        return sum(mutant.outcome == outcome for mutant in self.mutants)

    @property
    def missed(self) -> tuple[Mutant, ...]:
        """Mutants without a finding and without an excuse."""
        return tuple(mutant for mutant in self.mutants if mutant.outcome == "MISSED")

    def summary(self) -> str:
        """`81 mutants: 78 reported, 3 equivalent, 0 missed`."""
        return (
            f"{len(self.mutants)} mutants: {self.count('reported')} reported,"
            f" {self.count('equivalent')} equivalent, {self.count('MISSED')} missed"
        )


@dataclass(frozen=True, slots=True)
class _Change:
    instruction: Instruction
    what: str
    text: str  # instead of the instruction; "" removes it
    excuse: str = ""


def mutate(
    text: str,
    *,
    boxes: Mapping[str, int] | None = None,
    shared_bytes: int = 0,
    threads: int = 0,
    trips: int = 0,
    beside: Beside | None = None,
    progress: Progress | None = None,
) -> MutationReport:
    """Audits every mutant of PTX text; the arguments are those of `audit_ptx`.

    Raises FindingsError where the text itself has findings: nothing could be told from its
    mutants.
    """

    def audit(changed: str) -> Report:
        return audit_ptx(
            changed,
            boxes=boxes,
            shared_bytes=shared_bytes,
            threads=threads,
            trips=trips,
            beside=beside,
            first=True,
        )

    if found := audit(text).findings:
        raise FindingsError(
            f"the kernel itself has findings ({found[0].rule} at line {found[0].line})",
            hint="mutants are made of a kernel that the audit finds clean",
        )
    changes = [(entry, change) for entry in parse(text).entries for change in _changes(entry, text)]
    mutants = []
    for done, (entry, change) in enumerate(changes):
        if progress:
            progress(done, len(changes))
        start, stop = change.instruction.span
        lines = text[start:stop].count("\n") - change.text.count("\n")
        report = audit(text[:start] + change.text + "\n" * max(lines, 0) + text[stop:])
        mutants.append(
            Mutant(
                function=entry.name,
                line=change.instruction.line,
                change=change.what,
                before=change.instruction.text,
                after=" ".join(change.text.split()),
                rules=tuple(sorted({finding.rule for finding in report.findings})),
                excuse=change.excuse,
            )
        )
    return MutationReport(tuple(mutants))


def _changes(entry: Entry, text: str) -> Iterator[_Change]:
    graph = Graph(entry)
    ring = _ring(graph)
    for instruction, kind in zip(entry.instructions, graph.kinds, strict=True):
        source = text[slice(*instruction.span)]
        if kind in _REMOVED:
            yield _Change(
                instruction, f"{kind.value} removed", "", _dispensable(instruction, graph)
            )
        if kind in _GUARDED and instruction.guard:
            bare = re.sub(r"^@!?\S+\s+", "", source)
            yield _Change(instruction, "guard removed", bare)
        if kind in _ON_MBARRIER:
            yield from _next_mbarrier(instruction, source)
        if kind in (Kind.WGMMA_WAIT, Kind.BULK_WAIT, Kind.ASYNC_WAIT) and instruction.operands:
            yield _Change(instruction, "waits for one group less", _last_number(source, 1))
        elif kind is Kind.MBARRIER_INIT:
            yield from _counts(instruction, source, "count", (1, -1))
        elif kind in (Kind.MBARRIER_ARRIVE, Kind.MBARRIER_EXPECT):
            if "expect_tx" in instruction.parts:
                yield from _counts(instruction, source, "bytes", (1, -1, 16, -16))
        elif kind is Kind.BULK_LOAD and "tensor" not in instruction.parts:
            yield _Change(instruction, "16 bytes more", _replace_operand(source, 2, 16))
        elif kind is Kind.MBARRIER_WAIT:
            yield from _waits(instruction, source, graph)
        elif kind is Kind.BARRIER:
            yield from _named(instruction, source, entry, graph)
        elif kind is Kind.REGISTERS:
            yield from _registers(instruction, source)
        if instruction.index in ring:
            yield from _ring_changes(instruction, source)


def _dispensable(instruction: Instruction, graph: Graph) -> str:
    """Why a kernel may do without an instruction, or ""."""
    kind = graph.kinds[instruction.index]
    if kind is Kind.REGISTERS and "inc" in instruction.parts:
        return "the launch's registers stay; ptxas tells whether they suffice"
    if kind is Kind.BARRIER and instruction.operands[1:] == (WARPGROUP,):
        before = instruction.index - 1
        while before >= 0 and graph.kinds[before] in (Kind.PLAIN, Kind.BRANCH):
            before -= 1
        if before >= 0 and graph.kinds[before] is Kind.WGMMA_WAIT:
            return (
                "it follows the wait for a wgmma, which is over for all four warps at once, and"
                " orders nothing else"
            )
    return ""


def _counts(
    instruction: Instruction, source: str, what: str, steps: tuple[int, ...]
) -> Iterator[_Change]:
    number = instruction.operands[-1]
    if isinstance(number, int):
        for step in steps:
            if number + step > 0:
                yield _Change(instruction, f"{what} {step:+d}", _last_number(source, step))


def _last_number(source: str, step: int) -> str:
    """The last integer of the text, changed by `step`."""
    matches = list(re.finditer(r"(?<![\w.%])\d+(?=\s*;)", source))
    if not matches:
        return source
    at = matches[-1]
    return f"{source[: at.start()]}{int(at.group()) + step}{source[at.end() :]}"


def _replace_operand(source: str, index: int, step: int) -> str:
    pieces = source.split(",")
    if re.fullmatch(r"\s*\d+\s*", pieces[index]):
        pieces[index] = f" {int(pieces[index]) + step}"
    return ",".join(pieces)


def _next_mbarrier(instruction: Instruction, source: str) -> Iterator[_Change]:
    """The mbarrier 8 bytes further on instead of the right one."""
    at = source.rindex("[")
    inner = source[at + 1 : source.index("]", at)]
    yield _Change(
        instruction,
        "the next mbarrier",
        f"{source[:at]}[{_moved(inner, 8)}]{source[source.index(']', at) + 1 :]}",
    )


def _moved(address: str, step: int) -> str:
    match = re.fullmatch(r"\s*(\S+?)\s*(?:\+\s*(\d+))?\s*", address)
    if not match:
        return address
    return f"{match.group(1)}+{int(match.group(2) or 0) + step}"


def _waits(instruction: Instruction, source: str, graph: Graph) -> Iterator[_Change]:
    predicate = source[source.index("%") :].split(",")[0].strip()
    yield _Change(instruction, "wait removed", f"setp.eq.u32 {predicate}, 0, 0;")
    at = source.index("[")
    end = source.index("]", at)
    address, tail = source[at + 1 : end], source[end + 1 :].strip(" ,;\n")
    parity = tail.split(",")[0].strip()
    head = source[:at]
    flipped = (
        f"{{ .reg .b32 %flipped; xor.b32 %flipped, {parity}, 1; {head}[{address}], %flipped; }}"
    )
    yield _Change(instruction, "the other parity", flipped)
    yield _Change(instruction, "the next mbarrier", f"{head}[{_moved(address, 8)}], {tail};")
    for node in range(instruction.index + 1, min(instruction.index + 4, graph.end)):
        after = graph.instructions[node]
        if graph.kinds[node] is Kind.BRANCH and after.target <= instruction.index:
            yield _Change(after, "the wait is tried once", "")
            break


def _named(instruction: Instruction, source: str, entry: Entry, graph: Graph) -> Iterator[_Change]:
    numbers = [x for x in instruction.operands if isinstance(x, int)]
    if not numbers:
        return
    arrives = {
        other.operands[0]
        for other, kind in zip(entry.instructions, graph.kinds, strict=True)
        if kind is Kind.BARRIER and "arrive" in other.parts
    }
    moved = numbers[0] + 1
    alone = len(numbers) == 1 or not arrives & {moved, numbers[0]}
    yield _Change(
        instruction,
        "the next named barrier",
        re.sub(r"(\s)\d+", rf"\g<1>{moved}", source, count=1),
        "all who take part execute this instruction, and by the rule bar-order nobody else is at"
        f" barrier {moved} then"
        if alone
        else "",
    )
    if len(numbers) > 1:
        for step in (32, -32):
            yield _Change(instruction, f"threads {step:+d}", _last_number(source, step))


def _registers(instruction: Instruction, source: str) -> Iterator[_Change]:
    for step in (8, -8):
        lower = "asks for fewer registers than the pool has; ptxas tells whether they suffice"
        yield _Change(
            instruction,
            f"registers {step:+d}",
            _last_number(source, step),
            lower if step < 0 else "",
        )


def _ring(graph: Graph) -> set[int]:
    """Instructions that turn a ring: what parities and mbarrier addresses are computed from,
    and the comparisons of such registers with numbers."""
    wanted: set[str] = set()
    for instruction, kind in zip(graph.instructions, graph.kinds, strict=True):
        if kind is Kind.MBARRIER_WAIT:
            memory = instruction.operands[1]
            if isinstance(memory, Memory):
                wanted.add(memory.base)
            if isinstance(instruction.operands[2], str):
                wanted.add(instruction.operands[2])
    found: set[int] = set()
    changed = True
    while changed:
        changed = False
        for index, names in enumerate(graph.writes):
            instruction = graph.instructions[index]
            if index in found or not wanted.intersection(names):
                continue
            if graph.kinds[index] is not Kind.PLAIN or instruction.name in ("mov", "ld"):
                continue
            found.add(index)
            wanted.update(name for name in graph.reads[index] if name.startswith("%"))
            changed = True
    for index, instruction in enumerate(graph.instructions):
        if instruction.name == "setp" and wanted.intersection(graph.reads[index]):
            found.add(index)
    return {i for i in found if graph.instructions[i].name in ("xor", "setp", "selp")}


def _ring_changes(instruction: Instruction, source: str) -> Iterator[_Change]:
    operands = [piece.strip(" ;") for piece in source.split(None, 1)[1].split(",")]
    if instruction.name == "xor":
        yield _Change(instruction, "toggle removed", f"mov.b32 {operands[0]}, {operands[1]};")
    elif instruction.name == "setp" and isinstance(instruction.operands[-1], int):
        number = instruction.operands[-1]
        for step in (1, -1):
            if number + step >= 0 and number:
                yield _Change(instruction, f"bound {step:+d}", _last_number(source, step))
    elif instruction.name == "selp":
        head = source.split(None, 1)[0]
        kept = f"{head} {operands[0]}, {operands[2]}, {operands[1]}, {operands[3]};"
        yield _Change(instruction, "selection swapped", kept)
