"""Assembly text, as LLVM prints it for the probes, read into the generator's `HazardInfo`.

Only the instructions that the probes can produce; anything else is an error, so that no line of a
measurement is passed over. `s_nop` is no `HazardInfo` but a number of wait states.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from mlagen.targets.gfx950.codegen.hazards import EXEC, M0, VCC, HazardInfo, HazardKind, span

AGPR = 256
_RANGE = re.compile(r"^-?\|?([vas])\[(\d+):(\d+)\]\|?$")
_PLAIN = re.compile(r"^-?\|?([vas])(\d+)\|?$")
_NAMED = {
    "vcc": VCC,
    "vcc_lo": VCC & -VCC,
    "vcc_hi": VCC & (VCC - 1),
    "m0": M0,
    "exec": EXEC,
}
_NO_REGISTER = re.compile(
    r"^(-?[0-9][0-9a-fx.]*|off|\w+\(.*\)|\.?L\w+)$"  # number, off, hwreg(...), label
)
_TRANS = re.compile(r"^v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
_F32_MATRIX = re.compile(r"^v_mfma_f32_\w+_f32$")
_MATRIX_PASSES = {
    "v_mfma_f32_4x4x4_16b_bf16": 2,
    "v_mfma_f32_4x4x1_16b_f32": 2,
    "v_mfma_f32_16x16x32_bf16": 4,
    "v_mfma_f32_16x16x16_bf16": 4,
    "v_mfma_f32_16x16x4_f32": 8,
    "v_mfma_f32_32x32x16_bf16": 8,
    "v_mfma_f32_32x32x4_2b_bf16": 16,
    "v_mfma_f32_32x32x2_f32": 16,
    "v_mfma_scale_f32_16x16x128_f8f6f4": 8,
    "v_mfma_f32_16x16x128_f8f6f4": 8,  # with 8-bit data; half with 6 and 4 bits
    "v_mfma_f32_32x32x64_f8f6f4": 16,
}
# Conversions that write a part of the destination and keep the rest.
_KEEPS = re.compile(r"^v_cvt_(pk_fp8|pk_bf8|sr_fp8|sr_bf8|scalef32_\w+)_f32$")
_NO_EFFECT = re.compile(r"^s_(waitcnt|barrier|branch|cbranch_\w+|endpgm|setprio|sleep)$")


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction of a listing: its text, its effects and the `s_nop` states right before."""

    text: str
    info: HazardInfo
    nops: int = 0


def registers(operand: str) -> tuple[str, int]:
    """("v", mask) of a vector operand, ("s", mask) of a scalar one, ("", 0) of anything else."""
    if operand in _NAMED:
        return "s", _NAMED[operand]
    if match := _RANGE.match(operand):
        file, first, last = match[1], int(match[2]), int(match[3])
    elif match := _PLAIN.match(operand):
        file, first = match[1], int(match[2])
        last = first
    elif _NO_REGISTER.match(operand):
        return "", 0
    else:
        raise ValueError(f"neither a register nor a constant: {operand}")
    registers_mask = span(first + (AGPR if file == "a" else 0), last - first + 1)
    return ("s" if file == "s" else "v"), registers_mask


def _split(text: str) -> tuple[str, list[str], list[str]]:
    mnemonic, _, rest = text.partition(" ")
    operands = re.split(r",\s*(?![^\[(]*[\])])", rest.strip()) if rest.strip() else []
    modifiers: list[str] = []
    if operands:
        last = re.split(r" (?![^(]*\))", operands[-1])
        if last:
            operands[-1], modifiers = last[0], last[1:]
    return mnemonic, operands, modifiers


def parse(text: str) -> HazardInfo:
    """Effects of one instruction as LLVM prints it (no comment, not `s_nop`)."""
    mnemonic, operands, modifiers = _split(text)
    name = re.sub(r"_(e32|e64|dpp|sdwa)$", "", mnemonic)
    vectors, scalars = [], []
    for operand in operands:
        file, registers_mask = registers(operand)
        vectors.append(registers_mask if file == "v" else 0)
        scalars.append(registers_mask if file == "s" else 0)
    if name.startswith("v_"):
        return _vector(name, mnemonic, vectors, scalars, modifiers)
    if name.startswith("ds_"):
        info = HazardInfo(HazardKind.LDS, name)
        if name.startswith("ds_read"):
            return replace(info, vgpr_writes=vectors[0], vgpr_reads=vectors[1])
        return replace(info, vgpr_reads=_union(vectors))
    if name.startswith(("buffer_", "global_", "scratch_")):
        return _memory(name, vectors, scalars, modifiers)
    if name.startswith(("s_load_", "s_buffer_load_")):
        return HazardInfo(
            HazardKind.SMEM, name, sgpr_writes=scalars[0], sgpr_reads=_union(scalars[1:])
        )
    if name == "s_setreg_b32":
        return HazardInfo(HazardKind.SETREG, name, sgpr_reads=scalars[1])
    if name == "s_getreg_b32":
        return HazardInfo(HazardKind.GETREG, name, sgpr_writes=scalars[0])
    if name == "s_sendmsg":
        return HazardInfo(HazardKind.SENDMSG, name)
    if name in ("s_set_gpr_idx_on", "s_set_gpr_idx_off"):
        return HazardInfo(HazardKind.SALU, name, sgpr_reads=_union(scalars), sgpr_writes=M0)
    if _NO_EFFECT.match(name):
        return HazardInfo(HazardKind.OTHER, name)
    if name.startswith("s_"):
        return HazardInfo(
            HazardKind.SALU, name, sgpr_writes=scalars[0], sgpr_reads=_union(scalars[1:])
        )
    raise ValueError(f"no effects known for: {text}")


