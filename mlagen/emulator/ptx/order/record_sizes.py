"""Sizes of what orders accesses: vector clocks, objects that carry them, records of accesses."""

from __future__ import annotations

from typing import Final

import numpy as np

# Components of a warp; see `clocks`. Behind those that a program has come FENCED of the memory of
# rank 1 and so on (FENCED itself is of rank 0's), and FENCED of global memory.
GENERIC, FENCED, WGMMA, BULK, BULK_READ, COPY, FENCED_COPY, KINDS = range(8)
# More, of a program that has tcgen05.
TENSOR, TENSOR_BEGUN, LOADED, LOADED_FENCED, STORED, STORED_FENCED, TENSOR_KINDS = range(7, 14)
CTA_MBARRIERS: Final = 64  # components of a CTA beside its warps'
NAMED: Final = 17  # barriers of a CTA; the last is the cluster's, in the first CTA's

# A record of accesses (order.records): the last write, how many reads are noted, the last access
# and what record came of it, which collection saw it in use; the reads.
(
    RECORD_WRITE,
    RECORD_READS,
    RECORD_TURN,  # turn << 4 | bytes of the four
    RECORD_NEXT,  # the next record that is free, of one that is free
    RECORD_MARK,
) = range(5)
RECORD_FIRST: Final = 5
READERS: Final = 22
RECORD: Final = 8 * (RECORD_FIRST + READERS)  # bytes

# What a block's end comes after (order.blocks): an access, its address, the warp; of an arrival at
# an mbarrier the component and the clock of its phase.
USE_ACCESS, USE_ADDRESS, USE_WARP, USE_PHASE, USE_CLOCK, USE_SIZE = range(6)

# Words before the records in C_RECORDS.
(
    K_TURN,  # number of the access that goes on
    K_ACCESS,  # which it is
    K_WHO,  # who does it, and how: warp << 4 | how << 2 | agent
    K_WROTE,  # turn << 4 | bytes of the last write
    K_WROTE_RECORD,  # the record of what it wrote
    K_FREE,  # first of the free records, 0 for none
    K_USED,  # records that were ever in use
    K_LIMIT,  # how many may be before free ones are looked for
    K_CAPACITY,
    K_WORDS,  # of shared memory
    K_MARK,  # collections of free ones so far
    K_LOW,  # places of global memory's words in C_SHADOW that were accessed: the first one,
    K_HIGH,  # and behind the last one
) = range(13)
TABLE_HEAD: Final = 16
NO_ROOM: Final = 1
MOST_GENERAL: Final = 1 << 16  # records for words of buffers

# An access in one word: bytes of the four | atomic | late | clock | component | row, from bit 0.
CLOCK_AT: Final = 6
CLOCK_BITS: Final = 27
CLOCKS: Final = (1 << CLOCK_BITS) - 1
COMPONENT_AT: Final = CLOCK_AT + CLOCK_BITS
COMPONENT_BITS: Final = 13
COMPONENTS: Final = (1 << COMPONENT_BITS) - 1
ROW_AT: Final = COMPONENT_AT + COMPONENT_BITS
ATOMIC_BIT: Final = 16
LATE_BIT: Final = 32  # a load whose value was used after a release (order.loads)

# Order through global memory: words of C_ORDER, and their tables.
(
    G_CLUSTERS,  # clusters that are kept apart; 0: nothing of this is kept
    G_COMPONENTS,
    G_KNOWN,  # address: clocks, by cluster that knows, by cluster that is known
    G_FLAGS,  # address: clocks, by flag, by cluster
    G_FLAG_INDEX,  # address: FLAG_SLOTS pairs of address + 1 and number
    G_FLAG_COUNT,
    G_WORDS,  # address: WORD_SLOTS records of WORD_SIZE words; 0: other clusters' are not kept
    G_WORD_COUNT,
    G_DROPPED,  # flags and words that found no room
) = range(9)
G_SIZE: Final = 16
FLAGS: Final = 512
FLAG_SLOTS: Final = 2048
WORDS: Final = 1 << 20
WORD_SLOTS: Final = 1 << 21
# Of four bytes: address / 4 + 1, the last write and the cluster that made it, the last read.
WORD_KEY, WORD_WRITE, WORD_WRITER, WORD_READ, WORD_READER, WORD_SIZE = range(6)
MOST_CLUSTERS: Final = 256  # that are kept apart


