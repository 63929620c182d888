"""Raw findings of the engine to `SanitizerFinding` values with names and repairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mlagen.binary import MachineInstruction
from mlagen.binary.effects import PERMLANE
from mlagen.binary.exchanges import off_lane_gives
from mlagen.binary.hazards import by_letter, in_line, strictest_pair
from mlagen.binary.operand import register_name
from mlagen.emulator.findings import SanitizerFinding
from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950.memory import BufferArena
from mlagen.emulator.gfx950.translate import TranslatedKernel
from mlagen.severity import ERROR, LETTER, UNPROVED, Severity


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
    row: list[int], program: TranslatedKernel, memory: BufferArena, grid: tuple[int, int, int]
) -> SanitizerFinding:
    """One raw row as a Finding."""
    ins = program.instructions[row[y.F_ROW]]
    other = program.instructions[row[y.F_OTHER]] if row[y.F_OTHER] >= 0 else None
    wave, other_wave = row[y.F_WAVE], row[y.F_OTHER_WAVE]
    raw = _Raw(row, ins, other, program, memory, grid)
    kind, tell = _KINDS[row[y.F_KIND]]
    message, resource, needs = tell(raw)
    return SanitizerFinding(
        kind=kind,
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
        severity=_severity(raw),
    )


def _severity(raw: _Raw) -> Severity:
    """Defects are certain, but for pairs that AMD ships without wait states; for reads of LDS that
    would have to take longer than matrix instructions and a load from memory; and for lanes that
    are off: swaps of them are a doubt about hardware, and where data turns them off, what the
    others get may be meant."""
    kind = raw.row[y.F_KIND]
    if kind == y.RACE_OVERTAKEN:
        return LETTER if raw.overtakes_late else ERROR
    if kind == y.OFF_LANE:
        if raw.ins.mnemonic in PERMLANE:
            return LETTER
        return ERROR if raw.constant_exec else UNPROVED
    return LETTER if kind == y.WAIT_STATES and _padded_for_nothing(raw) else ERROR


def _padded_for_nothing(raw: _Raw) -> bool:
    """Whether wait states are missing by the letter only."""
    if raw.other is None:
        return False
    accum_offset = raw.program.kernel.descriptor.accum_offset
    _, made, used = strictest_pair(raw.other, raw.ins, accum_offset)
    code = raw.program.instructions[raw.row[y.F_OTHER] + 1 : raw.row[y.F_ROW]]
    return bool(raw.row[y.F_HELD]) or by_letter(made, used, raw.row[y.F_C], in_line(code))


def workgroup_of(linear: int, grid: tuple[int, int, int]) -> tuple[int, int, int]:
    """Position in the grid of a workgroup's number."""
    return (linear % grid[0], linear // grid[0] % grid[1], linear // (grid[0] * grid[1]))


def register_text(
    program: TranslatedKernel, number: int, users: Sequence[MachineInstruction | None]
) -> str:
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


@dataclass(frozen=True)
class _Raw:
    """A raw row and what its numbers are numbers of."""

    row: list[int]
    ins: MachineInstruction
    other: MachineInstruction | None
    program: TranslatedKernel
    memory: BufferArena
    grid: tuple[int, int, int]

    @property
    def numbers(self) -> tuple[int, int, int]:
        """What the kind of finding says of itself: A, B, C."""
        return self.row[y.F_A], self.row[y.F_B], self.row[y.F_C]

    @property
    def here(self) -> str:
        return f"wave {self.row[y.F_WAVE]}: {self.ins} at {self.ins.offset:#x}"

    @property
    def there(self) -> str:
        return f"{self.other} at {self.other.offset:#x}" if self.other is not None else ""

    @property
    def constant_exec(self) -> bool:
        """Whether EXEC was last set to a constant: the lanes are off whatever the data is."""
        other = self.other
        if other is None or not other.mnemonic.startswith("s_mov_b"):
            return False
        source = other.operand("ssrc0")
        return source is not None and not source.is_register

    @property
    def overtakes_late(self) -> bool:
        """Whether it is a load to LDS that comes late after a barrier."""
        return self.ins.offset in self.program.late_copies

    def register(self, number: int) -> str:
        return register_text(self.program, number, (self.ins, self.other))


_Told = tuple[str, str, str]  # message, resource, needs


def _in_flight(raw: _Raw) -> _Told:
    a, b, c = raw.numbers
    waits = raw.row[y.F_KIND] == y.MISSING_WAIT
    if waits and a >= y.HUGE:
        name = _lds(a - y.HUGE)
        needs = _race_wait(c)
        what = f"reads {name}, which its own {raw.there} may still be writing"
    else:
        name = raw.register(a)
        needs = _counter(b, c)
        verb = "uses" if waits else "overwrites"
        what = f"{verb} {name} while {raw.there} may still be in flight"
    return f"{raw.here} {what}; needs {needs} before it", name, needs


def _wait_states(raw: _Raw) -> _Told:
    a, b, c = raw.numbers
    name = raw.register(a)
    needs = f"s_nop {b - c - 1}"
    by_table = "shipped kernels, or LLVM's, have no more, or the matrix pipe is busy"
    doubt = f" ({by_table})" if _padded_for_nothing(raw) else ""
    return (
        f"{raw.here} follows {raw.there} on {name} after {c} wait states; {b} are required: "
        f"{needs} before it{doubt}",
        name,
        needs,
    )


def _undefined_register(raw: _Raw) -> _Told:
    name = register_text(raw.program, raw.row[y.F_A], (raw.ins,))
    return f"{raw.here} reads {name}, which was never written", name, "a write"


def _undefined_lds(raw: _Raw) -> _Told:
    place = _lds(raw.row[y.F_A])
    return f"{raw.here} reads {place}, which was never written", place, "a write"


def _unset_argument(raw: _Raw) -> _Told:
    a, b, _ = raw.numbers
    place = f"bytes {b:#x}..{b + 3:#x} of the argument segment"
    named = _argument_at(raw.program, b)
    what = f"{register_text(raw.program, a, (raw.ins,))}, which holds " if a >= 0 else ""
    text = f"{raw.here} reads {what}{place}{named}, which nobody set"
    return text, place, "an argument there"


def _barriers(raw: _Raw) -> _Told:
    a, b, _ = raw.numbers
    text = f"wave {raw.row[y.F_WAVE]} passed {a} barriers, wave {raw.row[y.F_OTHER_WAVE]} passed"
    return f"{text} {b}", "s_barrier", "equal barrier counts"


def _not_ended(raw: _Raw) -> _Told:
    wave, at = raw.row[y.F_WAVE], f"{raw.ins} at {raw.ins.offset:#x}"
    return (
        f"wave {wave} still runs, at {at}, {raw.row[y.F_A]} wave-instructions after the first "
        "finding: the workgroup was stopped there",
        "control flow",
        "the other findings' repairs",
    )


def _lds_bounds(raw: _Raw) -> _Told:
    a, b, c = raw.numbers
    place = _lds(a, b)
    text = f"{raw.here} accesses {place}; the workgroup has {c:#x} bytes"
    return text, place, "an address inside the allocation"


def _alignment(raw: _Raw) -> _Told:
    a, b, _ = raw.numbers
    place = name = _lds(a)
    if raw.row[y.F_KIND] == y.GLOBAL_ALIGNMENT:
        address = raw.memory.address_of(a)
        place, name = raw.memory.place_in(address), raw.memory.name_of(address)
    return f"{raw.here} accesses {place}, no multiple of {b}", name, f"alignment {b}"


def _partial_exec(raw: _Raw) -> _Told:
    lanes = raw.row[y.F_A] & (1 << 64) - 1
    off = f"{64 - lanes.bit_count()} of 64 lanes off"
    since = f", since {raw.there}" if raw.other is not None else ""
    return (
        f"{raw.here} exchanges data between lanes and needs all of them on, with {off}{since}: "
        "what it reads is not defined",
        "EXEC",
        "EXEC all ones",
    )


def _off_lane(raw: _Raw) -> _Told:
    lane, source, _ = raw.numbers
    since = f", since {raw.there}" if raw.other is not None else ""
    swapped = raw.ins.mnemonic in PERMLANE
    gives = "nothing published says what it gives" if swapped else off_lane_gives(raw.ins)
    return (
        f"{raw.here}: lane {lane} takes what lane {source} holds, which is off{since}; {gives}",
        "EXEC",
        "both lanes on",
    )


def _race_global(raw: _Raw) -> _Told:
    address = raw.memory.address_of(raw.row[y.F_A])
    return (
        f"{raw.here} accesses {raw.memory.place_in(address)}, which workgroup "
        f"{workgroup_of(raw.row[y.F_B], raw.grid)} accesses with {raw.there}: one of them is "
        "atomic, the other is not, and nothing orders two workgroups",
        raw.memory.name_of(address),
        "atomic accesses on both sides, or two launches",
    )


def _bounds(raw: _Raw) -> _Told:
    a, _, c = raw.numbers
    verb = "stores to" if c == 2 else "loads from"
    return (
        f"{raw.here} {verb} {raw.memory.place_in(a)}, where it may not",
        raw.memory.name_of(a),
        "an address inside the buffer, or another access",
    )


def _argument_at(program: TranslatedKernel, byte: int) -> str:
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


def _race(raw: _Raw) -> _Told:
    row = raw.row
    kind, wave, other_wave = row[y.F_KIND], row[y.F_WAVE], row[y.F_OTHER_WAVE]
    place = _lds(row[y.F_A], 4 * max(row[y.F_B], 1))
    verbs = {
        y.RACE_RAW: ("reads", "writes"),
        y.RACE_WAR: ("overwrites", "reads"),
        y.RACE_OVERTAKEN: ("overwrites", "reads"),
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
    if kind == y.RACE_OVERTAKEN and raw.overtakes_late:
        tail += "; the read was issued before the last barrier, and is the faster one as a rule"
    return (
        f"{raw.here} {now} {place} that wave {other_wave}'s {raw.there} {before}, unordered: "
        f"{tail}",
        place,
        needs,
    )


# How a finding is called, and who tells of it.
_KINDS: dict[int, tuple[str, Callable[[_Raw], _Told]]] = {
    y.MISSING_WAIT: ("missing-wait", _in_flight),
    y.OVERWRITE: ("overwrite-in-flight", _in_flight),
    y.RACE_RAW: ("race-raw", _race),
    y.RACE_WAR: ("race-war", _race),
    y.RACE_OVERTAKEN: ("race-war", _race),
    y.RACE_WAW: ("race-waw", _race),
    y.WAIT_STATES: ("wait-states", _wait_states),
    y.UNDEFINED_REGISTER: ("undefined-register", _undefined_register),
    y.UNDEFINED_LDS: ("undefined-lds", _undefined_lds),
    y.BARRIER_UNEQUAL: ("barrier-unequal", _barriers),
    y.LDS_BOUNDS: ("lds-bounds", _lds_bounds),
    y.LDS_ALIGNMENT: ("lds-alignment", _alignment),
    y.GLOBAL_BOUNDS: ("global-bounds", _bounds),
    y.NOT_ENDED: ("not-ended", _not_ended),
    y.UNSET_ARGUMENT: ("unset-argument", _unset_argument),
    y.PARTIAL_EXEC: ("partial-exec", _partial_exec),
    y.OFF_LANE: ("off-lane", _off_lane),
    y.GLOBAL_ALIGNMENT: ("global-alignment", _alignment),
    y.RACE_GLOBAL: ("race-global", _race_global),
}
