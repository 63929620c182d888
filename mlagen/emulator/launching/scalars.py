"""Names of element types, and numbers as the bytes of one."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from mlagen.errors import ConfigError

DTYPES: dict[str, np.dtype] = {
    name: np.dtype(kind)
    for name, kind in {
        "i8": np.int8,
        "u8": np.uint8,
        "i16": np.int16,
        "u16": np.uint16,
        "i32": np.int32,
        "u32": np.uint32,
        "i64": np.int64,
        "u64": np.uint64,
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "f32": np.float32,
        "f64": np.float64,
        "e4m3": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2,
    }.items()
}
"""Element types of buffers by name; 8-bit floats are the OCP formats of gfx950."""
SCALARS = tuple(name for name in DTYPES if name not in ("e4m3", "e5m2"))
_POISON = bytes.fromhex("ff7fff7fff7fff7f")


def check_dtype(place: str, name: str) -> np.dtype:
    """The type called `name`; ConfigError names those that exist."""
    if name not in DTYPES:
        raise ConfigError(f"{place}: unknown dtype {name!r}", hint="one of: " + ", ".join(DTYPES))
    return DTYPES[name]


def scalar(place: str, kind: str, value: int | float) -> np.generic:
    """`value` as a numpy scalar. ConfigError when the type does not hold it."""
    if kind not in SCALARS:
        raise ConfigError(
            f"{place}: unknown type {kind!r} of a scalar", hint="one of: " + ", ".join(SCALARS)
        )
    return number(place, DTYPES[kind], kind, value)


def number(place: str, dtype: np.dtype, kind: str, value: int | float) -> np.generic:
    """`value` in `dtype`, rounded where that is a float; out of range is refused."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if isinstance(value, float) or not info.min <= value <= info.max:
            raise ConfigError(
                f"{place}: {value} is no {kind}", hint=f"an integer from {info.min} to {info.max}"
            )
        return dtype.type(value)
    largest = float(ml_dtypes.finfo(dtype).max)
    if math.isfinite(value) and abs(value) > largest:
        raise ConfigError(f"{place}: {value} overflows {kind}", hint=f"at most {largest:g}")
    return dtype.type(float(value))  # bf16 and its kind take no int of more than 64 bits


def poison(dtype: np.dtype, count: int) -> np.ndarray:
    """`count` elements that no kernel wrote: NaN in every float format, large as an integer."""
    size = count * dtype.itemsize
    if dtype.itemsize == 1:
        return np.full(size, _POISON[1], np.uint8).view(dtype)
    words = np.full(-(-size // 8), np.frombuffer(_POISON, np.uint64)[0])
    return words.view(np.uint8)[:size].view(dtype)
