"""Where the compiled engine keeps everything: context slots, rows of a program, records.

The engine works on raw addresses (see `native.raw`). A context is one int64 array for one *cluster*
of CTAs (a grid without clusters has clusters of one CTA). Its first slots hold the addresses of
other arrays, the rest numbers. Counts here are constants of the compiled code.

Warps are numbered through the cluster: warp `w` belongs to CTA `w // C_CTA_WARPS`, whose number in
its cluster is its rank.
"""

from __future__ import annotations

from typing import Final

LANES: Final = 32
ALL: Final = 0xFFFFFFFF  # the mask of a whole warp
POISON: Final = 0x7FFF7FFF  # a NaN as f32, as two bf16 / f16 and as e4m3 bytes

# ---- context: addresses of arrays -------------------------------------------------------------
(
    C_PROGRAM,  # rows of P_SIZE int64
    C_LIST,  # int64: operand places of vectors and matrices, numbers of registers read and written
    C_CONSTANTS,  # register rows that all warps read: immediates, addresses of symbols
    C_REGISTERS,  # warp w's register file begins at + w * C_REGISTER_BYTES
    C_WARPS,  # W_SIZE int64 a warp
    C_CTAS,  # T_SIZE int64 a CTA
    C_SHARED,  # CTA t's shared memory begins at + t * C_SHARED_ROOM
    C_LOCAL,  # lane l of warp w: + (w * 32 + l) * C_LOCAL_BYTES
    C_PARAM,  # the kernel's parameters
    C_CONST,  # the module's .const space
    C_BUFFERS,  # B_SIZE int64 a buffer of global memory, sorted by address
    C_MAPS,  # tensor maps: M_SIZE int64 each
    C_OPS,  # ring of O_SIZE int64: operations of agents
    C_OP_DATA,  # OP_DATA int64 for each slot of the ring: what does not fit a record
    C_MBARRIERS,  # MB_SIZE int64 an mbarrier: MBARRIERS a CTA
    C_NAMED,  # NB_SIZE int64 a named barrier: NAMED a CTA
    C_GROUPS,  # groups of copies and of wgmma: GROUPS int64 a warp
    C_DEFINED,  # uint32 lanes: warp w, register r at w * C_REGISTER_COUNT + r: written at all
    C_BUSY,  # int64: the same place; 0, or the wgmma group that still reads or writes it
    C_CLOCKS,  # vector clocks of warps: N = C_COMPONENTS int64 each
    C_OBJECTS,  # vector clocks of barriers and mbarriers, as many each
    C_SHADOW,  # uint32: the record of accesses of each word of shared memory, then of buffers
    C_FIND,  # findings: F_SIZE int64 each
    C_FIND_INDEX,  # hash table over them
    C_COUNT,  # executions of each row
    C_GRID,  # what the clusters of a launch share: GRID_ slots
    C_TEMP,  # work space: TEMP_BYTES
    C_MATRIX,  # wgmma of each warp that are on their way: matrix.work_space.WORDS int64 a warp
    C_RECORDS,  # records of accesses (order.records)
    C_TENSOR,  # tensor memory: words of CTAs and of warps (tensor.tensor_memory)
    C_AFTER,  # vector clocks of warps as of their last tcgen05.fence::after_thread_sync
    C_LOADS,  # loads from shared memory that are kept (order.loads), KEPT a warp
    C_LOADED,  # int64, the place as C_DEFINED's: the load whose value a register has; 0: none
    C_USES,  # what the ends of blocks come after (order.blocks): USE_SIZE int64 a component, a CTA
    C_ORDER,  # G_ slots: order through global memory (order.grid)
    C_NEAR,  # accesses of each warp whose lanes are not all ordered (order.pairs), NEAR a warp
    C_EDITS,  # tensor maps that the kernel edits (order.maps); 0: it edits none
) = range(37)

