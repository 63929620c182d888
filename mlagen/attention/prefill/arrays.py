"""The arrays beside Q, K and V of a prefill call: what is legal in them, checked entry by entry."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.errors import ConfigError
from mlagen.problem.arrays import check_int32
from mlagen.problem.formats import scale_log2e

SINK_TYPES = (np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16))

Ints = npt.NDArray[np.int32]


def checked_start_positions(start_pos: Any, batch: int) -> Ints:
    """The position of each sequence's first row, int32 [batch]; one number stands for all.

    Raises ConfigError for what is neither, and for a position below 0.
    """
    if not isinstance(start_pos, np.ndarray):
        if isinstance(start_pos, bool) or not isinstance(start_pos, int | np.integer):
            raise ConfigError(
                f"start_pos={start_pos!r} is neither an integer nor an int32 array of one position "
                f"a sequence"
            )
        if not 0 <= start_pos < 2**31:
            raise ConfigError(f"start_pos={start_pos} is not in 0 .. {2**31 - 1}")
        return np.full(batch, start_pos, np.int32)
    check_int32("start_pos", start_pos, (batch,))
    wrong = np.flatnonzero(start_pos < 0)
    if wrong.size:
        first = int(wrong[0])
        raise ConfigError(f"start_pos[{first}]={start_pos[first]} must not be negative")
    return start_pos


def checked_sinks(config: PrefillConfig, sinks: Any) -> npt.NDArray[np.float32]:
    """The sinks as fp32 [num_heads]; bf16 is widened, which is exact.

    Raises ConfigError for another type or shape, and for NaN, +inf, and a sink that is infinite in
    log2 units in fp32. -inf is legal: no sink.
    """
    if not isinstance(sinks, np.ndarray):
        raise ConfigError(f"sinks is a {type(sinks).__name__}, not a numpy array")
    if sinks.dtype not in SINK_TYPES:
        raise ConfigError(
            f"sinks has dtype {sinks.dtype}, the kernel wants fp32 (bf16 is widened to it)",
            hint="sinks.astype(np.float32)",
        )
    if sinks.shape != (config.num_heads,):
        raise ConfigError(
            f"sinks has shape {sinks.shape}, the kernel wants ({config.num_heads},): one a query "
            f"head"
        )
    widened = np.ascontiguousarray(sinks, np.float32)
    most = float(np.finfo(np.float32).max) / scale_log2e(1.0)
    legal = np.isneginf(widened) | (np.abs(widened.astype(np.float64)) <= most)
    wrong = np.flatnonzero(~legal)
    if wrong.size:
        first = int(wrong[0])
        raise ConfigError(
            f"sinks[{first}]={widened[first]}: a sink is -inf (none) or a number whose product "
            f"with log2(e) is finite in fp32",
            hint=f"at most {most:.6g} in magnitude",
        )
    return widened
