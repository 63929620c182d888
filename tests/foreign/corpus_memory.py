"""Launches and references of `llvm/shared.c` and `llvm/dma.c`."""

from __future__ import annotations

import numpy as np
from llvm_corpus import Case, Expected, Maker, blank


def _reduce(rng: np.random.Generator) -> Case:
    a = rng.integers(-99, 99, (3, 256)).astype(np.float32)
    out = blank(3, np.float32)
    return Case((a, out), {1: Expected(a.sum(1))}, (3, 1, 1), (256, 1, 1))


def _reduce_length(rng: np.random.Generator) -> Case:
    a = rng.integers(-99, 99, (2, 701)).astype(np.float32)
    arguments = (a, blank(2, np.float32), np.int32(701))
    return Case(arguments, {1: Expected(a.sum(1))}, (2, 1, 1), (256, 1, 1))


def _transpose(rng: np.random.Generator) -> Case:
    a = rng.standard_normal((96, 32)).astype(np.float32)
    arguments = (a, blank((32, 96), np.float32), np.int32(96))
    return Case(arguments, {1: Expected(a.T)}, (3, 1, 1), (256, 1, 1))


def _scan(rng: np.random.Generator) -> Case:
    a = rng.integers(0, 1 << 20, (2, 256)).astype(np.uint32)
    expected = np.cumsum(a, 1, dtype=np.uint32)
    return Case((a, blank((2, 256), np.uint32)), {1: Expected(expected)}, (2, 1, 1), (256, 1, 1))


def _stencil(rng: np.random.Generator) -> Case:
    n = 300
    a, out = rng.integers(-99, 99, 384).astype(np.float32), blank(384, np.float32)
    inside = np.concatenate([[0], a[:n], [0]])
    expected = out.copy()
    expected[:n] = 0.25 * inside[:-2] + 0.5 * inside[1:-1] + 0.25 * inside[2:]
    arguments = (a, out, np.int32(n))
    return Case(arguments, {1: Expected(expected)}, (3, 1, 1), (128, 1, 1))


def _matmul_tiles(rng: np.random.Generator) -> Case:
    a = rng.integers(-9, 9, (32, 80)).astype(np.float32)
    b = rng.integers(-9, 9, (80, 16)).astype(np.float32)
    arguments = (a, b, blank((32, 16), np.float32), np.int32(80))
    return Case(arguments, {2: Expected(a @ b)}, (2, 1, 1), (256, 1, 1))


def _histogram(rng: np.random.Generator) -> Case:
    a = rng.integers(0, 64, (2, 300)).astype(np.uint8)
    expected = np.stack([np.bincount(row, minlength=64) for row in a]).astype(np.uint32)
    arguments = (a, blank((2, 64), np.uint32), np.int32(300))
    return Case(arguments, {1: Expected(expected)}, (2, 1, 1))


def _reverse_wide(rng: np.random.Generator) -> Case:
    a = rng.integers(0, 1 << 31, (2, 64, 4)).astype(np.uint32)
    narrow = (a[:, np.arange(64) ^ 21, 0] >> 5).astype(np.uint16)
    outs = blank(a.shape, np.uint32), blank((2, 64), np.uint16)
    expected = {1: Expected(a[:, ::-1] + a), 2: Expected(narrow)}
    return Case((a, *outs), expected, (2, 1, 1))


def _row_softmax(rng: np.random.Generator) -> Case:
    a = rng.uniform(-9, 9, (2, 900)).astype(np.float32)
    e = np.exp(a.astype(np.float64) - a.max(1, keepdims=True))
    expected = e / e.sum(1, keepdims=True)
    arguments = (a, blank(a.shape, np.float32), np.uint32(900))
    # Exponents of at most 26 in f32 (relative 26 * 2^-23), some twenty roundings of sums.
    return Case(arguments, {1: Expected(expected, 1e-5)}, (2, 1, 1), (512, 1, 1))


def _buffer_copy(rng: np.random.Generator) -> Case:
    a = rng.integers(0, 1 << 31, (128, 4)).astype(np.uint32)
    size = 128 * 16 - 24  # the last item has half of its data, the last but four no neighbour
    inside = a.reshape(-1).copy()
    inside[size // 4 :] = 0
    neighbour = np.concatenate([inside, np.zeros(16, np.uint32)]).reshape(-1, 4)[4:, 0]
    out = blank(a.shape, np.uint32)
    expected = (inside.reshape(-1, 4) + neighbour[:, None]).reshape(-1)
    expected[size // 4 :] = out.reshape(-1)[size // 4 :]
    arguments = (a, out, np.int32(size))
    return Case(arguments, {1: Expected(expected.reshape(a.shape))}, (2, 1, 1))


def _global_to_lds(rng: np.random.Generator) -> Case:
    a = rng.integers(0, 1 << 31, (2, 256)).astype(np.uint32)
    out = blank(a.shape, np.uint32)
    return Case((a, out), {1: Expected(a[:, ::-1])}, (2, 1, 1), (256, 1, 1))


def _buffer_to_lds(rng: np.random.Generator) -> Case:
    a = rng.integers(0, 1 << 31, (2, 256, 4)).astype(np.uint32)
    arguments = (a, blank(a.shape, np.uint32), np.int32(a.nbytes))
    expected = a[:, np.arange(256) ^ 85]
    return Case(arguments, {1: Expected(expected)}, (2, 1, 1), (256, 1, 1))


def _pipelined(rng: np.random.Generator) -> Case:
    a = rng.integers(0, 1 << 31, (9, 64)).astype(np.uint32)
    total = np.zeros(64, np.uint32)
    for row in a:
        total = total * np.uint32(3) + row[np.arange(64) ^ 5]
    return Case((a, blank(64, np.uint32), np.int32(9)), {1: Expected(total)})


def _read_transposed(rng: np.random.Generator) -> Case:
    a = rng.integers(-999, 999, (64, 4)).astype(np.int16)
    # 16 lanes hold four rows of 16; lane j gets column j.
    expected = a.reshape(4, 4, 16).transpose(0, 2, 1).reshape(64, 4)
    return Case((a, blank(a.shape, np.int16)), {1: Expected(expected)})


SHARED: dict[str, Maker] = {
    "reduce": _reduce,
    "reduce_length": _reduce_length,
    "transpose": _transpose,
    "scan": _scan,
    "stencil": _stencil,
    "matmul_tiles": _matmul_tiles,
    "histogram": _histogram,
    "reverse_wide": _reverse_wide,
    "row_softmax": _row_softmax,
}
DMA: dict[str, Maker] = {
    "buffer_copy": _buffer_copy,
    "global_to_lds": _global_to_lds,
    "buffer_to_lds": _buffer_to_lds,
    "pipelined": _pipelined,
    "read_transposed": _read_transposed,
}
