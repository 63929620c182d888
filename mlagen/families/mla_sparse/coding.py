"""Rows as numbers and as bytes: made-up numbers are encoded, stored ones decoded to fp64.

Byte rows, in this order: `v32`: e4m3, fp32 scales, bf16 rope; `rope_aware`: e4m3, bf16 rope;
`v41`: e4m3, ue8m0 scales; `model1`: e4m3, bf16 rope, ue8m0 scales and a byte of padding (where
these lie in a page is `pool`'s business).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.latent.rope_aware import rope_aware_numbers, rope_aware_rows
from mlagen.families.mla_sparse.rows import BF16_BYTES, FP32_BYTES, RowFormat
from mlagen.problem.dtypes import E4M3_MAX
from mlagen.problem.formats import BF16, E4M3, Floats

Array = npt.NDArray[Any]
UE8M0_BIAS, UE8M0_NAN = 127, 255  # OCP microscaling formats 1.0: the exponent of a power of two


@dataclass(frozen=True, slots=True, eq=False)
class CodedRows:
    """What rows hold: `exact` [rows, d_qk] fp64 times `scales` [rows] are the numbers.

    `bf16` [rows, d_qk]: what stands for `exact` in a kernel that computes in bf16. Where numbers
    are multiplied by their scales it is their fp32 product rounded to bf16; else it is `exact`.
    `scaled`: whether `scales` are the rows' own.
    """

    exact: Floats
    bf16: Floats
    scales: Floats
    scaled: bool


def stored_scales(row: RowFormat, d_qk: int, stored: Array, side: Array | None) -> Floats:
    """Scales [rows, scales] of rows [rows, columns] as they are stored; `side`: of these rows."""
    count = row.scales(d_qk)
    if row.scale == "side":
        assert side is not None
        return side.reshape(len(stored), count).astype(np.float64)
    if not count:
        return np.ones((len(stored), 0))
    start = row.content(d_qk)
    if row.scale == "fp32":
        own = np.ascontiguousarray(stored[:, start : start + FP32_BYTES * count])
        return own.view(np.float32).astype(np.float64)
    start += BF16_BYTES * row.rope
    powers = np.ascontiguousarray(stored[:, start : start + count]).view(np.uint8).astype(int)
    return np.where(powers == UE8M0_NAN, np.nan, np.ldexp(1.0, powers - UE8M0_BIAS))


def decode(row: RowFormat, d_qk: int, stored: Array, side: Array | None) -> CodedRows:
    """What rows [rows, columns] hold; `side`: their scales beside the cache."""
    ones = np.ones(len(stored))
    if row.scale in ("none", "cache"):
        plain = stored.astype(np.float64)
        return CodedRows(plain, plain, ones, False)
    scales = stored_scales(row, d_qk, stored, side)
    content = row.content(d_qk)
    if not row.once:
        plain = rope_aware_numbers(stored, content) if row.rope else stored.astype(np.float64)
        return CodedRows(plain, plain, scales[:, 0], True)
    numbers = stored[:, :content].astype(np.float32)
    each = np.repeat(scales, row.block, axis=1)[:, :content]
    exact = numbers.astype(np.float64) * each
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = (numbers * each.astype(np.float32)).astype(BF16).astype(np.float64)
    if row.rope:
        start = content + (FP32_BYTES * scales.shape[1] if row.scale == "fp32" else 0)
        rope = np.ascontiguousarray(stored[:, start : start + BF16_BYTES * row.rope])
        turned = rope.view(BF16).astype(np.float64)
        exact, rounded = (np.concatenate([n, turned], axis=1) for n in (exact, rounded))
    return CodedRows(exact, rounded, ones, False)


def encode(row: RowFormat, numbers: Floats, kv_scale: float) -> tuple[Array, Array | None]:
    """Rows [rows, columns] that hold `numbers` [rows, d_qk] as well as they can, and their scales
    beside the cache. The largest number of a block becomes 448, or the next smaller power of two of
    a scale that lets it fit."""
    count, d_qk = numbers.shape
    if row.scale == "none":
        return numbers.astype(BF16), None
    if row.scale == "cache":
        return np.clip(numbers / kv_scale, -E4M3_MAX, E4M3_MAX).astype(E4M3), None
    content = row.content(d_qk)
    if row.rope and not row.once:
        return rope_aware_rows(numbers, content)
    block = row.block or d_qk
    starts = np.arange(0, content, block)
    largest = np.maximum.reduceat(np.abs(numbers[:, :content]), starts, axis=1)
    scales = np.where(largest > 0, largest / E4M3_MAX, 1.0).astype(np.float32)
    if row.scale == "ue8m0":
        scales = np.ldexp(np.float32(1), np.ceil(np.log2(scales)).astype(int))
    each = np.repeat(scales.astype(np.float64), block, axis=1)[:, :content]
    stored = np.clip(numbers[:, :content] / each, -E4M3_MAX, E4M3_MAX).astype(E4M3)
    if row.scale == "side":
        return stored, (scales if row.block else scales[:, 0])
    rope = numbers[:, content:].astype(BF16).view(E4M3)
    if row.scale == "fp32":
        return np.concatenate([stored, scales.view(E4M3), rope], axis=1), None
    powers = (np.log2(scales).astype(int) + UE8M0_BIAS).astype(np.uint8)
    padding = np.zeros((count, max(row.behind - powers.shape[1], 0)), np.uint8)
    return np.concatenate([stored, rope, powers.view(E4M3), padding.view(E4M3)], axis=1), None
