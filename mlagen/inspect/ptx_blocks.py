"""Registers of a `.ptx` by the names its schedule gave them, and where they are alive.

Liveness by names: control flow from labels and branches, the first operand of an instruction is
what it writes unless it stores, branches or synchronises.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from mlagen.artifact import RegisterMap
from mlagen.inspect.model import Cluster, RegisterBlock, Touch

_NAME = re.compile(r"%([A-Za-z_]\w*?)(\d*)(?!\w)")
_LABEL = re.compile(r"^\s*([A-Za-z_$][\w$]*):")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+([A-Za-z_$][\w$]*)")
# Instructions whose first operand is read (PTX ISA): they write memory or a barrier, or nothing.
_READERS = ("st.", "red.", "cp.", "bar", "barrier", "mbarrier.init", "mbarrier.inval", "prefetch",
            "bra", "setmaxnreg", "wgmma.fence", "wgmma.commit", "wgmma.wait", "fence", "stmatrix",
            "mbarrier.expect", "nanosleep", "ret", "exit")  # fmt: skip


def ptx_blocks(
    text: Sequence[str], clusters: Sequence[Cluster], maps: Sequence[RegisterMap]
) -> tuple[RegisterBlock, ...]:
    """The manifest's register blocks with the clusters they are alive in, in the map's order."""
    names = {regs.name for regs in maps}
    code = [(number, line.partition("//")[0]) for number, line in enumerate(text, 1)]
    start = next((i for i, (_, line) in enumerate(code) if line.strip() == "{"), 0)
    code = code[start:]
    if not code:
        return ()
    reads, writes = zip(*(_accesses(line, names) for _, line in code), strict=True)
    after = _alive(code, reads, writes)
    place = {number: index for index, (number, _) in enumerate(code)}
    result = []
    for regs in maps:
        touched: list[tuple[str, Touch]] = []
        for cluster in clusters:
            at = [place[line.at] for line in cluster.lines if line.at in place]
            read = any(regs.name in reads[i] for i in at)
            written = any(regs.name in writes[i] for i in at)
            if read or written:
                touched.append((cluster.id, "both" if read and written else
                                "read" if read else "write"))  # fmt: skip
            elif any(regs.name in after[i] for i in at):
                touched.append((cluster.id, "through"))
        result.append(RegisterBlock(regs.name, regs.file, -1, regs.count, regs.comment,
                                    tuple(touched), declared=True))  # fmt: skip
    return tuple(result)


def _accesses(line: str, names: set[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Names of blocks that a line reads and writes. Parts of a block count as the block, so a
    write also keeps it alive."""
    words = _LABEL.sub("", line).strip()
    if not words or words.startswith((".", "{", "}")):
        return frozenset(), frozenset()
    guard = ""
    if words.startswith("@"):
        guard, _, words = words.partition(" ")
    opcode, _, operands = words.strip().partition(" ")
    first, rest = _split(operands)
    found = {name for name, number in _NAME.findall(f"{guard} {rest}") if name in names}
    target = {name for name, number in _NAME.findall(first) if name in names}
    if opcode.startswith(_READERS):
        return frozenset(found | target), frozenset()
    if "[" in first:
        return frozenset(found | target), frozenset()
    accumulates = opcode.startswith("wgmma.mma_async")
    return frozenset(found | (target if accumulates else set())), frozenset(target)


def _split(operands: str) -> tuple[str, str]:
    """The first operand (a braced list counts as one) and the others."""
    depth = 0
    for index, letter in enumerate(operands):
        depth += letter in "{[(" or 0
        depth -= letter in "}])" or 0
        if letter == "," and depth == 0:
            return operands[:index], operands[index + 1 :]
    return operands, ""


def _alive(
    code: Sequence[tuple[int, str]],
    reads: Sequence[frozenset[str]],
    writes: Sequence[frozenset[str]],
) -> list[frozenset[str]]:
    """Blocks alive after each line. A write ends a block's life backwards only where nothing of it
    is alive before it anyway: blocks have many registers, and one write replaces one of them."""
    labels: dict[str, list[int]] = {}
    for index, (_, line) in enumerate(code):
        if found := _LABEL.match(line):
            labels.setdefault(found[1], []).append(index)
    follow: list[tuple[int, ...]] = []
    for index, (_, line) in enumerate(code):
        words, next_line = (
            _LABEL.sub("", line).strip(),
            index + 1 if index + 1 < len(code) else None,
        )
        jump = _BRANCH.search(words)
        after = [] if next_line is None else [next_line]
        if jump and jump[1] in labels:
            # A label inside braces may stand there again elsewhere: the nearest is meant.
            after = [_nearest(labels[jump[1]], index)] + (after if words.startswith("@") else [])
        elif words.startswith(("ret", "exit")):
            after = []
        follow.append(tuple(after))
    reached = _written_before(follow, writes)
    before: list[frozenset[str]] = [frozenset()] * len(code)
    alive: list[frozenset[str]] = [frozenset()] * len(code)
    changed = True
    while changed:
        changed = False
        for index in range(len(code) - 1, -1, -1):
            held: frozenset[str] = frozenset().union(*(before[i] for i in follow[index]))
            alive[index] = held
            new = held | reads[index]
            if new != before[index]:
                before[index] = new
                changed = True
    # Only what a write may have filled before can be alive.
    return [held & (seen | made) for held, seen, made in zip(alive, reached, writes, strict=True)]


def _nearest(places: Sequence[int], index: int) -> int:
    return min(places, key=lambda place: abs(place - index))


def _written_before(
    follow: Sequence[tuple[int, ...]], writes: Sequence[frozenset[str]]
) -> list[frozenset[str]]:
    """Blocks that some way to each line has written."""
    seen: list[frozenset[str]] = [frozenset()] * len(follow)
    work = deque(range(len(follow)))
    while work:
        index = work.popleft()
        held = seen[index] | writes[index]
        for after in follow[index]:
            if not held <= seen[after]:
                seen[after] |= held
                work.append(after)
    return seen
