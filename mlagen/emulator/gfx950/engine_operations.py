"""From mnemonics to engine operations: one table, and nothing is executed that is not in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlagen.binary.operand import words
from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950 import opcodes as o

_ATOMICS = {name[2:].lower(): op for name, op in vars(o).items() if name.startswith("A_")}


@dataclass(frozen=True, slots=True)
class Opcode:
    """Engine class and operation of a mnemonic; `dwords`, `size`, `align` for memory accesses.

    `dwords`: registers a lane; `size`: bytes a lane; `align`: bytes a DS address must be a multiple
    of; `atomic`: an A_* number; `accumulators`: registers of C and D; `kinds`: 8-bit formats of A
    and B (bit set: e5m2).
    """

    kind: int
    op: int = 0
    dwords: int = 0
    size: int = 0
    align: int = 0
    signed: int = 0
    is_float: bool = False
    atomic: int = 0
    accumulators: int = 0
    kinds: int = 0


_FLOAT_OPS = frozenset(
    words(
        "fract trunc ceil rndne floor exp log rcp rsq sqrt sin cos add sub subrev mul fma fmac max "
        "min max3 min3 med3 ldexp div_scale div_fmas div_fixup"
    )
)


def _vector_entries() -> dict[str, Opcode]:
    """Constants V_* are named after the mnemonics; a few mnemonics share one."""
    table: dict[str, Opcode] = {}
    for name, op in vars(o).items():
        if name.startswith("V_"):
            stem = name[2:].lower()
            floats = stem.endswith("_f32") and stem.removesuffix("_f32") in _FLOAT_OPS
            floats = floats or stem.startswith("cvt_")
            table[f"v_{stem}"] = Opcode(y.X_VALU, op, is_float=floats)
    table["v_rcp_iflag_f32"] = Opcode(y.X_VALU, o.V_RCP_F32, is_float=True)
    table["v_fmamk_f32"] = Opcode(y.X_VALU, o.V_FMA_F32, is_float=True)
    table["v_fmaak_f32"] = Opcode(y.X_VALU, o.V_FMA_F32, is_float=True)
    table["v_add_i32"] = Opcode(y.X_VALU, o.V_ADD_U32)
    table["v_sub_i32"] = Opcode(y.X_VALU, o.V_SUB_U32)
    table["v_accvgpr_read_b32"] = Opcode(y.X_VALU, o.V_MOV_B32)
    table["v_accvgpr_write_b32"] = Opcode(y.X_VALU, o.V_MOV_B32)
    table["v_accvgpr_mov_b32"] = Opcode(y.X_VALU, o.V_MOV_B32)
    table["v_mbcnt_lo_u32_b32"] = table.pop("v_mbcnt_lo")
    table["v_mbcnt_hi_u32_b32"] = table.pop("v_mbcnt_hi")
    table["v_cndmask_b32"] = Opcode(y.X_VALU, o.V_CNDMASK_B32, is_float=True)
    return table


def _scalar_entries() -> dict[str, Opcode]:
    table = {}
    for name, op in vars(o).items():
        if name.startswith("S_"):
            table[f"s_{name[2:].lower()}"] = Opcode(y.X_SALU, op)
    for relation in ["eq", "lg", "gt", "ge", "lt", "le"]:
        for kind in ("i32", "u32"):
            op = getattr(o, f"S_CMP_{relation.upper()}_{kind.upper()}")
            table[f"s_cmpk_{relation}_{kind}"] = Opcode(y.X_SALU, op)
    table["s_set_gpr_idx_off"] = Opcode(y.X_NOP)
    return table


def _compare_entries() -> dict[str, Opcode]:
    table: dict[str, Opcode] = {}
    relations = {
        "f32": (o.CMP_F32, o.RELATIONS_F),
        "i32": (o.CMP_I32, o.RELATIONS_I),
        "u32": (o.CMP_U32, o.RELATIONS_I),
        "i64": (o.CMP_I64, o.RELATIONS_I),
        "u64": (o.CMP_U64, o.RELATIONS_I),
        "i16": (o.CMP_I16, o.RELATIONS_I),
        "u16": (o.CMP_U16, o.RELATIONS_I),
    }
    for suffix, (kind, names) in relations.items():
        for number, relation in enumerate(names):
            for prefix in ("v_cmp", "v_cmpx"):
                op = kind * 16 + number
                table[f"{prefix}_{relation}_{suffix}"] = Opcode(
                    y.X_COMPARE, op, is_float=suffix == "f32"
                )
    for prefix in ("v_cmp", "v_cmpx"):
        table[f"{prefix}_class_f32"] = Opcode(y.X_COMPARE, o.CMP_CLASS, is_float=True)
    return table


def _memory_entries() -> dict[str, Opcode]:
    table: dict[str, Opcode] = {}
    widths = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4}
    for prefix in ("buffer", "global"):
        for name, dwords in widths.items():
            table[f"{prefix}_load_{name}"] = Opcode(y.X_VMEM, o.G_LOAD, dwords, 4 * dwords)
            table[f"{prefix}_store_{name}"] = Opcode(y.X_VMEM, o.G_STORE, dwords, 4 * dwords)
        for name, size, signed in (
            ("ubyte", 1, 0),
            ("sbyte", 1, 1),
            ("ushort", 2, 0),
            ("sshort", 2, 1),
        ):
            table[f"{prefix}_load_{name}"] = Opcode(y.X_VMEM, o.G_LOAD, 1, size, signed=signed)
        for name, op in _ATOMICS.items():
            table[f"{prefix}_atomic_{name}"] = Opcode(y.X_VMEM, o.G_ATOMIC, 1, 4, atomic=op)
        table[f"{prefix}_store_byte"] = Opcode(y.X_VMEM, o.G_STORE, 1, 1)
        table[f"{prefix}_store_short"] = Opcode(y.X_VMEM, o.G_STORE, 1, 2)
    for name in ("dword", "dwordx3", "dwordx4"):
        dwords = widths[name]
        table[f"global_load_lds_{name}"] = Opcode(y.X_VMEM, o.G_LOAD_LDS, dwords, 4 * dwords)
    for name, dwords in (*widths.items(), ("dwordx8", 8), ("dwordx16", 16)):
        if name != "dwordx3":
            table[f"s_load_{name}"] = Opcode(y.X_SMEM, 0, dwords)
    for bits, dwords, align in ((32, 1, 4), (64, 2, 8), (96, 3, 16), (128, 4, 16)):
        table[f"ds_read_b{bits}"] = Opcode(y.X_LDS, o.D_READ, dwords, 4 * dwords, align)
        table[f"ds_write_b{bits}"] = Opcode(y.X_LDS, o.D_WRITE, dwords, 4 * dwords, align)
    for name, size in (("u8", 1), ("u16", 2)):
        table[f"ds_read_{name}"] = Opcode(y.X_LDS, o.D_READ, 1, size, size)
    for name, size in (("i8", 1), ("i16", 2)):
        table[f"ds_read_{name}"] = Opcode(y.X_LDS, o.D_READ_SIGNED, 1, size, size)
    for name, size in (("b8", 1), ("b16", 2)):
        table[f"ds_write_{name}"] = Opcode(y.X_LDS, o.D_WRITE, 1, size, size)
    for bits, dwords in ((32, 2), (64, 4)):
        for middle in ("2", "2st64"):
            size = 4 * dwords
            table[f"ds_read{middle}_b{bits}"] = Opcode(y.X_LDS, o.D_READ2, dwords, size, size // 2)
            table[f"ds_write{middle}_b{bits}"] = Opcode(
                y.X_LDS, o.D_WRITE2, dwords, size, size // 2
            )
    table["buffer_inv"] = table["buffer_wbl2"] = Opcode(y.X_CACHE, y.Q_VM)
    for name in ("inv", "wb", "inv_vol", "wb_vol"):
        table[f"s_dcache_{name}"] = Opcode(y.X_CACHE, y.Q_SMEM)
    table["ds_read_b64_tr_b16"] = Opcode(y.X_LDS, o.D_READ_TR16, 2, 8, 8)
    table["ds_read_b64_tr_b8"] = Opcode(y.X_LDS, o.D_READ_TR8, 2, 8, 8)
    table["ds_read_b64_tr_b4"] = Opcode(y.X_LDS, o.D_READ_TR4, 2, 8, 8)
    table["ds_read_b96_tr_b6"] = Opcode(y.X_LDS, o.D_READ_TR6, 3, 12, 16)
    table["ds_bpermute_b32"] = Opcode(y.X_LDS, o.D_BPERMUTE, 1, 4, 1)
    table["ds_permute_b32"] = Opcode(y.X_LDS, o.D_PERMUTE, 1, 4, 1)
    table["ds_swizzle_b32"] = Opcode(y.X_LDS, o.D_SWIZZLE, 1, 4, 1)
    return table


def _matrix_entries() -> dict[str, Opcode]:
    """Constants M_* are named after shape and format; FP8 stands for all pairs of 8-bit floats."""
    table: dict[str, Opcode] = {}
    for name, op in vars(o).items():
        if not name.startswith("M_"):
            continue
        shape, form = name.removeprefix("M_").lower().split("_")
        entry = Opcode(y.X_MATRIX, op, accumulators=16 if shape.startswith("32x32") else 4)
        if form == "fp8":
            for kinds, pair in enumerate(("fp8_fp8", "bf8_fp8", "fp8_bf8", "bf8_bf8")):
                table[f"v_mfma_f32_{shape}_{pair}"] = replace(entry, kinds=kinds)
        else:
            result, suffix = "i32" if form == "i8" else "f32", {"f8": "f8f6f4"}.get(form, form)
            table[f"v_mfma_{result}_{shape}_{suffix}"] = entry
    for old, new in (("32x32x8_bf16", "32x32x8_bf16_1k"), ("16x16x16_bf16", "16x16x16_bf16_1k")):
        table[f"v_mfma_f32_{new}"] = table[f"v_mfma_f32_{old}"]
    return table


def _other_entries() -> dict[str, Opcode]:
    carry, lane, wide = y.X_CARRY, y.X_LANE, y.X_WIDE
    return {
        "s_nop": Opcode(y.X_NOP),
        "v_nop": Opcode(y.X_NOP),
        "s_setprio": Opcode(y.X_NOP),
        "s_sleep": Opcode(y.X_NOP),
        "s_wakeup": Opcode(y.X_NOP),
        "s_icache_inv": Opcode(y.X_NOP),
        "s_incperflevel": Opcode(y.X_NOP),
        "s_decperflevel": Opcode(y.X_NOP),
        "s_waitcnt": Opcode(y.X_WAIT),
        "s_barrier": Opcode(y.X_BARRIER),
        "s_endpgm": Opcode(y.X_END),
        "s_branch": Opcode(y.X_BRANCH, o.BR_ALWAYS),
        "s_cbranch_scc0": Opcode(y.X_BRANCH, o.BR_SCC0),
        "s_cbranch_scc1": Opcode(y.X_BRANCH, o.BR_SCC1),
        "s_cbranch_vccz": Opcode(y.X_BRANCH, o.BR_VCCZ),
        "s_cbranch_vccnz": Opcode(y.X_BRANCH, o.BR_VCCNZ),
        "s_cbranch_execz": Opcode(y.X_BRANCH, o.BR_EXECZ),
        "s_cbranch_execnz": Opcode(y.X_BRANCH, o.BR_EXECNZ),
        "v_add_co_u32": Opcode(carry, 0),
        "v_sub_co_u32": Opcode(carry, o.CARRY_SUB),
        "v_subrev_co_u32": Opcode(carry, o.CARRY_SUB | o.CARRY_REVERSE),
        "v_addc_co_u32": Opcode(carry, o.CARRY_IN),
        "v_subb_co_u32": Opcode(carry, o.CARRY_IN | o.CARRY_SUB),
        "v_subbrev_co_u32": Opcode(carry, o.CARRY_IN | o.CARRY_SUB | o.CARRY_REVERSE),
        "v_readfirstlane_b32": Opcode(lane, o.L_READFIRST),
        "v_readlane_b32": Opcode(lane, o.L_READ),
        "v_writelane_b32": Opcode(lane, o.L_WRITE),
        "v_swap_b32": Opcode(lane, o.L_SWAP),
        "v_permlane32_swap_b32": Opcode(lane, o.L_PERMLANE32),
        "v_permlane16_swap_b32": Opcode(lane, o.L_PERMLANE16),
        "v_pk_fma_f32": Opcode(y.X_PACKED, o.PK_FMA),
        "v_pk_mul_f32": Opcode(y.X_PACKED, o.PK_MUL),
        "v_pk_add_f32": Opcode(y.X_PACKED, o.PK_ADD),
        "v_pk_mov_b32": Opcode(y.X_PACKED, o.PK_MOV),
        "v_mov_b64": Opcode(wide, o.WIDE_MOV),
        "v_lshlrev_b64": Opcode(wide, o.WIDE_LSHLREV),
        "v_lshrrev_b64": Opcode(wide, o.WIDE_LSHRREV),
        "v_ashrrev_i64": Opcode(wide, o.WIDE_ASHRREV),
        "v_lshl_add_u64": Opcode(wide, o.WIDE_LSHL_ADD),
        "v_mad_u64_u32": Opcode(wide, o.WIDE_MAD_U64),
        "v_mad_i64_i32": Opcode(wide, o.WIDE_MAD_I64),
        "v_cvt_pk_f32_fp8": Opcode(wide, o.WIDE_CVT_FP8),
        "v_cvt_pk_f32_bf8": Opcode(wide, o.WIDE_CVT_FP8),
        "v_cvt_scalef32_pk_f32_fp8": Opcode(wide, o.WIDE_CVT_SCALED),
        "v_cvt_scalef32_pk_f32_bf8": Opcode(wide, o.WIDE_CVT_SCALED),
    }


OPCODES: dict[str, Opcode] = {
    **_vector_entries(),
    **_scalar_entries(),
    **_compare_entries(),
    **_memory_entries(),
    **_matrix_entries(),
    **_other_entries(),
}
"""Every mnemonic the engine executes."""
