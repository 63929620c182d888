"""Raw findings of the engine to `Finding` values with names and repairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlagen.binary import Instruction
from mlagen.binary.hazards import SHIPPED_WITHOUT, strictest_pair
from mlagen.binary.operand import register_name
from mlagen.emulator.findings import Finding
from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950.memory import Memory
from mlagen.emulator.gfx950.translate import Program

_KINDS = {
    y.MISSING_WAIT: "missing-wait",
    y.OVERWRITE: "overwrite-in-flight",
    y.RACE_RAW: "race-raw",
    y.RACE_WAR: "race-war",
    y.RACE_WAW: "race-waw",
    y.WAIT_STATES: "wait-states",
    y.UNDEFINED_REGISTER: "undefined-register",
    y.UNDEFINED_LDS: "undefined-lds",
    y.BARRIER_UNEQUAL: "barrier-unequal",
    y.LDS_BOUNDS: "lds-bounds",
    y.LDS_ALIGNMENT: "lds-alignment",
    y.GLOBAL_BOUNDS: "global-bounds",
    y.NOT_ENDED: "not-ended",
    y.UNSET_ARGUMENT: "unset-argument",
    y.GLOBAL_ALIGNMENT: "global-alignment",
    y.RACE_GLOBAL: "race-global",
}


def merge(tables: Sequence[np.ndarray]) -> list[list[int]]:
    """Join the findings of all workgroups: one row a (kind, instruction, other instruction)."""
    merged: dict[tuple[int, int, int], list[int]] = {}
    for table in tables:
        for row in table.tolist():
            key = (row[y.F_KIND], row[y.F_ROW], row[y.F_OTHER])
            if key in merged:
                merged[key][y.F_COUNT] += row[y.F_COUNT]
            else:
                merged[key] = row
    return sorted(merged.values(), key=lambda row: (row[y.F_ROW], row[y.F_KIND], row[y.F_OTHER]))


def _counter(queue: int, newer: int) -> str:
    """The wait that leaves `newer` operations; a field's largest number, 63 or 15, waits for
    nothing."""
    if queue == y.Q_VM:
        return f"vmcnt({min(newer, 62)})"
    return f"lgkmcnt({min(newer, 14) if queue == y.Q_LDS else 0})"


def describe(
    row: list[int], program: Program, memory: Memory, grid: tuple[int, int, int]
) -> Finding:
    """One raw row as a Finding."""
    ins = program.instructions[row[y.F_ROW]]
    other = program.instructions[row[y.F_OTHER]] if row[y.F_OTHER] >= 0 else None
    wave, other_wave = row[y.F_WAVE], row[y.F_OTHER_WAVE]
    message, resource, needs = _text(row, ins, other, program, memory, grid)
    return Finding(
        kind=_KINDS[row[y.F_KIND]],
        message=message,
        pc=ins.offset,
        asm=str(ins),
        wave=wave,
        workgroup=workgroup_of(row[y.F_WORKGROUP], grid),
        other_pc=other.offset if other is not None else None,
        other_asm=str(other) if other is not None else "",
        other_wave=other_wave if other is not None else None,
        resource=resource,
        needs=needs,
        count=row[y.F_COUNT],
    )


def workgroup_of(linear: int, grid: tuple[int, int, int]) -> tuple[int, int, int]:
    """Position in the grid of a workgroup's number."""
    return (linear % grid[0], linear // grid[0] % grid[1], linear // (grid[0] * grid[1]))


def register_text(program: Program, number: int, users: Sequence[Instruction | None]) -> str:
    """Name of a unified register number, an a-register when an instruction names it so."""
    if number >= y.VECTOR_ROWS:
        return register_name("s", number - y.VECTOR_ROWS)
    accum = program.kernel.descriptor.accum_offset
    for ins in users:
        if ins is None:
            continue
        for _, operand in ins.operands:
            if operand.kind == "a" and 0 <= number - accum - operand.index < operand.count:
                return register_name("a", number - accum)
    return register_name("v", number)


def _text(
    row: list[int],
    ins: Instruction,
    other: Instruction | None,
    program: Program,
    memory: Memory,
    grid: tuple[int, int, int],
) -> tuple[str, str, str]:
    """(message, resource, needs) of a raw row."""
    kind, a, b, c = row[y.F_KIND], row[y.F_A], row[y.F_B], row[y.F_C]
    wave, other_wave = row[y.F_WAVE], row[y.F_OTHER_WAVE]
    here = f"{ins} at {ins.offset:#x}"
    there = f"{other} at {other.offset:#x}" if other is not None else ""
    if kind == y.MISSING_WAIT and a >= y.HUGE:
        place = _lds(a - y.HUGE)
        needs = _race_wait(c)
        return (
            f"wave {wave}: {here} reads {place}, which its own {there} may still be writing; "
            f"needs {needs} before it",
            place,
            needs,
        )
    if kind in (y.MISSING_WAIT, y.OVERWRITE):
        name = register_text(program, a, (ins, other))
        needs = _counter(b, c)
        verb = "uses" if kind == y.MISSING_WAIT else "overwrites"
        return (
            f"wave {wave}: {here} {verb} {name} while {there} may still be in flight; needs "
            f"{needs} before it",
            name,
            needs,
        )
    if kind in (y.RACE_RAW, y.RACE_WAR, y.RACE_WAW):
        return _race(row, here, there)
    if kind == y.WAIT_STATES:
        name = register_text(program, a, (ins, other))
        needs = f"s_nop {b - c - 1}"
        doubt = ""
        if other is not None:
            pair = strictest_pair(other, ins, program.kernel.descriptor.accum_offset)
            if pair[1:] in SHIPPED_WITHOUT:
                doubt = " (LLVM pads this pair; shipped kernels run without)"
        return (
            f"wave {wave}: {here} follows {there} on {name} after {c} wait states; {b} are "
            f"required: {needs} before it{doubt}",
            name,
            needs,
        )
    if kind == y.UNDEFINED_REGISTER:
        name = register_text(program, a, (ins,))
        return f"wave {wave}: {here} reads {name}, which was never written", name, "a write"
    if kind == y.UNSET_ARGUMENT:
        place = f"bytes {b:#x}..{b + 3:#x} of the argument segment"
        named = _argument_at(program, b)
        what = f"{register_text(program, a, (ins,))}, which holds " if a >= 0 else ""
        return (
            f"wave {wave}: {here} reads {what}{place}{named}, which nobody set",
            place,
            "an argument there",
        )
    if kind == y.UNDEFINED_LDS:
        place = _lds(a)
        return f"wave {wave}: {here} reads {place}, which was never written", place, "a write"
    if kind == y.BARRIER_UNEQUAL:
        text = f"wave {wave} passed {a} barriers, wave {other_wave} passed {b}"
        return text, "s_barrier", "equal barrier counts"
    if kind == y.NOT_ENDED:
        text = f"wave {wave} still runs, at {here}, {a} wave-instructions after the first finding"
        return (
            f"{text}: the workgroup was stopped there",
            "control flow",
            "the other findings' repairs",
        )
    if kind == y.LDS_BOUNDS:
        place = _lds(a, b)
        return (
            f"wave {wave}: {here} accesses {place}; the workgroup has {c:#x} bytes",
            place,
            "an address inside the allocation",
        )
    if kind == y.LDS_ALIGNMENT:
        place = _lds(a)
        text = f"wave {wave}: {here} accesses {place}, no multiple of {b}"
        return text, place, f"alignment {b}"
    if kind == y.GLOBAL_ALIGNMENT:
        address = memory.address_of(a)
        text = f"wave {wave}: {here} accesses {memory.place_in(address)}, no multiple of {b}"
        return text, memory.name_of(address), f"alignment {b}"
    if kind == y.RACE_GLOBAL:
        address = memory.address_of(a)
        return (
            f"wave {wave}: {here} accesses {memory.place_in(address)}, which workgroup "
            f"{workgroup_of(b, grid)} accesses with {there}: one of them is atomic, the other is "
            "not, and nothing orders two workgroups",
            memory.name_of(address),
            "atomic accesses on both sides, or two launches",
        )
    verb = "stores to" if c == 2 else "loads from"
    place = memory.place_in(a)
    return (
        f"wave {wave}: {here} {verb} {place}, where it may not",
        memory.name_of(a),
        "an address inside the buffer, or another access",
    )


def _argument_at(program: Program, byte: int) -> str:
    """ " (NAME)" of the declared argument that the dword at a byte of the segment belongs to."""
    info = program.kernel.info
    for argument in info.arguments if info else ():
        if argument.offset < byte + 4 and byte < argument.offset + argument.size:
            return f" ({argument.name})"
    return ""


def _lds(byte: int, size: int = 4) -> str:
    return f"LDS {byte:#x}..{byte + size - 1:#x}"


def _race_wait(code: int) -> str:
    newer, dma = code % 1000 - 1, code >= 1000
    if newer < 0:
        return ""
    return _counter(y.Q_VM if dma else y.Q_LDS, newer)


def _race(row: list[int], here: str, there: str) -> tuple[str, str, str]:
    kind, wave, other_wave = row[y.F_KIND], row[y.F_WAVE], row[y.F_OTHER_WAVE]
    place = _lds(row[y.F_A], 4 * max(row[y.F_B], 1))
    verbs = {
        y.RACE_RAW: ("reads", "writes"),
        y.RACE_WAR: ("overwrites", "reads"),
        y.RACE_WAW: ("overwrites", "writes"),
    }
    now, before = verbs[kind]
    wait = _race_wait(row[y.F_C])
    if other_wave == wave:
        needs = wait or "a wait"
        tail = f"needs {needs} between them"
    elif wait:
        needs = wait
        tail = f"wave {other_wave} needs {wait} and then a barrier that both waves pass"
    else:
        needs = "s_barrier"
        tail = "the wait is there; a barrier that both waves pass is missing"
    return (
        f"wave {wave}: {here} {now} {place} that wave {other_wave}'s {there} {before}, unordered: "
        f"{tail}",
        place,
        needs,
    )
