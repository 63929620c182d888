"""Instructions as functions on a wave: integers exactly, everything else as named unknowns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.audit.gfx950.lds.division import DIVISION
from mlagen.audit.gfx950.lds.expressions import DATA
from mlagen.audit.gfx950.lds.operands import Step
from mlagen.audit.gfx950.lds.scalar_steps import (
    carry_step,
    compare_step,
    load_step,
    scalar_step,
    select_step,
    short_step,
    wide_step,
)
from mlagen.audit.gfx950.lds.vector_steps import (
    below_step,
    compare_lanes_step,
    conditional_mask_step,
    exchange_step,
    first_lane_step,
    move_wide_step,
    read_lane_step,
    vector_step,
)
from mlagen.audit.gfx950.lds.wave import Wave
from mlagen.binary.effects import effects, is_matrix
from mlagen.binary.instruction import MachineInstruction
from mlagen.binary.integers import SCALAR, SHORT, VECTOR


def compile_step(ins: MachineInstruction, accum: int) -> Step:
    """The function of one instruction that is no memory access of LDS, wait or branch."""
    name = ins.mnemonic
    if ins.encoding == "SMEM" and name.startswith(("s_load", "s_buffer_load")):
        return load_step(ins)
    if not _plain_encoding(ins):
        return _unknown(ins, accum)
    if name in SCALAR:
        return scalar_step(ins)
    if name in SHORT:
        return short_step(ins)
    if name in VECTOR:
        return vector_step(ins, accum, VECTOR[name].function)
    if name in DIVISION:
        return vector_step(ins, accum, DIVISION[name])
    for prefix, make in _OTHERS.items():
        if name.startswith(prefix):
            step = make(ins, accum)
            if step is not None:
                return step
    return _unknown(ins, accum)


def _plain_encoding(ins: MachineInstruction) -> bool:
    changed = any(name in ("neg", "abs", "opsel", "omod", "clmp") for name, _ in ins.modifiers)
    return not changed and not ins.encoding.endswith(("_DPP", "_SDWA"))


def _unknown(ins: MachineInstruction, accum: int) -> Step:
    """Whatever else it computes gets a name made of its sources: equal sources, equal results."""
    found = effects(ins, accum)
    reads = [(a.file, a.base + i) for a in found.reads if a.role != "exec" for i in range(a.count)]
    writes = [(a.file, a.base + i) for a in found.writes for i in range(a.count)]
    label = (ins.mnemonic, ins.modifiers, *(str(o) for _, o in ins.operands if not o.is_register))
    # What these give is not the same when asked again, or not followed: a new name each time.
    fresh = ins.encoding == "DS" or is_matrix(ins)
    fresh = fresh or any(word in ins.mnemonic for word in ("atomic", "time", "getreg"))

    def step(w: Wave) -> None:
        values: tuple[Any, ...] = ()
        if fresh:
            w.place += 1
            values = (w.number, w.epoch, w.place)
        else:
            values = tuple(w.read(n) if file == "v" else w.s[n] for file, n in reads)
        for part, (file, number) in enumerate(writes):
            node = w.expressions.opaque(DATA if fresh else str(label), part, *values)
            if file == "v":
                w.write(number, node)
            else:
                w.s[number] = node

    return step


_OTHERS: dict[str, Callable[[MachineInstruction, int], Step | None]] = {
    "s_cmp": compare_step,
    "s_bitcmp": compare_step,
    "s_cselect": select_step,
    "s_addc": carry_step,
    "s_subb": carry_step,
    "s_mov_b64": wide_step,
    "s_and": wide_step,
    "s_or": wide_step,
    "s_xor": wide_step,
    "s_nand": wide_step,
    "s_nor": wide_step,
    "s_xnor": wide_step,
    "s_not_b64": wide_step,
    "v_readfirstlane": first_lane_step,
    "v_readlane": read_lane_step,
    "v_mbcnt": below_step,
    "v_cmp": compare_lanes_step,
    "v_cndmask": conditional_mask_step,
    "v_mov_b64": move_wide_step,
    "v_permlane16_swap": exchange_step,
    "v_permlane32_swap": exchange_step,
    "v_swap_b32": exchange_step,
}
