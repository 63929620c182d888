"""Division by a constant as multiplications and shifts, exact on a stated range."""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.errors import ConfigError

POSITION_BITS = 31  # positions are below 2**31


@dataclass(frozen=True, slots=True)
class Divider:
    """x // divisor = (x * magic >> 32) >> shift, or x >> shift where `magic` is 0."""

    divisor: int
    magic: int
    shift: int

    @classmethod
    def of(cls, divisor: int) -> Divider:
        """Exact for 0 <= x < 2**31 and 1 <= divisor <= 2**31 (Granlund and Montgomery 1994, the
        case of a numerator one bit shorter than the word)."""
        if divisor < 1 or divisor > 1 << POSITION_BITS:
            raise ConfigError(f"no reciprocal of {divisor}: divisors are 1 to 2^{POSITION_BITS}")
        bits = (divisor - 1).bit_length()
        if divisor == 1 << bits:
            return cls(divisor, 0, bits)
        return cls(divisor, -(-(1 << (POSITION_BITS + bits)) // divisor), bits - 1)

    def __call__(self, x: int) -> int:
        """What the instructions compute."""
        return (x * self.magic >> 32 if self.magic else x) >> self.shift


def exact_reciprocal(divisor: int, limit: int) -> int:
    """m with (x * m) >> 32 == x // divisor for all 0 <= x < limit; 0 when divisor is 1."""
    if divisor == 1:
        return 0
    magic = (1 << 32) // divisor + 1
    for x in range(limit):
        if x * magic >> 32 != x // divisor:
            raise ConfigError(f"{limit} heads in groups of {divisor}: no exact 32-bit reciprocal")
    return magic
