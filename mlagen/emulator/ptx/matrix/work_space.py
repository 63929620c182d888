"""Work space of the matrix instructions, and the wgmma of a warp that are on their way."""

from __future__ import annotations

from typing import Final

# Types of elements.
BF16, F16, TF32, E4M3, E5M2, S8, U8, F64, E2M3, E3M2, E2M1 = range(11)

ROWS: Final = 16  # of D that one warp has
DEPTH: Final = 32  # elements of K, at most
COLUMNS: Final = 256

# Places in C_TEMP, bytes. A is [ROWS][DEPTH], B is [DEPTH][COLUMNS], D is [ROWS][COLUMNS].
A_SIZE: Final = 4 * ROWS * DEPTH
B_SIZE: Final = 4 * DEPTH * COLUMNS
A_VALUE: Final = 0  # f32, or int32 of whole numbers
A_WHOLE: Final = A_VALUE + A_SIZE  # int32: significand with its sign
A_POWER: Final = A_WHOLE + A_SIZE  # int32: exponent of the significand's first bit
B_VALUE: Final = A_POWER + A_SIZE
B_WHOLE: Final = B_VALUE + B_SIZE
B_POWER: Final = B_WHOLE + B_SIZE
D_VALUE: Final = B_POWER + B_SIZE
C_VALUE: Final = D_VALUE + 4 * ROWS * COLUMNS  # of a sum to which C is added last
ODD: Final = C_VALUE + 4 * ROWS * COLUMNS  # f32: sums with NaN or Inf in them
SPECIAL: Final = ODD + 4 * ROWS * COLUMNS  # two int64: whether A has one, and B
A_WORDS: Final = SPECIAL + 64  # uint16: elements as they are
B_WORDS: Final = A_WORDS + 2 * ROWS * DEPTH
TEMP_BYTES: Final = B_WORDS + 2 * DEPTH * COLUMNS

# Words of a warp: counts of groups, then a ring of instructions on their way.
(
    Q_COMMITTED,  # groups
    Q_COMPLETE,
    Q_HEAD,  # number of the oldest instruction on its way
    Q_TAIL,
    Q_EPOCH,  # wgmma.fence executed so far
    Q_OPEN,  # instructions since the last commit
) = range(6)
Q_RING: Final = 16
RING: Final = 512  # instructions on their way, at most; one more retires the oldest
# An instruction on its way.
R_ROW, R_A, R_B, R_ADDS, R_GROUP = range(5)
R_SIZE: Final = 8
# What the last wgmma.fence left: how far the async proxy sees the warp's own accesses; and the
# wgmma.fence before the first instruction of a group.
KEPT: Final = 64
Q_SEEN: Final = Q_RING + RING * R_SIZE
Q_BEGUN: Final = Q_SEEN + KEPT
WORDS: Final = Q_BEGUN + KEPT

# P_AUX words of a row.
(
    X_N,
    X_K,
    X_TYPE_A,
    X_TYPE_B,
    X_SIGNS,  # bit 0: A is negated; bit 1: B
    X_LAYOUTS,  # bit 0: A is MN-major; bit 1: B; 2: A in registers; 3: scale-d is an immediate
    X_SUMS,  # bits of the window | of the fraction << 8 | type of D << 16 | flags << 24 (below)
    X_REGISTERS,  # of D
) = range(8)
D_F32, D_F16, D_S32, D_F64 = range(4)
SATURATED: Final = 1  # flags: whole numbers are held at the ends
INTERLEAVED: Final = 2  # two passes, of elements 0 and 1 of each four and of 2 and 3; C comes last
