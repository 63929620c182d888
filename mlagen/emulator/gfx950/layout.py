"""Where the compiled engine keeps everything: table columns, state slots, record fields.

The engine works on raw addresses (see `raw`). A context is one int64 array `C`; its first slots
hold the addresses of the other arrays, the rest scalars of the run. All counts are compile-time
constants of the engine.
"""

from __future__ import annotations

from typing import Final

LANES: Final = 64
VECTOR_ROWS: Final = 512  # physical vector registers of a wave (LLVM AMDGPUUsage, gfx90a+)
SCRATCH_ROWS: Final = 8  # operand and result rows after the registers
ROWS: Final = VECTOR_ROWS + SCRATCH_ROWS
SCALAR_SLOTS: Final = 160  # scalar numbers 0..128 (SCC), padded
REGISTERS: Final = VECTOR_ROWS + SCALAR_SLOTS  # unified numbers: vector first, then scalar
POISON: Final = 0x7FFF7FFF  # a NaN as f32, as two bf16 / f16 and as e4m3 bytes

# Context slots: addresses.
C_PROGRAM: Final = 0
C_VECTOR: Final = 1
C_SCALAR: Final = 2
C_WAVE: Final = 3
C_UNTIL: Final = 4  # clock from which reading a register needs no closer look
C_WUNTIL: Final = 5  # the same for overwriting it
# Lane mask of defined lanes. A scalar's is -1, 0, or 2 * (byte + 1) where it holds the dword at
# that byte of the argument segment, which nobody set.
C_DEFINED: Final = 6
C_PENDING: Final = 7  # queue * 2^40 + sequence + 1 of the load in flight, 0 for none
C_WINFO: Final = 8  # clock * 256 + producer class of the last write
C_WPC: Final = 9  # program row of the last write
C_RINFO: Final = 10  # clock * 256 + producer class of the last read that forbids overwriting
C_RPC: Final = 11
C_QUEUE: Final = 12
C_QADDR: Final = 13
C_QDATA: Final = 14
C_LDS: Final = 15
C_SHADOW_W: Final = 16  # last writing operation of each LDS dword
C_SHADOW_R: Final = 17  # last reading operation: SHADOW_DWORDS for each wave
C_OPS: Final = 18  # ring of LDS operations
C_FIND: Final = 19
C_COUNT: Final = 20  # executions of each program row
C_ARENA: Final = 21
C_BUFFERS: Final = 22
C_HAZARD: Final = 23  # wait states: producer class * HAZARD_CLASSES + consumer class
C_LONGEST: Final = 24  # the most that any read, any overwrite of a producer class needs (pairs)
C_PATCHED: Final = 26  # room for one program row with indexed registers
C_TEMP: Final = 25  # f32 work space of the matrix instructions
C_FIND_INDEX: Final = 27  # hash table over the findings: number + 1, 0 for a free slot
C_ATOMIC: Final = 28  # last atomic, by dword of the arena (see conflicts); 0: nobody looks
C_PLAIN: Final = 29  # last other access
C_UNSET: Final = 31  # by dword of the argument segment: 1 where nobody set a byte of it
# Context slots: scalars.
C_WAVES: Final = 32
C_ROWS_PROGRAM: Final = 33
C_LDS_BYTES: Final = 34
C_SANITIZE: Final = 35
C_MODE: Final = 36
C_RANDOM: Final = 37
C_FLUSH: Final = 38  # and-mask for f32 denormals: 0x80000000 flushes, 0xffffffff keeps
C_NEXT_OP: Final = 39
C_SAFE_OP: Final = 40  # operations below this number are ordered before the current epoch
C_SAFE_READ: Final = 56  # the same for DS instructions: loads to LDS stay in flight for long
C_BUFFER_COUNT: Final = 41
C_FIND_COUNT: Final = 42
C_WORKGROUP: Final = 43
C_EXECUTED: Final = 45
C_CLAMP_NAN: Final = 47  # DX10_CLAMP: clamping a NaN gives 0
C_FP8_CLAMP: Final = 48  # FP16_OVFL: fp8 conversions saturate
C_CURRENT: Final = 50  # wave whose turn it is (kept between slices)
C_WHELD: Final = 62  # W_HELD << 24 | W_MATRICES when a matrix instruction wrote it
C_FAULT: Final = 52  # program row at which a run had to stop
C_VGPRS: Final = 54
C_EPOCH_OP: Final = 51  # the first operation after the last barrier
C_DROPPED: Final = 55  # findings beyond the table's room
C_HINT: Final = 53  # buffer that the last access fell into
C_TRACE: Final = 60  # the tracer's context (see trace_layout), 0 without one
C_RECORD: Final = 61  # what is executed (see recording), 0: nobody asks
C_LANDED: Final = 63  # by program row of a store: ASKED, LANDED
C_SIZE: Final = 64