# ---- context: numbers -------------------------------------------------------------------------
(
    C_WARPS_ALL,  # of the cluster
    C_CTA_WARPS,
    C_CTAS_ALL,  # of the cluster
    C_THREADS,  # of a CTA
    C_REGISTER_BYTES,  # of a warp's register file
    C_REGISTER_COUNT,  # registers that the program names
    C_SHARED_BYTES,  # of a CTA, from address 0: what the launch gives, and the reserved bytes
    C_SHARED_ROOM,
    C_LOCAL_BYTES,  # of a lane
    C_PARAM_BYTES,
    C_CONST_BYTES,
    C_BUFFER_COUNT,
    C_MAP_COUNT,
    C_OP_HEAD,  # number of the oldest operation that is not done
    C_OP_TAIL,  # number of the next one
    C_SANITIZE,
    C_MODE,
    C_EXACT,  # 1: the tensor core's own sums, measured functions; 0: fast
    C_RANDOM,
    C_COMPONENTS,  # of a vector clock
    C_PROGRESS,  # grows with whatever another warp may wait for
    C_CURRENT,  # warp whose turn it is
    C_EXECUTED,
    C_FIND_COUNT,
    C_DROPPED,
    C_FAULT,  # row at which the run had to stop
    C_FAULT_KIND,
    C_FAULT_A,
    C_FAULT_B,
    C_CLUSTER,  # number of this cluster in the grid
    C_ENDED,  # warps that have ended
    C_CLOCK,  # what %clock shows: instructions so far
    C_HINT,  # buffer that the last access fell into
    C_STALLS,
    C_TURN,  # set by the host: lanes of a warp that are apart take turns
    C_KINDS,  # components of vector clocks that a warp has (order.record_sizes)
    C_TENSOR_AT,  # where a CTA's tensor memory begins in its room of shared memory; 0: it has none
    C_FENCED_MORE,  # kind of FENCED for memory of rank 1, and so on; 0: one for all (order.clocks)
    C_FENCED_GLOBAL,  # the same for global memory
) = range(64, 103)
C_SIZE: Final = 128

LATEST, EARLIEST, DRAWN = range(3)

# ---- what `run` returns -----------------------------------------------------------------------
(
    R_DONE,  # all warps have ended
    R_BUDGET,  # the budget is spent
    R_YIELD,  # all warps wait for what only another cluster, or nobody, can bring
    R_FAULT,  # C_FAULT names the row, C_FAULT_KIND why (a FAULT_ number)
) = range(4)
(
    FAULT_UNMODELLED,  # an instruction that was found to be one at run time only
    FAULT_SHARED,  # an address outside shared memory: C_FAULT_A
    FAULT_GLOBAL,
    FAULT_LOCAL,
    FAULT_PARAM,
    FAULT_TRAP,
    FAULT_ALIGN,
    FAULT_DESCRIPTOR,  # of a matrix: C_FAULT_A is one of the next
    FAULT_MAP,  # no tensor map at the address
    FAULT_MBARRIER,  # no mbarrier at the address, or its counts overflow
    FAULT_BARRIER,  # number or count of threads
    FAULT_ROOM,  # of an engine's table
    FAULT_CONST,
    FAULT_TENSOR,  # of tensor memory: C_FAULT_A is a rule of tensor.tensor_memory
) = range(1, 15)
(
    BASE_OFFSET,  # it has one, which is not modelled
    LEADS_OUT,  # of shared memory
    BESIDE_PATTERN,  # it begins where its swizzle's pattern does not
) = range(1, 4)

# ---- what a class's function returns: where its blocked lanes (see control.block) go on ----------
NEXT: Final = 0  # after this row; lanes that were not blocked always go on there
AGAIN: Final = 1  # at this row, which they execute once more

# ---- program rows (int64) ---------------------------------------------------------------------
# Operand places are byte offsets in the warp's register file; negative: ~offset in C_CONSTANTS.
# A register row: 32 x uint32 (8, 16 and 32 bits), 32 x uint64 (64 bits), two of these (128 bits);
# a predicate is one int64: the mask of lanes in which it is true.
(
    P_CLASS,  # an X_ number: which function executes it
    P_OP,  # a number of that class
    P_GUARD,  # place of the predicate, NO_GUARD
    P_NEGATED,
    P_DST,
    P_A,
    P_B,
    P_C,
    P_D,
    P_DST2,
    P_TYPE,  # what the class says: width, sign, type
    P_TYPE2,
    P_FLAGS,
    P_IMM,  # offset of an address, and the like
    P_TARGET,  # row of a branch
    P_LIST,  # first word in C_LIST: operand places
    P_COUNT,  # how many
    P_AUX,  # eight words of the class
) = range(18)
P_READS: Final = 26  # first word in C_LIST: numbers of the registers it reads
P_READ_COUNT: Final = 27
P_WRITES: Final = 28
P_WRITE_COUNT: Final = 29
P_MARKS: Final = 30  # MARK_ bits
P_SIZE: Final = 32
NO_GUARD: Final = 1 << 40
# Of a row: all live lanes of the warp have to execute it together; it is a load from shared memory
# that is kept; it reads or writes what comes of such loads, and is arithmetic
# (translate.kept_loads).
MARK_ALIGNED, MARK_LOADS, MARK_USES, MARK_CARRIES = 1, 2, 4, 8
NONE: Final = 1 << 40  # a place that is not there: the sink `_`, an operand that was left out

