"""What is changed to make mutants: each synchronisation removed, or altered a little."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from mlagen.ptx import Entry, Graph, Instruction, Kind, MemoryOperand

_REMOVED = {
    Kind.WGMMA_FENCE, Kind.WGMMA_COMMIT, Kind.WGMMA_WAIT, Kind.MBARRIER_INIT,
    Kind.MBARRIER_ARRIVE, Kind.MBARRIER_EXPECT, Kind.BULK_LOAD, Kind.BULK_COMMIT, Kind.BULK_WAIT,
    Kind.ASYNC_COMMIT, Kind.ASYNC_WAIT, Kind.ASYNC_ARRIVE, Kind.PROXY_FENCE, Kind.INIT_FENCE,
    Kind.MAP_FENCE, Kind.BARRIER, Kind.WARP_BARRIER, Kind.REGISTERS, Kind.CLUSTER_ARRIVE,
    Kind.CLUSTER_WAIT,
}  # fmt: skip
_GUARDED = {Kind.MBARRIER_ARRIVE, Kind.MBARRIER_EXPECT, Kind.BULK_LOAD}
_ON_MBARRIER = {Kind.MBARRIER_ARRIVE, Kind.MBARRIER_EXPECT, Kind.ASYNC_ARRIVE, Kind.BULK_LOAD}


@dataclass(frozen=True, slots=True)
class Change:
    """`text` instead of an instruction; "" removes it. `excuse`: why that is no defect, where the
    text alone tells."""

    instruction: Instruction
    what: str
    text: str
    excuse: str = ""

    def apply(self, text: str) -> str:
        """The mutant's text; lines keep their numbers."""
        start, stop = self.instruction.span
        lines = text[start:stop].count("\n") - self.text.count("\n")
        return text[:start] + self.text + "\n" * max(lines, 0) + text[stop:]


def changes(entry: Entry, text: str) -> Iterator[Change]:
    """All mutants of an entry."""
    graph = Graph(entry)
    ring = _ring(graph)
    for instruction, kind in zip(entry.instructions, graph.kinds, strict=True):
        source = text[slice(*instruction.span)]
        if kind in _REMOVED:
            raised = kind is Kind.REGISTERS and "inc" in instruction.parts
            excuse = "the launch's registers stay; ptxas tells whether they suffice"
            spare = _shown_anyway(instruction, graph)
            yield Change(instruction, f"{kind.value} removed", "", excuse if raised else spare)
        if kind in _GUARDED and instruction.guard:
            yield Change(instruction, "guard removed", re.sub(r"^@!?\S+\s+", "", source))
        if kind in _ON_MBARRIER:
            yield from _next_mbarrier(instruction, source)
        if kind in (Kind.WGMMA_WAIT, Kind.BULK_WAIT, Kind.ASYNC_WAIT) and instruction.operands:
            yield Change(instruction, "waits for one group less", last_number(source, 1))
        elif kind is Kind.MBARRIER_INIT:
            yield from _counts(instruction, source, "count", (1, -1))
        elif kind in (Kind.MBARRIER_ARRIVE, Kind.MBARRIER_EXPECT):
            bytes_ = "expect_tx" in instruction.parts
            steps = (1, -1, 16, -16) if bytes_ else (1, -1)
            yield from _counts(instruction, source, "bytes" if bytes_ else "arrivals", steps)
        elif kind is Kind.BULK_LOAD and "tensor" not in instruction.parts:
            yield Change(instruction, "16 bytes more", _replace_operand(source, 2, 16))
        elif kind is Kind.MBARRIER_WAIT:
            yield from _waits(instruction, source, graph)
        elif kind is Kind.BARRIER:
            yield from _named(instruction, source, entry, graph)
        elif kind is Kind.REGISTERS:
            yield from _registers(instruction, source)
        if instruction.index in ring:
            yield from _ring_changes(instruction, source)


def _shown_anyway(fence: Instruction, graph: Graph) -> str:
    """Why a fence of mbarriers' init can go: the next instruction is a proxy fence, and no other
    block has to see them. "" where it cannot."""
    after = fence.index + 1
    if graph.kinds[fence.index] is not Kind.INIT_FENCE or after >= graph.end:
        return ""
    proxy = graph.instructions[after]
    if graph.kinds[after] is not Kind.PROXY_FENCE or proxy.guard or "global" in proxy.opcode:
        return ""
    apart = (Kind.CLUSTER_ARRIVE, Kind.CLUSTER_WAIT)
    if any(kind in apart for kind in graph.kinds) or any(
        one.name == "mapa" for one in graph.instructions
    ):
        return ""
    return (
        "the fence.proxy.async behind it shows the mbarriers to copies; the block's own warps need"
        " a barrier alone"
    )


def _counts(
    instruction: Instruction, source: str, what: str, steps: tuple[int, ...]
) -> Iterator[Change]:
    number = instruction.operands[-1]
    if isinstance(number, int):
        for step in steps:
            if number + step > 0:
                yield Change(instruction, f"{what} {step:+d}", last_number(source, step))


