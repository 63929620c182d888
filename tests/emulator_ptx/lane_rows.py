"""Kernels in which each lane has a row of one array to read and of another one to write."""

from __future__ import annotations

import numpy as np
from running import Ran, kernel, run

SHARED = ".shared .align 32 .b8 sh[4096];"


def at_lane(parameter: str, register: str, scale: int) -> str:
    """Instructions that make `register` the address of a lane's piece of an array."""
    return f"""
        ld.param.u64 %rd40, [{parameter}];
        mov.u32 %r40, %laneid;
        mad.wide.u32 {register}, %r40, {scale}, %rd40;
    """


def copied(
    body: str, source: np.ndarray, result: np.ndarray, head: str = SHARED, **how: object
) -> Ran:
    """Run `body` with %rd1 at a lane's row of `source`, %rd2 at its row of `result`."""
    scales = source.nbytes // 32, result.nbytes // 32
    text = kernel(
        at_lane("p", "%rd1", scales[0]) + at_lane("o", "%rd2", scales[1]) + body + "ret;",
        "p, o",
        head=head,
        registers=".local .align 32 .b8 mine[64];",
        version="8.8",
    )
    return run(text, {"p": source, "o": result}, **how)  # type: ignore[arg-type]


def drawn(kind: type, items: int, seed: int = 0) -> np.ndarray:
    """Random bits, a row a lane."""
    count = 32 * items * np.dtype(kind).itemsize
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8).view(kind).reshape(32, -1)
