"""Which operands of an instruction are floats, and of what format: read off its mnemonic.

The naming scheme is that of the CDNA4 ISA guide: the type of the result and of the sources are
suffixes (`v_add_f32`, `v_cvt_pk_bf16_f32`: result first). f64 arithmetic is not described: the
engine executes none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from mlagen.binary import MachineInstruction
from mlagen.emulator.gfx950 import trace_layout as t

_FORMATS = {
    "f32": t.F32,
    "bf16": t.BF16,
    "f16": t.F16,
    "fp8": t.E4M3,
    "bf8": t.E5M2,
}
_LOW, _HIGH, _ALL = 0xFFFF, 0xFFFF0000, 0xFFFFFFFF
_DTYPES = {
    t.F32: np.dtype(np.float32),
    t.BF16: np.dtype(ml_dtypes.bfloat16),
    t.F16: np.dtype(np.float16),
    t.E4M3: np.dtype(ml_dtypes.float8_e4m3fn),
    t.E5M2: np.dtype(ml_dtypes.float8_e5m2),
}
NAMES = {t.F32: "f32", t.BF16: "bf16", t.F16: "f16", t.E4M3: "e4m3", t.E5M2: "e5m2"}


@dataclass(frozen=True, slots=True)
class ResultBits:
    """A piece of a result with a value of its own: (register offset, mask) of it and its sources.

    A source that the piece does not depend on has mask 0.
    """

    result: tuple[int, int]
    sources: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class FloatOperation:
    """Formats of the result and of three sources (BITS for integers), and the parts."""

    result: int
    sources: tuple[int, int, int]
    parts: tuple[ResultBits, ...]


_WHOLE = ResultBits((0, _ALL), ((0, _ALL),) * 3)


def values(form: int, bits: int) -> tuple[float, ...]:
    """The floats in a dword, lowest first: one f32, two halves or four bytes; () for BITS."""
    dtype = _DTYPES.get(form)
    if dtype is None:
        return ()
    word = np.array([bits], dtype=np.uint32)
    return tuple(float(value) for value in word.view(dtype))


def float_operation(ins: MachineInstruction) -> FloatOperation | None:
    """How a vector ALU instruction computes floats; None when its result is no float to it.

    Matrix instructions are not among them: see `matrix_formats`.
    """
    name = ins.mnemonic
    if name.startswith("v_cvt_"):
        return _conversion(ins)
    if name.startswith(("v_cmp", "v_frexp_exp", "v_mfma", "v_smfmac", "v_dot", "v_cndmask")):
        return None
    match = re.fullmatch(r"v_(pk_)?[a-z0-9_]*?[a-z0-9]_(f32|f16|bf16)", name)
    if match is None or name == "v_pk_mov_b32":
        return None
    form = _FORMATS[match[2]]
    if match[1]:
        return _packed(ins, form)
    sources = [form, form, form]
    if name.startswith("v_ldexp"):
        sources[1] = t.BITS
    parts = _WHOLE if form == t.F32 else ResultBits((0, _LOW), ((0, _LOW),) * 3)
    return FloatOperation(form, (sources[0], sources[1], sources[2]), (parts,))


def _packed(ins: MachineInstruction, form: int) -> FloatOperation:
    """Two results; op_sel and op_sel_hi choose the half (register or 16 bits) of each source."""
    high = ins.modifier("opsel_hi") | ins.modifier("opsel_hi2") << 2
    parts = []
    for half, select in enumerate((ins.modifier("opsel"), high)):
        bits = [select >> which & 1 for which in range(3)]
        if form == t.F32:
            parts.append(ResultBits((half, _ALL), tuple((bit, _ALL) for bit in bits)))
        else:
            masks = tuple((0, _HIGH if bit else _LOW) for bit in bits)
            parts.append(ResultBits((0, _HIGH if half else _LOW), masks))
    return FloatOperation(form, (form, form, form), tuple(parts))


_NO = (0, 0)


def _conversion(ins: MachineInstruction) -> FloatOperation | None:
    name = ins.mnemonic
    match = re.fullmatch(
        r"v_cvt_(?:scalef32_)?(pk_|pkrtz_|sr_)?(f32|bf16|f16|fp8|bf8)"
        r"_(f32|bf16|f16|fp8|bf8|i32|u32|i16|u16|ubyte[0-3])",
        name,
    )
    if match is None:
        return None
    kind, result, source = match[1] or "", _FORMATS[match[2]], _FORMATS.get(match[3], t.BITS)
    scaled = "_scalef32_" in name
    scale = (0, _ALL) if scaled else _NO
    narrow_result, narrow_source = match[2] in ("fp8", "bf8"), match[3] in ("fp8", "bf8")
    if scaled and (kind != "pk_" or match[3] in ("f16", "bf16")):
        return None  # with other operands, and not executed
    formats = (source, t.F32 if scaled else source, t.F32 if scaled and narrow_result else t.BITS)
    if narrow_source:
        return FloatOperation(result, formats, _widened(ins, result, kind, scale))
    if kind.startswith("pk"):
        width = 8 if narrow_result else 16
        base = 16 if narrow_result and ins.modifier("opsel") & 8 else 0
        masks = [((1 << width) - 1) << (base + i * width) for i in range(2)]
        low = ResultBits((0, masks[0]), ((0, _ALL), _NO, scale))
        return FloatOperation(
            result, formats, (low, ResultBits((0, masks[1]), (_NO, (0, _ALL), scale)))
        )
    whole = _ALL if result == t.F32 else 0xFF if narrow_result else _LOW
    taken = _ALL if source in (t.F32, t.BITS) else _LOW
    return FloatOperation(result, formats, (ResultBits((0, whole), ((0, taken), _NO, _NO)),))


def _widened(
    ins: MachineInstruction, result: int, kind: str, scale: tuple[int, int]
) -> tuple[ResultBits, ...]:
    """From 8-bit floats: one byte, or the two of a half, to one or two values."""
    select = ins.modifier("src0_sel") if ins.encoding.endswith("_SDWA") else 6
    if not kind:
        byte = select if select < 4 else 0
        return (ResultBits((0, _ALL), ((0, 0xFF << 8 * byte), scale, _NO)),)
    upper = select == 5 or bool(ins.modifier("opsel") & 1)
    parts = []
    for i in range(2):
        place = (i, _ALL) if result == t.F32 else (0, _HIGH if i else _LOW)
        parts.append(ResultBits(place, ((0, 0xFF << (16 * upper + 8 * i)), scale, _NO)))
    return tuple(parts)


def matrix_formats(ins: MachineInstruction) -> tuple[int, int]:
    """Formats of A and B of a matrix instruction with f32 results."""
    match = re.fullmatch(r"v_mfma_f32_\d+x\d+x\d+_(\w+)", ins.mnemonic)
    kinds = match[1] if match else ""
    if kinds == "f8f6f4":
        both = [(t.E4M3, t.E5M2)[ins.modifier(field) & 1] for field in ("cbsz", "blgp")]
        return both[0], both[1]
    names = kinds.removesuffix("_1k").split("_")
    return _FORMATS.get(names[0], t.BITS), _FORMATS.get(names[-1], t.BITS)
