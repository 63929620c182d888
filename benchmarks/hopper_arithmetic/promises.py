"""What the PTX ISA promises of the `.approx` functions: how far a result may be from the truth."""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Bound:
    """One promise, for inputs of a magnitude from `low` to `high`. A result holds it when one of
    what is given holds: `ulps` of the correctly rounded result, or an error that is `relative` to
    the true value, or `absolute`."""

    ulps: int | None = None
    relative: float | None = None
    absolute: float | None = None
    low: float = 0.0
    high: float = float("inf")


_TWO_PI, _HUNDRED_PI = 6.283185307179586, 314.1592653589793
# The sections of the instructions, not compared word for word with one edition of the text; an
# H200's words keep them all. For div the range is that of the divisor.
BOUNDS: dict[str, tuple[Bound, ...]] = {
    "rcp.approx.f32": (Bound(ulps=1),),
    "div.approx.f32": (Bound(ulps=2, low=2.0**-126, high=2.0**126),),
    "div.full.f32": (Bound(ulps=2),),
    "sqrt.approx.f32": (Bound(relative=2.0**-23),),
    "rsqrt.approx.f32": (Bound(relative=2.0**-22.9),),
    "ex2.approx.f32": (Bound(ulps=2),),
    "lg2.approx.f32": (
        Bound(absolute=2.0**-22, low=0.5, high=2.0),
        Bound(relative=2.0**-22, high=0.5),
        Bound(relative=2.0**-22, low=2.0),
    ),
    "sin.approx.f32": (
        Bound(absolute=2.0**-20.5, high=_TWO_PI),
        Bound(absolute=2.0**-14.7, low=_TWO_PI, high=_HUNDRED_PI),
    ),
    "cos.approx.f32": (
        Bound(absolute=2.0**-20.5, high=_TWO_PI),
        Bound(absolute=2.0**-14.7, low=_TWO_PI, high=_HUNDRED_PI),
    ),
    "tanh.approx.f32": (Bound(relative=2.0**-11),),
    "ex2.approx.f16": (Bound(relative=2.0**-9.9),),
    "ex2.approx.bf16": (Bound(relative=2.0**-7),),
    "tanh.approx.f16": (Bound(absolute=2.0**-10.987),),
    "tanh.approx.bf16": (Bound(absolute=2.0**-8),),
}


def bounds_of(opcode: str) -> tuple[Bound, ...]:
    """The promises for an opcode as PTX writes it. ConfigError: the ISA states none."""
    pieces = opcode.removesuffix("x2").split(".")
    name = ".".join(piece for piece in pieces if piece != "ftz")
    if name not in BOUNDS:
        raise ConfigError(f"no error bound of {opcode} is known; there are {', '.join(BOUNDS)}")
    return BOUNDS[name]
