"""Kernels of rows and vectors in Triton: masks, tails, reductions, scans, indices."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def add_masked(x, y, out, n, BLOCK: tl.constexpr):
    """out = x + y; the last program's tail is masked."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)
    tl.store(out + at, total, mask=inside)


@triton.jit
def softmax_row(x, out, columns, pitch, BLOCK: tl.constexpr):
    """A softmax of each row; a program takes every num_programs-th one."""
    at = tl.arange(0, BLOCK)
    inside = at < columns
    row = tl.program_id(0)
    line = tl.load(x + row * pitch + at, mask=inside, other=float("-inf")).to(tl.float32)
    powers = tl.exp(line - tl.max(line, 0))
    tl.store(out + row * pitch + at, powers / tl.sum(powers, 0), mask=inside)


@triton.jit
def layer_norm(x, weight, bias, out, columns, eps, BLOCK: tl.constexpr):
    """bf16 rows to zero mean and unit variance, in two passes, with roundings that IEEE defines."""
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.div_rn(tl.sum(total, 0), columns.to(tl.float32))
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        away = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32) - mean
        away = tl.where(inside, away, 0.0)
        squares += away * away
    variance = tl.div_rn(tl.sum(squares, 0), columns.to(tl.float32))
    spread = tl.sqrt_rn(variance + eps)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        line = tl.load(x + row * columns + at, mask=inside).to(tl.float32)
        scale = tl.load(weight + at, mask=inside).to(tl.float32)
        shift = tl.load(bias + at, mask=inside).to(tl.float32)
        norm = tl.div_rn(line - mean, tl.zeros_like(line) + spread)
        tl.store(out + row * columns + at, norm * scale + shift, mask=inside)


@triton.jit
def _later(index_a, value_a, index_b, value_b):
    """Of two (index, value) pairs, the one with the greater value; the earlier where equal."""
    second = value_b > value_a
    return tl.where(second, index_b, index_a), tl.where(second, value_b, value_a)


@triton.jit
def _compose(scale_a, shift_a, scale_b, shift_b):
    """x → b(a(x)) of two maps x → scale x + shift, in wrapping integers."""
    return scale_a * scale_b, shift_a * scale_b + shift_b


@triton.jit
def scans(x, sums, best, state, n, BLOCK: tl.constexpr):
    """Of each row: running sums, the place of the running maximum, and a linear recurrence."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    line = tl.load(x + row * n + at, mask=inside, other=0)
    tl.store(sums + row * n + at, tl.cumsum(line, 0), mask=inside)
    place, _ = tl.associative_scan((at, line), 0, _later)
    tl.store(best + row * n + at, place, mask=inside)
    _, shifts = tl.associative_scan((line | 1, at * 3 + 1), 0, _compose, reverse=True)
    tl.store(state + row * n + at, shifts, mask=inside)


@triton.jit
def gather_scatter(table, wanted, places, out, n, width, BLOCK: tl.constexpr, COLS: tl.constexpr):
    """Rows that 64-bit indices name, moved to rows that 64-bit indices name; -1 is left out."""
    item = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = item < n
    source = tl.load(wanted + item, mask=inside, other=-1)
    target = tl.load(places + item, mask=inside, other=0)
    column = tl.arange(0, COLS)
    live = (source >= 0)[:, None] & (column < width)[None, :]
    rows = tl.load(table + source[:, None] * width + column[None, :], mask=live, other=0.0)
    tl.store(out + target[:, None] * width + column[None, :], rows, mask=live)


@triton.jit
def sorted_rows(x, out, top, arg, BLOCK: tl.constexpr, K: tl.constexpr):
    """Each row sorted downwards, its greatest K, and where its least element is."""
    row = tl.program_id(0)
    line = tl.load(x + row * BLOCK + tl.arange(0, BLOCK))
    tl.store(out + row * BLOCK + tl.arange(0, BLOCK), tl.sort(line, descending=True))
    tl.store(top + row * K + tl.arange(0, K), tl.topk(line, K))
    tl.store(arg + row, tl.argmin(line, 0))


@triton.jit
def transposed_gather(x, index, out, ROWS: tl.constexpr, COLS: tl.constexpr):
    """A tile transposed through shared memory, then its elements in an order from an index."""
    row, col = tl.arange(0, ROWS), tl.arange(0, COLS)
    tile = tl.load(x + row[:, None] * COLS + col[None, :])
    order = tl.load(index + col[:, None] * ROWS + row[None, :])
    moved = tl.gather(tl.trans(tile), order, 1)
    tl.store(out + col[:, None] * ROWS + row[None, :], tl.flip(moved, 1))


@triton.jit
def dropout(x, out, seed, keep, n, BLOCK: tl.constexpr):
    """x where a counter-based generator (Philox) says so, else 0; the draws go out too."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    draw = tl.randint(seed, at)
    kept = draw.to(tl.uint32, bitcast=True) < keep
    tl.store(out + at, tl.where(kept, tl.load(x + at, mask=inside), 0.0), mask=inside)


