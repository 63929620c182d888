"""The multi-head / grouped-query attention problem: its fields, their limits, its arithmetic.

What a kernel is generated for. The softmax scale, the lengths, the start positions and the batch
are given at run time. Tensors are contiguous. Queries and output, by `ragged`:

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

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlagen.errors import ConfigError
from mlagen.problem.fields import from_fields, integer, listed, number
from mlagen.problem.masks import CAUSAL, Mask

DTYPE_BYTES = {"bf16": 2, "fp8_e4m3": 1}
OUTPUT_BYTES = {"bf16": 2, "fp32": 4}
DEPTHS = (64, 128)
KV_BLOCKS = {"bf16": (64,), "fp8_e4m3": (64, 128)}

Q_ROWS_PER_WAVE = 32  # columns of the 32 x 32 MFMA: one lane owns one query row
WAVE_LANES = 64
MAX_WAVES = 16  # 1024 work-items a workgroup
# K lies in LDS in sub-blocks of 32 keys x 64 bytes, and a wave copies whole sub-blocks.
SUB_BLOCK_KEYS, SUB_BLOCK_BYTES = 32, 64
MAX_HEADS = 65535  # heads are the grid's x; query tiles and batch are its y and z
# A tile of 64 keys is copied in parts of 16 keys or more: a page is such parts, or whole tiles.
SMALL_PAGES, PAGE_STEP = (16, 32), 64
PAGE_BYTES = 2**32  # offsets inside a page are 32 bits; those of pages are 64


@dataclass(frozen=True)
class MhaConfig:
    """One MHA / GQA kernel. Raises ConfigError for a value that no kernel can have.

    `mask` may be given as its text (`"sliding_window_causal[512]"`); it is kept as a `Mask`.
    """

    num_heads: int
    num_kv_heads: int
    depth: int = 128  # width of a head of Q, K, V and O
    mask: Mask = CAUSAL
    q_block_size: int = 32  # query rows a wave
    kv_block: int = 64  # keys a tile
    num_warps: int = 8  # waves a workgroup
    rescale_threshold: float = 8.0  # log2 units a row maximum may grow before O is rescaled
    dtype: str = "bf16"  # Q, K and V
    output_dtype: str = "bf16"
    fp8_mma_k_128: bool = False  # refused: P would not stay in its registers
    ragged: bool = False  # rows of Q and O are packed, each sequence of its own length
    page_size: int = 0  # keys a page of the K and V pools; 0: K and V are contiguous
    sink: bool = False  # one more logit a query head, with no value, in every row's denominator
    lse: bool = False  # also the logarithm of the denominator

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the dataclass is frozen; this only brings types in order
        for name in (
            "num_heads", "num_kv_heads", "depth", "q_block_size", "kv_block", "num_warps",
            "page_size",
        ):  # fmt: skip
            set_field(self, name, integer(name, getattr(self, name)))
        set_field(self, "rescale_threshold", number("rescale_threshold", self.rescale_threshold))
        if isinstance(self.mask, str):
            set_field(self, "mask", Mask.parse(self.mask))
        if not isinstance(self.mask, Mask):
            raise ConfigError(f"mask={self.mask!r} is neither a Mask nor the text of one")
        self._check_choices()
        self._check_heads()
        self._check_block()
        self._check_pages()

    def _check_choices(self) -> None:
        for name, legal in (
            ("dtype", tuple(DTYPE_BYTES)),
            ("output_dtype", tuple(OUTPUT_BYTES)),
            ("depth", DEPTHS),
        ):
            if getattr(self, name) not in legal:
                raise ConfigError(
                    f"{name}={getattr(self, name)} is not supported",
                    hint=f"{name} is one of {listed(legal)}",
                )
        for name in ("fp8_mma_k_128", "ragged", "sink", "lse"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name}={getattr(self, name)!r} is not true or false")
        if self.fp8_mma_k_128:
            # The 16x16 score accumulator gives a lane the keys 16 t + 4 g + i, PV's B operand wants
            # 32 consecutive ones: Q, K and V could be loaded for it, but P could not be handed on.
            raise ConfigError(
                "fp8_mma_k_128=true: the 16x16x128 MFMA leaves the scores in lanes that are not "
                "those of the second product's B operand, so P cannot stay in registers",
                hint="fp8_mma_k_128=false uses the 32x32x64 MFMA",
            )
        legal_blocks = KV_BLOCKS[self.dtype]
        if self.kv_block not in legal_blocks:
            raise ConfigError(
                f"kv_block={self.kv_block} is not supported with dtype={self.dtype}",
                hint=f"kv_block is {listed(legal_blocks)} for {self.dtype}",
            )
        if not math.isfinite(self.rescale_threshold) or self.rescale_threshold < 0:
            raise ConfigError(
                f"rescale_threshold={self.rescale_threshold} must be finite and not negative",
                hint="log2 units; 8 is the default, 0 rescales whenever a row maximum grows",
            )

    def _check_heads(self) -> None:
        for name in ("num_heads", "num_kv_heads"):
            if not 1 <= getattr(self, name) <= MAX_HEADS:
                raise ConfigError(f"{name}={getattr(self, name)} is not in 1 .. {MAX_HEADS}")
        if self.num_heads % self.num_kv_heads:
            fits = [n for n in range(1, self.num_heads + 1) if self.num_heads % n == 0]
            near = sorted(sorted(fits, key=lambda n: abs(n - self.num_kv_heads))[:4])
            raise ConfigError(
                f"num_heads={self.num_heads} is not a multiple of num_kv_heads={self.num_kv_heads}",
                hint=f"num_kv_heads that divide {self.num_heads}: {listed(near)}"
                + (", …" if len(near) < len(fits) else ""),
            )

    def _check_block(self) -> None:
        if self.q_block_size != Q_ROWS_PER_WAVE:
            raise ConfigError(
                f"q_block_size={self.q_block_size}: a wave owns the {Q_ROWS_PER_WAVE} columns of a "
                f"32x32 MFMA",
                hint=f"q_block_size={Q_ROWS_PER_WAVE}; more rows a workgroup: num_warps",
            )
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

    def _check_pages(self) -> None:
        size = self.page_size
        if size < 0 or (size % PAGE_STEP and size not in SMALL_PAGES):
            raise ConfigError(
                f"page_size={size}: a page holds a half or a quarter of {PAGE_STEP} keys, or "
                f"a multiple of {PAGE_STEP}",
                hint=f"page_size is {listed((*SMALL_PAGES, f'a multiple of {PAGE_STEP}'))}; "
                f"0: K and V are contiguous",
            )
        row_bytes = self.kv_row_stride * self.element_bytes
        if size * row_bytes > PAGE_BYTES:
            most = PAGE_BYTES // row_bytes // PAGE_STEP * PAGE_STEP
            raise ConfigError(
                f"page_size={size}: a page of {size} rows of {row_bytes} bytes is "
                f"{size * row_bytes} bytes; offsets inside a page are 32 bits",
                hint=f"page_size is at most {most}",
            )

    # ---- from and to plain values -----------------------------------------------------------

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> MhaConfig:
        """The problem that named values describe; text is parsed by the field's type.

        `{"num_heads": "8", "num_kv_heads": 2, "mask": "causal"}`. Raises ConfigError for an
        unknown name, a missing field, text that is no such value, and what the class refuses.
        """
        return from_fields(cls, fields)

    @classmethod
    def example(cls) -> MhaConfig:
        """A small legal problem, for describing what solves this type."""
        return cls(num_heads=8, num_kv_heads=2)

    def to_fields(self) -> dict[str, int | float | str | bool]:
        """Every field as a plain value, the mask as its text. `from_fields` reads it back."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**fields, "mask": str(self.mask)}

    # ---- arithmetic -------------------------------------------------------------------------

    @property
    def q_tile(self) -> int:
        """Query rows a workgroup; its wave w owns rows `[32 w, 32 w + 32)` of them."""
        return self.num_warps * self.q_block_size

    @property
    def threads(self) -> int:
        """Work-items a workgroup."""
        return self.num_warps * WAVE_LANES

    @property
    def group(self) -> int:
        """Query heads that share one K/V head."""
        return self.num_heads // self.num_kv_heads

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of Q, K and V."""
        return DTYPE_BYTES[self.dtype]

    @property
    def output_bytes(self) -> int:
        """Bytes of an element of O."""
        return OUTPUT_BYTES[self.output_dtype]

    @property
    def q_row_stride(self) -> int:
        """Elements from one query's row to the next, in Q and in O."""
        return self.num_heads * self.depth

    @property
    def kv_row_stride(self) -> int:
        """Elements from one key's row to the next, in K and in V."""
        return self.num_kv_heads * self.depth

    @property
    def k_sub_blocks(self) -> int:
        """Sub-blocks of 32 keys x 64 bytes in one K tile."""
        row_bytes = self.depth * self.element_bytes
        return (self.kv_block // SUB_BLOCK_KEYS) * (row_bytes // SUB_BLOCK_BYTES)

    @property
    def by_sequence(self) -> bool:
        """Whether each sequence has its own start position and number of keys, in arrays."""
        return self.ragged or self.page_size > 0

    def pages(self, num_keys: int) -> int:
        """Pages that hold `num_keys` keys. Only for paged K and V."""
        return -(-num_keys // self.page_size)

    def head_of(self, x: int) -> int:
        """The query head of grid index `x`: neighbouring workgroups take different K/V heads.

        A bijection on `range(num_heads)`; the identity for group 1 and for one K/V head.
        """
        return x % self.group * self.num_kv_heads + x // self.group

    def kv_head_of(self, head: int) -> int:
        """The K/V head that query head `head` attends to."""
        return head // self.group

    def q_tiles(self, seq_len: int) -> int:
        """Query tiles (grid y) of `seq_len` rows."""
        return -(-seq_len // self.q_tile)

    def grid(self, seq_len: int, batch: int) -> tuple[int, int, int]:
        """Workgroups: heads, query tiles, batch."""
        return self.num_heads, self.q_tiles(seq_len), batch

    def tiles(self, q_tile: int, *, seq_len: int, start_pos: int, num_keys: int) -> range:
        """Indices of the KV tiles that query tile `q_tile` walks: all that its rows see.

        Rows beyond `seq_len` see nothing. Raises ConfigError for a tile that has no row.
        """
        first = q_tile * self.q_tile
        if not 0 <= first < seq_len:
            raise ConfigError(f"query tile {q_tile} is not in 0 .. {self.q_tiles(seq_len) - 1}")
        rows = min(self.q_tile, seq_len - first)
        return self.mask.tiles(start_pos + first, rows, num_keys, self.kv_block)