# A load from shared memory that is kept (order.loads): its number, 0 once it has read; W_TOLD when
# it was issued; its row, lanes, bytes a lane; the group it is of, the next of it; whether
# arithmetic had its value; the write that its first lane saw; its addresses.
L_NUMBER, L_TOLD, L_ROW, L_LANES, L_BYTES, L_GROUP, L_NEXT, L_TAKEN, L_SAW = range(9)
L_ADDRESSES: Final = 9
L_SIZE: Final = L_ADDRESSES + 32
KEPT: Final = 128  # a warp; a power of two

# An access of a warp to shared memory whose lanes are not all ordered (order.pairs): its row, the
# lanes that are not, how, bytes a lane, the lanes that have released it, whether N_KNOWN counts,
# the first byte and the one behind the last, whether no two of its lanes meet (UNKNOWN until it is
# asked), whether all write one value to one place; addresses; of each lane those ordered after it.
# Before the accesses of a warp: the last one of each row.
N_ROW, N_LANES, N_HOW, N_SIZE, N_TOLD, N_PARTIAL, N_LOW, N_HIGH, N_APART, N_ONE = range(10)
UNKNOWN: Final = -1
N_ADDRESSES: Final = 10
N_KNOWN: Final = N_ADDRESSES + 32
NEAR_SIZE: Final = N_KNOWN + 32
NEAR: Final = 64  # a warp; a power of two
NEAR_ROWS: Final = 64  # a power of two
NEAR_ROOM: Final = NEAR_ROWS + NEAR * NEAR_SIZE


def kinds(ctas: int, cta_warps: int, own: int) -> tuple[int, int, int]:
    """How many components a warp has, of a program that has `own`; C_FENCED_MORE, and
    C_FENCED_GLOBAL. FENCED is kept by ranks where components have room in an access's word."""
    more = own if ctas > 1 else 0
    count = own + ctas
    if components(ctas, cta_warps, count) > 1 << COMPONENT_BITS:
        more, count = 0, own + 1
    return count, more, count - 1


def components(ctas: int, cta_warps: int, kinds: int = KINDS) -> int:
    """Of a vector clock."""
    return ctas * (kinds * cta_warps + CTA_MBARRIERS)


def objects(ctas: int) -> int:
    """Vector clocks of barriers and mbarriers: two each, one being filled and one complete."""
    return ctas * 2 * (CTA_MBARRIERS + NAMED)


def record_room(words: int, general: int = 0) -> tuple[int, int]:
    """For so many words of shared memory, and of buffers: how many records there is room for, more
    than words of shared memory; and how many are made before free ones are looked for."""
    few = 8192 + words // 8
    return words + words // 2 + 2 * few + min(general, MOST_GENERAL), few


def record_table(words: int, general: int = 0) -> np.ndarray:
    """C_RECORDS at the start: record 0 is of words that nobody has accessed, NO_ROOM of those of
    which nothing is known for want of room."""
    capacity, few = record_room(words, general)
    table = np.zeros(TABLE_HEAD + capacity * (RECORD // 8), np.int64)
    table[[K_USED, K_LIMIT, K_CAPACITY, K_WORDS]] = NO_ROOM + 1, few, capacity, words + general
    table[TABLE_HEAD + NO_ROOM * (RECORD // 8) + RECORD_WRITE] = ATOMIC_BIT
    table[K_LOW] = 1 << 62
    return table
