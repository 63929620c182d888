"""Numbers of the operations the engine executes, one name each.

Operations that take the same way through the engine stand together: it asks for ranges of numbers.
"""

from __future__ import annotations

from typing import Final

# Vector operations with one 32-bit result a lane.
(
    # All lanes at once: `lanes.OPERATIONS`.
    V_MOV_B32, V_NOT_B32, V_ADD_F32, V_SUB_F32, V_SUBREV_F32, V_MUL_F32, V_FMA_F32, V_FMAC_F32,
    V_MAX_F32, V_MIN_F32, V_MAX3_F32, V_MIN3_F32, V_TRUNC_F32, V_CEIL_F32, V_RNDNE_F32, V_FLOOR_F32,
    V_EXP_F32, V_RCP_F32, V_SQRT_F32, V_CVT_F32_I32, V_CVT_F32_U32, V_CVT_F32_UBYTE0,
    V_CVT_F32_UBYTE1, V_CVT_F32_UBYTE2, V_CVT_F32_UBYTE3, V_CVT_F32_BF16, V_CVT_PK_BF16_F32,
    V_CVT_PK_FP8_F32, V_MUL_I32_I24, V_MUL_U32_U24, V_MUL_HI_U32_U24, V_MUL_LO_U32, V_MUL_HI_U32,
    V_MUL_HI_I32, V_MAD_U32_U24, V_MAD_I32_I24, V_ADD_U32, V_SUB_U32, V_SUBREV_U32, V_ADD3_U32,
    V_LSHL_ADD_U32, V_ADD_LSHL_U32, V_LSHL_OR_B32, V_AND_OR_B32, V_OR3_B32, V_XAD_U32, V_AND_B32,
    V_OR_B32, V_XOR_B32, V_XNOR_B32, V_LSHLREV_B32, V_LSHRREV_B32, V_ASHRREV_I32, V_BFE_U32,
    V_BFI_B32, V_BFM_B32, V_PERM_B32, V_MIN_I32, V_MAX_I32, V_MIN_U32, V_MAX_U32, V_MIN3_I32,
    V_MAX3_I32, V_MED3_I32, V_MIN3_U32, V_MAX3_U32, V_MED3_U32,
    # The same on halfwords; the upper half of the result is zero.
    V_ADD_U16, V_SUB_U16, V_SUBREV_U16, V_MUL_LO_U16, V_MAD_LEGACY_U16, V_LSHLREV_B16,
    V_LSHRREV_B16, V_ASHRREV_I16, V_MIN_U16, V_MAX_U16, V_MIN_I16, V_MAX_I16,
    # By a lane mask.
    V_CNDMASK_B32,
    # f32, lane by lane.
    V_LOG_F32, V_RSQ_F32, V_SIN_F32, V_COS_F32, V_FRACT_F32, V_MED3_F32, V_LDEXP_F32,
    # Integers, lane by lane.
    V_BITOP3_B32, V_BITOP3_B16, V_BFE_I32, V_ALIGNBIT_B32, V_ALIGNBYTE_B32, V_MBCNT_LO, V_MBCNT_HI,
    V_BCNT_U32_B32, V_BFREV_B32, V_FFBH_U32, V_FFBL_B32,
    # Steps of an f32 division.
    V_DIV_SCALE_F32, V_DIV_FMAS_F32, V_DIV_FIXUP_F32,
    # Conversions, lane by lane.
    V_CVT_U32_F32, V_CVT_I32_F32, V_CVT_F16_F32, V_CVT_F32_F16, V_CVT_PK_F16_F32,
    V_CVT_PKRTZ_F16_F32, V_CVT_F32_FP8, V_CVT_F32_BF8, V_CVT_SCALEF32_PK_BF16_FP8,
    # These, like V_CVT_PK_FP8_F32, write a half and keep the other.
    V_CVT_PK_BF8_F32, V_CVT_SCALEF32_PK_FP8_F32, V_CVT_SCALEF32_PK_BF8_F32,
) = range(113)  # fmt: skip

