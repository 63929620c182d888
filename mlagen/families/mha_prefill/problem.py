"""The multi-head / grouped-query attention problem: its fields, their limits, its arithmetic.

What a kernel is generated for. The softmax scale, the lengths, the start positions, the batch and,
with fp8, one scale each of Q, K and V are given at run time. Tensors are contiguous. Queries and
output, by `ragged`:

* false: q and o `[batch, seq_len, num_heads, depth]`;
* true: packed rows, q and o `[rows, num_heads, depth]`; sequence b owns rows
  `q_offsets[b] .. q_offsets[b + 1] - 1`.

Keys and values, by `page_size` and `ragged`:

* 0, not ragged: k and v `[batch, num_keys, num_kv_heads, depth]`;
* 0, ragged: packed rows, k and v `[key rows, num_kv_heads, depth]` with `kv_offsets`, which need
  not be `q_offsets` (cross-attention);
* P: pools of pages, k and v `[pages, P, num_kv_heads, depth]`; key j of sequence b lies in page
  `page_table[b, j // P]`, row `j % P`, of both; `kv_lengths[b]` keys exist.

With `sink` there is one more key without a value: `sinks` fp32 `[num_heads]` are its logits in
natural units, so the denominator of every row gains exp(sink). With `lse` the kernel also writes
the natural logarithm of the denominator, sink included, fp32: `[batch, num_heads, seq_len]`, or
`[num_heads, rows]` where ragged. A row that sees no key has O = 0; its LSE is the sink, and -inf
where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlagen.attention.masks import CAUSAL, LEGAL_MASKS, Mask
from mlagen.attention.prefill.problem import (
    DTYPE_BYTES,
    LEGAL_HEADS,
    LEGAL_KV_HEADS,
    MAX_WAVES,
    OUTPUT_BYTES,
    SMALL_PAGES,
    SUB_BLOCK_BYTES,
    SUB_BLOCK_KEYS,
    PrefillConfig,
    PrefillProblem,
    legal_pages,
)
from mlagen.errors import ConfigError
from mlagen.problem.fields import BOOLEANS, listed, told

DEPTHS = (64, 128)
KV_BLOCKS = {"bf16": (64,), "fp8_e4m3": (64, 128)}  # the default first


@dataclass(frozen=True)
class MhaProblem(PrefillProblem):
    """One MHA / GQA problem. Raises ConfigError for a value that no kernel can have.

    `mask` may be given as its text (`"sliding_window_causal[512]"`); it is kept as a `Mask`.
    """

    family: ClassVar[str] = "mha_prefill"

    num_heads: int = told(meaning="query heads", legal=LEGAL_HEADS)
    num_kv_heads: int = told(meaning="heads of K and V", legal=LEGAL_KV_HEADS)
    depth: int = told(128, meaning="width of a head of Q, K, V and O", legal=DEPTHS)
    mask: Mask = told(CAUSAL, meaning="which keys a query sees", legal=LEGAL_MASKS)
    dtype: str = told("bf16", meaning="of Q, K and V", legal=tuple(DTYPE_BYTES))
    output_dtype: str = told("bf16", meaning="of O", legal=tuple(OUTPUT_BYTES))
    ragged: bool = told(
        False, meaning="rows of Q and O are packed, each sequence of its own length", legal=BOOLEANS
    )
    page_size: int = told(
        0, meaning="keys a page of the K and V pools; 0: K and V are contiguous",
        legal=legal_pages(SMALL_PAGES),
    )  # fmt: skip
    sink: bool = told(
        False, meaning="one more logit a query head, with no value, in every row's denominator",
        legal=BOOLEANS,
    )  # fmt: skip
    lse: bool = told(False, meaning="also the logarithm of the denominator", legal=BOOLEANS)

    def __post_init__(self) -> None:
        self._bring_types_in_order()
        legal = {"dtype": tuple(DTYPE_BYTES), "output_dtype": tuple(OUTPUT_BYTES), "depth": DEPTHS}
        self._check_legal(legal)
        self._check_heads()
        self._check_page_size(SMALL_PAGES, self.kv_row_stride * self.element_bytes)

    @classmethod
    def example(cls) -> MhaProblem:
        """A small legal problem, for describing what solves this type."""
        return cls(num_heads=8, num_kv_heads=2)

    def with_tiles(self, **tiles: Any) -> MhaConfigV2:
        """The problem with all of `TILES`."""
        return MhaConfigV2(**vars(self), **tiles)

    @property
    def qk_width(self) -> int:
        """Columns of a head of Q and K."""
        return self.depth

    @property
    def v_width(self) -> int:
        """Columns of a head of V and O."""
        return self.depth

    @property
    def key_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """k and v."""
        key = (self.num_kv_heads, self.depth)
        return {"k": key, "v": key}

    @property
    def form(self) -> str:
        """What decides which arrays a kernel takes, in words."""
        return f"{super().form}, sink={self.sink}"

    @property
    def q_row_stride(self) -> int:
        """Elements from one query's row to the next, in Q and in O."""
        return self.num_heads * self.depth

    @property
    def kv_row_stride(self) -> int:
        """Elements from one key's row to the next, in K and in V."""
        return self.num_kv_heads * self.depth


@dataclass(frozen=True)
class MhaConfigV2(PrefillConfig, MhaProblem):
    """An MHA / GQA problem with the tiles of one kernel: its operations, oracles and callers read
    this. Raises ConfigError for a value that no kernel can have."""

    problem_type = MhaProblem
    kernel = "mha_prefill_v2"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_tiles(KV_BLOCKS)
        self._check_warps()

    def _check_warps(self) -> None:
        blocks = self.k_sub_blocks
        if self.num_warps < 1 or self.num_warps > MAX_WAVES or self.num_warps % blocks:
            fits = range(blocks, MAX_WAVES + 1, blocks)
            raise ConfigError(
                f"num_warps={self.num_warps}: a K tile of {self.kv_block} keys x "
                f"{self.depth * self.element_bytes} bytes is {blocks} sub-blocks of "
                f"{SUB_BLOCK_KEYS} x {SUB_BLOCK_BYTES} bytes, which the waves must share evenly, "
                f"and a workgroup has at most {MAX_WAVES} waves",
                hint=f"num_warps is {listed(tuple(fits))}",
            )

    @property
    def k_sub_blocks(self) -> int:
        """Sub-blocks of 32 keys x 64 bytes in one K tile."""
        row_bytes = self.depth * self.element_bytes
        return (self.kv_block // SUB_BLOCK_KEYS) * (row_bytes // SUB_BLOCK_BYTES)