ASKED: Final = 1  # a lane was on
LANDED: Final = 2  # and its access reaches memory
LATEST, EARLIEST, RANDOM = range(3)

# Wave slots (int64 each).
W_PC: Final = 0
W_STATE: Final = 1
W_EPOCH: Final = 2
W_CLOCK: Final = 3
W_HEAD: Final = 4  # three queues: oldest sequence number in flight
W_TAIL: Final = 7  # three queues: next sequence number
W_MARK: Final = 10  # vm and DS queues: next sequence number at the last barrier
W_LAND: Final = 12  # three queues: first sequence number whose effect has not happened yet
W_PATH: Final = 15  # stands for the barriers that it passed, in order
W_ALIKE: Final = 16  # waves that had passed the same ones at its last barrier, a bit each
W_TOUCHED: Final = 17  # the last epoch in which it did something in LDS
W_HELD: Final = 18  # wait states by which the matrix pipe and barriers held it back so far
W_FREE: Final = 19  # the clock, with those, at which the matrix pipe is free
W_MATRICES: Final = 20  # matrix instructions and barriers so far
W_SIZE: Final = 21
BARRIER_STATES: Final = 64  # that a barrier is taken for, where the letter asks for more than one
RUNNING, WAITING, ENDED = range(3)

# Queues of a wave.
Q_VM, Q_LDS, Q_SMEM, QUEUES = range(4)
QUEUE_SLOTS: Final = 64
IN_FLIGHT: Final = 63  # operations of a queue; another one retires the oldest
# Queue entry fields (int64 each).
E_KIND: Final = 0
E_ROW: Final = 1  # program row that issued it
E_REG: Final = 2  # first register (unified number)
E_DWORDS: Final = 3
E_OP: Final = 4  # LDS operation number, 0 for none
E_EXEC: Final = 5
E_BYTES: Final = 6  # bytes a lane for sub-dword accesses, else 4 * dwords
E_VARIANT: Final = 7
E_WHOLE: Final = 8  # 1: all lanes active, every access inside its memory and aligned
E_SIZE: Final = 9
K_LOAD: Final = 1  # memory to registers
K_STORE: Final = 2  # registers to memory
K_DMA: Final = 3  # memory to LDS
K_LDS_READ: Final = 4
K_LDS_WRITE: Final = 5
K_SMEM: Final = 6
K_LDS_PERMUTE: Final = 7  # ds_bpermute and its kin: no LDS memory
K_ATOMIC: Final = 8  # memory and perhaps registers
K_NOTHING: Final = 9  # cache maintenance: counts, and moves no data
QDATA_ROWS: Final = 4  # dwords a lane that an entry can carry

