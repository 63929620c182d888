"""Tensor maps as the engine's records, and as the 128 bytes that a kernel is passed."""

from __future__ import annotations

import numpy as np

from mlagen.emulator.ptx.agents import agent_records as agents
from mlagen.emulator.tensor_maps import BYTES, DTYPES, FILLS, INTERLEAVES, SWIZZLES, TensorMap
from mlagen.errors import UnsupportedError

# In the order of CUtensorMapDataType, which is that of PTX's tensormap.replace .elemtype.
_TYPES = (
    "u8", "u16", "u32", "i32", "u64", "i64", "f16", "f32", "f32_ftz", "f64", "bf16", "tf32",
    "tf32_ftz",
)  # fmt: skip


def record(made: TensorMap, address: int) -> list[int]:
    """The M_ words of a checked map whose tensor begins at `address`. UnsupportedError for what
    copies of the emulator do not do."""
    if made.dtype.startswith("tf32") or made.dtype == "f32_ftz":
        raise UnsupportedError(
            f"a tensor map of {made.dtype}: the emulator does not model copies that round",
            hint="f32 copies bits",
        )
    if made.interleave != "none":
        raise UnsupportedError(f"a tensor map with interleave {made.interleave} is not modelled")
    words = [0] * agents.M_SIZE
    words[agents.M_BASE] = address
    words[agents.M_RANK] = len(made.dims)
    words[agents.M_TYPE] = _TYPES.index(made.dtype)
    words[agents.M_ELEMENT] = DTYPES[made.dtype]
    words[agents.M_INTERLEAVE] = INTERLEAVES.index(made.interleave)
    words[agents.M_SWIZZLE] = list(SWIZZLES).index(made.swizzle)
    words[agents.M_FILL] = FILLS.index(made.fill)
    words[agents.M_CHECKED] = 1
    for first, values in (
        (agents.M_DIMS, made.dims),
        (agents.M_STRIDES, (DTYPES[made.dtype], *made.strides)),
        (agents.M_BOX, made.box),
        (agents.M_STEPS, made.steps),
    ):
        words[first : first + 5] = (list(values) + [1] * 5)[:5]
    return words


def passed(index: int) -> bytes:
    """The bytes of the map of that number: a mark and the number, nothing that hardware knows."""
    words = np.zeros(BYTES // 8, np.uint64)
    words[:2] = agents.MAP_MAGIC, index
    return words.tobytes()
