"""The problem: out[m] = sum of x[m, :], or of its magnitudes. x is fp32 [m, k], contiguous."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RowSums:
    absolute: bool = False
