"""Top-k sparse MLA decode as a problem: what a kernel is generated for.

As prefill (`prefill_problem`), for a batch of sequences with `q_len` new tokens each: queries
[batch, q_len, heads, d_qk], and a list for each token, int32 [batch, q_len, topk], or one that a
sequence's tokens share, [batch, topk]. Lengths of lists are a sequence's, int32 [batch].

`extra`: a second cache of the same row format with lists and lengths of its own. Its keys follow
those of the first, which are padded to whole tiles. `causal`: each key of the first cache comes
with its logical position, int32 like the lists, and a sequence with the position of its first new
token: token j sees a key whose position is at most the first one's plus j. Keys of the second cache
are seen by all.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

from mlagen.artifact.manifest import Rounding
from mlagen.attention.latent.facts import Facts
from mlagen.attention.latent.order import D_V
from mlagen.errors import ConfigError
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
from mlagen.problem.fields import BOOLEANS, Fields, told

MAX_Q_LEN = 8


@dataclass(frozen=True)
class MlaSparseDecodeConfig(ProductTypes, Fields):
    """One sparse decode kernel. Raises ConfigError for a value that no kernel can have."""

    family: ClassVar[str] = "mla_sparse"
    splits: ClassVar[bool] = True  # a query's keys, so that a grid may have few blocks

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
    rows: str = told("bf16", meaning="how a row of the caches is stored", legal=ROWS)
    q_len: int = told(1, meaning="new tokens a sequence", legal=f"1 .. {MAX_Q_LEN}")
    shared_list: bool = told(
        False, meaning="whether a sequence's tokens share its lists", legal=BOOLEANS
    )
    extra: bool = told(False, meaning="whether there is a second cache", legal=BOOLEANS)
    causal: bool = told(
        False, meaning="whether keys of the first cache come with positions", legal=BOOLEANS
    )
    compute: str = told(
        "bf16", meaning="what products are of; fp8: P is rounded to e4m3, with a bias",
        legal=COMPUTE,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_common(self)
        check_compute(self.compute, self.dtype, self.rows)
        if not 1 <= self.q_len <= MAX_Q_LEN:
            raise ConfigError(
                f"q_len={self.q_len} is not in 1 .. {MAX_Q_LEN}",
                hint="1 is plain decoding, more are the tokens of speculative decoding; longer "
                "runs of new tokens are prefill",
            )

    @property
    def row_format(self) -> RowFormat:
        """Widths, bytes and scales of the caches' rows."""
        return FORMATS[self.rows]

    @property
    def lists(self) -> tuple[int, ...]:
        """Extents between batch and topk of the lists: one a token, or one a sequence."""
        return () if self.shared_list else (self.q_len,)

    def roundings(self, facts: Facts | None) -> tuple[Rounding, ...]:
        """What a kernel for it rounds, as its manifest states it."""
        return roundings_for(asdict(self), facts)

    @classmethod
    def example(cls) -> MlaSparseDecodeConfig:
        """A legal problem, for describing what solves this type."""
        return cls(num_heads=16)
