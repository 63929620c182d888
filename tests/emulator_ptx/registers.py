"""One instruction on registers that a test sets, for 32 lanes: no memory takes part."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
from running import kernel

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.machine import CheckedLaunch, ClusterState, Shared
from mlagen.emulator.ptx.program import Program, translate
from mlagen.emulator.ptx.starting import STARTER
from mlagen.ptx import read_ptx

OLD = 0x5A5A5A5A5A5A5A5A  # what registers hold that a test does not set


@cache
def program(line: str, registers: str = "") -> Program:
    """An instruction for the lanes of %p63, as a program."""
    module = read_ptx(kernel(f"@%p63 {line}\nret;", registers=registers))
    return translate(module, module.entries[0])


def evaluate(
    line: str,
    values: Mapping[str, np.ndarray | int],
    mask: int = y.ALL,
    registers: str = "",
    exact: bool = True,
) -> dict[str, np.ndarray]:
    """Registers after an instruction. `values`: 32 numbers a register (of 128 bits two rows), a
    predicate's mask as a number. The result has all registers of the kernel as unsigned words,
    predicates as arrays of one."""
    made = program(line, registers)
    one, none = (1, 1, 1), np.zeros(8, np.uint8)
    setup = CheckedLaunch(made, one, (32, 1, 1), one, 0, none, sanitize=False, exact=exact)
    state = ClusterState(setup, Shared(setup), 0)
    held = state.arrays[y.C_REGISTERS]
    places, at = {}, 0
    for name, kind in made.entry.registers.items():
        size, word = _row(kind)
        places[name] = held[at : at + size].view(word)
        at += size
        old = np.uint64(OLD & {"pred": y.ALL, "b16": 0xFFFF, "b8": 0xFF}.get(kind, OLD))
        places[name][:] = old.astype(word)
    for name, row in {**values, "%p63": mask}.items():
        if name in places:
            given = np.ascontiguousarray(row)
            places[name][:] = (
                given.reshape(-1).view(f"u{given.itemsize}").astype(places[name].dtype)
            )
    code = STARTER.start()(state.context.ctypes.data, 100)
    assert code == y.R_DONE, (line, code)
    return {name: row.copy() for name, row in places.items()}


def _row(kind: str) -> tuple[int, type]:
    if kind == "pred":
        return 8, np.uint64
    return {"128": (512, np.uint64), "64": (256, np.uint64)}.get(
        kind[-3:] if kind.endswith("128") else kind[-2:], (128, np.uint32)
    )


def lanes(mask: int) -> np.ndarray:
    """A mask as 32 booleans."""
    return (mask >> np.arange(32)) & 1 == 1


def mask_of(flags: np.ndarray) -> int:
    """32 booleans as a mask."""
    return int(sum(1 << lane for lane in np.flatnonzero(flags)))
