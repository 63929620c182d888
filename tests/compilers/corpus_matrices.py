"""Cases of the matrix products and of attention in Triton."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import triton.language as tl
import triton_attention
import triton_matmul as matmul
from bounds import APPROX, U16, U32, U_BF16, narrow_product, product, rounded, summed
from compiler_case import Arrays, Case, Expected, Tiles

BF16 = ml_dtypes.bfloat16
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
UNITS = {np.dtype(np.float32): U32, np.dtype(BF16): U_BF16, np.dtype(np.float16): U16}
# Products of one tensor-core instruction along the inner dimension, by the operands' format.
PER_STEP = {np.dtype(BF16): 16, np.dtype(np.float16): 16, np.dtype(np.float32): 8}
PER_STEP |= {np.dtype(E4M3): 32, np.dtype(E5M2): 32}
Generator = np.random.Generator


def normal(rng: Generator, shape: tuple[int, ...], dtype: Any = BF16) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def dot(a: np.ndarray, b: np.ndarray, into: np.ndarray, unit: float = 2 * U32) -> Expected:
    """A B in the format of `into`; `unit`: what the sum of an instruction loses."""
    wide = a.astype(np.float64), b.astype(np.float64)
    value, magnitudes = wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])
    if a.dtype.itemsize == 1:
        # Hopper's fp8 products keep 13 bits below the greatest term of an instruction.
        bound = narrow_product(*wide, PER_STEP[a.dtype], 13)
    else:
        bound = product(magnitudes, a.shape[1], PER_STEP[a.dtype], unit)
    if into.dtype != np.float32:
        bound = bound + rounded(np.abs(value) + bound, UNITS[into.dtype])
    return Expected(value, bound)


def _nan(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.full(shape, np.nan, dtype)


def _pointers(
    name: str, size: tuple[int, int, int], tile: tuple[int, int, int], dtype: Any, out: Any,
    total: Any = tl.float32, unit: float = 2 * U32, **options: int,
) -> Case:  # fmt: skip
    """A [m, k] and B [k, n] in rows that are padded to 16 elements."""
    m, n, k = size
    pitch = [-(-width // 16) * 16 for width in (k, n, n)]

    def make(rng: Generator) -> Arrays:
        a, b = normal(rng, (m, pitch[0]), dtype), normal(rng, (k, pitch[1]), dtype)
        if dtype is np.float32:  # as tf32 holds them: the instruction reads no more bits
            for array in (a, b):
                array.view(np.uint32)[:] &= np.uint32(0xFFFFE000)
        return {"a": a, "b": b, "c": np.full((m, pitch[2]), -5, out)}

    def expect(a: Arrays) -> dict[str, Expected]:
        left, right = a["a"][:, :k], a["b"][:, :n]
        if out is np.float64:
            magnitudes = np.abs(left) @ np.abs(right)
            inner = Expected(left @ right, 2 * summed(k, magnitudes, 2.0**-53))
        else:
            inner = dot(left, right, a["c"], unit)
        return {"c": inner.beside(a["c"])}

    arguments = dict(zip(("a_pitch", "b_pitch", "c_pitch"), pitch, strict=True))
    return Case(
        name,
        matmul.matmul_pointers,
        {"a": "a", "b": "b", "c": "c", "m": m, "n": n, "k": k, **arguments},
        make,
        expect,
        (-(-m // tile[0]), -(-n // tile[1]), 1),
        {**dict(zip("MNK", tile, strict=True)), "SUM": total},
        {"num_warps": 4, "num_stages": 3, **options},
    )


def _eight_bit(name: str, dtype: Any, total: Any, out: Any) -> Case:
    m, n, k = 128, 128, 256

    def make(rng: Generator) -> Arrays:
        if dtype is np.int8:
            a, b = (rng.integers(-128, 128, (rows, k), np.int8) for rows in (m, n))
            return {"a": a, "b": b, "c": np.full((m, n), -1, np.int32)}
        return {
            "a": normal(rng, (m, k), dtype),
            "b": normal(rng, (n, k), dtype),
            "c": _nan((m, n), out),
        }

    def expect(a: Arrays) -> dict[str, Expected]:
        if dtype is np.int8:
            return {"c": Expected(a["a"].astype(np.int32) @ a["b"].astype(np.int32).T)}
        return {"c": dot(a["a"], a["b"].T, a["c"])}

    return Case(
        name,
        matmul.matmul_transposed,
        {"a": "a", "b": "b", "c": "c", "m": m, "n": n, "k": k},
        make,
        expect,
        (1, 1, 1),
        {"M": 128, "N": 128, "K": 128, "SUM": total},
        {"num_warps": 4, "num_stages": 3},
    )


def _descriptors(name: str, tile: tuple[int, int, int], specialise: bool) -> Case:
    m, n, k = 2 * tile[0] - 24, tile[1], 320  # the last rows of the last tile are outside

    return Case(
        name,
        matmul.matmul_descriptors,
        {
            "a": Tiles("a", (tile[0], tile[2])),
            "b": Tiles("b", (tile[2], tile[1])),
            "c": Tiles("c", (tile[0], tile[1])),
            "k": k,
        },
        lambda rng: {"a": normal(rng, (m, k)), "b": normal(rng, (k, n)), "c": _nan((m, n), BF16)},
        lambda a: {"c": dot(a["a"], a["b"], a["c"])},
        (2, 1, 1),
        {**dict(zip("MNK", tile, strict=True)), "SPECIALISE": specialise},
        {"num_warps": 4, "num_stages": 3},
    )


def _transposed_pair(m: int, n: int, k: int, c: Any = BF16) -> dict[str, Any]:
    """`make` and `expect` of C = A Bᵀ."""
    return {
        "make": lambda rng: {
            "a": normal(rng, (m, k)),
            "b": normal(rng, (n, k)),
            "c": _nan((m, n), c),
        },
        "expect": lambda a: {"c": dot(a["a"], a["b"].T, a["c"])},
    }


def _device_maps() -> Case:
    m, n, k = 200, 128, 192
    return Case(
        "matmul_device_maps",
        matmul.matmul_device_maps,
        {"a": "a", "b": "b", "c": "c", "m": m, "n": n, "k": k},
        grid=(2, 1, 1),
        constants={"M": 128, "N": 128, "K": 64},
        options={"num_warps": 8, "num_stages": 3},
        **_transposed_pair(m, n, k),
    )


def _persistent(name: str, flatten: bool) -> Case:
    m, n, k = 192, 160, 128
    tiles = {name: Tiles(name, (64, 64)) for name in "abc"}
    return Case(
        name,
        matmul.matmul_persistent,
        {**tiles, "m": m, "n": n, "k": k},
        grid=(2, 1, 1),
        constants={"PROGRAMS": 2, "M": 64, "N": 64, "K": 64, "FLATTEN": flatten},
        options={"num_warps": 4, "num_stages": 3},
        **_transposed_pair(m, n, k),
    )


def _split() -> Case:
    m, n, k, parts = 64, 64, 300, 3

    def expect(a: Arrays) -> dict[str, Expected]:
        one = dot(a["a"], a["b"], a["c"])
        magnitudes = np.abs(a["a"].astype(np.float64)) @ np.abs(a["b"].astype(np.float64))
        return {"c": Expected(one.value, one.bound + summed(parts, magnitudes))}

    return Case(
        "matmul_split",
        matmul.matmul_split,
        {"a": "a", "b": "b", "c": "c", "m": m, "n": n, "k": k},
        lambda rng: {
            "a": normal(rng, (m, k)),
            "b": normal(rng, (k, n)),
            "c": np.zeros((m, n), np.float32),
        },
        expect,
        (1, 1, parts),
        {"PARTS": parts, "M": 64, "N": 64, "K": 64},
        {"num_warps": 4, "num_stages": 3},
        unordered=True,
    )


def _chain() -> Case:
    rows, mid, cols = 16, 64, 64

    def expect(a: Arrays) -> dict[str, Expected]:
        first = dot(a["a"], a["b"].T, a["c"])  # rounded to the operands' format, bf16
        third = a["c"].astype(np.float64)
        whole = np.abs(first.value) + first.bound
        bound = product(whole @ np.abs(third), mid, 16) + first.bound @ np.abs(third)
        return {"out": Expected(first.value @ third, bound)}

    return Case(
        "matmul_chain",
        matmul.matmul_chain,
        {"a": "a", "b": "b", "c": "c", "out": "out"},
        lambda rng: {
            "a": normal(rng, (rows, cols)),
            "b": normal(rng, (mid, cols)),
            "c": normal(rng, (mid, cols)),
            "out": _nan((rows, cols), np.float32),
        },
        expect,
        (1, 1, 1),
        {"ROWS": rows, "MID": mid, "COLS": cols},
        {"num_warps": 2},
    )


def _batched() -> Case:
    shape, rows, cols, shift = (2, 40, 48), 16, 32, 4

    def expect(a: Arrays) -> dict[str, Expected]:
        moved = np.zeros(shape, np.int32)
        moved[:, shift:, : shape[2] - shift] = a["x"][:, :-shift, shift:]
        return {"out": Expected(moved * 2)}

    return Case(
        "batched_tiles",
        matmul.batched_tiles,
        {"x": Tiles("x", (1, rows, cols)), "out": Tiles("out", (1, rows, cols))},
        lambda rng: {
            "x": rng.integers(-1000, 1000, shape, np.int32),
            "out": np.full(shape, -1, np.int32),
        },
        expect,
        (2, 3, 2),
        {"ROWS": rows, "COLS": cols, "SHIFT": shift},
        {"num_warps": 2},
    )


def _attention(name: str, q_len: int, k_len: int, causal: bool, warps: int) -> Case:
    heads, depth, keys = 2, 64, 64
    scale = depth**-0.5 * math.log2(math.e)

    def expect(a: Arrays) -> dict[str, Expected]:
        q, k, v = (a[name].astype(np.float64) for name in "qkv")
        factor = float(np.float32(scale))
        scores = q @ k.transpose(0, 2, 1) * factor
        # Of the score, its scaling, and its difference to a maximum that is as far off.
        off = product(np.abs(q) @ np.abs(k).transpose(0, 2, 1), depth, 16) * factor
        off = 2 * (off + U32 * np.abs(scores)) + 2 * U32 * np.abs(scores).max(2, keepdims=True)
        if causal:
            seen = np.arange(k_len)[None, :] <= np.arange(q_len)[:, None]
            scores, off = np.where(seen, scores, -np.inf), np.where(seen, off, 0)
        most = scores.max(2, keepdims=True)
        powers = np.exp2(scores - most)
        weight = powers.sum(2, keepdims=True)
        # Relative, of a power: its exponent's error, ex2, and one rescaling a block of keys.
        blocks = -(-k_len // keys)
        each = math.log(2) * off.max(2, keepdims=True) + (blocks + 1) * (APPROX + 2 * U32)
        share = powers / weight
        value, magnitudes = share @ v, share @ np.abs(v)
        whole = 2 * each + summed(k_len + blocks, np.ones(1)) + U_BF16 + APPROX
        bound = whole * magnitudes + product(magnitudes, k_len, 16)
        bound = bound + rounded(np.abs(value) + bound, U_BF16)
        lse = (most + np.log2(weight))[..., 0]
        # log2 of a relative error; lg2.approx; the sum's rounding.
        lse_off = (each[..., 0] + summed(k_len, np.ones(1))) / math.log(2) * 2 + off.max(2)
        return {
            "out": Expected(value, bound),
            "lse": Expected(lse, lse_off + APPROX * (1 + np.abs(lse)) + U32 * np.abs(lse)),
        }

    return Case(
        name,
        triton_attention.attention,
        {
            "q": "q",
            "k": "k",
            "v": "v",
            "out": "out",
            "lse": "lse",
            "q_len": q_len,
            "k_len": k_len,
            "scale": scale,
        },
        lambda rng: {
            "q": normal(rng, (heads, q_len, depth)),
            "k": normal(rng, (heads, k_len, depth)),
            "v": normal(rng, (heads, k_len, depth)),
            "out": _nan((heads, q_len, depth), BF16),
            "lse": _nan((heads, q_len), np.float32),
        },
        expect,
        (-(-q_len // 128), heads, 1),
        {"ROWS": 128, "KEYS": keys, "DEPTH": depth, "CAUSAL": causal},
        {"num_warps": warps, "num_stages": 3},
        approximate=("ex2.approx.ftz.f32", "div.full.f32"),
    )


F32, F16, F64 = np.float32, np.float16, np.float64
CASES = (
    _pointers("matmul_bf16", (200, 136, 176), (128, 128, 64), BF16, BF16),
    _pointers("matmul_small", (30, 29, 50), (32, 32, 32), F16, F32, num_warps=2, num_stages=2),
    _pointers("matmul_f64", (30, 29, 50), (32, 32, 32), F64, F64, tl.float64, num_stages=2),
    _pointers("matmul_tf32", (100, 60, 96), (128, 64, 32), F32, F32),
    # The sum of each instruction is rounded to fp16.
    replace(
        _pointers(
            "matmul_f16_sums", (64, 64, 128), (64, 64, 64), F16, F16, tl.float16, U16, num_stages=2
        ),
        flaw="sums are read between wgmma.commit_group and wgmma.wait_group; ptxas adds a wait",
    ),
    _pointers("matmul_cluster", (128, 128, 128), (128, 128, 64), BF16, F32, num_ctas=2),
    _eight_bit("matmul_e4m3", E4M3, tl.float32, F32),
    _eight_bit("matmul_e5m2", E5M2, tl.float32, F32),
    _eight_bit("matmul_int8", np.int8, tl.int32, np.int32),
    _descriptors("matmul_host_maps", (128, 128, 64), False),
    _descriptors("matmul_specialised", (64, 128, 64), True),
    _device_maps(),
    _persistent("matmul_persistent", False),
    _persistent("matmul_flattened", True),
    _split(),
    _chain(),
    _batched(),
    _attention("attention", 128, 200, False, 4),
    _attention("attention_causal", 200, 200, True, 8),
)