def _union(masks: list[int]) -> int:
    result = 0
    for registers_mask in masks:
        result |= registers_mask
    return result


def _vector(
    name: str, mnemonic: str, vectors: list[int], scalars: list[int], modifiers: list[str]
) -> HazardInfo:
    reads = _union(vectors[1:])
    if name.startswith("v_mfma_"):
        passes = _MATRIX_PASSES[name]
        narrow = any(re.match(r"(cbsz|blgp):[234]$", modifier) for modifier in modifiers)
        if name.endswith("f8f6f4") and narrow:
            passes //= 2
        kind = HazardKind.MFMA_F32 if _F32_MATRIX.match(name) else HazardKind.MFMA
        return HazardInfo(
            kind, name, passes, vgpr_reads=reads, vgpr_writes=vectors[0],
            src_ab=vectors[1] | vectors[2] | _union(vectors[4:]), src_c=vectors[3],
        )  # fmt: skip
    if name.startswith("v_dot"):
        own = vectors[0] if re.match(r"v_dot\dc_", name) else vectors[3]
        return HazardInfo(
            HazardKind.DOT, name, vgpr_reads=reads | own, vgpr_writes=vectors[0],
            src_ab=vectors[1] | vectors[2], src_c=own,
        )  # fmt: skip
    info = HazardInfo(
        HazardKind.VALU, name, vgpr_reads=reads, vgpr_writes=vectors[0],
        sgpr_writes=scalars[0], sgpr_reads=_union(scalars[1:]),
    )  # fmt: skip
    if name.startswith("v_cmp_"):
        return info
    if name in (
        "v_add_co_u32",
        "v_addc_co_u32",
        "v_sub_co_u32",
        "v_subb_co_u32",
        "v_div_scale_f32",
    ):
        return replace(info, sgpr_writes=scalars[1], sgpr_reads=_union(scalars[2:]))
    if name in ("v_readlane_b32", "v_readfirstlane_b32"):
        return replace(
            info, kind=HazardKind.READLANE, lane_select=_union(scalars[2:]), sgpr_reads=0
        )
    if name == "v_writelane_b32":
        return replace(
            info, kind=HazardKind.WRITELANE, vgpr_reads=vectors[0], sgpr_reads=scalars[1],
            lane_select=scalars[2],
        )  # fmt: skip
    if name in ("v_permlane16_swap_b32", "v_permlane32_swap_b32"):
        both = vectors[0] | vectors[1]
        return replace(info, kind=HazardKind.PERMLANE, vgpr_reads=both, vgpr_writes=both)
    if name == "v_div_fmas_f32":
        return replace(info, kind=HazardKind.DIV_FMAS)
    kind = HazardKind.TRANS if _TRANS.match(name) else HazardKind.VALU
    if mnemonic.endswith("_dpp"):
        kind = kind | HazardKind.DPP if kind is HazardKind.TRANS else HazardKind.DPP
        info = replace(info, vgpr_reads=reads | vectors[0])
    if _KEEPS.match(name):
        kind = HazardKind.CONVERT_PART
        info = replace(info, vgpr_reads=reads | vectors[0])
        selects = [modifier for modifier in modifiers if modifier.startswith("op_sel:")]
        if selects and selects[0].endswith("1]"):
            kind |= HazardKind.PARTIAL
    return replace(info, kind=kind)


def _memory(name: str, vectors: list[int], scalars: list[int], modifiers: list[str]) -> HazardInfo:
    if "lds" in modifiers or name.startswith("global_load_lds"):
        return HazardInfo(
            HazardKind.LDS_DMA, name, vgpr_reads=_union(vectors), sgpr_reads=_union(scalars)
        )
    info = HazardInfo(HazardKind.VMEM, name, sgpr_reads=_union(scalars))
    if "_load_" in name:
        return replace(info, vgpr_writes=vectors[0], vgpr_reads=_union(vectors[1:]))
    data = vectors[0] if name.startswith("buffer_") else vectors[1]
    scalar_offset = name.startswith("buffer_") and bool(scalars[3])
    wide = data if name.endswith(("x3", "x4")) else 0
    return replace(
        info,
        vgpr_reads=_union(vectors),
        store_data=0 if scalar_offset else wide,
        store_data_offset=wide if scalar_offset else 0,
    )


def listing(text: str) -> list[Line]:
    """Instructions of a listing in order, each with the wait states of the `s_nop` before it."""
    result = []
    nops = 0
    for raw in text.splitlines():
        line = re.sub(r"\s+", " ", raw.split(";")[0]).strip()
        if not line or line.startswith(".") or line.endswith(":"):
            continue
        if line.startswith("s_nop "):
            nops += int(line.removeprefix("s_nop "), 0) + 1
            continue
        result.append(Line(line, parse(line), nops))
        nops = 0
    return result
