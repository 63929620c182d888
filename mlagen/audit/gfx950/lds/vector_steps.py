"""Vector instructions as functions on a wave: lane by lane where they are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlagen.audit.gfx950.lds.expressions import Node, Scalar
from mlagen.audit.gfx950.lds.masks import combined
from mlagen.audit.gfx950.lds.operands import Step, destination, pair, sources_of
from mlagen.audit.gfx950.lds.wave import LANES, Wave
from mlagen.binary.instruction import MachineInstruction
from mlagen.binary.integers import MASK, RELATIONS, signed
from mlagen.binary.operand import EXEC, VCC


def vector_step(ins: MachineInstruction, accum: int, function: Callable[..., Any]) -> Step:
    name = ins.mnemonic
    target, sources = destination(ins), sources_of(ins, accum)
    register = target.index + (accum if target.kind == "a" else 0)

    def step(w: Wave) -> None:
        values = [read(w) for read in sources]
        if any(isinstance(value, Node) for value in values):
            w.write(register, w.expressions.of(name, *values))
        else:
            w.write(register, function(*values) & MASK)

    return step


def first_lane_step(ins: MachineInstruction, accum: int) -> Step | None:
    target, source = destination(ins).index, sources_of(ins, accum)[0]

    def step(w: Wave) -> None:
        value = source(w)
        if isinstance(value, np.ndarray):
            if not w.full:
                low, high = w.s[EXEC], w.s[EXEC + 1]
                if not isinstance(low, int) or not isinstance(high, int):
                    w.s[target] = w.expressions.opaque("v_readfirstlane_b32", value, low, high)
                    return
                active = low | high << 32 or 1
                value = value[(active & -active).bit_length() - 1]
            else:
                value = value[0]
            w.s[target] = int(value)
        elif isinstance(value, int) or w.full:
            w.s[target] = value
        else:
            w.s[target] = w.expressions.opaque(
                "v_readfirstlane_b32", value, w.s[EXEC], w.s[EXEC + 1]
            )

    return step


def read_lane_step(ins: MachineInstruction, accum: int) -> Step | None:
    target, (source, select) = destination(ins).index, sources_of(ins, accum)

    def step(w: Wave) -> None:
        value, lane = source(w), select(w)
        if isinstance(value, np.ndarray) and isinstance(lane, int):
            w.s[target] = int(value[lane & 63])
        elif isinstance(value, int):
            w.s[target] = value
        else:
            w.s[target] = w.expressions.opaque("v_readlane_b32", value, lane)

    return step


def below_step(ins: MachineInstruction, accum: int) -> Step | None:
    """v_mbcnt: set bits of a mask below the lane, in its lower or upper half."""
    target, (mask, add) = destination(ins), sources_of(ins, accum)
    shift = 32 if "_hi_" in ins.mnemonic else 0
    register = target.index + (accum if target.kind == "a" else 0)
    reach = [(1 << max(0, min(lane - shift, 32))) - 1 for lane in range(LANES)]

    def step(w: Wave) -> None:
        bits, base = mask(w), add(w)
        if isinstance(bits, int) and not isinstance(base, Node):
            count = np.array([(bits & r).bit_count() for r in reach], dtype=np.int64)
            w.write(register, (count + base) & MASK)
        else:
            w.write(register, w.expressions.opaque(ins.mnemonic, bits, base))

    return step


def compare_lanes_step(ins: MachineInstruction, accum: int) -> Step | None:
    """v_cmp: a bit a lane into VCC or a pair of scalars, and EXEC for v_cmpx."""
    prefix, _, rest = ins.mnemonic.removeprefix("v_").partition("_")
    relation, _, kind = rest.partition("_")
    if prefix not in ("cmp", "cmpx") or relation not in RELATIONS or kind not in ("i32", "u32"):
        return None
    sources = sources_of(ins, accum)
    target = ins.operand("vdst") or ins.operand("sdst")
    number = target.index if target is not None else VCC
    test = RELATIONS[relation]

    def step(w: Wave) -> None:
        a, b = (read(w) for read in sources)
        active = w.s[EXEC], w.s[EXEC + 1]
        low: Scalar
        high: Scalar
        known = not isinstance(a, Node) and not isinstance(b, Node)
        if known and isinstance(active[0], int) and isinstance(active[1], int):
            low, high = _bits(test, kind, a, b)
            low, high = low & active[0], high & active[1]
        else:
            if known:
                low, high = _bits(test, kind, a, b)
            else:
                low = high = w.expressions.of(f"v_cmp_{relation}_{kind}", a, b)
            low = combined(w.expressions, "and", low, active[0])
            high = combined(w.expressions, "and", high, active[1])
        w.s[number], w.s[number + 1] = low, high
        if prefix == "cmpx":
            w.s[EXEC], w.s[EXEC + 1] = low, high

    return step


def _bits(test: Callable[..., Any], kind: str, a: Any, b: Any) -> tuple[int, int]:
    """What a compare gives in all lanes, in halves."""
    if kind == "i32":
        a, b = signed(a), signed(b)
    holds = np.broadcast_to(np.asarray(test(a, b)), (LANES,))
    bits = sum(1 << lane for lane in np.flatnonzero(holds).tolist())
    return bits & MASK, bits >> 32


def conditional_mask_step(ins: MachineInstruction, accum: int) -> Step | None:
    """v_cndmask_b32."""
    target, sources = destination(ins), sources_of(ins, accum)
    register = target.index + (accum if target.kind == "a" else 0)
    chooser = ins.operand("src2")
    number = chooser.index if chooser is not None else VCC

    def step(w: Wave) -> None:
        a, b = sources[0](w), sources[1](w)
        low, high = w.s[number], w.s[number + 1]
        known = not isinstance(a, Node) and not isinstance(b, Node)
        if known and isinstance(low, int) and isinstance(high, int):
            bits = low | high << 32
            chosen = np.array([bits >> lane & 1 for lane in range(LANES)], dtype=bool)
            w.write(register, np.asarray(np.where(chosen, b, a)))
        else:
            w.write(register, w.expressions.of("v_cndmask_b32", a, b, low))

    return step


def move_wide_step(ins: MachineInstruction, accum: int) -> Step | None:
    """v_mov_b64."""
    target = destination(ins)
    register = target.index + (accum if target.kind == "a" else 0)
    source = next(operand for key, operand in ins.operands if "src" in key)
    if source.is_register and source.kind != "s":
        first = source.index + (accum if source.kind == "a" else 0)

        def step(w: Wave) -> None:
            low, high = w.read(first), w.read(first + 1)
            w.write(register, low)
            w.write(register + 1, high)

        return step
    both = pair(source)

    def constant(w: Wave) -> None:
        low, high = both(w)
        w.write(register, low)
        w.write(register + 1, high)

    return constant


def exchange_step(ins: MachineInstruction, accum: int) -> Step | None:
    """v_swap_b32, and the swaps of halves or rows: the upper 32 lanes of the destination against
    the lower 32 of the source, or odd rows of 16 lanes against even ones (CDNA4 ISA guide)."""
    target, source = destination(ins), ins.operand("vsrc0") or ins.operand("src0")
    assert source is not None, ins
    first = target.index + (accum if target.kind == "a" else 0)
    second = source.index + (accum if source.kind == "a" else 0)
    size = {"v_permlane16_swap_b32": 16, "v_permlane32_swap_b32": 32}.get(ins.mnemonic, 0)
    lane = np.arange(LANES)
    upper = (lane & size) != 0
    partner = lane ^ size

    def step(w: Wave) -> None:
        a, b = w.read(first), w.read(second)
        if isinstance(a, Node) or isinstance(b, Node) or not w.full:
            w.write(first, w.expressions.opaque(ins.mnemonic, 0, a, b))
            w.write(second, w.expressions.opaque(ins.mnemonic, 1, a, b))
            return
        if not size:
            w.write(first, b)
            w.write(second, a)
            return
        one, other = np.broadcast_to(a, (LANES,)), np.broadcast_to(b, (LANES,))
        w.write(first, np.asarray(np.where(upper, other[partner], one)))
        w.write(second, np.asarray(np.where(upper, other, one[partner])))

    return step
