"""Rope-aware rows: 512 latent columns in e4m3, in multiples of the row's scale, and after them 64
rotary ones in bf16, divided by that scale: 640 bytes. Queries may be stored so, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.problem.dtypes import E4M3_MAX
from mlagen.problem.formats import BF16, E4M3, Floats


def rope_aware_numbers(rows: npt.NDArray[Any], latent: int) -> Floats:
    """What rope-aware rows [.., latent + 2 * rope] hold, [.., latent + rope], without their
    scales."""
    content, rope = np.split(rows, [latent], axis=-1)
    turned = np.ascontiguousarray(rope).view(BF16)
    return np.concatenate([content.astype(np.float64), turned.astype(np.float64)], axis=-1)


def rope_aware_rows(rows: Floats, latent: int, *, alone: bool = True) -> tuple[Any, Any]:
    """Rows [length, latent + rope] as rope-aware ones store them: bytes [length, latent + 2 *
    rope], named e4m3, and their scales [length], fp32. The largest latent number becomes 448; the
    rotary columns are divided by the scale too. Not `alone`: all rows have one scale."""
    largest = np.abs(rows[:, :latent]).max(axis=1, initial=0.0)
    if not alone:
        largest = np.full(largest.shape, largest.max(initial=0.0))
    scales = np.where(largest > 0, largest / E4M3_MAX, 1.0).astype(np.float32)
    units = rows / scales[:, None].astype(np.float64)
    content = np.clip(units[:, :latent], -E4M3_MAX, E4M3_MAX).astype(E4M3)
    return np.concatenate([content, units[:, latent:].astype(BF16).view(E4M3)], axis=1), scales