@triton.jit(noinline=True)
def _steps(value, limit):
    """How many steps Collatz' rule takes from `value` to 1, at most `limit`."""
    count = 0
    while (value != 1) & (count < limit):
        value = tl.where(value % 2 == 0, value // 2, 3 * value + 1)
        count += 1
    return count


@triton.jit
def collatz(first, out, limit):
    """A loop whose end the data decides, in a function that is called."""
    program = tl.program_id(0)
    tl.store(out + program, _steps(tl.load(first + program), limit))


@triton.jit
def packed_assembly(x, y, out, high, low, n, BLOCK: tl.constexpr):
    """By assembly in the source: means of four bytes at once, and halves of 64-bit products."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    left = tl.load(x + at, mask=inside, other=0)
    right = tl.load(y + at, mask=inside, other=0)
    mean = tl.inline_asm_elementwise(
        """
        {
        .reg .b32 both, half;
        and.b32 both, $1, $2;
        lop3.b32 half, $1, $2, 0xfefefefe, 0x28;
        shr.u32 half, half, 1;
        add.u32 $0, both, half;
        }
        """,
        "=r,r,r",
        [left, right],
        dtype=tl.uint8,
        is_pure=True,
        pack=4,
    )
    tl.store(out + at, mean, mask=inside)
    above, below = tl.inline_asm_elementwise(
        """
        {
        .reg .b64 whole;
        .reg .pred odd;
        mul.wide.u32 whole, $2, $3;
        mov.b64 {$1, $0}, whole;
        setp.lt.u32 odd, $2, $3;
        @odd xor.b32 $0, $0, 1;
        }
        """,
        "=r,=r,r,r",
        [left.to(tl.uint32) * 0x01010101, right.to(tl.uint32) * 0x00010203],
        dtype=(tl.uint32, tl.uint32),
        is_pure=True,
        pack=1,
    )
    tl.store(high + at, above, mask=inside)
    tl.store(low + at, below, mask=inside)


@triton.jit
def quantised_rows(x, out, scales, back, columns, BLOCK: tl.constexpr):
    """Rows to e4m3 by their greatest absolute value, and what e5m2 and fp16 make of them."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    line = tl.load(x + row * columns + at, mask=inside, other=0.0)
    greatest = tl.maximum(tl.max(tl.abs(line), 0), 1e-4)
    scale = tl.div_rn(greatest, 448.0)
    small = tl.div_rn(line, tl.zeros_like(line) + scale)
    tl.store(out + row * columns + at, small.to(tl.float8e4nv), mask=inside)
    tl.store(scales + row, scale)
    again = small.to(tl.float8e4nv).to(tl.float16) + small.to(tl.float8e5).to(tl.float16)
    tl.store(back + row * columns + at, again, mask=inside)


@triton.jit
def special_functions(x, waves, errors, roots, n, BLOCK: tl.constexpr):
    """Functions of the mathematical library: sine with its slow path, erf, cube root and power."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    line = tl.load(x + at, mask=inside, other=1.0)
    tl.store(waves + at, libdevice.sin(line), mask=inside)
    tl.store(errors + at, libdevice.erf(line * 0.001), mask=inside)
    tl.store(roots + at, libdevice.pow(tl.abs(line) + 0.5, 1.0 / 3), mask=inside)