# Classes. One function each executes them; each has its module beside its translation.
(
    X_NOP,
    X_BRANCH,  # control
    X_EXIT,
    X_TRAP,
    X_INTEGER,  # values
    X_FLOAT,
    X_HALF,
    X_CONVERT,
    X_SELECT,  # setp, set, selp, slct, predicates
    X_MOVE,  # mov, pack and unpack, prmt, special registers that change
    X_APPROX,  # ex2, lg2, rcp, … .approx
    X_LOAD,  # memory
    X_STORE,
    X_ATOMIC,
    X_MATRIX_MOVE,  # ldmatrix, stmatrix, movmatrix
    X_COLLECTIVE,  # shfl, vote, match, redux, elect, activemask, bar.warp.sync
    X_BARRIER,  # agents: bar, barrier, barrier.cluster
    X_MBARRIER,
    X_FENCE,
    X_COPY,  # cp.async, bulk copies, st.async, red.async, prefetch
    X_TENSOR_COPY,
    X_GROUP,  # commit and wait of copies
    X_LAUNCH,  # griddepcontrol, setmaxnreg, clusterlaunchcontrol
    X_WGMMA,  # matrix
    X_MMA,
    X_TENSOR,  # tensor: tcgen05
) = range(26)

IN_GENERIC: Final = 16  # P_FLAGS of X_COPY: through the generic proxy (st.async, red.async)

# ---- warps (int64) ----------------------------------------------------------------------------
(
    W_PC,  # row of the lanes that run next
    W_MASK,  # those lanes
    W_LIVE,  # lanes that have not ended
    W_BLOCKED,  # lanes that wait
    W_APART,  # 1: live lanes are at different rows, or some wait
    W_STATE,  # RUNNING, WAITING (no lane can run), ENDED
    W_CTA,
    W_YIELD,  # set by an instruction that asked in vain: its turn is over
    W_ASKED,  # C_PROGRESS when it last asked in vain
    W_DONE,  # instructions of this warp
    W_OTHER,  # lowest row of a live lane that can run and is not of W_MASK; NEVER for none
    W_DENIED,  # lanes whose mbarrier.try_wait answers no: nothing else could happen
    W_FENCES,  # fences of a scope so far
) = range(13)
W_SEEN: Final = 13  # three words: flags that strong reads saw since (order.grid)
NEVER: Final = 1 << 40
LONG: Final = 1 << 16  # instructions after which the lanes of a warp that are apart take turns
W_LANE_PC: Final = 16  # 32 words: row of each lane, where W_APART
W_WAIT: Final = 48  # 32 words: what each blocked lane waits for: WAIT_ * 2^32 + object
W_WAIT_FOR: Final = 80  # 32 words: the phase or generation that ends it
W_TRIED: Final = 112  # lanes whose mbarrier.try_wait was answered no, and which may ask again
W_ACCESSED: Final = 113  # lanes that accessed shared memory since all of them met
W_MET: Final = 114  # the warp's own clock when they did (order.lane_clocks)
W_LOADS: Final = 115  # loads from shared memory so far that are kept (order.loads)
W_TOLD: Final = 116  # releases so far, and copies to shared memory that it issued
W_RELEASE: Final = 117  # row of the first of them after the last of these loads
W_RELEASED: Final = 118  # W_LOADS at that one
W_UNREAD: Final = 119  # of these loads, those that may not have read
W_TAKEN: Final = 120  # of those, the ones whose values arithmetic had
W_OVER: Final = 121  # all loads up to this one have read
W_NEAR: Final = 122  # accesses to shared memory that were kept so far (order.pairs)
W_NEAR_FROM: Final = 123  # all lanes are ordered behind those before this one
W_NEAR_TOLD: Final = 124  # all have released those before this one
W_NEAR_SOME: Final = 125  # some have released others of them
W_NEAR_LAST: Final = 126  # the number of the last access
W_ORDERED: Final = 127  # the warp's own clock when all of its lanes were ordered last
W_ACTORS: Final = 128  # lanes that start an agent, or come to an mbarrier
W_SIZE: Final = 129
RUNNING, WAITING, ENDED = range(3)
(
    WAIT_MBARRIER,  # object: mbarrier slot in the cluster; ends when its phase passes W_WAIT_FOR
    WAIT_BARRIER,  # object: named barrier slot; ends when its generation is over W_WAIT_FOR
    WAIT_CLUSTER,  # the cluster's barrier: generation
    WAIT_WARP,  # bar.warp.sync and .sync collectives: until all lanes of the mask are there
    WAIT_GRID,  # griddepcontrol.wait
    WAIT_WGMMA,  # object: the warp; ends when its warpgroup has committed W_WAIT_FOR groups
) = range(1, 7)