def last_number(source: str, step: int) -> str:
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


def _next_mbarrier(instruction: Instruction, source: str) -> Iterator[Change]:
    """The mbarrier 8 bytes further on instead of the right one."""
    at = source.rindex("[")
    inner = source[at + 1 : source.index("]", at)]
    yield Change(
        instruction,
        "the next mbarrier",
        f"{source[:at]}[{_moved(inner, 8)}]{source[source.index(']', at) + 1 :]}",
    )


def _moved(address: str, step: int) -> str:
    match = re.fullmatch(r"\s*(\S+?)\s*(?:\+\s*(\d+))?\s*", address)
    if not match:
        return address
    return f"{match.group(1)}+{int(match.group(2) or 0) + step}"


def _waits(instruction: Instruction, source: str, graph: Graph) -> Iterator[Change]:
    at = source.index("[")
    predicate = source[:at].split()[-1].rstrip(",")  # of any name, behind a guard or none
    yield Change(instruction, "wait removed", f"setp.eq.u32 {predicate}, 0, 0;")
    end = source.index("]", at)
    address, tail = source[at + 1 : end], source[end + 1 :].strip(" ,;\n")
    parity = tail.split(",")[0].strip()
    head = source[:at]
    flipped = (
        f"{{ .reg .b32 %flipped; xor.b32 %flipped, {parity}, 1; {head}[{address}], %flipped; }}"
    )
    yield Change(instruction, "the other parity", flipped)
    yield Change(instruction, "the next mbarrier", f"{head}[{_moved(address, 8)}], {tail};")
    for node in range(instruction.index + 1, min(instruction.index + 4, graph.end)):
        after = graph.instructions[node]
        if graph.kinds[node] is Kind.BRANCH and after.target <= instruction.index:
            yield Change(after, "the wait is tried once", "")
            break


def _named(instruction: Instruction, source: str, entry: Entry, graph: Graph) -> Iterator[Change]:
    numbers = [x for x in instruction.operands if isinstance(x, int)]
    if not numbers:
        return
    barriers = [
        other
        for other, kind in zip(entry.instructions, graph.kinds, strict=True)
        if kind is Kind.BARRIER and other.operands
    ]
    used = {one.operands[0] for one in barriers if isinstance(one.operands[0], int)}
    others = sorted(used - {numbers[0]}, key=lambda n: (n < numbers[0], n))
    for number in dict.fromkeys((numbers[0] + 1, *others[:1])):
        changed = re.sub(r"(\s)\d+", rf"\g<1>{number}", source, count=1)
        excuse = _met_by_all(barriers, {numbers[0], number}, entry)
        yield Change(instruction, f"named barrier {number}", changed, excuse)
    if len(numbers) > 1:
        for step in (32, -32):
            yield Change(instruction, f"threads {step:+d}", last_number(source, step))


def _met_by_all(barriers: list[Instruction], numbers: set[int], entry: Entry) -> str:
    """Why it does not matter which of the numbers a barrier has: all threads of the block meet at
    each of either, so never are two in use at once. "" where that is not so."""
    threads = math.prod(entry.block) if entry.exact_threads else 0
    for one in barriers:
        number, *count = one.operands
        if isinstance(number, int) and number not in numbers:
            continue
        if one.guard or "sync" not in one.parts or count not in ([], [threads]):
            return ""
    return "all threads of the block meet at each barrier of either number"


def _registers(instruction: Instruction, source: str) -> Iterator[Change]:
    for step in (8, -8):
        lower = "takes fewer registers than it may; ptxas tells whether they suffice"
        yield Change(
            instruction,
            f"registers {step:+d}",
            last_number(source, step),
            lower if step < 0 else "",
        )


def _ring(graph: Graph) -> set[int]:
    """Instructions that turn a ring: what parities and mbarrier addresses are computed from,
    and the comparisons of such registers with numbers."""
    wanted: set[str] = set()
    for instruction, kind in zip(graph.instructions, graph.kinds, strict=True):
        if kind is Kind.MBARRIER_WAIT:
            memory = instruction.operands[1]
            if isinstance(memory, MemoryOperand):
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


def _ring_changes(instruction: Instruction, source: str) -> Iterator[Change]:
    operands = [piece.strip(" ;") for piece in source.split(None, 1)[1].split(",")]
    if instruction.name == "xor":
        yield Change(instruction, "toggle removed", f"mov.b32 {operands[0]}, {operands[1]};")
    elif instruction.name == "setp" and isinstance(instruction.operands[-1], int):
        number = instruction.operands[-1]
        for step in (1, -1):
            if number + step >= 0 and number:
                yield Change(instruction, f"bound {step:+d}", last_number(source, step))
    elif instruction.name == "selp":
        head = source.split(None, 1)[0]
        kept = f"{head} {operands[0]}, {operands[2]}, {operands[1]}, {operands[3]};"
        yield Change(instruction, "selection swapped", kept)
