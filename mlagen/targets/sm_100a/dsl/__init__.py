"""sm_100a's own words, besides those that it shares: what one tcgen05.mma multiplies."""

from mlagen.targets.sm_100a.dsl.products import Product, matrix_descriptor

__all__ = ["Product", "matrix_descriptor"]
