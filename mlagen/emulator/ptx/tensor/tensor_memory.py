"""Tensor memory of a CTA, and what is kept of it.

Its 128 lanes of 512 columns of four bytes lie behind the CTA's shared memory, from C_TENSOR_AT on,
lane after lane; so the record of accesses has them as it has shared memory. An address of PTX is
lane << 16 | column.
"""

from __future__ import annotations

from typing import Final

from mlagen.targets.sm_100a.limits import SM_100A

LANES: Final = SM_100A.tmem_lanes
COLUMNS: Final = SM_100A.tmem_columns
LANE_BYTES: Final = 4 * COLUMNS
BYTES: Final = LANES * LANE_BYTES
UNIT: Final = SM_100A.tmem_alloc_min  # columns; allocations are of 1, 2, 4, 8 or 16 units
UNITS: Final = COLUMNS // UNIT

# Words of a CTA (int64).
(
    TC_RELINQUISHED,  # 1: the permit to allocate is given back
    TC_GROUP,  # .cta_group of the first instruction that has one; 0: none yet
    TC_GROUP_ROW,
) = range(3)
TC_OWNER: Final = 4  # UNITS words: 1 + first unit of the allocation that a unit is of; 0: free
TC_UNITS: Final = TC_OWNER + UNITS  # UNITS words: units of the allocation that begins there
TC_ROW: Final = TC_UNITS + UNITS  # UNITS words: its instruction
TC_SIZE: Final = 64
# Words of a warp, behind those of all CTAs.
(
    TW_ISSUED,  # tcgen05.mma and .cp so far
    TW_LOADS,  # tcgen05.wait::ld so far
    TW_STORES,  # tcgen05.wait::st so far
) = range(3)
TW_SIZE: Final = 8

# A register that a tcgen05.ld writes, in C_BUSY: this and waits << 24 | row.
LOADING: Final = 1 << 60

# P_OP
(
    ALLOC,
    DEALLOC,
    RELINQUISH,
    LOAD,
    STORE,
    WAIT_LOAD,
    WAIT_STORE,
    BEFORE,
    AFTER,
    MMA,
    COPY,
    COMMIT,
) = range(12)
# P_FLAGS
PAIR, WEIGHTS, IN_TENSOR, MASKED, PACKED, MULTICAST = 1, 2, 4, 8, 16, 32
# P_TYPE of loads and stores, by shape.
S32X32, S16X64, S16X128, S16X256, S16X32X2 = range(5)
# P_TYPE of products.
F16, TF32, F8F6F4, I8 = range(4)

# Words of an operation's data.
(
    D_TO,  # address of D
    D_A,  # descriptor of A, or its address in tensor memory
    D_B,
    D_WORD,  # instruction descriptor
    D_ADDS,
    D_SCALE,  # D is divided by 2 to this
) = range(6)
D_MASK: Final = 6  # two CTAs, two words each: lanes that are not written

# Operands of tcgen05.mma in a row's list.
M_TO, M_A, M_B, M_WORD, M_MASK = range(5)

# Rules that TENSOR_MISUSE and FAULT_TENSOR name.
(
    BAD_COLUMNS,
    AFTER_RELINQUISH,
    NOT_ALLOCATED,
    OTHER_ALLOCATION,
    LEAKED,
    OTHER_LANES,
    OUTSIDE,
    UNEQUAL,
    MIXED_GROUPS,
    NO_PAIR,
    BAD_WORD,
    BAD_SHAPE,
    BAD_MATRIX,
    SWIZZLE_32,
    LATE_ARRIVAL,
    BAD_LANE,
    OVERLAPS,
) = range(1, 18)
MISUSE: Final = {
    BAD_COLUMNS: "a number of columns that is no power of two from 32 to 512",
    AFTER_RELINQUISH: "an allocation after tcgen05.relinquish_alloc_permit of its block",
    NOT_ALLOCATED: "columns of tensor memory that the block has not allocated",
    OTHER_ALLOCATION: "what it frees is no allocation, or has another number of columns",
    LEAKED: "the block ends without tcgen05.dealloc of these columns",
    OTHER_LANES: "it names other lanes than its warp's own, 32 from 32 * (warp % 4) on",
    OUTSIDE: "it leads out of the 128 lanes and 512 columns",
    UNEQUAL: "its lanes do not agree on the address",
    MIXED_GROUPS: "a .cta_group other than the kernel's first",
    NO_PAIR: ".cta_group::2 without a pair of blocks, or issued by the odd one of a pair",
    BAD_WORD: "the instruction descriptor names types that the kind does not have, or sparsity",
    BAD_SHAPE: "the instruction descriptor names an M or N that the kind does not have",
    BAD_MATRIX: "the matrix descriptor is not of version 1, has a base offset or an unknown mode",
    SWIZZLE_32: "a swizzle of 128 bytes in chunks of 32 is not modelled",
    BAD_LANE: "D or A begins at a lane that M does not allow: 0, or 16 with 64 rows",
    OVERLAPS: "D lies over columns of A: no source says that A is read before D is written",
    LATE_ARRIVAL: "it arrives at an mbarrier of a block that has ended",
}
