"""The MLA prefill problem in the expanded form, for gfx950: its fields, limits and geometry.

A query head has 192 columns, 128 without position (nope) and 64 rotary ones (rope); a value and an
output have 128. What a kernel is generated for; softmax scale, lengths, start positions, the batch
and, with fp8, one scale each of Q, K and V are given at run time. Queries and output, by `ragged`:

* false: q `[batch, seq_len, num_heads, 192]`, o `[batch, seq_len, num_heads, 128]`;
* true: packed rows, q `[rows, num_heads, 192]`, o `[rows, num_heads, 128]`.

Keys and values, by `kv_form`, where `T` is `[batch, num_keys]`, or `[key rows]` where ragged, or
`[pages, page_size]` where paged:

* `k_and_v`: k `[T, num_kv_heads, 192]`, v `[T, num_kv_heads, 128]`;
* `nope_rope`: k `[T, num_kv_heads, 128]`, v likewise, k_rope `[T, 64]`, which all heads share;
* `latent`: k `[T, num_kv_heads, cache_depth]` alone. Columns 0..127 are K's nope part and V, rope
  lies at `rope_cache_offset`; the columns between have no meaning.

With `lse` the kernel also writes the natural logarithm of the row sum, fp32, as MHA does. A row
that sees no key has O = 0 and LSE = -inf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlagen.attention.masks import CAUSAL, LEGAL_MASKS, Causal, Mask, Null
from mlagen.attention.prefill.problem import (
    DTYPE_BYTES,
    LEGAL_HEADS,
    LEGAL_KV_HEADS,
    OUTPUT_BYTES,
    Q_ROWS_PER_WAVE,
    SMALL_PAGES,
    PrefillConfig,
    PrefillProblem,
    legal_pages,
)
from mlagen.errors import ConfigError
from mlagen.problem.fields import BOOLEANS, told

D_NOPE, D_ROPE = 128, 64
CACHE_DEPTH, ROPE_CACHE_OFFSET = 576, 512
KV_FORMS = ("k_and_v", "nope_rope", "latent")
# The default first. P of 64 keys of fp8 is one operand of the second product; the schedule
# alternates two.
KV_BLOCKS = {"bf16": (128, 64), "fp8_e4m3": (128,)}
NUM_WARPS = 8
COPY_BYTES = 16  # a lane copies this much to LDS at once, and from an address that it divides
PAGES = (1, *SMALL_PAGES)  # besides whole tiles of 64


@dataclass(frozen=True)
class MlaProblem(PrefillProblem):
    """One MLA prefill problem. Raises ConfigError for a value that no kernel can have.

    `mask` may be given as its text (`"sliding_window_causal[512]"`); it is kept as a `Mask`.
    """

    family: ClassVar[str] = "mla_prefill"

    num_heads: int = told(meaning="query heads", legal=LEGAL_HEADS)
    num_kv_heads: int = told(meaning="heads of K and V", legal=LEGAL_KV_HEADS)
    depth: int = told(
        D_NOPE, meaning="columns of a head of V and O, and of K's part without position",
        legal=(D_NOPE,),
    )  # fmt: skip
    d_rope: int = told(D_ROPE, meaning="rotary columns of Q and K", legal=(D_ROPE,))
    d_qk: int = told(
        D_NOPE + D_ROPE, meaning="columns of a head of Q and K: depth + d_rope",
        legal=(D_NOPE + D_ROPE,),
    )  # fmt: skip
    kv_form: str = told(
        "k_and_v", meaning="K and V apart, K's rotary part once for all heads, or latent rows",
        legal=KV_FORMS,
    )  # fmt: skip
    cache_depth: int = told(
        CACHE_DEPTH, meaning="columns of a latent row",
        legal=f"{CACHE_DEPTH}; with kv_form=latent from {D_NOPE + D_ROPE} on, by {COPY_BYTES} "
        "bytes",
    )  # fmt: skip
    rope_cache_offset: int = told(
        ROPE_CACHE_OFFSET, meaning="first of a latent row's rotary columns",
        legal=f"{ROPE_CACHE_OFFSET}; with kv_form=latent {D_NOPE} .. cache_depth - {D_ROPE}, by "
        f"{COPY_BYTES} bytes",
    )  # fmt: skip
    mask: Mask = told(CAUSAL, meaning="which keys a query sees", legal=LEGAL_MASKS)
    dtype: str = told("bf16", meaning="of Q, K and V", legal=tuple(DTYPE_BYTES))
    output_dtype: str = told("fp32", meaning="of O", legal=tuple(OUTPUT_BYTES))
    ragged: bool = told(
        False, meaning="rows of Q and O are packed, each sequence of its own length", legal=BOOLEANS
    )
    page_size: int = told(
        0, meaning="keys a page of the pools; 0: K and V are contiguous", legal=legal_pages(PAGES)
    )
    lse: bool = told(False, meaning="also the logarithm of the row sum", legal=BOOLEANS)

    def __post_init__(self) -> None:
        self._bring_types_in_order()
        self._check_legal(
            {
                "dtype": tuple(DTYPE_BYTES),
                "output_dtype": tuple(OUTPUT_BYTES),
                "kv_form": KV_FORMS,
            }
        )
        self._check_widths()
        self._check_cache()
        self._check_heads()
        widest = max(self.k_row_stride, self.v_row_stride) * self.element_bytes
        self._check_page_size(PAGES, widest)

    def _check_widths(self) -> None:
        if (self.depth, self.d_rope) != (D_NOPE, D_ROPE):
            raise ConfigError(
                f"depth={self.depth}, d_rope={self.d_rope}: rows of another width are not "
                f"supported",
                hint=f"depth={D_NOPE}, d_rope={D_ROPE}: the expanded form of DeepSeek's models",
            )
        if self.d_qk != self.depth + self.d_rope:
            raise ConfigError(
                f"d_qk={self.d_qk} is not depth + d_rope = {self.depth} + {self.d_rope}",
                hint=f"d_qk={self.depth + self.d_rope}; the absorbed form, 576, is decode's",
            )

    def _check_cache(self) -> None:
        depth, offset = self.cache_depth, self.rope_cache_offset
        if self.kv_form != "latent":
            if (depth, offset) != (CACHE_DEPTH, ROPE_CACHE_OFFSET):
                raise ConfigError(
                    f"cache_depth={depth}, rope_cache_offset={offset}: "
                    f"kv_form={self.kv_form} has no latent rows",
                    hint="kv_form=latent, or leave both out",
                )
            return
        if offset < self.depth or offset + self.d_rope > depth:
            raise ConfigError(
                f"rope_cache_offset={offset}: the {self.d_rope} rotary columns would be "
                f"{offset} .. {offset + self.d_rope - 1}; a row of cache_depth={depth} has them "
                f"after its first {self.depth} columns and within {depth}",
                hint=f"rope_cache_offset is {self.depth} .. {depth - self.d_rope}"
                if depth >= self.depth + self.d_rope
                else f"cache_depth is at least {self.depth + self.d_rope}",
            )
        step = COPY_BYTES // self.element_bytes
        for name in ("cache_depth", "rope_cache_offset"):
            value = getattr(self, name)
            if value % step:
                raise ConfigError(
                    f"{name}={value}: rows are copied by {COPY_BYTES} bytes from addresses that "
                    f"{COPY_BYTES} divides, {step} columns of {self.dtype}",
                    hint=f"{name} is {value // step * step} or {(value // step + 1) * step}",
                )

    @classmethod
    def example(cls) -> MlaProblem:
        """A small legal problem, for describing what solves this type."""
        return cls(num_heads=16, num_kv_heads=16)

    def with_tiles(self, **tiles: Any) -> MlaConfigV2:
        """The problem with all of `TILES`."""
        return MlaConfigV2(**vars(self), **tiles)

    # ---- memory -----------------------------------------------------------------------------

    @property
    def qk_width(self) -> int:
        """Columns of a head of Q and K."""
        return self.d_qk

    @property
    def v_width(self) -> int:
        """Columns of a head of V and O."""
        return self.depth

    @property
    def k_width(self) -> int:
        """Columns of a head of the k tensor: 192, 128 (`nope_rope`) or `cache_depth`."""
        widths = {"k_and_v": self.d_qk, "nope_rope": self.depth, "latent": self.cache_depth}
        return widths[self.kv_form]

    @property
    def key_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """k, and what the form has besides."""
        shapes: dict[str, tuple[int, ...]] = {"k": (self.num_kv_heads, self.k_width)}
        if self.kv_form != "latent":
            shapes["v"] = (self.num_kv_heads, self.depth)
        if self.kv_form == "nope_rope":
            shapes["k_rope"] = (self.d_rope,)
        return shapes

    @property
    def form(self) -> str:
        """What decides which arrays a kernel takes, in words."""
        return f"{super().form}, kv_form={self.kv_form}"

    @property
    def k_row_stride(self) -> int:
        """Elements from one key's row to the next in the k tensor (k_rope: `d_rope`)."""
        return self.num_kv_heads * self.k_width

    @property
    def v_row_stride(self) -> int:
        """Elements from one value's row to the next; V lies in k where `kv_form` is latent."""
        return self.num_kv_heads * (self.k_width if self.kv_form == "latent" else self.depth)


@dataclass(frozen=True)
class MlaConfigV2(PrefillConfig, MlaProblem):
    """An MLA prefill problem with the tiles of one kernel: its operations, oracles and callers read
    this. Raises ConfigError for a value that no kernel can have."""

    kv_block: int = 128  # keys a tile

    problem_type = MlaProblem
    kernel = "mla_prefill_v2"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_tiles(KV_BLOCKS)
        if self.num_warps != NUM_WARPS:
            raise ConfigError(
                f"num_warps={self.num_warps}: {NUM_WARPS // 2} waves copy K and {NUM_WARPS // 2} "
                f"copy V, and two waves a SIMD have 256 registers each",
                hint=f"num_warps={NUM_WARPS}: {NUM_WARPS * Q_ROWS_PER_WAVE} query rows a workgroup",
            )


def require_plain_mask(mask: Mask) -> None:
    """ConfigError for a mask whose tiles do not begin at the sequence's first key."""
    if not isinstance(mask, Null | Causal):
        raise ConfigError(
            f"mask={mask}: work items of the persistent kernel know no window",
            hint="mask is causal or null; the static grid has windows",
        )
