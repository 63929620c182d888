"""Numbers of the operations the engine executes, and the table from mnemonics to them.

One row a mnemonic; what has no row is refused by name before a run starts.
"""

from __future__ import annotations

from typing import Final

from mlagen.emulator.gfx950.layout import (
    X_BARRIER,
    X_BRANCH,
    X_CARRY,
    X_COMPARE,
    X_END,
    X_LANE,
    X_LDS,
    X_MATRIX,
    X_NOP,
    X_PACKED,
    X_SALU,
    X_SMEM,
    X_VALU,
    X_VMEM,
    X_WAIT,
    X_WIDE,
)

# Vector operations with one 32-bit result a lane.
V_MOV_B32: Final = 0
V_NOT_B32: Final = 1
V_BFREV_B32: Final = 2
V_FFBH_U32: Final = 3
V_FFBL_B32: Final = 4
V_CVT_F32_I32: Final = 5
V_CVT_F32_U32: Final = 6
V_CVT_U32_F32: Final = 7
V_CVT_I32_F32: Final = 8
V_FRACT_F32: Final = 9
V_TRUNC_F32: Final = 10
V_CEIL_F32: Final = 11
V_RNDNE_F32: Final = 12
V_FLOOR_F32: Final = 13
V_EXP_F32: Final = 14
V_LOG_F32: Final = 15
V_RCP_F32: Final = 16
V_RSQ_F32: Final = 17
V_SQRT_F32: Final = 18
V_CNDMASK_B32: Final = 19
V_ADD_F32: Final = 20
V_SUB_F32: Final = 21
V_SUBREV_F32: Final = 22
V_MUL_F32: Final = 23
V_FMA_F32: Final = 24
V_FMAC_F32: Final = 25
V_MAX_F32: Final = 26
V_MIN_F32: Final = 27
V_MAX3_F32: Final = 28
V_MIN3_F32: Final = 29
V_MED3_F32: Final = 30
V_MUL_I32_I24: Final = 31
V_MUL_U32_U24: Final = 32
V_MUL_HI_U32_U24: Final = 33
V_MUL_LO_U32: Final = 34
V_MUL_HI_U32: Final = 35
V_MUL_HI_I32: Final = 36
V_MAD_U32_U24: Final = 37
V_MAD_I32_I24: Final = 38
V_ADD_U32: Final = 39
V_SUB_U32: Final = 40
V_SUBREV_U32: Final = 41
V_ADD3_U32: Final = 42
V_LSHL_ADD_U32: Final = 43
V_ADD_LSHL_U32: Final = 44
V_LSHL_OR_B32: Final = 45
V_AND_OR_B32: Final = 46
V_OR3_B32: Final = 47
V_XAD_U32: Final = 48
V_AND_B32: Final = 49
V_OR_B32: Final = 50
V_XOR_B32: Final = 51
V_XNOR_B32: Final = 52
V_LSHLREV_B32: Final = 53
V_LSHRREV_B32: Final = 54
V_ASHRREV_I32: Final = 55
V_BFE_U32: Final = 56
V_BFE_I32: Final = 57
V_BFI_B32: Final = 58
V_BFM_B32: Final = 59
V_ALIGNBIT_B32: Final = 60
V_ALIGNBYTE_B32: Final = 61
V_PERM_B32: Final = 62
V_MIN_I32: Final = 63
V_MAX_I32: Final = 64
V_MIN_U32: Final = 65
V_MAX_U32: Final = 66
V_MIN3_I32: Final = 67
V_MAX3_I32: Final = 68
V_MIN3_U32: Final = 69
V_MAX3_U32: Final = 70
V_MED3_I32: Final = 71
V_MED3_U32: Final = 72
V_CVT_PK_BF16_F32: Final = 73
V_CVT_PK_FP8_F32: Final = 74
V_CVT_PK_BF8_F32: Final = 75
V_MBCNT_LO: Final = 76
V_MBCNT_HI: Final = 77
V_LDEXP_F32: Final = 78
V_BITOP3_B32: Final = 79
V_BCNT_U32_B32: Final = 80
V_CVT_F32_UBYTE0: Final = 81
V_CVT_F32_UBYTE1: Final = 82
V_CVT_F32_UBYTE2: Final = 83
V_CVT_F32_UBYTE3: Final = 84

