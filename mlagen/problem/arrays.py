"""What every array of a call is checked for: its kind, element type and shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlagen.errors import ConfigError

INT32 = np.dtype(np.int32)


def check_type(name: str, array: Any, dtype: np.dtype[Any], called: str, spelling: str) -> None:
    """Raises ConfigError unless `array` is an ndarray of `dtype`, which the problem calls `called`
    and Python `spelling`."""
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"{name} is a {type(array).__name__}, not a numpy array")
    if array.dtype != dtype:
        raise ConfigError(
            f"{name} has dtype {array.dtype}, the kernel wants {called}",
            hint=f"{name}.astype({spelling})",
        )


def check_int32(name: str, array: Any, shape: tuple[int | None, ...], *, least: int = 0) -> None:
    """Raises ConfigError unless `array` is an int32 ndarray of this shape (see `check_shape`)."""
    check_type(name, array, INT32, "int32", "np.int32")
    check_shape(name, array.shape, shape, least=least)


def check_shape(
    name: str, given: tuple[int, ...], shape: tuple[int | None, ...], *, least: int = 1
) -> None:
    """Raises ConfigError unless `given` is `shape` (None: any extent of at least `least`)."""
    wanted = ", ".join("*" if extent is None else str(extent) for extent in shape)
    fits = len(given) == len(shape) and all(
        extent == have or (extent is None and have >= least)
        for extent, have in zip(shape, given, strict=True)
    )
    if not fits:
        raise ConfigError(
            f"{name} has shape {given}, the kernel wants ({wanted})",
            hint=f"*: any extent of at least {least}" if least and None in shape else None,
        )
