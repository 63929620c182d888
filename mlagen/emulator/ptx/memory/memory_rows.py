"""What rows of the memory classes say, and the work space that they share.

X_LOAD and X_STORE: P_A address, P_IMM its offset, P_TYPE state space, P_TYPE2 bits of the address'
register, P_OP bytes of an item, P_COUNT twice the number of items: the list has their places, then
the bits of their registers. X_ATOMIC: the same, P_AUX words besides (see `atomics`).
"""

from __future__ import annotations

from typing import Final

GENERIC, GLOBAL, SHARED_CTA, SHARED_CLUSTER, LOCAL, PARAM, CONST = range(7)

# P_FLAGS
SIGNED: Final = 1  # items are extended with their sign
STRONG: Final = 2  # volatile, relaxed, acquire or release: others may write at the same time
ACQUIRE: Final = 4
RELEASE: Final = 8
TRANSPOSED: Final = 16  # of a matrix
NEGATED: Final = 32  # a predicate that is read

# P_AUX words
ITEMS: Final = 0  # how many items a lane moves
ARITHMETIC: Final = 1  # of an atomic operation: a type of `atomics`
ITEM_BYTES: Final = 2  # of an atomic operation

# Words of C_TEMP, which every instruction of these classes fills anew.
ADDRESSES: Final = 0  # 32: of each lane in its state space (shared: rank << 24 | offset)
HOSTS: Final = 32  # 32: where its bytes lie
SHARED_LANES: Final = 64  # mask of lanes whose address is in shared memory
GLOBAL_LANES: Final = 65
OLD: Final = 128  # 32 items of up to two words
"""Offsets above 2,048 words are free for what these classes call."""

# P_OP of X_MATRIX_MOVE
LDMATRIX, STMATRIX, MOVMATRIX = range(3)
# P_OP of X_COLLECTIVE. P_D: the member mask, NONE for the lanes that execute the instruction.
(
    SHFL_IDX,
    SHFL_UP,
    SHFL_DOWN,
    SHFL_BFLY,
    VOTE_ALL,
    VOTE_ANY,
    VOTE_UNI,
    VOTE_BALLOT,
    MATCH_ANY,
    MATCH_ALL,
    ELECT,
    ACTIVEMASK,
    WARP_BARRIER,
    REDUX_ADD,
    REDUX_AND,
    REDUX_OR,
    REDUX_XOR,
    REDUX_MIN,  # P_TYPE: UNSIGNED, SIGNED or FLOAT
    REDUX_MAX,
) = range(19)
# P_TYPE of redux
UNSIGNED_WORD, SIGNED_WORD, FLOAT_WORD = range(3)
# P_FLAGS of redux
MAGNITUDE: Final = 64  # .abs
KEEPS_NAN: Final = 128  # .NaN

# P_OP of X_ATOMIC
ADD, MIN, MAX, INC, DEC, AND, OR, XOR, EXCH, CAS = range(10)
# P_AUX + ARITHMETIC of X_ATOMIC
UNSIGNED, SIGNED_INTEGER, F32, F64, F16, BF16, F16X2, BF16X2 = range(8)
