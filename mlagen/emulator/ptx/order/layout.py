"""Sizes of what orders accesses: vector clocks, objects that carry them, records of accesses."""

from __future__ import annotations

from typing import Final

# Components of a warp; see `clocks`.
GENERIC, FENCED, WGMMA, BULK, BULK_READ, COPY, FENCED_COPY, KINDS = range(8)
CTA_MBARRIERS: Final = 64  # components of a CTA beside its warps'
NAMED: Final = 17  # barriers of a CTA; the last is the cluster's, in the first CTA's

# The record of four bytes of shared memory: the last write, how many reads are noted, the reads.
CELL_WRITE: Final = 0
CELL_READS: Final = 1
CELL_FIRST: Final = 2
READERS: Final = 22
CELL_WORDS: Final = CELL_FIRST + READERS
CELL: Final = 8 * CELL_WORDS  # bytes

# An access in one word: bytes of the four | atomic | clock | component | row, from bit 0.
CLOCK_AT: Final = 5
CLOCK_BITS: Final = 28
COMPONENT_AT: Final = CLOCK_AT + CLOCK_BITS
COMPONENT_BITS: Final = 13
ROW_AT: Final = COMPONENT_AT + COMPONENT_BITS
ATOMIC_BIT: Final = 16

# Order through global memory: words of C_GRID from 16, and their tables.
(
    G_CLUSTERS,  # clusters that are kept apart; 0: nothing of this is kept
    G_COMPONENTS,
    G_KNOWN,  # address: clocks, by cluster that knows, by cluster that is known
    G_FLAGS,  # address: clocks, by flag, by cluster
    G_FLAG_INDEX,  # address: FLAG_SLOTS pairs of address + 1 and number
    G_FLAG_COUNT,
    G_WORDS,  # address: WORD_SLOTS records of key, access, cluster
    G_WORD_COUNT,
    G_DROPPED,  # flags and words that found no room
) = range(16, 25)
FLAGS: Final = 512
FLAG_SLOTS: Final = 2048
WORDS: Final = 1 << 20
WORD_SLOTS: Final = 1 << 21
WORD_SIZE: Final = 3
MOST_CLUSTERS: Final = 256  # that are kept apart


def components(ctas: int, cta_warps: int) -> int:
    """Of a vector clock."""
    return ctas * (KINDS * cta_warps + CTA_MBARRIERS)


def objects(ctas: int) -> int:
    """Vector clocks of barriers and mbarriers: two each, one being filled and one complete."""
    return ctas * 2 * (CTA_MBARRIERS + NAMED)
