"""Records of agents: operations on their way, mbarriers, named barriers, groups, tensor maps."""

from __future__ import annotations

from typing import Final

OPS: Final = 4096  # slots of the ring
OP_SIZE: Final = 32  # int64 a slot
OP_DATA: Final = 96  # int64 more, a slot
MBARRIERS: Final = 64  # of a CTA
MB_SIZE: Final = 16
NAMED: Final = 17  # of a CTA: 16 barriers; the last is the cluster's, in the first CTA's table
NB_SIZE: Final = 16
CLUSTER_BARRIER: Final = 16
GROUPS: Final = 192  # int64 a warp

# ---- operands of a row: three words each in its list -------------------------------------------
# place, bits of the register (32 or 64; 0: the place is the number itself), bytes to add
OPERAND: Final = 3

# ---- mbarriers (int64) -------------------------------------------------------------------------
(
    MB_ADDRESS,  # rank << RANK_SHIFT | offset
    MB_VALID,
    MB_BASE,  # phases that earlier mbarriers of this slot had, so that phases only grow
    MB_PHASE,  # phases complete
    MB_PENDING,  # arrivals that are missing
    MB_EXPECTED,  # arrivals of the next phase
    MB_TX,  # bytes that are missing
    MB_WORD,  # what lies in shared memory
    MB_WANTED,  # MB_BASE + MB_PHASE when somebody began to wait; -1
    MB_ROW,  # that initialised it
    MB_SHOWN,  # 1: a fence has shown it to agents
    MB_BY,  # the warp that initialised it
    MB_CLOCK,  # its clock then
) = range(13)
MB_MAGIC: Final = 0x6D6261 << 40  # of the word in shared memory, above the slot's number
MOST_ARRIVALS: Final = (1 << 20) - 1  # PTX ISA 9.0, "Contents of the mbarrier object"
MOST_BYTES: Final = (1 << 20) - 1

# Rules that MBARRIER_MISUSE names.
(
    NOT_INITIALISED,
    OVERWRITTEN,
    TOO_MANY_ARRIVALS,
    TOO_MANY_BYTES,
    BAD_COUNT,
    STALE_STATE,
    INITIALISED_TWICE,
    NO_COMPLETE,
    OTHER_CTA,
    LEFT_BEHIND,
    SPLIT_ARRIVALS,
    NOT_SHOWN,
) = range(1, 13)
MISUSE: Final = {
    NOT_INITIALISED: "there is no mbarrier at the address: not initialised, or invalidated",
    OVERWRITTEN: "something else wrote over the mbarrier",
    TOO_MANY_ARRIVALS: "more arrivals than the phase expects",
    TOO_MANY_BYTES: "the bytes of transactions leave their range of 2^20 - 1",
    BAD_COUNT: "a count that is not 1 to 2^20 - 1",
    STALE_STATE: "the state is not of the current phase nor of the one before",
    INITIALISED_TWICE: "an mbarrier that is in use is initialised again",
    NO_COMPLETE: "an arrival with .noComplete completes the phase",
    OTHER_CTA: "the mbarrier is in another CTA than the instruction may name",
    LEFT_BEHIND: "a wait by parity slept through a whole phase",
    SPLIT_ARRIVALS: "a phase ends in the middle of one instruction's arrivals",
    NOT_SHOWN: "no fence.mbarrier_init or fence.proxy.async shows its initialisation to agents",
}

# ---- named barriers (int64) --------------------------------------------------------------------
(
    NB_COUNT,  # threads that this generation waits for; 0: not said yet
    NB_WHOLE,  # 1: all threads of the CTA
    NB_ARRIVED,  # threads, as the barrier counts: whole warps
    NB_THREADS,  # threads that did arrive
    NB_GENERATION,  # how many are complete
    NB_TRUE,  # threads whose predicate of .red is true
    NB_RED,  # threads that gave one
    NB_DONE_TRUE,  # the same of the last complete generation
    NB_DONE_RED,
    NB_ROW,
    NB_WARPS,  # warps of the CTA that have arrived, a bit each
    NB_BEFORE,  # the same in the last complete generation,
    NB_LAST,  # and a row of it
) = range(13)

# ---- groups of a warp (int64) ------------------------------------------------------------------
# An *epoch* of cp.async ends with a commit and with an arrival on an mbarrier: what completes up to
# there is known together.
GR_BULK: Final = 0  # 32 words: number of the lane's open bulk group
GR_COPY: Final = 32  # 32 words: of its open cp.async group
GR_EPOCH: Final = 64  # the warp's open epoch of cp.async
GR_AT_BARRIER: Final = 65  # lanes that arrived at a barrier and wait there
GR_AT_CLUSTER: Final = 66  # lanes that arrived at the cluster's barrier in this generation
GR_REGISTERS: Final = 67  # registers a thread has; 0: as at launch
GR_EPOCHS: Final = 68  # 64 words: epoch in which the group of this number (mod 64) was committed
GR_KEPT: Final = 64
GR_CLUSTER_OPEN: Final = 132  # lanes that arrived at the cluster's barrier and did not wait yet
GR_FENCED: Final = 133  # 1: a fence makes the next relaxed arrival there a release

