"""Rows of wgmma and mma.sync. What their exact sums keep, arithmetic/dot.py says."""

from __future__ import annotations

import re

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.arithmetic.dot import rule_of
from mlagen.emulator.ptx.matrix import work_space as m
from mlagen.emulator.ptx.matrix.wgmma import COMMIT, FENCE, PRODUCT, WAIT
from mlagen.emulator.ptx.translate.rows import Row, Translation, Translator, not_modelled
from mlagen.emulator.ptx.translate.values.value_operands import bits_of
from mlagen.ptx import Instruction, Vector
from mlagen.ptx.effects import wgmma_operands
from mlagen.ptx.syntax import Operand

_TYPES = {"bf16": m.BF16, "f16": m.F16, "tf32": m.TF32, "e4m3": m.E4M3, "e5m2": m.E5M2,
          "s8": m.S8, "u8": m.U8}  # fmt: skip
_SUMS = {"f32": m.D_F32, "f16": m.D_F16, "s32": m.D_S32}
_PAIRS = (frozenset({m.E4M3, m.E5M2}), frozenset({m.S8, m.U8}))  # types that meet each other
# m16n8k…: elements of K that mma.sync has, by the type of A.
_MMA_DEPTHS = {m.BF16: (8, 16), m.F16: (8, 16), m.TF32: (4, 8), m.E4M3: (16, 32),
               m.E5M2: (16, 32), m.S8: (16, 32), m.U8: (16, 32)}  # fmt: skip
_MMA_F64 = {
    "m8n8k4": (1, 4),
    "m16n8k4": (2, 4),
    "m16n8k8": (2, 8),
    "m16n8k16": (2, 16),
}  # rows / 8, K
_MMA = re.compile(r"m16n8k(\d+)$")
_GROUPS = (1 << 32) - 1  # that wgmma.wait_group may leave
_HALVES = (m.BF16, m.F16)


def _sums(i: Instruction, types: tuple[str, str, str], instruction: str, saturated: bool) -> int:
    """X_SUMS of a product, from the types of D, A and B."""
    result, a, b = types
    kind_a, kind_b = _TYPES[a], _TYPES[b]
    meet = kind_a == kind_b or any({kind_a, kind_b} <= pair for pair in _PAIRS)
    integer = kind_a in (m.S8, m.U8)
    if not meet or integer != (result == "s32") or (saturated and not integer):
        raise not_modelled(i, f"types {result}, {a}, {b}{', saturated' if saturated else ''}")
    if result == "f16" and a in ("bf16", "tf32"):
        raise not_modelled(i, f"f16 sums of {a}")
    kind = _SUMS[result] << 16
    if integer:
        return kind | (m.SATURATED if saturated else 0) << 24
    rule = rule_of(instruction, a, result)
    flags = m.INTERLEAVED if rule.interleaved else 0
    return rule.window | rule.kept << 8 | kind | flags << 24


def _wgmma(t: Translator, i: Instruction) -> Row:
    what = i.parts[1]
    if what == "fence":
        return Row(y.X_WGMMA, FENCE, aligned=True)
    if what == "commit_group":
        return Row(y.X_WGMMA, COMMIT, aligned=True)
    if what == "wait_group":
        if not isinstance(i.operands[0], int) or not 0 <= i.operands[0] <= _GROUPS:
            raise not_modelled(i, f"its operand is no number of 0 to {_GROUPS}")
        return Row(y.X_WGMMA, WAIT, immediate=i.operands[0], aligned=True)
    if what != "mma_async" or "sp" in i.parts:
        raise not_modelled(i, "sparse products" if "sp" in i.parts else "")
    w = wgmma_operands(i)
    types = tuple(part for part in w.types if part != "satfinite")
    if len(types) != 3 or types[0] not in _SUMS or not set(types[1:]) <= set(_TYPES):
        raise not_modelled(i)
    summed = _sums(i, types, "wgmma", "satfinite" in i.parts)
    kind_a, kind_b = _TYPES[types[1]], _TYPES[types[2]]
    if w.k * bits_of(types[1]) != 256 or w.n % 8 or not 8 <= w.n <= 256:
        raise not_modelled(i, f"m{w.m}n{w.n}k{w.k} of {types[1]}")
    if (w.transposed_a and kind_a not in _HALVES) or (w.transposed_b and kind_b not in _HALVES):
        raise not_modelled(i, "a transposed operand that is neither bf16 nor f16")
    fragment = i.operands[1] if isinstance(i.operands[1], Vector) else None
    in_registers = fragment is not None
    sums = _items(t, i, i.operands[0], 32, written=True)
    a = _items(t, i, fragment, 32, written=True) if fragment else ()
    expected = w.n // 4 if types[0] == "f16" else w.n // 2
    if len(sums) != expected or len(a) not in (0, 4) or w.m != 64:
        raise not_modelled(i, f"D has {len(sums)} registers, A {len(a)}")
    adds = i.operands[3]
    signs = [x for x in i.operands[4:6] if isinstance(x, int)]
    negated = sum((s == -1 or s == 0xFFFFFFFF) << n for n, s in enumerate(signs))
    constant = isinstance(adds, int)
    layouts = w.transposed_a | w.transposed_b << 1 | in_registers << 2 | constant << 3
    held = [t.numbers[str(x)] for x in fragment.items] if fragment else []
    first, count = t.listed(held)
    return Row(
        y.X_WGMMA, PRODUCT,
        a=y.NONE if in_registers else t.source(i.operands[1], 64),
        b=t.source(i.operands[2], 64),
        c=y.NONE if constant else t.source(str(adds), 1),
        immediate=int(bool(adds)) if constant else 0,
        dst2=first, flags=count,
        items=(*sums, *a),
        aux=(w.n, w.k, kind_a, kind_b, negated, layouts, summed, len(sums)),
        aligned=True,
    )  # fmt: skip


