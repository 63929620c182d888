"""Where the tracer of NaN and Inf keeps its state: slots, marks, table columns, record fields.

A *mark* goes with every dword of a vector register, a scalar, LDS and global memory and says where
its bits come from: bits 0..39 the program row + 1 of the instruction that made them, or, with
MEMORY, their byte offset in the arena; the bits from ORIGIN_SHIFT on the number of the record that
first saw them non-finite, 0 while none did. Moves, LDS and memory carry marks along.
"""

from __future__ import annotations

from typing import Final

ORIGIN_SHIFT: Final = 44
MEMORY: Final = 1 << 40
BODY: Final = (1 << 40) - 1

# Slots of the tracer's context: addresses.
TC_PROGRAM: Final = 0
TC_MARK: Final = 1  # int64 [wave][register][lane]
TC_WRITER: Final = 2  # u32, the same shape: program row + 1 of the last write, 0 for none
TC_ADDRESS: Final = 3  # u32: that of the address register of the load that wrote it
TC_SCALAR_MARK: Final = 4  # int64 [wave][scalar]
TC_SCALAR_WRITER: Final = 5
TC_LDS_MARK: Final = 6  # int64 a dword
TC_OLD: Final = 7  # destination rows before the instruction: u32 values,
TC_OLD_MARK: Final = 8
TC_OLD_WRITER: Final = 9
TC_OLD_ADDRESS: Final = 10
TC_RECORDS: Final = 11
TC_SCAN: Final = 12  # non-finite rows of A, columns of B
TC_ARENA_MARK: Final = 13  # int64 a dword of global memory
TC_ARENA_STORE: Final = 14  # workgroup << 24 | program row + 1 of the last store to it
# Scalars.
TC_COUNT: Final = 16  # records
TC_LANES: Final = 18  # EXEC before the instruction
TC_OLD_FIRST: Final = 20  # two ranges of destination registers
TC_OLD_ROWS: Final = 22
TC_SIZE: Final = 24
OLD_ROWS: Final = 24
MAX_RECORDS: Final = 512  # of a workgroup; what comes later is not recorded

# What an instruction does with the floats in its operands.
RAW: Final = 0  # makes bits that are no floats to it, or nothing
PARTS: Final = 1  # computes floats, described by the parts of its row
MOVE: Final = 2  # copies one of its sources
MATRIX: Final = 3
SWAP: Final = 4
READ_LANE: Final = 5
WRITE_LANE: Final = 6
LOAD: Final = 7
STORE: Final = 8
DMA: Final = 9
LDS_READ: Final = 10
LDS_WRITE: Final = 11
PERMUTE: Final = 12

# Formats of a dword; the smaller ones fill it.
BITS, F32, BF16, F16, E4M3, E5M2 = range(6)
FINITE, INF, NAN = range(3)

# Columns of a program row of the tracer.
T_NATURE: Final = 0
T_RESULT: Final = 1  # format of the result
T_SOURCE: Final = 2  # formats of three sources
T_COUNT: Final = 5  # their widths in registers
T_PARTS: Final = 8
T_PART: Final = 9  # PART_SIZE columns each
PART_SIZE: Final = 8  # register offset and bit mask of the result, then of the three sources
MAX_PARTS: Final = 2
T_SIZE: Final = T_PART + MAX_PARTS * PART_SIZE

# Records.
MADE: Final = 1  # from finite operands
NAN_FROM_INF: Final = 2
MET: Final = 3  # an operand that no float instruction made was non-finite already
R_KIND: Final = 0
R_ROW: Final = 1
R_WAVE: Final = 2
R_LANE: Final = 3
R_REGISTER: Final = 4
R_RESULT: Final = 5
R_CULPRIT: Final = 6  # number of the operand that is to blame, -1 for none
R_KEY: Final = 7  # its last writer
R_COUNT: Final = 8
R_SOURCE: Final = 10  # SOURCE_SIZE columns each
SOURCE_SIZE: Final = 8
RS_KIND: Final = 0  # layout.S_*
RS_REGISTER: Final = 1
RS_LANE: Final = 2
RS_VALUE: Final = 3
RS_WRITER: Final = 4
RS_MARK: Final = 5
RS_ADDRESS: Final = 6
RS_PENDING: Final = 7
R_SIZE: Final = R_SOURCE + 3 * SOURCE_SIZE
