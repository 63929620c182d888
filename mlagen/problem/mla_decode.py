"""The MLA decode problem in the absorbed form: its fields, their limits, its arithmetic.

Every query head attends to the same cache of latent rows: a row's 576 columns are the key, its
first 512 are the value as well, and the last 64 carry the rotary part. The cache is a pool of pages
`[num_blocks, page_size, 1, 576]`; a table says which pages a sequence owns. Lengths, the batch and
the softmax scale are given at run time.

The log-sum-exp of every row is an output too: fp32, natural logarithm, -inf for a row without keys.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlagen.errors import ConfigError
from mlagen.problem.fields import from_fields, integer, listed

D_QK, D_V = 576, 512
DTYPES = ("bf16",)
MAX_HEADS = 128
MAX_Q_LEN = 8
TILE = 64  # keys a tile: a running maximum is taken once for each
SMALL_PAGES = (1, 16, 32)  # besides whole tiles


@dataclass(frozen=True)
class MlaDecodeConfig:
    """One MLA decode kernel. Raises ConfigError for a value that no kernel can have.

    Of a sequence's `q_len` new tokens the last one sees all its keys, each one before it one less:
    the cache holds the new tokens' rows already, and its lengths count them.
    """

    num_heads: int
    num_kv_heads: int = 1  # the latent row is shared by all heads
    d_qk: int = D_QK  # columns of a query and of a cache row
    d_v: int = D_V  # leading columns of a cache row that are its value; columns of the output
    page_size: int = 64  # rows a page
    q_len: int = 1  # new tokens a sequence
    dtype: str = "bf16"  # of the queries and the cache
    output_dtype: str = "bf16"

    def __post_init__(self) -> None:
        for name in ("num_heads", "num_kv_heads", "d_qk", "d_v", "page_size", "q_len"):
            object.__setattr__(self, name, integer(name, getattr(self, name)))
        self._check_widths()
        self._check_heads()
        self._check_pages()
        for name in ("dtype", "output_dtype"):
            if getattr(self, name) not in DTYPES:
                raise ConfigError(
                    f"{name}={getattr(self, name)} is not supported",
                    hint=f"{name} is {listed(DTYPES)}",
                )

    def _check_widths(self) -> None:
        if (self.d_qk, self.d_v) != (D_QK, D_V):
            raise ConfigError(
                f"d_qk={self.d_qk}, d_v={self.d_v}: rows of another width are not supported",
                hint=f"d_qk={D_QK}, d_v={D_V}: the absorbed form, {D_V} latent columns and "
                f"{D_QK - D_V} rotary ones",
            )

    def _check_heads(self) -> None:
        if not 1 <= self.num_heads <= MAX_HEADS:
            raise ConfigError(
                f"num_heads={self.num_heads} is not in 1 .. {MAX_HEADS}",
                hint="heads on this device: with tensor parallelism its share of the model's",
            )
        if self.num_kv_heads != 1:
            raise ConfigError(
                f"num_kv_heads={self.num_kv_heads}: the absorbed form has one latent row a token, "
                f"which all heads read",
                hint="num_kv_heads=1",
            )
        if not 1 <= self.q_len <= MAX_Q_LEN:
            raise ConfigError(
                f"q_len={self.q_len} is not in 1 .. {MAX_Q_LEN}",
                hint="1 is plain decoding, more are the tokens of speculative decoding; longer "
                "runs of new tokens are prefill",
            )

    def _check_pages(self) -> None:
        size = self.page_size
        if size < 1 or (size not in SMALL_PAGES and size % TILE):
            below = size // TILE * TILE
            near = [p for p in (*SMALL_PAGES, below, below + TILE) if p > 0]
            near = sorted(sorted(set(near), key=lambda page: abs(page - size))[:2])
            raise ConfigError(
                f"page_size={size} is not supported",
                hint=f"page_size is {listed(SMALL_PAGES)} or a multiple of {TILE}; "
                f"near {size}: {listed(near)}",
            )

    # ---- from and to plain values -----------------------------------------------------------

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> MlaDecodeConfig:
        """The problem that named values describe; text is parsed by the field's type.

        Raises ConfigError for an unknown name, a missing field, text that is no such value, and
        what the class refuses.
        """
        return from_fields(cls, fields)

    @classmethod
    def example(cls) -> MlaDecodeConfig:
        """A legal problem, for describing what solves this type."""
        return cls(num_heads=64)

    def to_fields(self) -> dict[str, int | float | str | bool]:
        """Every field as a plain value. `from_fields` reads it back."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    # ---- arithmetic -------------------------------------------------------------------------

    @property
    def d_rope(self) -> int:
        """Rotary columns of a query and of a cache row: those that are not value."""
        return self.d_qk - self.d_v

    def pages(self, length: int) -> int:
        """Pages that `length` rows take."""
        return -(-length // self.page_size)

    def visible(self, length: int) -> tuple[int, ...]:
        """How many of a sequence's `length` keys each of its new tokens sees, oldest token first.

        0 for a token that sees none: its output is 0, its log-sum-exp -inf.
        """
        return tuple(max(length - behind, 0) for behind in reversed(range(self.q_len)))
