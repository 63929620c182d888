"""One call's data: the tensors of an MHA problem with its run-time numbers, checked once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.problem.formats import SMALLEST_NORMAL
from mlagen.problem.masks import MAX_POSITION
from mlagen.problem.mha import MhaConfig

ELEMENT_TYPES = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "fp32": np.dtype(np.float32),
}


@dataclass(frozen=True, eq=False)
class MhaInputs:
    """Q, K, V and the run-time numbers of one call of an MHA kernel.

    `q` [batch, seq_len, num_heads, depth], `k` and `v` [batch, rows, num_kv_heads, depth] of the
    problem's dtype. Query row i stands at position `start_pos + i`. The first `num_keys` rows of
    `k` and `v` are keys (None: all rows); what lies behind them has no meaning. `scale` multiplies
    the dot products. Raises ConfigError for shapes, types and numbers that do not fit.
    """

    config: MhaConfig
    q: npt.NDArray[Any]
    k: npt.NDArray[Any]
    v: npt.NDArray[Any]
    scale: float
    start_pos: int = 0
    num_keys: int | None = None

    def __post_init__(self) -> None:
        config = self.config
        check_tensor("q", self.q, (None, None, config.num_heads, config.depth), config.dtype)
        for name in ("k", "v"):
            shape = (self.batch, None, config.num_kv_heads, config.depth)
            check_tensor(name, getattr(self, name), shape, config.dtype)
        if self.k.shape != self.v.shape:
            raise ConfigError(f"k has shape {self.k.shape}, but v has {self.v.shape}")
        object.__setattr__(self, "scale", check_scale(config, self.scale))
        if self.num_keys is None:
            object.__setattr__(self, "num_keys", self.k.shape[1])
        if not 0 <= self.keys <= self.k.shape[1]:
            raise ConfigError(f"num_keys={self.keys} is not in 0 .. {self.k.shape[1]}, k's rows")
        # Whole query tiles have positions, also those rows of the last that do not exist.
        end = self.start_pos + config.q_tiles(self.seq_len) * config.q_tile
        if self.start_pos < 0 or end - 1 > MAX_POSITION:
            raise ConfigError(
                f"start_pos={self.start_pos} with {self.seq_len} rows: positions must stay within "
                f"0 .. {MAX_POSITION}"
            )

    @property
    def batch(self) -> int:
        return int(self.q.shape[0])

    @property
    def seq_len(self) -> int:
        """Query rows a batch entry."""
        return int(self.q.shape[1])

    @property
    def keys(self) -> int:
        """Keys a batch entry: `num_keys`, once it is known."""
        return self.k.shape[1] if self.num_keys is None else self.num_keys

    def rows(self, rows: Sequence[int] | None) -> npt.NDArray[np.int64]:
        """Local query rows, ascending and without repeats; None: all. ConfigError: no such row."""
        return _chosen("row", rows, self.seq_len)

    def heads(self, heads: Sequence[int] | None) -> npt.NDArray[np.int64]:
        """Query heads, ascending and without repeats; None: all. ConfigError: no such head."""
        return _chosen("head", heads, self.config.num_heads)


def default_scale(config: MhaConfig) -> float:
    """The softmax scale where none is given: 1 / sqrt(depth)."""
    return 1.0 / math.sqrt(config.depth)


def check_scale(config: MhaConfig, scale: float) -> float:
    """`scale` as a float. Raises ConfigError unless it is positive and finite, in fp32 too."""
    usual = f"1 / sqrt(depth) = {default_scale(config):.6g} is usual"
    try:
        number = float(scale)
    except (TypeError, ValueError):
        raise ConfigError(f"scale={scale!r} is not a number", hint=usual) from None
    # The kernel is handed scale * log2(e) as fp32, which must be a normal number.
    if not SMALLEST_NORMAL <= number * math.log2(math.e) <= float(np.finfo(np.float32).max):
        raise ConfigError(f"scale={scale} must be positive and finite in fp32", hint=usual)
    return number


def check_tensor(name: str, array: Any, shape: tuple[int | None, ...], dtype: str) -> None:
    """Raises ConfigError unless `array` is an ndarray of this shape (None: any, at least 1)."""
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"{name} is a {type(array).__name__}, not a numpy array")
    if array.dtype != ELEMENT_TYPES[dtype]:
        raise ConfigError(
            f"{name} has dtype {array.dtype}, the kernel wants {dtype}",
            hint=f"{name}.astype({_spelling(dtype)})",
        )
    wanted = ", ".join("*" if extent is None else str(extent) for extent in shape)
    if array.ndim != len(shape) or any(
        extent is not None and extent != given
        for extent, given in zip(shape, array.shape, strict=True)
    ):
        raise ConfigError(f"{name} has shape {array.shape}, the kernel wants ({wanted})")
    if 0 in array.shape:
        raise ConfigError(
            f"{name} has shape {array.shape}: every extent must be at least 1",
            hint=f"the kernel wants ({wanted})",
        )


def _spelling(dtype: str) -> str:
    name = ELEMENT_TYPES[dtype].name
    return f"np.{name}" if dtype == "fp32" else f"ml_dtypes.{name}"


def _chosen(what: str, chosen: Sequence[int] | None, count: int) -> npt.NDArray[np.int64]:
    if chosen is None:
        return np.arange(count)
    unique = np.unique(np.asarray(chosen, dtype=np.int64))
    if unique.size == 0 or unique[0] < 0 or unique[-1] >= count:
        raise ConfigError(f"{what}s {list(chosen)} are not all in 0 .. {count - 1}")
    return unique