# ---- CTAs (int64) -----------------------------------------------------------------------------
(
    T_LIVE,  # warps that have not ended
    T_MBARRIERS,  # mbarriers that were ever initialised: slots in use
    T_REGISTERS,  # budget of setmaxnreg: registers a thread, summed over warps
) = range(3)
T_SIZE: Final = 4

# ---- addresses --------------------------------------------------------------------------------
# An address in shared memory is rank << RANK_SHIFT | offset, with its own rank also in the
# shared::cta window, as on the hardware (CUTLASS masks bit 24 to reach the even CTA of a pair).
RANK_SHIFT: Final = 24
SHARED_FIRST: Final = 1024  # bytes that the system keeps for itself
GENERIC_SHARED: Final = 0x7F00_0000_0000
GENERIC_LOCAL: Final = 0x7E00_0000_0000
GENERIC_PARAM: Final = 0x7D00_0000_0000
GENERIC_CONST: Final = 0x7C00_0000_0000
GENERIC_END: Final = 0x7F01_0000_0000

# Buffers of global memory.
# B_SHADOW: where the records of its words begin in C_SHADOW, in bytes; -1: none are kept.
B_BASE, B_BYTES, B_HOST, B_ACCESS, B_SHADOW = range(5)
B_SIZE: Final = 5

# Findings.
(
    F_KIND,
    F_ROW,
    F_OTHER,  # row of the other side, -1 for none
    F_WARP,
    F_OTHER_WARP,
    F_A,
    F_B,
    F_C,
    F_COUNT,
    F_CLUSTER,
    # Of a race with a load: row of the release that came before its value was used. Of lanes of one
    # warp: the earlier one's << 5 | the later one's.
    F_RELEASE,
) = range(11)
F_SIZE: Final = 12
MAX_FINDINGS: Final = 4096
FIND_SLOTS: Final = 16384
(
    RACE,  # a: address, b: what kind of pair (order.meeting), c: severity
    UNDEFINED_REGISTER,  # a: register number
    REGISTER_IN_FLIGHT,  # a: register number; other: the wgmma
    UNDEFINED_SHARED,
    DIVERGED,  # an .aligned or .sync instruction that not all named lanes execute; a: mask
    BARRIER_COUNT,
    MBARRIER_MISUSE,  # a: which rule
    BYTES_UNCOUNTED,  # a phase ended before a copy's bytes
    PENDING_AT_EXIT,  # an operation that nobody waited for
    SHARED_GONE,  # an access to a CTA of the cluster that has ended, or may have
    REGISTERS_BUDGET,
    WGMMA_MISUSE,
    GLOBAL_BOUNDS,
    SHARED_BOUNDS,
    ALIGNMENT,
    MAP_MISUSE,
    TENSOR_MISUSE,  # a: a rule of tensor.tensor_memory
    SHARED_EARLY,  # an access to a CTA of the cluster that may not have begun
    BARRIER_ORDER,  # an arrival at a named barrier that may belong to the use before; a: its number
    MAP_FENCE,  # a copy through a tensor map whose edit it may not see; a: why (order.maps)
) = range(1, 21)
LETTER: Final = 1  # severity: the ISA's text orders it by nothing; hardware does
ERROR: Final = 2  # nothing orders it

TEMP_BYTES: Final = 1 << 18
