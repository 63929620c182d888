"""Register blocks: named, declared, never coloured. Sharing is declared and its lifetimes checked.

A `Block` is a run of registers a lane holds: vector registers, or accumulation registers, which
matrix products, LDS reads, loads and stores take, and other vector instructions do not. With
`slots` it is a ring indexed by tile. A `Value` is what one tile puts into a block: operations
define and use values, and two values that share registers must never be alive at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from mlagen.dsl.extents import Extent, declared_at, touched
from mlagen.dsl.tile import Tile, Value
from mlagen.errors import CapacityError, ScheduleError

File = Literal["v", "a"]  # vector and accumulation registers

# Registers that the assembler knows by these names (LLVM AMDGPUOperandSyntax).
_RESERVED = re.compile(
    r"[vsa]\d+|ttmp\d+|(exec|vcc|flat_scratch|xnack_mask|tba|tma)(_lo|_hi)?|m0|null|src_\w+"
    r"|scc|vccz|execz|lds_direct"
)
# What `entry` declares of a schedule, before all others.
ENTRY = ("T", "KERNARG", "WGX", "WGY", "WGZ", "WAVE", "N", "LEFT", "ITEMS", "ITEM")

_FILES: dict[File, str] = {"v": "vector registers", "a": "accumulation registers"}


@dataclass(frozen=True, slots=True)
class Regs:
    """Consecutive registers `symbol+start .. symbol+start+count-1`; prints as the assembler
    wants it, by name, so that a template and the `.s` read alike."""

    symbol: str
    start: int = 0
    count: int = 1
    file: str = "v"

    def __getitem__(self, index: int | slice) -> Regs:
        if isinstance(index, slice):
            start, stop, step = index.indices(self.count)
            if step != 1 or stop <= start or (index.stop is not None and index.stop > self.count):
                raise ScheduleError(
                    f"{self}: registers {index.start} to {index.stop} are not {self.count}'s, or "
                    f"none, or do not follow each other"
                )
            return Regs(self.symbol, self.start + start, stop - start, self.file)
        if not -self.count <= index < self.count:
            raise ScheduleError(f"{self}: register {index} is outside 0..{self.count - 1}")
        return Regs(self.symbol, self.start + index % self.count, 1, self.file)

    def part(self, index: int, width: int) -> Regs:
        """The `index`-th group of `width` registers."""
        return self[index * width : (index + 1) * width]

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Regs]:
        return (self[index] for index in range(self.count))

    def __str__(self) -> str:
        first = f"{self.symbol}+{self.start}" if self.start else self.symbol
        if self.count == 1:
            return f"{self.file}[{first}]"
        return f"{self.file}[{first}:{self.symbol}+{self.start + self.count - 1}]"


@dataclass(frozen=True, slots=True)
class ScalarRegs:
    """Declaration of named scalar registers."""

    name: str
    first: int
    count: int
    comment: str


@dataclass(frozen=True, slots=True)
class Block:
    """`slots` runs of `count` registers, from register `first` of their file on."""

    kind: ClassVar[str] = "the block"
    name: str
    first: int
    count: int
    slots: int
    comment: str
    bank: str  # blocks with the same bank share registers
    file: File = "v"
    place: str = field(default="", compare=False, repr=False)  # where it is declared

    @property
    def registers(self) -> int:
        """How many a slot has; the unit of its extent."""
        return self.count

    def symbol(self, slot: int) -> str:
        return self.name if self.slots == 1 else f"{self.name}{slot}"

    def regs(self, slot: int = 0) -> Regs:
        """The registers of one slot."""
        return Regs(self.symbol(slot % self.slots), 0, self.count, self.file)

    def at(self, tile: Tile) -> Value:
        return Value(self.name, tile)

    @property
    def value(self) -> Value:
        return Value(self.name)


@dataclass
class Registers:
    """The register map of one schedule, filled while it is written. `budget`: vector and
    accumulation registers of a lane together; `named`: of each file, what instructions can name."""

    budget: int
    scalar_budget: int
    named: int = 512
    blocks: dict[str, Block] = field(default_factory=dict)
    scalars: dict[str, ScalarRegs] = field(default_factory=dict)
    next: dict[File, int] = field(default_factory=lambda: {"v": 0, "a": 0})
    next_scalar: int = 0

    def block(
        self,
        name: str,
        count: int,
        comment: str,
        *,
        slots: int = 1,
        align: int = 2,
        file: File = "v",
    ) -> Block:
        """Declare `slots` x `count` registers. Runs start on an even register (tuple alignment)."""
        if slots < 1:
            raise ScheduleError(f"registers {name!r}: {slots} slots; a ring of tiles has 1 or more")
        first = self._claim(name, count * slots, align, file)
        return self._add(Block(name, first, count, slots, comment, name, file, declared_at()))

    def tile(
        self, name: str, count: int, comment: str, *, slots: int = 1, file: File = "v"
    ) -> Block:
        """Declare a block of matrix operands: a run starts where a fragment of four may."""
        return self.block(name, count, comment, slots=slots, align=4, file=file)

    def share(
        self, bank: str, *wants: tuple[str, int, str], apart: bool = False
    ) -> tuple[Block, ...]:
        """Tiles (name, count, comment) that lie over each other in one bank. Their values must
        never be alive at the same time; that is checked on the expanded schedule. `apart`: each has
        registers of its own instead."""
        if not wants:
            raise ScheduleError(f"bank {bank!r} shares nothing")
        if apart:
            return tuple(self.tile(*want) for want in wants)
        first = self._claim(bank, max(count for _, count, _ in wants), 4, "v")
        return tuple(
            self._add(Block(name, first, count, 1, comment, bank, place=declared_at()))
            for name, count, comment in wants
        )

    def taken(self, name: str, *extents: Extent) -> Block:
        """The block of that name, of whose slots operations touch so much; ScheduleError where
        there is none, or one of another size."""
        return touched(self[name], *extents)

    def __getitem__(self, name: str) -> Block:
        """The block of that name; ScheduleError where there is none."""
        if name not in self.blocks:
            raise ScheduleError(
                f"no registers {name!r} are declared",
                hint="declared: " + (", ".join(self.blocks) or "none"),
            )
        return self.blocks[name]

    def scalar(
        self, name: str, count: int, comment: str, *, align: int = 1, over: Regs | None = None
    ) -> Regs:
        """Declare named scalar registers. `over`: registers that it lies over, which nothing needs
        from the first use of these on; that is not checked."""
        self._check_name(name)
        if over is not None:
            first = self.scalars[over.symbol].first + over.start
            if first % align or count > over.count:
                raise ScheduleError(f"{name!r}: {count} registers do not lie over {over}")
            self.scalars[name] = ScalarRegs(name, first, count, comment)
            return Regs(name, 0, count, "s")
        first = -(-self.next_scalar // align) * align
        if first + count > self.scalar_budget:
            raise CapacityError(
                f"scalar registers: {name!r} needs {first + count} of {self.scalar_budget}"
            )
        self.next_scalar = first + count
        self.scalars[name] = ScalarRegs(name, first, count, comment)
        return Regs(name, 0, count, "s")

    @property
    def vectors(self) -> int:
        """Vector registers a lane uses."""
        return self.next["v"]

    @property
    def accumulators(self) -> int:
        """Accumulation registers a lane uses."""
        return self.next["a"]

    @property
    def accum_offset(self) -> int:
        """Where the accumulation registers begin: they follow the vector registers, four by four
        (LLVM AMDGPUUsage, amdhsa_accum_offset)."""
        return -(-self.vectors // 4) * 4

    @property
    def used(self) -> int:
        """Registers of both files."""
        return self.accum_offset + self.accumulators if self.accumulators else self.vectors

    def symbols(self) -> Iterable[tuple[str, Regs, int, str]]:
        """(symbol, registers, the first one's number in its file, comment) of every block and
        slot."""
        for block in self.blocks.values():
            for slot in range(block.slots):
                first = block.first + slot * block.count
                yield block.symbol(slot), block.regs(slot), first, block.comment

    def physical(self) -> dict[str, int]:
        """First register of every symbol in its file; scalar symbols included."""
        table = {symbol: first for symbol, _, first, _ in self.symbols()}
        table.update({regs.name: regs.first for regs in self.scalars.values()})
        return table

    def sizes(self) -> dict[str, tuple[str, int]]:
        """The file and the number of registers of every symbol; scalar symbols included."""
        table = {symbol: (regs.file, len(regs)) for symbol, regs, _, _ in self.symbols()}
        table.update({regs.name: ("s", regs.count) for regs in self.scalars.values()})
        return table

    def limit(self, budget: int) -> None:
        """Narrow the budget. CapacityError naming the first block that is beyond it."""
        self.budget = budget
        before: list[Block] = []
        for block in self.blocks.values():
            start = block.first + (self.accum_offset if block.file == "a" else 0)
            if start + block.count * block.slots > budget:
                raise self._ran_out(block.bank, block.count * block.slots, start, before)
            before.append(block)

    def _check_name(self, name: str) -> None:
        """ScheduleError for a name that the assembler would take for something else."""
        if name in self.scalars or name in self.blocks:
            owned = f"entry() declares {', '.join(ENTRY)}; another, such as MY_{name}"
            raise ScheduleError(
                f"register name {name!r} is declared twice", hint=owned if name in ENTRY else None
            )
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise ScheduleError(
                f"register name {name!r} is no name", hint="letters, digits and _, such as K_tile"
            )
        if _RESERVED.fullmatch(name):
            raise ScheduleError(
                f"register name {name!r} is the machine's own", hint=f"another, such as my_{name}"
            )

    def _claim(self, name: str, count: int, align: int, file: File) -> int:
        first = -(-self.next[file] // align) * align
        if first + count > self.budget:
            raise self._ran_out(name, count, first, self.blocks.values())
        if first + count > self.named:
            held = ", ".join(f"{x.name} {x.count * x.slots}" for x in self.blocks.values()
                             if x.file == file)  # fmt: skip
            raise CapacityError(
                f"{_FILES[file]} ran out: {name!r} wants {count} more on top of {first}, "
                f"{first + count} of {self.named} that instructions can name",
                hint=f"held so far: {held or 'nothing'}; matrix operands may be of the other file: "
                f'file="{"a" if file == "v" else "v"}"',
            )
        self.next[file] = first + count
        return first

    def _ran_out(self, name: str, count: int, first: int, before: Iterable[Block]) -> CapacityError:
        held = ", ".join(f"{block.name} {block.count * block.slots}" for block in before)
        return CapacityError(
            f"vector registers ran out: {name!r} wants {count} more on top of {first}, "
            f"{first + count} of {self.budget} a lane",
            hint=f"held so far: {held or 'nothing'}; share a bank or shrink a tile",
        )

    def _add(self, block: Block) -> Block:
        self._check_name(block.name)
        self.blocks[block.name] = block
        return block
