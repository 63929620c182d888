"""Merging the parts of split MLA decode work as a problem: what a merge kernel is generated for.

Given at run time: partial_o fp32 `[slots, 64, 512]`, each row normalised by its own row sum, and
partial_lse fp32 `[slots, 64]` in log2 units, -inf where a row has seen no key: what partial_o holds
there has no meaning. A merge (`mlagen.families.mla_decode.plan`) names slots that follow each other
and the rows of o and lse that they become: o[row] = sum of exp2(lse_s - L) o_s, L = log2 of the sum
of exp2(lse_s); lse = L ln 2.

With sinks, fp32 `[num_heads]`, o[row] is multiplied by 1 / (1 + exp(sink - lse[row])): a sink, in
the units of lse, is a score that draws weight and has no value. Row r of a row block that begins
with row `above` of its sequence has that of head (above + r) % num_heads. lse is without it. What
lse is of a row without keys, whose o is 0, is then said by the call (`empty_lse`, the bits of an
fp32 number); without sinks it is -inf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlagen.errors import ConfigError
from mlagen.families.mla_decode.problem import D_V, MAX_HEADS, OUTPUT_DTYPES
from mlagen.problem.fields import BOOLEANS, Fields, check_types, listed, told


@dataclass(frozen=True)
class MlaDecodeMergeConfig(Fields):
    """One merge kernel. Raises ConfigError for a value that no kernel can have."""

    family: ClassVar[str] = "split_merge"

    num_heads: int = told(meaning="query heads on this device", legal=f"1 .. {MAX_HEADS}")
    d_v: int = told(D_V, meaning="columns of the output", legal=(D_V,))
    output_dtype: str = told("bf16", meaning="of the output", legal=OUTPUT_DTYPES)
    sink: bool = told(
        False, meaning="a score of each head's own draws weight from the output", legal=BOOLEANS
    )

    def __post_init__(self) -> None:
        check_types(self)
        if not 1 <= self.num_heads <= MAX_HEADS:
            raise ConfigError(f"num_heads={self.num_heads} is not in 1 .. {MAX_HEADS}")
        for name, value, legal in (
            ("d_v", self.d_v, (D_V,)),
            ("output_dtype", self.output_dtype, OUTPUT_DTYPES),
        ):
            if value not in legal:
                hint = f"{name}={listed(legal)}"
                raise ConfigError(f"{name}={value} is not supported", hint=hint)

    @classmethod
    def example(cls) -> MlaDecodeMergeConfig:
        """A legal problem, for describing what solves this type."""
        return cls(num_heads=64)
