"""The MLA decode problem in the absorbed form: its fields, their limits, its arithmetic.

Query heads attend to a cache of latent rows: a row's 576 columns are the key, its first 512 are the
value as well, and the last 64 carry the rotary part. The cache is a pool of pages `[num_blocks,
page_size, num_kv_heads, 576]`, one KV head as a rule; a table says which pages a sequence owns.
Lengths, the batch and the softmax scale are given at run time.

*Rope-aware* rows are stored in 640 bytes: the 512 latent columns in e4m3, in multiples of a scale
of the row's own, and after them the 64 rotary ones in bf16, divided by that scale. Queries may be
stored in the same way, with a scale that the heads of a token share.

The log-sum-exp of every row is an output too: fp32, natural logarithm, -inf for a row without keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlagen.artifact.manifest import Rounding
from mlagen.attention.latent.facts import Facts
from mlagen.attention.latent.numerics import roundings
from mlagen.attention.masks import (
    CAUSAL,
    LEGAL_MASKS,
    ChunkedCausal,
    Mask,
    SlidingWindowCausal,
)
from mlagen.errors import ConfigError
from mlagen.problem.fields import Fields, integer, listed, told

D_QK, D_V = 576, 512
ROPE_AWARE = "fp8_rope_aware"
Q_DTYPES = ("bf16", "fp8_e4m3", ROPE_AWARE)
CACHE_DTYPES = ("bf16", "fp8_e4m3", ROPE_AWARE)
OUTPUT_DTYPES = ("bf16",)
COMPUTE = ("bf16", "fp8")
MAX_HEADS = 128
MAX_KV_HEADS = 8
MAX_Q_LEN = 8
TILE = 64  # keys a tile: a running maximum is taken once for each
SMALL_PAGES = (1, 16, 32)  # besides whole tiles
ITEM_BYTES = 48  # of a work item: twelve int32, see `mlagen.families.mla_decode.plan`
# Two warpgroups count when they have stored a part that another block takes in, two when they have
# taken it in: then the count is zero again.
ARRIVALS = 4


@dataclass(frozen=True)
class MlaDecodeConfig(Fields):
    """One MLA decode kernel. Raises ConfigError for a value that no kernel can have.

    The cache holds the new tokens' rows already, and its lengths count them: with the causal mask
    the last of a sequence's `q_len` new tokens sees all its keys, each one before it one less.
    """

    family: ClassVar[str] = "mla_decode"

    num_heads: int = told(meaning="query heads on this device", legal=f"1 .. {MAX_HEADS}")
    num_kv_heads: int = told(
        1, meaning="latent rows a token; query heads h * G .. h * G + G - 1 share row h",
        legal=f"1 .. {MAX_KV_HEADS}, a divisor of num_heads; 1 with {ROPE_AWARE} rows",
    )  # fmt: skip
    d_qk: int = told(D_QK, meaning="columns of a query and of a cache row", legal=(D_QK,))
    d_v: int = told(
        D_V, meaning="leading columns of a cache row that are its value; columns of the output",
        legal=(D_V,),
    )  # fmt: skip
    page_size: int = told(
        64, meaning="rows a page", legal=listed((*SMALL_PAGES, f"a multiple of {TILE}"))
    )
    q_len: int = told(
        1, meaning="new tokens a sequence; the most of them where their number varies",
        legal=f"1 .. {MAX_Q_LEN}",
    )  # fmt: skip
    dtype: str = told(
        "bf16", meaning=f"of the queries; fp8_e4m3: multiples of one scale; {ROPE_AWARE}: e4m3 in "
        "a token's own scale with bf16 rotary columns, where the cache has such rows",
        legal=Q_DTYPES,
    )  # fmt: skip
    output_dtype: str = told("bf16", meaning="of the output", legal=OUTPUT_DTYPES)
    mask: str = told(str(CAUSAL), meaning="which keys a query sees", legal=LEGAL_MASKS)
    cache_dtype: str = told(
        "bf16", meaning=f"of the cache; fp8_e4m3: multiples of one scale; {ROPE_AWARE}: e4m3 in "
        "the row's own scale with bf16 rotary columns",
        legal=CACHE_DTYPES,
    )  # fmt: skip
    compute: str = told(
        "bf16", meaning="what products are of; fp8: queries and rows of e4m3, and P, with a bias",
        legal=COMPUTE,
    )  # fmt: skip

    def __post_init__(self) -> None:
        for name in ("num_heads", "num_kv_heads", "d_qk", "d_v", "page_size", "q_len"):
            object.__setattr__(self, name, integer(name, getattr(self, name)))
        self._check_widths()
        self._check_heads()
        self._check_pages()
        legal = {
            "dtype": Q_DTYPES, "output_dtype": OUTPUT_DTYPES, "cache_dtype": CACHE_DTYPES,
            "compute": COMPUTE,
        }  # fmt: skip
        for name, types in legal.items():
            if getattr(self, name) not in types:
                raise ConfigError(
                    f"{name}={getattr(self, name)} is not supported",
                    hint=f"{name} is {listed(types)}",
                )
        if self.rope_aware_queries and not self.rope_aware:
            raise ConfigError(
                f"dtype={ROPE_AWARE} is not supported with cache_dtype={self.cache_dtype}",
                hint=f"cache_dtype={ROPE_AWARE}; other caches take dtype=bf16 or fp8_e4m3",
            )
        self._check_compute()
        object.__setattr__(self, "mask", str(Mask.parse(self.mask)))

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
        if not 1 <= self.num_kv_heads <= MAX_KV_HEADS or self.num_heads % self.num_kv_heads:
            fits = [n for n in range(1, MAX_KV_HEADS + 1) if not self.num_heads % n]
            raise ConfigError(
                f"num_kv_heads={self.num_kv_heads} does not fit num_heads={self.num_heads}",
                hint=f"num_kv_heads is {listed(fits)}: a divisor of num_heads, at most "
                f"{MAX_KV_HEADS}; models have one latent row a token, num_kv_heads=1",
            )
        if self.rope_aware and self.num_kv_heads != 1:
            raise ConfigError(
                f"num_kv_heads={self.num_kv_heads} is not supported with cache_dtype={ROPE_AWARE}",
                hint="num_kv_heads=1, or cache_dtype=fp8_e4m3, whose rows share one scale",
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

    def _check_compute(self) -> None:
        stored = self.dtype, self.cache_dtype
        if self.compute == "fp8" and stored != ("fp8_e4m3", "fp8_e4m3"):
            raise ConfigError(
                f"compute=fp8 does not go with dtype={self.dtype}, cache_dtype={self.cache_dtype}",
                hint="products of e4m3 are of dtype=fp8_e4m3 and cache_dtype=fp8_e4m3: columns of "
                "other queries and rows have types or scales of their own; compute=bf16 takes them",
            )

    def roundings(self, facts: Facts | None) -> tuple[Rounding, ...]:
        """What a kernel for it rounds, as its manifest states it."""
        return roundings(facts.order) if facts else ()

    @classmethod
    def example(cls) -> MlaDecodeConfig:
        """A legal problem, for describing what solves this type."""
        return cls(num_heads=64)

    # ---- arithmetic -------------------------------------------------------------------------

    @property
    def d_rope(self) -> int:
        """Rotary columns of a query and of a cache row: those that are not value."""
        return self.d_qk - self.d_v

    @property
    def rope_aware(self) -> bool:
        """Whether the cache's rows are rope-aware, each with a scale."""
        return self.cache_dtype == ROPE_AWARE

    @property
    def rope_aware_queries(self) -> bool:
        """Whether queries are stored as rope-aware rows, those of a token with one scale."""
        return self.dtype == ROPE_AWARE

    @property
    def as_stored(self) -> bool:
        """Whether products take queries as they are stored."""
        return self.compute == "fp8" or self.dtype == "bf16"

    @property
    def dequantized(self) -> bool:
        """Whether bf16 is made of the cache's rows."""
        return self.compute == "bf16" and self.cache_dtype != "bf16"

    @property
    def product_bytes(self) -> int:
        """Bytes of a number that products are of."""
        return 1 if self.compute == "fp8" else 2

    @property
    def q_element(self) -> str:
        """The type of the queries' tensor."""
        return "fp8_e4m3" if self.rope_aware_queries else self.dtype

    @property
    def q_columns(self) -> int:
        """Elements of a query in their tensor."""
        return self.d_v + 2 * self.d_rope if self.rope_aware_queries else self.d_qk

    @property
    def cache_element(self) -> str:
        """The type of the cache's tensor: rope-aware rows are one of bytes, of e4m3 by name."""
        return "fp8_e4m3" if self.rope_aware else self.cache_dtype

    @property
    def cache_columns(self) -> int:
        """Elements of a row in the cache's tensor."""
        return self.d_v + 2 * self.d_rope if self.rope_aware else self.d_qk

    def pages(self, length: int) -> int:
        """Pages that `length` rows take."""
        return -(-length // self.page_size)

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def window(self) -> int:
        """Keys that a query sees at most; 0: no limit."""
        mask = Mask.parse(self.mask)
        return mask.window if isinstance(mask, SlidingWindowCausal) else 0

    @property
    def chunk(self) -> int:
        """Positions of a chunk, whose queries see no key before it; 0: no chunks."""
        mask = Mask.parse(self.mask)
        return mask.window if isinstance(mask, ChunkedCausal) else 0

    @property
    def cut_at_start(self) -> bool:
        """Whether a query may see no key of the sequence's beginning."""
        return bool(self.window or self.chunk)

    @property
    def causal(self) -> bool:
        """Whether an older token of a sequence sees fewer keys than its last one."""
        return Mask.parse(self.mask).end_key(0) is not None

    def visible(self, length: int) -> tuple[range, ...]:
        """Which of a sequence's `length` keys each of its new tokens sees, oldest token first.

        Empty for a token that sees none: its output is 0, its log-sum-exp -inf.
        """
        mask = Mask.parse(self.mask)
        if not self.causal:
            return (range(length),) * self.q_len
        return tuple(
            mask.keys(length - back, 1, length) if length >= back else range(0)
            for back in range(self.q_len, 0, -1)
        )
