"""The `.approx` functions of PTX on sm_90a: the multifunction unit and what ptxas puts around it.

The steps are those that ptxas 13.0 makes: a denormal argument is scaled before and the result
after, by ordinary multiplications. With `.ftz` the unit is alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mlagen.emulator.ptx.arithmetic import multifunction as unit
from mlagen.emulator.ptx.arithmetic.multifunction import NAN, SIGN, Words
from mlagen.errors import ConfigError

Function = Callable[[Words], Words]
LEAST, LARGE = np.float32(2.0**-126), np.float32(2.0**126)
TURN = np.float32(0.15915493667125702)  # 1 / (2 pi), cut to f32


def _floats(words: Words) -> NDArray[np.float32]:
    return words.astype(np.uint32).view(np.float32)


def _words(numbers: NDArray[np.float32]) -> Words:
    """Words of f32 results: the hardware knows one NaN."""
    found = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    return np.where(np.isnan(numbers), np.uint32(NAN), found).astype(np.uint32)


def times(one: Words, factor: Words | np.float32) -> Words:
    """The rounded product of f32 words."""
    other = factor if isinstance(factor, np.float32) else _floats(factor)
    with np.errstate(all="ignore"):
        return _words(_floats(one) * other)


def flushed(words: Words) -> Words:
    """Denormal words as zeros of their sign."""
    small = words & np.uint32(unit.INF) == 0
    return np.where(small, words & np.uint32(SIGN), words).astype(np.uint32)


def _tiny(words: Words) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        tiny: NDArray[np.bool_] = np.abs(_floats(words)) < LEAST
    return tiny


def _scaled(function: Function, after: Function) -> Function:
    """A function whose denormal arguments are multiplied by 2^24; `after` mends the result."""

    def whole(words: Words) -> Words:
        tiny = _tiny(words)
        found = function(np.where(tiny, times(words, np.float32(2.0**24)), words))
        return np.where(tiny, after(found), found).astype(np.uint32)

    return whole


def _rcp(words: Words) -> Words:
    with np.errstate(invalid="ignore"):
        large = np.abs(_floats(words)) > LARGE
    factor = np.where(large, np.float32(0.25), np.float32(1))
    factor = np.where(_tiny(words), np.float32(2.0**24), factor).astype(np.float32)
    return times(unit.rcp(times(words, factor.view(np.uint32))), factor.view(np.uint32))


def _ex2(words: Words) -> Words:
    with np.errstate(invalid="ignore"):
        low = _floats(words) < np.float32(-126)
    found = unit.ex2(np.where(low, times(words, np.float32(0.5)), words).astype(np.uint32))
    return np.where(low, times(found, found), found).astype(np.uint32)


def _minus_24(words: Words) -> Words:
    with np.errstate(all="ignore"):
        return _words(_floats(words) + np.float32(-24))


def _turns(function: Function) -> Function:
    """A function of turns as one of radians: their product is cut toward zero."""

    def whole(words: Words) -> Words:
        with np.errstate(all="ignore"):
            exact = _floats(words).astype(np.float64) * np.float64(TURN)
            near = exact.astype(np.float32)
        past = np.abs(near.astype(np.float64)) > np.abs(exact)
        return function((near.view(np.uint32) - past.astype(np.uint32)).astype(np.uint32))

    return whole


def _in_f16(function: Function) -> Function:
    """A function of f16 words (in 32 bits): the f32 result is cut toward zero."""

    def whole(words: Words) -> Words:
        halves = words.astype(np.uint16).view(np.float16)
        with np.errstate(all="ignore"):
            numbers = _floats(function(halves.astype(np.float32).view(np.uint32)))
            near = numbers.astype(np.float16)
            past = np.abs(near.astype(np.float32)) > np.abs(numbers)
            past &= np.abs(numbers) < np.float32(2.0**16)
        found = near.view(np.uint16) - past.astype(np.uint16)
        return np.where(np.isnan(numbers), np.uint16(0x7FFF), found).astype(np.uint32)

    return whole


def _in_bf16(function: Function) -> Function:
    """The same for bf16 words."""

    def whole(words: Words) -> Words:
        return function((words << np.uint32(16)).astype(np.uint32)) >> np.uint32(16)

    return whole


FUNCTIONS: dict[str, Function] = {
    "rcp.approx.ftz.f32": unit.rcp,
    "rcp.approx.f32": _rcp,
    "rsqrt.approx.ftz.f32": unit.rsq,
    "rsqrt.approx.f32": _scaled(unit.rsq, lambda found: times(found, np.float32(4096))),
    "sqrt.approx.ftz.f32": unit.sqrt,
    "sqrt.approx.f32": _scaled(unit.sqrt, lambda found: times(found, np.float32(2.0**-12))),
    "ex2.approx.ftz.f32": unit.ex2,
    "ex2.approx.f32": _ex2,
    "lg2.approx.ftz.f32": unit.lg2,
    "lg2.approx.f32": _scaled(unit.lg2, _minus_24),
    "sin.approx.ftz.f32": _turns(unit.sin),
    "sin.approx.f32": _turns(unit.sin),
    "cos.approx.ftz.f32": _turns(unit.cos),
    "cos.approx.f32": _turns(unit.cos),
    "tanh.approx.f32": unit.tanh,
    "ex2.approx.f16": _in_f16(unit.ex2),
    "tanh.approx.f16": _in_f16(unit.tanh),
    "ex2.approx.ftz.bf16": _in_bf16(unit.ex2),
    "tanh.approx.bf16": _in_bf16(unit.tanh),
}


def approx(opcode: str, words: Words) -> Words:
    """Words of a function of one argument, as the chip gives them. ConfigError: no model of it."""
    if opcode not in FUNCTIONS:
        raise ConfigError(
            f"no bit-exact model of {opcode}", hint=f"there are {', '.join(sorted(FUNCTIONS))}"
        )
    return FUNCTIONS[opcode](words)


def divided(opcode: str, one: Words, other: Words) -> Words:
    """Words of div.approx or div.full, with or without .ftz. ConfigError: no such opcode."""
    if opcode not in ("div.approx.ftz.f32", "div.approx.f32", "div.full.ftz.f32", "div.full.f32"):
        raise ConfigError(f"no bit-exact model of {opcode}")
    flush = ".ftz" in opcode
    if flush:
        one, other = flushed(one), flushed(other)
    factor = np.ones(one.shape, np.float32)
    if not flush:
        factor = np.where(_tiny(other), np.float32(2.0**24), factor)
    if ".full" in opcode:
        with np.errstate(invalid="ignore"):
            factor = np.where(np.abs(_floats(other)) > LARGE, np.float32(0.25), factor)
    scale = factor.astype(np.float32).view(np.uint32)
    used = factor != 1
    one = np.where(used, times(one, scale), one).astype(np.uint32)
    other = np.where(used, times(other, scale), other).astype(np.uint32)
    if flush:
        one, other = flushed(one), flushed(other)
    found = times(unit.rcp(other), one)
    return flushed(found) if flush else found
