"""Number formats of tensor-core operands, as words of bits."""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.errors import ConfigError


@dataclass(frozen=True, slots=True)
class OperandFormat:
    """A floating format. A word: the sign, the exponent's field, the mantissa, then `unused` bits
    that the hardware does not read. `infinities`: the highest field means Inf and NaN; without
    them only the word of all ones is NaN. `finite`: all words are numbers."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    infinities: bool = True
    unused: int = 0
    finite: bool = False

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits + self.unused

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def top_field(self) -> int:
        """The greatest field of the exponent that holds ordinary numbers of any mantissa."""
        return (1 << self.exponent_bits) - (1 if self.finite else 2)

    @property
    def least_exponent(self) -> int:
        """Of normal numbers; denormal ones have it too."""
        return 1 - self.bias


F32 = OperandFormat("f32", 8, 23)
F16 = OperandFormat("f16", 5, 10)
BF16 = OperandFormat("bf16", 8, 7)
TF32 = OperandFormat("tf32", 8, 10, unused=13)
E4M3 = OperandFormat("e4m3", 4, 3, infinities=False)
E5M2 = OperandFormat("e5m2", 5, 2)
E2M3 = OperandFormat("e2m3", 2, 3, finite=True)
E3M2 = OperandFormat("e3m2", 3, 2, finite=True)
E2M1 = OperandFormat("e2m1", 2, 1, finite=True)
FORMATS = {
    found.name: found for found in (F32, F16, BF16, TF32, E4M3, E5M2, E2M3, E3M2, E2M1)
}  # fmt: skip


def format_named(name: str) -> OperandFormat:
    """ConfigError: there is no such floating format."""
    if name not in FORMATS:
        raise ConfigError(f"no floating format {name!r}; there are {', '.join(FORMATS)}")
    return FORMATS[name]
