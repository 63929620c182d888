"""What PTX text says, as values: files, functions, instructions and their operands."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Real:
    """A floating-point literal: its IEEE bits, 32 (`0f…`) or 64 (`0d…`, decimal) of them."""

    bits: int
    width: int

    @property
    def value(self) -> float:
        """The number. A NaN's payload is in `bits` alone."""
        code, bytes_ = ("<f", 4) if self.width == 32 else ("<d", 8)
        return float(struct.unpack(code, self.bits.to_bytes(bytes_, "little"))[0])


@dataclass(frozen=True, slots=True)
class Address:
    """`symbol+offset` as a value, outside brackets; `offset` in bytes."""

    symbol: str
    offset: int


@dataclass(frozen=True, slots=True)
class MemoryOperand:
    """`[base+offset]`; `base` is a register, a symbol or "" for an absolute address."""

    base: str
    offset: int
    coordinates: tuple[Operand, ...] = ()  # of a tensor operand `[map, {x, y}]`


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, …}`, `a|b`, a register of type .v2 or .v4, and the lists of a call: `(a, b)`."""

    items: tuple[Operand, ...]


# A register or symbol (str, "!%p" for a negated predicate, "_" for a sink), an integer, …
Operand = str | int | Real | Address | MemoryOperand | Vector


@dataclass(frozen=True, slots=True)
class Guard:
    """`@p` or `@!p`."""

    register: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the program that the text was made of, by its `.loc`. `file` is "" where no
    `.file` names it. Where the code was inlined, `function` is the one that the place is in, and
    `inlined_at` the place of the call."""

    file: str
    line: int
    column: int
    inlined_at: Location | None = None
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file or '?'}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `target` is the index a branch goes to, -1 for none; `targets` are those of
    a `brx.idx`, in its table's order. An index one past the last instruction is the end."""

    index: int
    line: int  # 1-based in the file
    text: str  # one line, as written
    opcode: str  # "wgmma.wait_group.sync.aligned"
    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    target: int
    span: tuple[int, int]  # of the text, its ';' included
    location: Location | None = None
    targets: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The opcode without its modifiers."""
        return self.parts[0]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in a state space: "shared", "local", "const", "global", or "param" for what a
    call's parameters are put into. `size` in bytes; 0: the text does not say, for
    `.extern .shared` it is the launch's.

    `initial` holds its first bytes, all others are 0. `relocations` are the addresses in it:
    (offset in the variable, symbol, bytes to add), each in 8 bytes that `initial` has as 0, or in
    fewer where the variable's elements are smaller (`element` bytes)."""

    space: str
    name: str
    size: int
    align: int
    line: int
    type: str = "b8"  # of an element
    initial: bytes = b""
    relocations: tuple[tuple[int, str, int], ...] = ()
    extern: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of `size` bytes. `type` is an element's; "b8" for a structure. `pointer` is the
    state space that `.ptr` tells, "generic" for a `.ptr` that tells none, "" without `.ptr`. A
    device function's parameter may be a register: `space` is "reg" then, and `name` unique."""

    name: str
    size: int
    line: int
    type: str = "b8"
    align: int = 1
    pointer: str = ""
    space: str = "param"


@dataclass(frozen=True, slots=True)
class Function:
    """A device function with its body (`.func`)."""

    name: str
    line: int
    results: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]
    instructions: tuple[Instruction, ...]
    variables: tuple[Variable, ...]  # its own
    registers: Mapping[str, str] = field(hash=False)  # as an entry's


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel."""

    name: str
    line: int
    parameters: tuple[Parameter, ...]
    instructions: tuple[Instruction, ...]
    variables: tuple[Variable, ...]  # the module's before it, and its own
    block: tuple[int, ...]  # .reqntid or .maxntid; () for neither
    exact_threads: bool  # .reqntid
    max_registers: int  # .maxnreg; 0: not given
    # The registers that the body names, as operands have them, and their types without the dot.
    # Of a register of type .v2 or .v4 the components: "%v.x".
    registers: Mapping[str, str] = field(default_factory=dict, hash=False)
    cluster: tuple[int, ...] = ()  # .reqnctapercluster in blocks; () for none
    explicit_cluster: bool = False  # .explicitcluster: a launch has to name the cluster
    max_cluster_rank: int = 0  # .maxclusterrank; 0: not given
    grid_of_clusters: bool = False  # .blocksareclusters: the launch's grid counts clusters
    min_blocks: int = 0  # .minnctapersm; 0: not given

    @property
    def shared(self) -> tuple[Variable, ...]:
        """The variables in shared memory."""
        return tuple(v for v in self.variables if v.space == "shared")

    @property
    def parameter_places(self) -> dict[str, int]:
        """Byte offset of each parameter in the space of all (PTX ISA, "Kernel Function
        Parameters": one after the other, each aligned)."""
        at, places = 0, {}
        for parameter in self.parameters:
            at = -(-at // parameter.align) * parameter.align
            places[parameter.name] = at
            at += parameter.size
        return places


@dataclass(frozen=True, slots=True)
class Module:
    """A PTX file."""

    version: str
    target: str
    entries: tuple[Entry, ...]
    lines: tuple[str, ...]  # of the file, for context
    functions: tuple[Function, ...] = ()  # those with a body; an alias is one more
    variables: tuple[Variable, ...] = ()  # outside of functions, all of them
