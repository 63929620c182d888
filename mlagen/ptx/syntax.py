"""What PTX text says, as values: files, entries, instructions and their operands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """`[base+offset]`; `base` is a register, a symbol or "" for an absolute address."""

    base: str
    offset: int
    coordinates: tuple[Operand, ...] = ()  # of a tensor operand `[map, {x, y}]`


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, …}`, `a|b`, and the lists of a call: `(a, b)`."""

    items: tuple[Operand, ...]


# A register or symbol (str), an integer, a float (as its text in a Vector-free form), …
Operand = str | int | float | Memory | Vector


@dataclass(frozen=True, slots=True)
class Guard:
    """`@p` or `@!p`."""

    register: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `target` is the index a branch goes to, -1 for none."""

    index: int
    line: int  # 1-based in the file
    text: str  # one line, as written
    opcode: str  # "wgmma.wait_group.sync.aligned"
    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    target: int
    span: tuple[int, int]  # of the text, its ';' included

    @property
    def name(self) -> str:
        """The opcode without its modifiers."""
        return self.parts[0]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in a state space: "shared", "local", "const" or "global". `size` in bytes; 0: the
    text does not say, for `.extern .shared` it is the launch's."""

    space: str
    name: str
    size: int
    align: int
    line: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter of `size` bytes."""

    name: str
    size: int
    line: int


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

    @property
    def shared(self) -> tuple[Variable, ...]:
        """The variables in shared memory."""
        return tuple(v for v in self.variables if v.space == "shared")


@dataclass(frozen=True, slots=True)
class Module:
    """A PTX file."""

    version: str
    target: str
    entries: tuple[Entry, ...]
    lines: tuple[str, ...]  # of the file, for context