# Scalar operations.
(
    S_MOV_B32, S_MOV_B64, S_NOT_B32, S_NOT_B64, S_BREV_B32, S_FF1_I32_B32, S_FLBIT_I32_B32,
    S_SEXT_I32_I8, S_SEXT_I32_I16, S_BCNT1_I32_B32, S_BCNT1_I32_B64, S_ABS_I32, S_AND_SAVEEXEC_B64,
    S_OR_SAVEEXEC_B64, S_ANDN2_SAVEEXEC_B64, S_CMOV_B32, S_CMOV_B64, S_ADD_U32, S_SUB_U32,
    S_ADD_I32, S_SUB_I32, S_ADDC_U32, S_SUBB_U32, S_MIN_I32, S_MIN_U32, S_MAX_I32, S_MAX_U32,
    S_CSELECT_B32, S_CSELECT_B64, S_AND_B32, S_OR_B32, S_XOR_B32,
    S_ANDN2_B32, S_ORN2_B32, S_NAND_B32, S_NOR_B32, S_XNOR_B32, S_AND_B64, S_OR_B64, S_XOR_B64,
    S_ANDN2_B64, S_ORN2_B64, S_XNOR_B64,
    S_LSHL_B32, S_LSHL_B64, S_LSHR_B32, S_LSHR_B64, S_ASHR_I32, S_ASHR_I64, S_BFM_B32, S_MUL_I32,
    S_MUL_HI_U32, S_MUL_HI_I32, S_BFE_U32, S_BFE_I32, S_LSHL1_ADD_U32, S_LSHL2_ADD_U32,
    S_LSHL3_ADD_U32, S_LSHL4_ADD_U32, S_PACK_LL_B32_B16, S_PACK_LH_B32_B16, S_PACK_HH_B32_B16,
    S_MOVK_I32, S_ADDK_I32, S_MULK_I32, S_CMOVK_I32, S_CMP_EQ_I32, S_CMP_LG_I32, S_CMP_GT_I32,
    S_CMP_GE_I32, S_CMP_LT_I32, S_CMP_LE_I32, S_CMP_EQ_U32, S_CMP_LG_U32, S_CMP_GT_U32,
    S_CMP_GE_U32, S_CMP_LT_U32, S_CMP_LE_U32, S_CMP_EQ_U64, S_CMP_LG_U64, S_BITCMP0_B32,
    S_BITCMP1_B32, S_SET_GPR_IDX_ON, S_FF1_I32_B64, S_BFM_B64, S_BITSET0_B32, S_BITSET1_B32,
) = range(87)  # fmt: skip

# Vector compares: V_CMP + 16 * type + relation.
CMP_F32, CMP_I32, CMP_U32, CMP_I64, CMP_U64, _, CMP_I16, CMP_U16 = range(8)
CMP_CLASS: Final = 16 * 5
RELATIONS_F: Final = ("f", "lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt", "nle",
                      "neq", "nlt", "tru")  # fmt: skip
RELATIONS_I: Final = ("f", "lt", "eq", "le", "gt", "ne", "ge", "t")

# Packed f32 and other two-dword results.
PK_FMA, PK_MUL, PK_ADD, PK_MOV = range(4)
(
    WIDE_MOV, WIDE_LSHLREV, WIDE_LSHRREV, WIDE_LSHL_ADD, WIDE_ASHRREV, WIDE_CVT_FP8, WIDE_MAD_U64,
    WIDE_MAD_I64, WIDE_CVT_SCALED,
) = range(9)  # fmt: skip

# Adds with carry: bit 0 subtracts, bit 1 reverses the operands, bit 2 takes a carry in.
CARRY_SUB: Final = 1
CARRY_REVERSE: Final = 2
CARRY_IN: Final = 4

# Operations across lanes.
L_READFIRST, L_READ, L_WRITE, L_SWAP, L_PERMLANE32, L_PERMLANE16 = range(6)

# Matrix operations.
(
    M_32X32X16_BF16, M_16X16X32_BF16, M_32X32X8_BF16, M_16X16X16_BF16, M_32X32X64_F8,
    M_16X16X128_F8, M_32X32X16_FP8, M_16X16X32_FP8, M_32X32X2_F32, M_16X16X4_F32, M_32X32X16_F16,
    M_16X16X32_F16, M_32X32X8_F16, M_16X16X16_F16,
    # Integers.
    M_32X32X16_I8, M_16X16X32_I8, M_32X32X32_I8, M_16X16X64_I8,
) = range(18)  # fmt: skip

# Branches.
BR_ALWAYS, BR_SCC0, BR_SCC1, BR_VCCZ, BR_VCCNZ, BR_EXECZ, BR_EXECNZ = range(7)

# LDS operations.
(
    D_READ, D_WRITE, D_READ_TR16, D_READ_TR8, D_READ_TR6, D_READ_TR4, D_READ2, D_WRITE2,
    D_READ_SIGNED, D_BPERMUTE, D_PERMUTE, D_SWIZZLE,
) = range(12)  # fmt: skip

# Vector memory operations.
G_LOAD, G_STORE, G_LOAD_LDS, G_ATOMIC = range(4)

# What an atomic operation makes of the value in memory and its own.
(
    A_SWAP, A_ADD, A_SUB, A_SMIN, A_UMIN, A_SMAX, A_UMAX, A_AND, A_OR, A_XOR, A_INC, A_DEC,
    A_ADD_F32, A_PK_ADD_F16, A_PK_ADD_BF16,
) = range(15)  # fmt: skip
