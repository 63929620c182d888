"""The merge of split MLA prefill work as a problem: what a reduce kernel is generated for.

Pieces of a query tile that the persistent prefill kernel cut write partial results, and so do parts
of a sequence's keys in MLA decode in AITER's form; the reduce kernel merges them
(`mla_prefill_reduce`). Given at run time, with R rows of the partial buffers, G
groups and P entries:

* partial_o fp32 `[R, num_heads, depth]`, each line normalised by its own row sum;
* partial_lse fp32 `[R, num_heads]`, natural logarithm; -inf or NaN: the partial has seen no key;
* reduce_indptr int32 `[G + 1]`, reduce_final_map int32 `[G, 2]` and reduce_partial_map int32 `[P]`:
  group g is rows `final_map[g, 0] .. final_map[g, 1] - 1` of O and takes as many rows from each row
  `partial_map[indptr[g]] ..` of the partial buffers on.

It writes o `[rows, num_heads, depth]` and, with `lse`, the natural logarithm of the whole row sum,
fp32 `[rows, num_heads]`, of the groups' rows; all others belong to pieces that were not cut and are
left alone. The layouts are those of AITER's `mla_reduce_v1`, whose LSE of a row without a key is
+inf, though; here it is -inf, as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlagen.attention.prefill.work import MAX_HEAD
from mlagen.errors import ConfigError
from mlagen.problem.fields import BOOLEANS, Fields, integer, listed, told

LINE = 128  # columns that half a wave reads at once
DEPTHS = (LINE, 4 * LINE)  # of V in expanded MLA prefill, and in absorbed MLA decode
OUTPUT_BYTES = {"bf16": 2, "fp32": 4}


@dataclass(frozen=True)
class MlaReduceConfig(Fields):
    """One reduce kernel. Raises ConfigError for a value that no kernel can have."""

    family: ClassVar[str] = "split_merge"

    num_heads: int = told(meaning="query heads", legal=f"1 .. {MAX_HEAD}")
    depth: int = told(LINE, meaning="columns of a head of O", legal=DEPTHS)
    output_dtype: str = told("bf16", meaning="of O", legal=tuple(OUTPUT_BYTES))
    lse: bool = told(False, meaning="also the logarithm of the whole row sum", legal=BOOLEANS)

    def __post_init__(self) -> None:
        for name in ("num_heads", "depth"):
            object.__setattr__(self, name, integer(name, getattr(self, name)))
        if not 1 <= self.num_heads <= MAX_HEAD:
            raise ConfigError(
                f"num_heads={self.num_heads} is not in 1 .. {MAX_HEAD}",
                hint="work items hold head numbers in 16 bits, of which one is a sign",
            )
        if self.depth not in DEPTHS:
            raise ConfigError(
                f"depth={self.depth}: partial outputs of another width are not supported",
                hint=f"depth is {listed(DEPTHS)}: the width of V in MLA prefill, and in MLA decode",
            )
        if self.output_dtype not in OUTPUT_BYTES:
            raise ConfigError(
                f"output_dtype={self.output_dtype} is not supported",
                hint=f"output_dtype is {listed(tuple(OUTPUT_BYTES))}",
            )
        if not isinstance(self.lse, bool):
            raise ConfigError(f"lse={self.lse!r} is neither true nor false")

    @classmethod
    def example(cls) -> MlaReduceConfig:
        """A legal problem, for describing what solves this type."""
        return cls(num_heads=16)

    @property
    def head_lines(self) -> int:
        """Lines that a head of a row is."""
        return self.depth // LINE

    @property
    def output_bytes(self) -> int:
        """Bytes of an element of O."""
        return OUTPUT_BYTES[self.output_dtype]
