"""Top-k sparse MLA prefill as a problem: what a kernel is generated for.

Given at run time: queries [rows, heads, d_qk], a cache of latent rows, and for each query row a
list of the cache's rows, int32 [rows, topk]. A key counts where its place in the list is below the
row's `topk_length` and its index is that of a row, 0 <= index < number of rows; what else stands in
a list is skipped, and a row that is listed twice counts twice. A sink adds exp(sink) to the
denominator of the output alone.

Outputs: O bf16 [rows, heads, 512]; the largest score and the log-sum-exp, fp32 [rows, heads], in
natural units, without the sink. A row without keys has O = 0, and -inf in both.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

from mlagen.artifact.manifest import Rounding
from mlagen.attention.latent.facts import Facts
from mlagen.attention.latent.order import D_V
from mlagen.families.mla_sparse.checks import (
    COMPUTE,
    MAX_HEADS,
    OUTPUT_DTYPES,
    Q_DTYPES,
    WIDTHS,
    ProductTypes,
    check_common,
    check_compute,
)
from mlagen.families.mla_sparse.numerics import roundings_for
from mlagen.families.mla_sparse.rows import FORMATS, ROWS, RowFormat
from mlagen.problem.fields import Fields, told


@dataclass(frozen=True)
class MlaSparsePrefillConfig(ProductTypes, Fields):
    """One sparse prefill kernel. Raises ConfigError for a value that no kernel can have."""

    family: ClassVar[str] = "mla_sparse"
    # What only decode has.
    splits: ClassVar[bool] = False
    q_len: ClassVar[int] = 1
    extra: ClassVar[bool] = False
    causal: ClassVar[bool] = False
    shared_list: ClassVar[bool] = False

    num_heads: int = told(meaning="query heads on this device", legal=f"1 .. {MAX_HEADS}")
    d_qk: int = told(576, meaning="columns of a query and of a cache row", legal=WIDTHS)
    d_v: int = told(
        D_V, meaning="leading columns of a cache row that are its value; columns of the output",
        legal=(D_V,),
    )  # fmt: skip
    dtype: str = told(
        "bf16", meaning="of the queries; fp8_e4m3: multiples of one scale", legal=Q_DTYPES
    )
    output_dtype: str = told("bf16", meaning="of the output", legal=OUTPUT_DTYPES)
    rows: str = told("bf16", meaning="how a row of the cache is stored", legal=ROWS)
    compute: str = told(
        "bf16", meaning="what products are of; fp8: P is rounded to e4m3, with a bias",
        legal=COMPUTE,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_common(self)
        check_compute(self.compute, self.dtype, self.rows)

    @property
    def row_format(self) -> RowFormat:
        """Widths, bytes and scales of the cache's rows."""
        return FORMATS[self.rows]

    def roundings(self, facts: Facts | None) -> tuple[Rounding, ...]:
        """What a kernel for it rounds, as its manifest states it."""
        return roundings_for(asdict(self), facts)

    @classmethod
    def example(cls) -> MlaSparsePrefillConfig:
        """A legal problem, for describing what solves this type."""
        return cls(num_heads=16)