# Scalar operations.
S_MOV_B32: Final = 0
S_MOV_B64: Final = 1
S_NOT_B32: Final = 2
S_NOT_B64: Final = 3
S_BREV_B32: Final = 4
S_FF1_I32_B32: Final = 5
S_FLBIT_I32_B32: Final = 6
S_SEXT_I32_I8: Final = 7
S_SEXT_I32_I16: Final = 8
S_BCNT1_I32_B32: Final = 9
S_BCNT1_I32_B64: Final = 10
S_ABS_I32: Final = 11
S_AND_SAVEEXEC_B64: Final = 12
S_OR_SAVEEXEC_B64: Final = 13
S_ANDN2_SAVEEXEC_B64: Final = 14
S_CMOV_B32: Final = 15
S_CMOV_B64: Final = 16
S_ADD_U32: Final = 17
S_SUB_U32: Final = 18
S_ADD_I32: Final = 19
S_SUB_I32: Final = 20
S_ADDC_U32: Final = 21
S_SUBB_U32: Final = 22
S_MIN_I32: Final = 23
S_MIN_U32: Final = 24
S_MAX_I32: Final = 25
S_MAX_U32: Final = 26
S_CSELECT_B32: Final = 27
S_CSELECT_B64: Final = 28
S_AND_B32: Final = 29
S_AND_B64: Final = 30
S_OR_B32: Final = 31
S_OR_B64: Final = 32
S_XOR_B32: Final = 33
S_XOR_B64: Final = 34
S_ANDN2_B32: Final = 35
S_ANDN2_B64: Final = 36
S_ORN2_B32: Final = 37
S_ORN2_B64: Final = 38
S_NAND_B32: Final = 39
S_NOR_B32: Final = 40
S_XNOR_B32: Final = 41
S_XNOR_B64: Final = 42
S_LSHL_B32: Final = 43
S_LSHL_B64: Final = 44
S_LSHR_B32: Final = 45
S_LSHR_B64: Final = 46
S_ASHR_I32: Final = 47
S_ASHR_I64: Final = 48
S_BFM_B32: Final = 49
S_MUL_I32: Final = 50
S_MUL_HI_U32: Final = 51
S_MUL_HI_I32: Final = 52
S_BFE_U32: Final = 53
S_BFE_I32: Final = 54
S_LSHL1_ADD_U32: Final = 55
S_LSHL2_ADD_U32: Final = 56
S_LSHL3_ADD_U32: Final = 57
S_LSHL4_ADD_U32: Final = 58
S_PACK_LL_B32_B16: Final = 59
S_PACK_LH_B32_B16: Final = 60
S_PACK_HH_B32_B16: Final = 61
S_MOVK_I32: Final = 62
S_ADDK_I32: Final = 63
S_MULK_I32: Final = 64
S_CMOVK_I32: Final = 65
S_CMP_EQ_I32: Final = 66
S_CMP_LG_I32: Final = 67
S_CMP_GT_I32: Final = 68
S_CMP_GE_I32: Final = 69
S_CMP_LT_I32: Final = 70
S_CMP_LE_I32: Final = 71
S_CMP_EQ_U32: Final = 72
S_CMP_LG_U32: Final = 73
S_CMP_GT_U32: Final = 74
S_CMP_GE_U32: Final = 75
S_CMP_LT_U32: Final = 76
S_CMP_LE_U32: Final = 77
S_CMP_EQ_U64: Final = 78
S_CMP_LG_U64: Final = 79
S_BITCMP0_B32: Final = 80
S_BITCMP1_B32: Final = 81
S_SET_GPR_IDX_ON: Final = 82
S_SET_GPR_IDX_OFF: Final = 83
S_SET_GPR_IDX_IDX: Final = 84
S_BITSET0_B32: Final = 85
S_BITSET1_B32: Final = 86

# Vector compares: V_CMP + 16 * type + relation.
CMP_F32: Final = 0
CMP_I32: Final = 1
CMP_U32: Final = 2
CMP_I64: Final = 3
CMP_U64: Final = 4
CMP_CLASS: Final = 80
RELATIONS_F: Final = ("f", "lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt")
RELATIONS_F2: Final = ("nle", "neq", "nlt", "tru")
RELATIONS_I: Final = ("f", "lt", "eq", "le", "gt", "ne", "ge", "t")

# Packed f32 and other two-dword results.
PK_FMA: Final = 0
PK_MUL: Final = 1
PK_ADD: Final = 2
PK_MOV: Final = 3
WIDE_MOV: Final = 0
WIDE_LSHLREV: Final = 1
WIDE_LSHRREV: Final = 2
WIDE_LSHL_ADD: Final = 3
WIDE_ASHRREV: Final = 4
WIDE_CVT_FP8: Final = 5
WIDE_MAD_U64: Final = 6

# Adds with carry: bit 0 subtracts, bit 1 reverses the operands, bit 2 takes a carry in.
CARRY_SUB: Final = 1
CARRY_REVERSE: Final = 2
CARRY_IN: Final = 4

# Operations across lanes.
L_READFIRST: Final = 0
L_READ: Final = 1
L_WRITE: Final = 2
L_SWAP: Final = 3
L_PERMLANE32: Final = 4
L_PERMLANE16: Final = 5

# Matrix operations.
M_32X32X16_BF16: Final = 0
M_16X16X32_BF16: Final = 1
M_32X32X8_BF16: Final = 2
M_16X16X16_BF16: Final = 3
M_32X32X64_F8: Final = 4
M_16X16X128_F8: Final = 5
M_32X32X16_FP8: Final = 6
M_16X16X32_FP8: Final = 7
M_32X32X2_F32: Final = 8
M_16X16X4_F32: Final = 9

# Branches.
BR_ALWAYS: Final = 0
BR_SCC0: Final = 1
BR_SCC1: Final = 2
BR_VCCZ: Final = 3
BR_VCCNZ: Final = 4
BR_EXECZ: Final = 5
BR_EXECNZ: Final = 6

# LDS operations.
D_READ: Final = 0
D_WRITE: Final = 1
D_READ_TR16: Final = 2
D_READ_TR8: Final = 3
D_READ2: Final = 4
D_WRITE2: Final = 5
D_READ_SIGNED: Final = 6
D_BPERMUTE: Final = 7
D_PERMUTE: Final = 8
D_SWIZZLE: Final = 9

# Vector memory operations.
G_LOAD: Final = 0
G_STORE: Final = 1
G_LOAD_LDS: Final = 2
