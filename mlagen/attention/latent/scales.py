"""What multiplies dot products and stored numbers: checked numbers of a call."""

from __future__ import annotations

import math

import numpy as np

from mlagen.errors import ConfigError
from mlagen.problem.formats import SMALLEST_NORMAL

# Of models with 128 + 64 columns a head before absorption (DeepSeek-V2, -V3, -R1). The width of the
# absorbed row, 576, has no part in it.
MODEL_SCALE = 192**-0.5


def check_scale(scale: float) -> float:
    """`scale` as a float. Raises ConfigError unless it is positive and finite, in fp32 too."""
    usual = f"the model's: 192 ** -0.5 = {MODEL_SCALE:.6g} for 128 + 64 columns a head"
    try:
        number = float(scale)
    except (TypeError, ValueError):
        raise ConfigError(f"scale={scale!r} is not a number", hint=usual) from None
    # The kernel receives scale and scale * log2(e) as fp32, which must be normal numbers.
    if not SMALLEST_NORMAL <= number <= float(np.finfo(np.float32).max) / math.log2(math.e):
        raise ConfigError(f"scale={scale} must be positive and finite in fp32", hint=usual)
    return number


def scale_of(name: str, value: float, what: str, field: str, dtype: str) -> float:
    """What stored numbers are multiples of, `value`, as a float. Raises ConfigError unless it is
    positive and finite in fp32, and 1 where `dtype` is bf16: `what` are the numbers themselves, of
    the problem's `field`."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name}={value!r} is not a number") from None
    if dtype == "bf16" and number != 1.0:
        raise ConfigError(
            f"{name}={value}: {what} the numbers themselves",
            hint=f"{name} goes with {field}=fp8_e4m3",
        )
    if not SMALLEST_NORMAL <= number <= float(np.finfo(np.float32).max):
        raise ConfigError(f"{name}={value} must be positive and finite in fp32")
    return number
