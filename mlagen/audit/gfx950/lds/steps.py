"""Instructions as functions on a wave: integers exactly, everything else as named unknowns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlagen.audit.gfx950.lds.division import DIVISION
from mlagen.audit.gfx950.lds.expressions import DATA, Node, Scalar
from mlagen.audit.gfx950.lds.wave import LANES, Wave
from mlagen.binary.effects import effects, is_matrix
from mlagen.binary.instruction import EXEC, SCC, VCC, Instruction, Operand
from mlagen.binary.integers import MASK, RELATIONS, SCALAR, SHORT, VECTOR, signed

Step = Callable[[Wave], None]
Read = Callable[[Wave], Any]


def compile_step(ins: Instruction, accum: int) -> Step:
    """The function of one instruction that is no memory access of LDS, wait or branch."""
    name = ins.mnemonic
    if ins.encoding == "SMEM" and name.startswith(("s_load", "s_buffer_load")):
        return _load(ins)
    if not _plain_encoding(ins):
        return _unknown(ins, accum)
    if name in SCALAR:
        return _scalar(ins)
    if name in SHORT:
        return _short(ins)
    if name in VECTOR:
        return _vector(ins, accum, VECTOR[name].function)
    if name in DIVISION:
        return _vector(ins, accum, DIVISION[name])
    for prefix, make in _OTHERS.items():
        if name.startswith(prefix):
            step = make(ins, accum)
            if step is not None:
                return step
    return _unknown(ins, accum)


def _plain_encoding(ins: Instruction) -> bool:
    changed = any(name in ("neg", "abs", "opsel", "omod", "clmp") for name, _ in ins.modifiers)
    return not changed and not ins.encoding.endswith(("_DPP", "_SDWA"))


def reader(operand: Operand, accum: int) -> Read:
    """A function that reads the first dword of an operand."""
    if operand.kind == "s":
        number = operand.index
        return lambda w: w.s[number]
    if operand.is_register:
        register = operand.index + (accum if operand.kind == "a" else 0)
        return lambda w: w.read(register)
    bits = operand.bits
    return lambda w: bits


def _sources(ins: Instruction, accum: int = 0) -> list[Read]:
    return [reader(operand, accum) for name, operand in ins.operands if "src" in name]


def _destination(ins: Instruction) -> Operand:
    found = ins.operand("sdst") if ins.mnemonic.startswith("s_") else ins.operand("vdst")
    assert found is not None, ins
    return found


def _scalar(ins: Instruction) -> Step:
    integer = SCALAR[ins.mnemonic]
    name, target, function = ins.mnemonic, _destination(ins).index, integer.function
    sources = _sources(ins)
    scc = _condition_code(name, integer.scc)

    def step(w: Wave) -> None:
        values = [read(w) for read in sources]
        if any(isinstance(value, Node) for value in values):
            result: Scalar = w.expressions.of(name, *values)
        else:
            result = int(function(*values)) & MASK
        if scc is not None:
            w.s[SCC] = scc(w, values, result)
        w.s[target] = result

    return step


_OVERFLOW: dict[str, Callable[[int, int], bool]] = {
    "s_add_u32": lambda a, b: a + b > MASK,
    "s_sub_u32": lambda a, b: a < b,
    "s_add_i32": lambda a, b: not -0x80000000 <= signed(a) + signed(b) <= 0x7FFFFFFF,
    "s_sub_i32": lambda a, b: not -0x80000000 <= signed(a) - signed(b) <= 0x7FFFFFFF,
    "s_min_u32": lambda a, b: a < b,
    "s_max_u32": lambda a, b: a > b,
    "s_min_i32": lambda a, b: signed(a) < signed(b),
    "s_max_i32": lambda a, b: signed(a) > signed(b),
}
"""Condition codes of arithmetic, as functions of the sources (CDNA4 ISA guide, SOP2)."""
_NAMED = {"s_add_u32": "carry", "s_sub_u32": "borrow"}


def _condition_code(name: str, rule: str) -> Callable[[Wave, list[Any], Scalar], Scalar] | None:
    if not rule:
        return None
    if rule == "nonzero":
        return lambda w, _, result: relate(w, "lg", "u32", result, 0)
    exact = _OVERFLOW.get(name)

    def code(w: Wave, values: list[Any], _: Scalar) -> Scalar:
        if exact is not None and all(isinstance(value, int) for value in values):
            return int(exact(*values))
        if name in _NAMED:
            return w.expressions.of(_NAMED[name], *values, 0)
        return w.expressions.opaque(f"{name} scc", *values)

    return code


def relate(w: Wave, relation: str, kind: str, a: Scalar, b: Scalar) -> Scalar:
    """A comparison: 0 or 1, or a condition."""
    if isinstance(a, int) and isinstance(b, int):
        test = RELATIONS[relation]
        return int(test(signed(a), signed(b)) if kind == "i32" else test(a, b))
    return w.expressions.of(f"{relation}_{kind}", a, b)


def _short(ins: Instruction) -> Step:
    name, target, function = ins.mnemonic, _destination(ins).index, SHORT[ins.mnemonic]
    constant = signed_short(ins)
    same = {"s_addk_i32": "s_add_u32", "s_mulk_i32": "s_mul_i32"}.get(name)
    scc = _condition_code("s_add_i32", "other")
    assert scc is not None

    def step(w: Wave) -> None:
        old = w.s[target]
        if same is None or isinstance(old, int):
            w.s[target] = function(old if isinstance(old, int) else 0, constant) & MASK
        else:
            w.s[target] = w.expressions.of(same, old, constant & MASK)
        if name == "s_addk_i32":
            w.s[SCC] = scc(w, [old, constant & MASK], 0)

    return step


def signed_short(ins: Instruction) -> int:
    constant = ins.modifier("simm16")
    return constant - 0x10000 if constant & 0x8000 else constant


def _vector(ins: Instruction, accum: int, function: Callable[..., Any]) -> Step:
    name = ins.mnemonic
    target, sources = _destination(ins), _sources(ins, accum)
    register = target.index + (accum if target.kind == "a" else 0)

    def step(w: Wave) -> None:
        values = [read(w) for read in sources]
        if any(isinstance(value, Node) for value in values):
            w.write(register, w.expressions.of(name, *values))
        else:
            w.write(register, function(*values) & MASK)

    return step


def _compare(ins: Instruction, accum: int) -> Step | None:
    """s_cmp, s_cmpk and s_bitcmp."""
    name, _, rest = ins.mnemonic.removeprefix("s_").partition("_")
    relation, _, kind = rest.partition("_")
    if name == "cmpk":
        sources = [reader(ins.operands[0][1], accum)]
        constant = signed_short(ins) if kind == "i32" else ins.modifier("simm16")
        sources.append(lambda w: constant & MASK)
    else:
        sources = _sources(ins)
    if name.startswith("bitcmp"):
        wanted = int(name.endswith("1"))

        def bit(w: Wave) -> None:
            value, at = (read(w) for read in sources)
            if isinstance(value, int) and isinstance(at, int):
                w.s[SCC] = int((value >> (at & 31) & 1) == wanted)
            else:
                w.s[SCC] = relate(w, "eq", "u32", w.expressions.of("bit", value, at), wanted)

        return bit
    if relation not in RELATIONS:
        return None
    if kind == "u64":
        wide = [_pair(operand) for key, operand in ins.operands if "src" in key]

        def step64(w: Wave) -> None:
            parts: list[Any] = [part for read in wide for part in read(w)]
            if all(isinstance(part, int) for part in parts):
                a, b, c, d = parts
                w.s[SCC] = int(RELATIONS[relation](a | b << 32, c | d << 32))
            else:
                w.s[SCC] = w.expressions.of(f"{relation}_u64", *parts)

        return step64
    if kind not in ("i32", "u32"):
        return None

    def step(w: Wave) -> None:
        a, b = (read(w) for read in sources)
        w.s[SCC] = relate(w, relation, kind, a, b)

    return step


def _pair(operand: Operand) -> Callable[[Wave], tuple[Scalar, Scalar]]:
    if operand.kind == "s":
        number = operand.index
        return lambda w: (w.s[number], w.s[number + 1])
    low = operand.bits
    high = MASK if operand.kind == "inline" and low & 0x80000000 else 0
    return lambda w: (low, high)


_WIDE: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "andn2": lambda a, b: a & ~b & MASK,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def _wide(ins: Instruction, accum: int) -> Step | None:
    """s_mov_b64 and the bitwise operations on pairs, the saveexec forms included."""
    del accum
    name = ins.mnemonic.removeprefix("s_")
    target = ins.operand("sdst")
    if target is None or not name.endswith("_b64"):
        return None
    sources = [_pair(operand) for key, operand in ins.operands if "src" in key]
    number = target.index
    if name == "mov_b64":

        def move(w: Wave) -> None:
            w.s[number], w.s[number + 1] = sources[0](w)

        return move
    save = name.endswith("_saveexec_b64")
    operation = name.removesuffix("_b64").removesuffix("_saveexec")
    if operation not in _WIDE:
        return None
    function = _WIDE[operation]

    def step(w: Wave) -> None:
        first = sources[0](w)
        second = (w.s[EXEC], w.s[EXEC + 1]) if save else sources[1](w)
        result: list[Scalar] = []
        for a, b in zip(first, second, strict=True):
            if isinstance(a, int) and isinstance(b, int):
                result.append(function(a, b))
            else:
                result.append(_bitwise(w, operation, a, b))
        if save:
            w.s[number], w.s[number + 1] = second
        into = EXEC if save else number
        w.s[into], w.s[into + 1] = result
        if all(isinstance(part, int) for part in result):
            w.s[SCC] = int(any(result))
        else:
            w.s[SCC] = w.expressions.of("lg_u64", *result, 0, 0)

    return step


def _bitwise(w: Wave, operation: str, a: Scalar, b: Scalar) -> Scalar:
    """Half of a mask: all lanes and no lanes are common enough to keep exact."""
    for one, other in ((a, b), (b, a)):
        if operation == "and" and one == MASK:
            return other
        if operation == "or" and one == 0:
            return other
        if (operation == "and" and one == 0) or (operation == "or" and one == MASK):
            return one
    return w.expressions.of(f"s_{operation}_b32", a, b)


def _select(ins: Instruction, accum: int) -> Step | None:
    """s_cselect_b32 and _b64."""
    del accum
    target = _destination(ins).index
    sources = [_pair(operand) for key, operand in ins.operands if "src" in key]
    count = 2 if ins.mnemonic.endswith("b64") else 1

    def step(w: Wave) -> None:
        condition, (first, second) = w.s[SCC], (read(w) for read in sources)
        for part in range(count):
            if isinstance(condition, int):
                w.s[target + part] = (first if condition else second)[part]
            else:
                w.s[target + part] = w.expressions.of(
                    "select", condition, first[part], second[part]
                )

    return step


def _carry(ins: Instruction, accum: int) -> Step | None:
    """s_addc_u32 and s_subb_u32."""
    del accum
    target, sources = _destination(ins).index, _sources(ins)
    add = "addc" in ins.mnemonic

    def step(w: Wave) -> None:
        a, b = (read(w) for read in sources)
        c = w.s[SCC]
        if all(isinstance(value, int) for value in (a, b, c)):
            total = a + b + c if add else a - b - c
            w.s[target], w.s[SCC] = total & MASK, int(not 0 <= total <= MASK)
            return
        first = _sum(w, "s_add_u32" if add else "s_sub_u32", a, b)
        w.s[SCC] = w.expressions.of("carry" if add else "borrow", a, b, c)
        w.s[target] = _sum(w, "s_add_u32" if add else "s_sub_u32", first, c)

    return step


def _sum(w: Wave, op: str, a: Scalar, b: Scalar) -> Scalar:
    if isinstance(a, int) and isinstance(b, int):
        return int(SCALAR[op].function(a, b)) & MASK
    return w.expressions.of(op, a, b)


def _first_lane(ins: Instruction, accum: int) -> Step | None:
    target, source = _destination(ins).index, _sources(ins, accum)[0]

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


def _read_lane(ins: Instruction, accum: int) -> Step | None:
    target, (source, select) = _destination(ins).index, _sources(ins, accum)

    def step(w: Wave) -> None:
        value, lane = source(w), select(w)
        if isinstance(value, np.ndarray) and isinstance(lane, int):
            w.s[target] = int(value[lane & 63])
        elif isinstance(value, int):
            w.s[target] = value
        else:
            w.s[target] = w.expressions.opaque("v_readlane_b32", value, lane)

    return step


def _below(ins: Instruction, accum: int) -> Step | None:
    """v_mbcnt: set bits of a mask below the lane, in its lower or upper half."""
    target, (mask, add) = _destination(ins), _sources(ins, accum)
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


def _compare_lanes(ins: Instruction, accum: int) -> Step | None:
    """v_cmp: a bit a lane into VCC or a pair of scalars, and EXEC for v_cmpx."""
    prefix, _, rest = ins.mnemonic.removeprefix("v_").partition("_")
    relation, _, kind = rest.partition("_")
    if prefix not in ("cmp", "cmpx") or relation not in RELATIONS or kind not in ("i32", "u32"):
        return None
    sources = _sources(ins, accum)
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
            if kind == "i32":
                a, b = signed(a), signed(b)
            holds = np.broadcast_to(np.asarray(test(a, b)), (LANES,))
            bits = sum(1 << lane for lane in np.flatnonzero(holds).tolist())
            low, high = bits & active[0], bits >> 32 & active[1]
        elif w.full:
            low = high = w.expressions.of(f"v_cmp_{relation}_{kind}", a, b)
        else:
            low = w.expressions.opaque(ins.mnemonic, 0, a, b, *active)
            high = w.expressions.opaque(ins.mnemonic, 1, a, b, *active)
        w.s[number], w.s[number + 1] = low, high
        if prefix == "cmpx":
            w.s[EXEC], w.s[EXEC + 1] = low, high

    return step


def _conditional_mask(ins: Instruction, accum: int) -> Step | None:
    """v_cndmask_b32."""
    target, sources = _destination(ins), _sources(ins, accum)
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


def _move_wide(ins: Instruction, accum: int) -> Step | None:
    """v_mov_b64."""
    target = _destination(ins)
    register = target.index + (accum if target.kind == "a" else 0)
    source = next(operand for key, operand in ins.operands if "src" in key)
    if source.is_register and source.kind != "s":
        first = source.index + (accum if source.kind == "a" else 0)

        def step(w: Wave) -> None:
            low, high = w.read(first), w.read(first + 1)
            w.write(register, low)
            w.write(register + 1, high)

        return step
    pair = _pair(source)

    def constant(w: Wave) -> None:
        low, high = pair(w)
        w.write(register, low)
        w.write(register + 1, high)

    return constant


def _exchange(ins: Instruction, accum: int) -> Step | None:
    """v_swap_b32, and the swaps of halves or rows: the upper 32 lanes of the destination against
    the lower 32 of the source, or odd rows of 16 lanes against even ones (CDNA4 ISA guide)."""
    target, source = _destination(ins), ins.operand("vsrc0") or ins.operand("src0")
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


def _load(ins: Instruction) -> Step:
    """Scalar loads: words of memory, the same for equal addresses."""
    target, base = ins.operand("sdata"), ins.operand("sbase")
    assert target is not None and base is not None, ins
    extra = ins.operand("soffset")
    fixed = ins.modifier("offset")
    number, count, at = target.index, target.count, base.index
    index = reader(extra, 0) if extra is not None and extra.kind != "off" else None

    def step(w: Wave) -> None:
        low, high, offset = w.s[at], w.s[at + 1], fixed
        moving: Scalar = index(w) if index is not None else 0
        if isinstance(moving, int):
            offset, moving = offset + moving, 0
        kernarg = isinstance(low, Node) and low.args[:1] == ("kernarg pointer",) and moving == 0
        for part in range(count):
            if kernarg:
                w.s[number + part] = w.expressions.leaf("kernarg", offset + 4 * part)
            else:
                w.s[number + part] = w.expressions.leaf(
                    "memory", low, high, moving, offset + 4 * part
                )

    return step


def _unknown(ins: Instruction, accum: int) -> Step:
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


_OTHERS: dict[str, Callable[[Instruction, int], Step | None]] = {
    "s_cmp": _compare,
    "s_bitcmp": _compare,
    "s_cselect": _select,
    "s_addc": _carry,
    "s_subb": _carry,
    "s_mov_b64": _wide,
    "s_and": _wide,
    "s_or": _wide,
    "s_xor": _wide,
    "v_readfirstlane": _first_lane,
    "v_readlane": _read_lane,
    "v_mbcnt": _below,
    "v_cmp": _compare_lanes,
    "v_cndmask": _conditional_mask,
    "v_mov_b64": _move_wide,
    "v_permlane16_swap": _exchange,
    "v_permlane32_swap": _exchange,
    "v_swap_b32": _exchange,
}
