"""Kernels in Triton whose programs meet in memory: atomics, locks, counters of who is done."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def column_totals(x, sums, most, least, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Column sums (fp32), greatest (i32) and least (fp32) elements by atomics, none returned."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.program_id(1) * COLS + tl.arange(0, COLS)
    live = (row < rows)[:, None] & (col < cols)[None, :]
    tile = tl.load(x + row[:, None] * cols + col[None, :], mask=live, other=0.0)
    tl.atomic_add(sums + col, tl.sum(tile, 0), mask=col < cols, sem="relaxed")
    whole = tl.where(live, tile, float("-inf"))
    tl.atomic_max(most + col, (tl.max(whole, 0) * 1024).to(tl.int32), mask=col < cols)
    tl.atomic_min(least + col, tl.min(tl.where(live, tile, float("inf")), 0), mask=col < cols)


@triton.jit
def locked_total(x, lock, total, count, n, BLOCK: tl.constexpr):
    """A running total of block sums that one program at a time may touch: a spin lock by cas."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.sum(tl.load(x + at, mask=at < n, other=0), 0)
    while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
        pass
    turns = tl.load(count, volatile=True)
    sofar = tl.load(total, volatile=True)
    tl.store(total, sofar + mine)
    tl.store(count, turns + 1)
    tl.debug_barrier()  # every thread's store is before the release
    tl.atomic_xchg(lock, 0, sem="release")


@triton.jit
def histogram_bins(x, bins, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Counts of each value: in shared memory by a program, then added to those of all programs."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    values = tl.load(x + at, mask=inside, other=0)
    counts = tl.histogram(values, BINS, mask=inside)
    tl.atomic_add(bins + tl.arange(0, BINS), counts, sem="relaxed")


@triton.jit
def last_one_sums(x, parts, done, out, n, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    """Partial sums; the program that comes last, by a counter, adds them up in a fixed order."""
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    line = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(parts + program, tl.sum(line, 0))
    tl.debug_barrier()
    before = tl.atomic_add(done, 1, sem="acq_rel")
    if before == PROGRAMS - 1:
        every = tl.load(parts + tl.arange(0, PROGRAMS), cache_modifier=".cg")
        tl.store(out, tl.sum(every, 0))
        tl.store(done, 0)


@triton.jit
def tickets(count, drawn, bits, words, n, BLOCK: tl.constexpr):
    """Each element draws a ticket of one counter and marks it; bits and 64-bit words beside."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    ticket = tl.atomic_add(count + tl.zeros([BLOCK], tl.int32), 1, mask=inside)
    tl.atomic_add(drawn + ticket, 1, mask=inside)
    tl.atomic_or(bits + at // 32, 1 << (at % 32), mask=inside)
    tl.atomic_xor(bits + 16 + at % 16, at, mask=inside)
    tl.atomic_max(words + at % 4, at.to(tl.int64) * 2654435761 - (1 << 39), mask=inside)


@triton.jit
def half_sums(x, out, n, COLS: tl.constexpr, BLOCK: tl.constexpr):
    """fp16 sums by packed atomics: small integers, so that every order gives the same bits."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    line = tl.load(x + at, mask=at < n, other=0.0)
    tl.atomic_add(out + at % COLS, line, mask=at < n, sem="relaxed")


@triton.jit
def dependent_scale(x, out, n, BLOCK: tl.constexpr):
    """What may begin before its predecessor ends: it waits, and lets its successor begin."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    gdc_wait()
    line = tl.load(x + at, mask=inside, eviction_policy="evict_first")
    gdc_launch_dependents()
    tl.store(out + at, line * 3.0, mask=inside, cache_modifier=".cs")
