"""Rows of wgmma and mma.sync.

Steps and fraction bits of the exact sums: see arithmetic/dot.py.
"""

from __future__ import annotations

import re

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.matrix import layout as m
from mlagen.emulator.ptx.matrix.wgmma import COMMIT, FENCE, PRODUCT, WAIT
from mlagen.emulator.ptx.translate.rows import Row, Translation, Translator, not_modelled
from mlagen.ptx import Instruction, Vector
from mlagen.ptx.effects import Wgmma, wgmma_operands
from mlagen.ptx.syntax import Operand

_TYPES = {"bf16": m.BF16, "f16": m.F16, "tf32": m.TF32, "e4m3": m.E4M3, "e5m2": m.E5M2,
          "s8": m.S8, "u8": m.U8}  # fmt: skip
_SUMS = {"f32": m.D_F32, "f16": m.D_F16, "s32": m.D_S32}
# Of wgmma: elements of K that are added up in one step, the bits kept behind the greatest exponent,
# and those of an f32 result's fraction.
_STEPS = {m.BF16: (16, 25, 23), m.F16: (16, 25, 23), m.TF32: (8, 25, 23), m.E4M3: (32, 13, 13),
          m.E5M2: (32, 13, 13), m.S8: (32, 0, 0), m.U8: (32, 0, 0)}  # fmt: skip
# Of mma.sync with f64: rows of A, and its columns.
_DOUBLES = {"m8n8k4": (8, 4), "m16n8k4": (16, 4), "m16n8k8": (16, 8), "m16n8k16": (16, 16)}
_MMA = re.compile(r"m16n8k(\d+)$")
# Of mma.sync: the numbers of elements of K that each type has.
_DEPTHS = {m.BF16: (8, 16), m.F16: (8, 16), m.TF32: (4, 8), m.E4M3: (16, 32), m.E5M2: (16, 32),
           m.S8: (16, 32), m.U8: (16, 32)}  # fmt: skip
_GROUPS = (1 << 32) - 1  # that wgmma.wait_group may leave
_HALVES = (m.BF16, m.F16)


def _sums(kind: int, depth: int, result: str) -> int:
    step, fraction, kept = _STEPS[kind]
    if result == "f16":
        kept = 10
    return min(step, depth) | fraction << 8 | kept << 16 | _SUMS[result] << 24


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
    if w.types[1] not in _TYPES or w.types[2] not in _TYPES or w.types[0] not in _SUMS:
        raise not_modelled(i)
    if "satfinite" in i.parts:
        raise not_modelled(i, ".satfinite")
    kind_a, kind_b = _TYPES[w.types[1]], _TYPES[w.types[2]]
    fragment = i.operands[1] if isinstance(i.operands[1], Vector) else None
    in_registers = fragment is not None
    _check_shape(i, w, kind_a, kind_b)
    sums = _registers(t, i, i.operands[0])
    a = _registers(t, i, fragment) if fragment else ()
    expected = w.n // 4 if w.types[0] == "f16" else w.n // 2
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
        aux=(w.n, w.k, kind_a, kind_b, negated, layouts, _sums(kind_a, w.k, w.types[0]), len(sums)),
        aligned=True,
    )  # fmt: skip


def _check_shape(i: Instruction, w: Wgmma, kind_a: int, kind_b: int) -> None:
    """The engine's work space has room for the shapes of the ISA, and for no others."""
    if w.n % 8 or not 8 <= w.n <= m.COLUMNS or w.k != _STEPS[kind_a][0]:
        raise not_modelled(i, f"its shape for {w.types[1]}")
    if _STEPS[kind_b][0] != w.k:
        raise not_modelled(i, f"{w.types[1]} by {w.types[2]}")
    if (w.transposed_a and kind_a not in _HALVES) or (w.transposed_b and kind_b not in _HALVES):
        raise not_modelled(i, "a transposed operand that is neither bf16 nor f16")


def _registers(t: Translator, i: Instruction, operand: Operand, bits: int = 32) -> tuple[int, ...]:
    """Places of registers, of which none may be left out."""
    inner = operand.items if isinstance(operand, Vector) else (operand,)
    if "_" in inner:
        raise not_modelled(i, "a register that is left out")
    return tuple(t.register(item, bits) for item in inner)


def _doubles(t: Translator, i: Instruction) -> Row:
    """mma.sync of f64."""
    shape = _DOUBLES.get(i.parts[3])
    if i.parts != ("mma", "sync", "aligned", i.parts[3], "row", "col", *4 * ("f64",)) or not shape:
        raise not_modelled(i)
    rows, depth = shape
    d, a, b = (_registers(t, i, operand, 64) for operand in i.operands[:3])
    c = t.items(i.operands[3], 64)
    sums = rows // 4
    if (len(d), len(a), len(b), len(c)) != (sums, rows * depth // 32, depth // 4, sums):
        raise not_modelled(i, f"D has {len(d)} registers, A {len(a)}, B {len(b)}")
    aux = (8, depth, m.F64, m.F64, len(a), 0, m.D_F64 << 24, sums)
    return Row(y.X_MMA, items=(*d, *a, *b, *c), aux=aux, aligned=True)


def _mma(t: Translator, i: Instruction) -> Row:
    if i.parts[-1] == "f64":
        return _doubles(t, i)
    shapes = [match for part in i.parts if (match := _MMA.match(part))]
    types = i.parts[-4:]
    known = bool(shapes) and types[0] == types[3] and types[0] in _SUMS and "sp" not in i.parts
    if not known or types[1] not in _TYPES or types[2] not in _TYPES or "satfinite" in i.parts:
        raise not_modelled(i)
    if i.parts[4:6] != ("row", "col") and "row" not in i.parts:
        raise not_modelled(i, "its layouts")
    depth = int(shapes[0].group(1))
    kind_a, kind_b = _TYPES[types[1]], _TYPES[types[2]]
    if depth not in _DEPTHS[kind_a] or depth not in _DEPTHS[kind_b]:
        raise not_modelled(i, f"k{depth} of {types[1]} by {types[2]}")
    d, a, b = (_registers(t, i, operand) for operand in i.operands[:3])
    c = t.items(i.operands[3])
    sums, wide = (2 if types[0] == "f16" else 4), depth // max(_DEPTHS[kind_a]) * 2 + 2
    if (len(d), len(a), len(b), len(c)) != (sums, wide, wide // 2, sums):
        raise not_modelled(i, f"D has {len(d)} registers, A {len(a)}, B {len(b)}, C {len(c)}")
    return Row(
        y.X_MMA,
        items=(*d, *a, *b, *c),
        aux=(8, depth, kind_a, kind_b, len(a), 0, _sums(kind_a, depth, types[0]), len(d)),
        aligned=True,
    )


TRANSLATIONS: dict[str, Translation] = {"wgmma": _wgmma, "mma": _mma}
