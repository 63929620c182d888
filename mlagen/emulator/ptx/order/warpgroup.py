"""What a warpgroup orders: its warps meet between a wgmma.fence and the wgmma after it.

The ISA lets each warp read B on its own: what another warp of the warpgroup has stored needs a
barrier. On the H200 no warp reads an operand before the last of the four has come, in any of
99,900 launches that held one of them back (docs/foreign_ptx.md). So a race of these two has the
severity LETTER where the store comes before the warp's own wgmma.fence.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.matrix import work_space as m
from mlagen.emulator.ptx.order.clocks import clocks_of, fenced_kind, own
from mlagen.emulator.ptx.order.register_reads import matrix_words
from mlagen.emulator.ptx.state import cta_of, program_row


@compiled
def note_fence(context: int, warp: int) -> None:
    """A wgmma.fence of `warp`."""
    words = matrix_words(context, warp)
    epoch = load_i64(words, m.Q_EPOCH)
    fenced = own(context, warp, fenced_kind(context, cta_of(context, warp)))
    seen = load_i64(clocks_of(context, warp), fenced)
    store_i64(words, m.Q_SEEN + (epoch & (m.KEPT - 1)), seen)


@compiled
def note_group(context: int, warp: int) -> None:
    """The first wgmma of a group."""
    words = matrix_words(context, warp)
    group = load_i64(words, m.Q_COMMITTED) + 1
    store_i64(words, m.Q_BEGUN + (group & (m.KEPT - 1)), load_i64(words, m.Q_EPOCH))


@compiled
def together(context: int, one: int, other: int) -> bool:
    """Whether two warps of the cluster are different ones of a warpgroup."""
    warps = load_i64(context, y.C_CTA_WARPS)
    if one == other or one // warps != other // warps:
        return False
    return (one % warps) >> 2 == (other % warps) >> 2


@compiled
def stored_before(context: int, reader: int, row: int, writer: int, clock: int) -> bool:
    """Whether `row` is a wgmma of `reader`, and a store of `writer` comes before the wgmma.fence
    that goes before this wgmma, seen by the async proxy. `clock`: of the store. What a warp that
    has not come so far has stored comes before it; its own wgmma tells of a missing proxy fence."""
    if load_i64(program_row(context, row), y.P_CLASS) != y.X_WGMMA:
        return False
    if not together(context, reader, writer):
        return False
    epoch = load_i64(matrix_words(context, reader), m.Q_EPOCH)
    words = matrix_words(context, writer)
    last = load_i64(words, m.Q_EPOCH)
    if last < epoch:
        return True
    return last - epoch < m.KEPT and clock <= load_i64(words, m.Q_SEEN + (epoch & (m.KEPT - 1)))


@compiled
def stores_before(context: int, writer: int, reader: int, group: int) -> bool:
    """Whether a store that `writer` is about to do comes before the wgmma.fence that goes before
    group `group` of wgmma, in which `reader` has read the place."""
    if not together(context, reader, writer):
        return False
    words = matrix_words(context, reader)
    if load_i64(words, m.Q_COMMITTED) - group >= m.KEPT - 1:
        return False
    begun = load_i64(words, m.Q_BEGUN + (group & (m.KEPT - 1)))
    return load_i64(matrix_words(context, writer), m.Q_EPOCH) < begun