def _mma_f64(t: Translator, i: Instruction, shape: str) -> Row:
    if shape not in _MMA_F64:
        raise not_modelled(i, f"f64 has the shapes {', '.join(_MMA_F64)}")
    halves, depth = _MMA_F64[shape]
    d, a, b, c = _four(t, i, 64)
    counts = (2 * halves, halves * depth // 4, depth // 4, 2 * halves)
    if (len(d), len(a), len(b), len(c)) != counts:
        raise not_modelled(i, f"D, A, B and C have {counts} registers")
    return Row(
        y.X_MMA,
        items=(*d, *a, *b, *c),
        aux=(8, depth, m.F64, m.F64, len(a), 0, m.D_F64 << 16, len(d)),
        aligned=True,
    )


def _items(
    t: Translator, i: Instruction, operand: Operand, bits: int, *, written: bool = False
) -> tuple[int, ...]:
    """Places of registers of that many bits: of a vector, or of one alone. Sources may be
    numbers."""
    found = operand.items if isinstance(operand, Vector) else (operand,)
    for item in found:
        register = isinstance(item, str) and item in t.places
        if (not register and written) or (isinstance(item, str) and not register):
            raise not_modelled(i, f"operand {item}")
        if register and t.width(item) != bits:
            raise not_modelled(i, f"{item} has {t.width(item)} bits, not {bits}")
    return tuple(t.source(item, bits) for item in found)


def _four(t: Translator, i: Instruction, bits: int) -> tuple[tuple[int, ...], ...]:
    """The registers of D, A, B and C."""
    return tuple(
        _items(t, i, operand, bits, written=number == 0)
        for number, operand in enumerate(i.operands)
    )


def _mma(t: Translator, i: Instruction) -> Row:
    """mma.sync.aligned.SHAPE.row.col{.satfinite}.D.A.B.C; nothing else is accepted."""
    d_type, a_type, b_type, c_type = types = i.parts[-4:]
    saturated = "satfinite" in i.parts
    shape = i.parts[3] if len(i.parts) > 3 else ""
    wanted = ("mma", "sync", "aligned", shape, "row", "col", *("satfinite",) * saturated, *types)
    if i.parts != wanted or d_type != c_type or len(i.operands) != 4:
        raise not_modelled(i)
    if types == ("f64",) * 4 and not saturated:
        return _mma_f64(t, i, shape)
    match = _MMA.match(shape)
    if match is None or a_type not in _TYPES or b_type not in _TYPES or d_type not in _SUMS:
        raise not_modelled(i, f"shape {shape} of {', '.join(types)}")
    depth, kind_a, kind_b = int(match[1]), _TYPES[a_type], _TYPES[b_type]
    if depth not in _MMA_DEPTHS[kind_a]:
        raise not_modelled(i, f"{a_type} has K of {' and '.join(map(str, _MMA_DEPTHS[kind_a]))}")
    summed = _sums(i, (d_type, a_type, b_type), "mma", saturated)
    d, a, b, c = _four(t, i, 32)
    many = 4 if depth == _MMA_DEPTHS[kind_a][1] else 2
    counts = (2 if d_type == "f16" else 4, many, many // 2)
    if (len(d), len(a), len(b)) != counts or len(c) != len(d):
        raise not_modelled(i, f"D, A and B have {counts} registers")
    return Row(
        y.X_MMA,
        items=(*d, *a, *b, *c),
        aux=(8, depth, kind_a, kind_b, len(a), 0, summed, len(d)),
        aligned=True,
    )


TRANSLATIONS: dict[str, Translation] = {"wgmma": _wgmma, "mma": _mma}