# ---- operations (int64) ------------------------------------------------------------------------
(
    O_KIND,
    O_STATE,  # ON_ITS_WAY or DONE
    O_ROW,
    O_WARP,
    O_MASK,  # lanes that have not landed
    O_CTA,  # of the warp
    O_MBARRIER,  # slot in the cluster; -1
    O_PHASE,  # MB_BASE + MB_PHASE when issued
    O_BYTES,
    O_GROUP,  # of the lane: bulk groups
    O_SOURCE,  # host address
    O_DEST,  # host address, or rank << RANK_SHIFT | offset where several CTAs get it
    O_SHARED,  # address in shared memory that is read or written
    O_CTAS,  # ranks that a copy goes to
    O_HOW,  # of a reduction: its number, 0 for none; see copies
    O_TYPE,
    O_VALUES,  # five words: coordinates, rows of gather4
) = range(17)
O_ROWS: Final = 21  # four words: rows of gather4 and scatter4
O_FLAGS: Final = 25
ON_ITS_WAY, DONE = range(2)
(
    LANES,  # cp.async: of the lanes in O_MASK, data: host addresses (32 from, 32 to), 32 sizes
    ARRIVAL,  # cp.async.mbarrier.arrive, after the warp's copies so far
    TO_SHARED,  # bulk, to shared memory, with an mbarrier
    TO_GLOBAL,  # bulk, from shared to global memory
    TENSOR_TO_SHARED,  # data: the map's words
    TENSOR_TO_GLOBAL,
    WORDS,  # st.async, red.async: data: the value
    TENSOR_MMA,  # data: D_ words of tensor_memory; O_GROUP: number of those that the warp issued
    TENSOR_COPY,  # O_DEST: address, O_SOURCE: descriptor
    TENSOR_COMMIT,
) = range(10)

# ---- what a launch's clusters share: words of C_GRID -------------------------------------------
GRID_UNFINISHED: Final = 0  # grids that griddepcontrol.wait waits for
GRID_LAUNCHED: Final = 1  # executions of griddepcontrol.launch_dependents
GRID_NEXT: Final = 2  # where clusters may take others' work: the next that has not begun
GRID_END: Final = 3  # behind the last one; 0: nothing can be taken
GRID_PER: Final = 4  # three words: clusters in x, y, z
GRID_CLUSTER: Final = 7  # three words: CTAs of a cluster

# ---- tensor maps (int64) -----------------------------------------------------------------------
(
    M_BASE,
    M_RANK,
    M_TYPE,  # number of PTX's tensormap.replace .elemtype
    M_ELEMENT,  # bytes
    M_INTERLEAVE,
    M_SWIZZLE,  # 0, 32, 64, 128 bytes: 0 to 3
    M_FILL,  # 0: zeros, 1: NaN
    M_CHECKED,  # 1: the host made it, and it was checked
    M_DIMS,  # five words: elements
) = range(9)
M_STRIDES: Final = 13  # five words: bytes; the first is M_ELEMENT
M_BOX: Final = 18  # five words: elements
M_STEPS: Final = 23  # five words: every how many elements one is taken; not along the first
M_SIZE: Final = 32
MAP_BYTES: Final = 128
MAP_MAGIC: Final = 0x70616D5F736F7274  # first word of a map in memory; the second: row of C_MAPS
# First word of one that a kernel made by tensormap.replace, and where that keeps its fields.
MAP_EDITED: Final = 0x70616D5F74696465
ME_BASE: Final = 1  # words
ME_KINDS: Final = 2  # bytes: rank - 1, type, interleave, swizzle, fill
ME_DIMS: Final = 3  # five 32-bit numbers
ME_STRIDES: Final = 6  # four words
ME_BOX: Final = 10  # five 16-bit numbers, then five bytes of steps
(T_U8, T_U16, T_U32, T_S32, T_U64, T_S64, T_F16, T_F32, T_F32_FTZ, T_F64, T_BF16) = range(11)
# Rules that MAP_MISUSE names.
BAD_FIELDS, NOT_A_MAP, MISALIGNED, TOO_WIDE, NARROW = range(1, 6)
OTHER_RANK, OTHER_ROWS, NO_SUMS, BAD_EDIT = range(6, 10)
