"""The assembly text of an artifact, read back: sections, clusters, branches, slots, roles.

Only what the text itself says is used: headings in comments, labels, branches, and the header's
LDS map and roles. Line numbers are 1-based, as the assembler counts them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from mlagen.errors import UnsupportedError

_SECTION = re.compile(r"^; ==== (.+?) =+$")
_CLUSTER = re.compile(r"^; ---- (cluster [^,:]+, i\b[^:]*): (.*?)(?:   \[.*\])?$")
_LABEL = re.compile(r"^([.\w$]+):$")
_SLOT = re.compile(r"^;   (0x[0-9a-f]+)\.\.(0x[0-9a-f]+)  (\w+) slot (\d+):")
_ROLE = re.compile(r"(\w+) = waves (\d+)\.\.(\d+)")

# What synchronises or is synchronised: the order of these, wave by wave, is the happens-before
# order. Everything else touches registers of its own wave only.
_EVENTS = ("s_waitcnt", "s_barrier", "ds_", "buffer_", "global_", "flat_", "scratch_", "s_load",
           "s_store", "s_buffer_", "s_atomic", "s_dcache")  # fmt: skip
_JUMPS = ("s_branch", "s_endpgm")


@dataclass(frozen=True, slots=True)
class InstructionLine:
    """One instruction.

    `block`: index of its cluster in `Listing.blocks`, -1 outside of them. `operation`: what it
    belongs to, "read(V, i-1)" and the like. `role`: whose code it is, "" where roles share it.
    """

    number: int
    code: str  # without comment
    section: str
    block: int
    operation: str
    role: str = ""

    @property
    def mnemonic(self) -> str:
        return self.code.partition(" ")[0]

    @property
    def is_event(self) -> bool:
        """Whether it accesses memory, waits or meets other waves."""
        return self.code.startswith(_EVENTS)


@dataclass(frozen=True, slots=True)
class ClusterBlock:
    """One cluster of one section. `end`: its closing barrier, or the jump that leaves it."""

    index: int
    section: str
    title: str  # "cluster B, i = -1"
    what: str  # its operations, or "a bare barrier"
    first: int
    end: int
    closed: bool  # by a barrier
    role: str = ""  # whose code it is; "" where roles share it


@dataclass(frozen=True, slots=True)
class WaveRange:
    """Waves `first` .. `last` of a workgroup."""

    name: str
    first: int
    last: int


@dataclass(frozen=True)
class Listing:
    """A text, taken apart. `lines`: its instructions by line number."""

    text: str
    lines: dict[int, InstructionLine]
    labels: dict[str, int]
    blocks: tuple[ClusterBlock, ...]
    roles: tuple[WaveRange, ...]
    slots: dict[str, tuple[int, int]]  # ring: (slots, bytes a slot)

    @cached_property
    def sections(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(line.section for line in self.lines.values()))

    @cached_property
    def ends(self) -> dict[int, ClusterBlock]:
        return {block.end: block for block in self.blocks}

    def place(self, number: int) -> tuple[str, str]:
        """(section, cluster heading) of a line, as the text names them."""
        line = self.lines[number]
        title = self.blocks[line.block].title if line.block >= 0 else ""
        return f"{line.role}: {line.section}" if line.role else line.section, title

    def of_block(self, block: ClusterBlock) -> Iterator[InstructionLine]:
        """The instructions of a cluster, its closing barrier or jump included."""
        return (line for line in self.lines.values() if line.block == block.index)

    def twins(self, blocks: Iterable[ClusterBlock]) -> tuple[ClusterBlock, ...]:
        """The same clusters of the same sections in the code of every role."""
        places = [(block.section, block.title) for block in blocks]
        return tuple(b for b in self.blocks if (b.section, b.title) in places)

    def moves_data(self, block: ClusterBlock) -> bool:
        """Whether a cluster accesses memory or waits for that, its closing barrier aside."""
        return any(line.is_event for line in self.of_block(block) if line.number != block.end)

    def successors(self, number: int) -> tuple[int, ...]:
        """Lines that may execute after this one."""
        code = self.lines[number].code
        name, _, target = code.partition(" ")
        after: list[int] = []
        if name not in _JUMPS:
            after.append(self._next[number])
        if name == "s_branch" or name.startswith("s_cbranch"):
            after.append(self._at_label(target.strip()))
        return tuple(after)

    def next_blocks(self, number: int) -> tuple[ClusterBlock, ...]:
        """The clusters whose end execution reaches first after the line `number`."""
        found: dict[int, ClusterBlock] = {}
        seen: set[int] = set()
        work = list(self.successors(number))
        while work:
            at = work.pop()
            if at in seen:
                continue
            seen.add(at)
            if at in self.ends:
                found[at] = self.ends[at]
            else:
                work.extend(self.successors(at))
        return tuple(found[at] for at in sorted(found))

    def _at_label(self, label: str) -> int:
        at = self.labels[label]
        return next(number for number in self._order if number > at)

    @cached_property
    def _order(self) -> tuple[int, ...]:
        return tuple(self.lines)

    @cached_property
    def _next(self) -> dict[int, int]:
        return dict(zip(self._order, self._order[1:], strict=False))


def read_listing(text: str, symbol: str) -> Listing:
    """Reads the text of a gfx950 artifact. UnsupportedError for a text without clusters."""
    lines: dict[int, InstructionLine] = {}
    labels: dict[str, int] = {}
    headings: list[tuple[str, str, str]] = []  # section, title, operations
    roles: list[WaveRange] = []
    slots: dict[str, tuple[int, int]] = {}
    section, block, inside, operation, role = "", -1, False, "", ""
    for number, raw in enumerate(text.split("\n"), 1):
        if not inside:
            inside = raw == f"{symbol}:"
            if raw.startswith("; roles"):
                roles = [WaveRange(n, int(a), int(b)) for n, a, b in _ROLE.findall(raw)]
            if slot := _SLOT.match(raw):
                low, high, ring = int(slot[1], 16), int(slot[2], 16), slot[3]
                slots[ring] = (slots.get(ring, (0, 0))[0] + 1, high - low + 1)
            continue
        if raw.startswith((".size", f".L{symbol}_end:")):
            break
        if heading := _SECTION.match(raw):
            named, colon, rest = heading[1].partition(": ")
            role = named if colon and any(named == known.name for known in roles) else ""
            section, block = rest if role else heading[1], -1
        elif heading := _CLUSTER.match(raw):
            block = len(headings)
            headings.append((section, heading[1].strip(), heading[2]))
        elif label := _LABEL.match(raw):
            labels[label[1]] = number
        elif code := raw.partition(";")[0].strip():
            # The operation stands where it changes, and holds until it changes again.
            operation = raw.partition(";")[2].strip() or operation
            lines[number] = InstructionLine(number, code, section, block, operation, role)
    if not headings:
        raise UnsupportedError(f"the text of {symbol} shows no clusters to mutate")
    return Listing(
        text=text,
        lines=lines,
        labels=labels,
        blocks=tuple(_blocks(headings, lines)),
        roles=tuple(roles),
        slots=slots,
    )


def _blocks(
    headings: list[tuple[str, str, str]], lines: dict[int, InstructionLine]
) -> Iterator[ClusterBlock]:
    numbers: list[list[int]] = [[] for _ in headings]
    for line in lines.values():
        if line.block >= 0:
            numbers[line.block].append(line.number)
    for index, (section, title, what) in enumerate(headings):
        inside = numbers[index]
        barriers = [n for n in inside if lines[n].mnemonic == "s_barrier"]
        jumps = [n for n in inside if lines[n].mnemonic in _JUMPS]
        end = barriers[-1] if barriers else jumps[-1] if jumps else inside[-1]
        role = lines[inside[0]].role
        yield ClusterBlock(index, section, title, what, inside[0], end, bool(barriers), role)
