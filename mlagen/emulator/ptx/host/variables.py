"""Where an entry's variables lie, and what the module says that they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.host.entries import machine_of
from mlagen.errors import UnsupportedError
from mlagen.ptx import Entry, Variable

GLOBALS = 0x7000_0000_0000  # address of the first variable in global memory
_APART = 1 << 34
_ALIGN = 16
_CONST_MAX = 1 << 16  # PTX ISA, "Constant State Space"
_LOCAL_MAX = 1 << 19  # bytes of a thread (CUDA C++ Programming Guide, technical specifications)
_GLOBAL_MAX = 1 << 28  # bytes of a module's variables in global memory

Symbols = Mapping[str, tuple[str, int]]


@dataclass(frozen=True)
class GlobalVariable:
    """A variable in global memory: a kernel that is launched again finds `content` anew."""

    name: str
    address: int
    content: np.ndarray


@dataclass(frozen=True)
class Variables:
    """`symbols`: state space and address of each; `dynamic`: where the launch's shared memory
    begins; `local`: bytes of a thread; `const`: the bytes of the constant space."""

    symbols: Symbols
    dynamic: int
    local: int
    const: np.ndarray
    globals: tuple[GlobalVariable, ...]


def place_variables(entry: Entry, target: str) -> Variables:
    """Addresses and contents of an entry for `target`. UnsupportedError with the line for what is
    too large, or holds the address of what has none."""
    ends = {"shared": y.SHARED_FIRST, "local": 0, "const": 0}
    limits = machine_of(target).limits
    most = {"shared": limits.smem_bytes, "local": _LOCAL_MAX, "const": _CONST_MAX}
    symbols: dict[str, tuple[str, int]] = {}
    dynamic = [v for v in entry.variables if v.space == "shared" and not v.size]
    placed = [v for v in entry.variables if v not in dynamic]
    globals_: list[Variable] = []
    for variable in placed:
        if variable.space == "global":
            symbols[variable.name] = "global", GLOBALS + len(globals_) * _APART
            globals_.append(variable)
            continue
        # What a call's parameters are put into is a thread's own.
        space = "local" if variable.space == "param" else variable.space
        at = -(-ends[space] // variable.align) * variable.align
        symbols[variable.name] = space, at
        ends[space] = at + variable.size
        used = ends[space] - (y.SHARED_FIRST if space == "shared" else 0)
        if used > most[space]:
            raise UnsupportedError(
                f"line {variable.line}: the variables up to {variable.name} take {used} "
                f"bytes of .{space}; {target} has {most[space]}"
            )
    if sum(v.size for v in globals_) > _GLOBAL_MAX:
        raise UnsupportedError(
            f"the module's variables in global memory take {sum(v.size for v in globals_)} bytes; "
            f"the emulator gives {_GLOBAL_MAX}"
        )
    align = max([v.align for v in dynamic], default=_ALIGN)
    start = -(-ends["shared"] // align) * align
    symbols |= {v.name: ("shared", start) for v in dynamic}
    const = np.zeros(max(ends["const"], 8), np.uint8)
    for variable in placed:
        if variable.space == "const":
            at = symbols[variable.name][1]
            const[at : at + variable.size] = _content(variable, symbols)
    return Variables(
        symbols,
        start,
        ends["local"],
        const,
        tuple(GlobalVariable(v.name, symbols[v.name][1], _content(v, symbols)) for v in globals_),
    )


def _content(variable: Variable, symbols: Symbols) -> np.ndarray:
    """The bytes of a variable when the kernel begins."""
    made = np.zeros(variable.size, np.uint8)
    first = variable.initial[: variable.size]
    made[: len(first)] = np.frombuffer(first, np.uint8)
    width = int("".join(c for c in variable.type if c.isdigit()) or 64) // 8
    for offset, name, added in variable.relocations:
        space, address = symbols.get(name, ("", 0))
        if space not in ("global", "const"):
            raise UnsupportedError(
                f"line {variable.line}: {variable.name} holds the address of {name}, which the "
                "emulator does not give: it is no variable in global or constant memory"
            )
        value = address + added + (y.GENERIC_CONST if space == "const" else 0)
        raw = (value & (1 << 64) - 1).to_bytes(8, "little")[: min(width, 8)]
        if offset + len(raw) <= variable.size:
            made[offset : offset + len(raw)] = np.frombuffer(raw, np.uint8)
    return made
