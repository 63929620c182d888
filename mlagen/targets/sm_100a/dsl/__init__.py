"""sm_100a's own words, besides those that it shares: what one tcgen05.mma multiplies, and copies
of rows by number."""

from mlagen.targets.sm_100a.dsl.gather import gather4
from mlagen.targets.sm_100a.dsl.products import Product, matrix_descriptor

__all__ = ["Product", "gather4", "matrix_descriptor"]
