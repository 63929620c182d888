"""Scalar instructions as functions on a wave: arithmetic, comparisons, masks, loads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.audit.gfx950.lds.expressions import Node, Scalar
from mlagen.audit.gfx950.lds.masks import BITWISE, combined
from mlagen.audit.gfx950.lds.operands import (
    Step,
    destination,
    pair,
    reader,
    relate,
    signed_short,
    sources_of,
)
from mlagen.audit.gfx950.lds.wave import Wave
from mlagen.binary.instruction import MachineInstruction
from mlagen.binary.integers import MASK, RELATIONS, SCALAR, SHORT, signed
from mlagen.binary.operand import EXEC, SCC

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


def scalar_step(ins: MachineInstruction) -> Step:
    integer = SCALAR[ins.mnemonic]
    name, target, function = ins.mnemonic, destination(ins).index, integer.function
    sources = sources_of(ins)
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


def short_step(ins: MachineInstruction) -> Step:
    name, target, function = ins.mnemonic, destination(ins).index, SHORT[ins.mnemonic]
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


def compare_step(ins: MachineInstruction, accum: int) -> Step | None:
    """s_cmp, s_cmpk and s_bitcmp."""
    name, _, rest = ins.mnemonic.removeprefix("s_").partition("_")
    relation, _, kind = rest.partition("_")
    if name == "cmpk":
        sources = [reader(ins.operands[0][1], accum)]
        constant = signed_short(ins) if kind == "i32" else ins.modifier("simm16")
        sources.append(lambda w: constant & MASK)
    else:
        sources = sources_of(ins)
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
        wide = [pair(operand) for key, operand in ins.operands if "src" in key]

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


def wide_step(ins: MachineInstruction, accum: int) -> Step | None:
    """s_mov_b64 and the bitwise operations on pairs, the saveexec forms included."""
    del accum
    name = ins.mnemonic.removeprefix("s_")
    target = ins.operand("sdst")
    if target is None or not name.endswith("_b64"):
        return None
    sources = [pair(operand) for key, operand in ins.operands if "src" in key]
    number = target.index
    if name == "not_b64":

        def invert(w: Wave) -> None:
            result = [combined(w.expressions, "xor", part, MASK) for part in sources[0](w)]
            w.s[number], w.s[number + 1] = result
            w.s[SCC] = _any(w, result)

        return invert
    if name == "mov_b64":

        def move(w: Wave) -> None:
            w.s[number], w.s[number + 1] = sources[0](w)

        return move
    save = name.endswith("_saveexec_b64")
    operation = name.removesuffix("_b64").removesuffix("_saveexec")
    if operation not in BITWISE:
        return None

    def step(w: Wave) -> None:
        first = sources[0](w)
        second = (w.s[EXEC], w.s[EXEC + 1]) if save else sources[1](w)
        result = [
            combined(w.expressions, operation, a, b) for a, b in zip(first, second, strict=True)
        ]
        if save:
            w.s[number], w.s[number + 1] = second
        into = EXEC if save else number
        w.s[into], w.s[into + 1] = result
        w.s[SCC] = _any(w, result)

    return step


def _any(w: Wave, mask: list[Scalar]) -> Scalar:
    """The condition code of a mask: whether it has a lane."""
    if all(isinstance(part, int) for part in mask):
        return int(any(mask))
    return w.expressions.of("lg_u64", *mask, 0, 0)


def select_step(ins: MachineInstruction, accum: int) -> Step | None:
    """s_cselect_b32 and _b64."""
    del accum
    target = destination(ins).index
    sources = [pair(operand) for key, operand in ins.operands if "src" in key]
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


def carry_step(ins: MachineInstruction, accum: int) -> Step | None:
    """s_addc_u32 and s_subb_u32."""
    del accum
    target, sources = destination(ins).index, sources_of(ins)
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


def load_step(ins: MachineInstruction) -> Step:
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
                w.s[number + part] = w.expressions.argument(offset + 4 * part)
            else:
                w.s[number + part] = w.expressions.leaf(
                    "memory", low, high, moving, offset + 4 * part
                )

    return step