# Program columns (int64 each).
P_CLASS: Final = 0
P_OP: Final = 1
P_PC: Final = 67
P_DST: Final = 3
P_KIND: Final = 4  # + 2 * i: kind of source i; + 2 * i + 1: its value
P_MOD: Final = 10  # neg bits 0..2, abs bits 3..5, op_sel 6..9, op_sel_hi 10..12, neg_hi 13..15
P_OMOD: Final = 11  # omod bits 0..1, clamp bit 2
P_IMM: Final = 12
P_FLAGS: Final = 13
P_SDST: Final = 14
P_DPP: Final = 15
P_AUX: Final = 16  # four spare columns by class
P_READS: Final = 21
P_READ: Final = (
    22  # READ_SIZE columns each: base, count, consumer class, class as a forbidding read
)
READ_SIZE: Final = 4
MAX_READS: Final = 8
P_WRITES: Final = 54
P_WRITE: Final = 55  # WRITE_SIZE columns each: base, count, class as an overwrite, producer class
WRITE_SIZE: Final = 4
MAX_WRITES: Final = 3
P_NOPS: Final = 2  # wait states the instruction itself provides
P_EXACT: Final = 68  # identity of a matrix opcode, for exact accumulator chaining; 0 for others
P_QUEUE: Final = 69  # queue its results come back on, -1 for none
P_ALL_LANES: Final = 70  # 1: reads and writes all lanes whatever EXEC holds
P_FORBIDS: Final = 71  # 1: some read forbids overwriting its register for a while
P_PASSES: Final = 72  # of a matrix instruction, else 0
P_SIZE: Final = 73

# Source kinds.
S_NONE, S_VECTOR, S_SCALAR, S_CONST = range(4)

# Instruction classes.
(
    X_NOP, X_SALU, X_BRANCH, X_WAIT, X_BARRIER, X_END, X_VALU, X_PACKED, X_COMPARE, X_CARRY, X_LANE,
    X_MATRIX, X_SMEM, X_LDS, X_VMEM, X_WIDE, X_CACHE,
) = range(17)  # fmt: skip

SHADOW_DWORDS: Final = 160 * 256 + 16  # dwords of LDS, padded

# LDS operation records: (wave, program row, completion epoch).
OPS_RING: Final = 1 << 17
O_WAVE: Final = 0
O_ROW: Final = 1
O_DONE: Final = 2  # epoch in which a wait covered it, NOT_DONE before
O_KIND: Final = 3
O_LEFT: Final = 4  # 1 + newer ones of its queue when its wave ended and no wait had covered it
O_SIZE: Final = 5
NOT_DONE: Final = 1 << 60

# Buffer table: simulated base, size, arena offset, access (1 read, 2 write).
B_BASE, B_BYTES, B_ARENA, B_ACCESS, B_SIZE = range(5)

# Findings.
MAX_FINDINGS: Final = 2048
FIND_SLOTS: Final = 8192  # of the hash table, a power of two
F_KIND: Final = 0
F_ROW: Final = 1
F_OTHER: Final = 2  # program row of the other instruction, -1 for none
F_WAVE: Final = 3
F_OTHER_WAVE: Final = 4
F_A: Final = 5  # register, LDS address or buffer
F_B: Final = 6
F_C: Final = 7
F_COUNT: Final = 8
F_WORKGROUP: Final = 9
F_HELD: Final = 10  # of wait states: instructions were held back for long enough all the same
F_SIZE: Final = 11

MISSING_WAIT: Final = 1
OVERWRITE: Final = 2
RACE_RAW: Final = 3
RACE_WAR: Final = 4
RACE_WAW: Final = 5
WAIT_STATES: Final = 6
UNDEFINED_REGISTER: Final = 7
UNDEFINED_LDS: Final = 8
BARRIER_UNEQUAL: Final = 9
LDS_BOUNDS: Final = 10
LDS_ALIGNMENT: Final = 11
GLOBAL_BOUNDS: Final = 12
NOT_ENDED: Final = 14
GLOBAL_ALIGNMENT: Final = 15
RACE_GLOBAL: Final = 16
UNSET_ARGUMENT: Final = 17
PARTIAL_EXEC: Final = 18
OFF_LANE: Final = 19
RACE_OVERTAKEN: Final = 20  # a load to LDS over what was read before the last barrier

HAZARD_CLASSES: Final = 48  # room for producer and for consumer classes
HUGE: Final = 1 << 60

# What a slice of a run ended with.
R_DONE: Final = 0
R_BUDGET: Final = 1
R_UNMODELLED: Final = 2  # a buffer descriptor asks for something that is not modelled
