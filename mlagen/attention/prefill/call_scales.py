"""The numbers that a prefill call's tensors are multiplied with: of the softmax and of fp8."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.errors import ConfigError
from mlagen.problem.fields import number
from mlagen.problem.formats import SMALLEST_NORMAL


@dataclass(frozen=True, slots=True)
class CallScales:
    """The softmax scale of a call, and those of its tensors."""

    scale: float
    q_scale: float = 1.0
    k_scale: float = 1.0
    v_scale: float = 1.0

    @property
    def score_scale(self) -> float:
        """What takes dot products of the stored Q and K to natural units."""
        return self.scale * self.q_scale * self.k_scale


def checked_scales(
    config: PrefillConfig, scale: float, q_scale: float, k_scale: float, v_scale: float
) -> CallScales:
    """The scales as the kernel receives them: those of tensors as fp32 numbers.

    Raises ConfigError for a scale that is not positive and finite, and for scales of bf16 tensors.
    """
    made = CallScales(
        check_scale(config, scale),
        _tensor_scale(config, "q_scale", q_scale),
        _tensor_scale(config, "k_scale", k_scale),
        _tensor_scale(config, "v_scale", v_scale),
    )
    check_scale(config, made.score_scale, "scale * q_scale * k_scale")
    return made


def _tensor_scale(config: PrefillConfig, name: str, value: float) -> float:
    with np.errstate(over="ignore"):
        given = float(np.float32(number(name, value)))
    if not (given >= SMALLEST_NORMAL and np.isfinite(given)):
        raise ConfigError(
            f"{name}={value} must be positive and finite in fp32",
            hint="the largest magnitude of the tensor / 448 is usual",
        )
    if config.dtype == "bf16" and given != 1.0:
        raise ConfigError(
            f"{name}={given:g}: a kernel of dtype=bf16 takes no scales of its tensors",
            hint="dtype=fp8_e4m3 does; fold others into scale and the output",
        )
    return given


def default_scale(config: PrefillConfig) -> float:
    """The softmax scale where none is given: 1 / sqrt(qk_width), the width of a query's head."""
    return 1.0 / math.sqrt(config.qk_width)


def check_scale(config: PrefillConfig, scale: float, name: str = "scale") -> float:
    """`scale` as a float. Raises ConfigError unless it is positive and finite, in fp32 too."""
    usual = f"1 / sqrt({config.qk_width}) = {default_scale(config):.6g} is usual"
    try:
        number = float(scale)
    except (TypeError, ValueError):
        raise ConfigError(f"{name}={scale!r} is not a number", hint=usual) from None
    # The kernel receives scale * log2(e) as fp32, which must be a normal number.
    if not SMALLEST_NORMAL <= number * math.log2(math.e) <= float(np.finfo(np.float32).max):
        raise ConfigError(f"{name}={scale} must be positive and finite in fp32", hint=usual)
    return number
