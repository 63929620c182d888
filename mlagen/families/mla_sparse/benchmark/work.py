"""One sparse MLA call: its sizes, and how its work is counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mlagen.attention.latent.order import D_V
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rows import BF16_BYTES, FP32_BYTES

LIST_SIZES = ("least", "invalid", "sorted")
PREFILL_SIZES = ("rows", "keys", "topk", *LIST_SIZES)
DECODE_SIZES = ("batch", "keys", "topk", "page_size", "extra_keys", "extra_topk", *LIST_SIZES)
PREFILL_OPTIONAL = LIST_SIZES
DECODE_OPTIONAL = ("page_size", "extra_keys", "extra_topk", *LIST_SIZES)
INT32_BYTES = 4
FORMULAS = {
    "flop": "2 * heads * (d_qk + 512) * keys, of every query row; places of a list that name no "
    "key are not counted",
    "bytes": "keys of every query row * bytes of a cache row with its scales, + 4 a place of a "
    "list (8 with positions), + query rows * heads * (d_qk * (1 of e4m3, else 2) + 512 * 2)",
    "distinct_bytes": "bytes, with each row of the caches counted once at most",
    "error": "norm(O - exact) / norm(exact) over the query rows that are judged",
}


def named(places: int, invalid: int) -> int:
    """Keys of a list of so many places, of which `invalid` percent, rounded down, name none."""
    return places - places * invalid // 100


@dataclass(frozen=True, kw_only=True)
class SparseWork:
    """What calls of prefill and decode have in common. Lists name `topk` of `keys` rows, each row
    once, at random; with `sorted`, in ascending order. With `least`, lists have lengths, drawn from
    least .. topk. `invalid` percent of their places hold -1.

    Raises ConfigError for sizes below 1, lists longer than there are rows, and what else no call
    can have.
    """

    config: Any
    keys: int
    topk: int
    least: int | None = None
    invalid: int = 0
    sorted: int = 0
    seed: int = 0
    positive: ClassVar[tuple[str, ...]] = ("keys", "topk", "least")

    def __post_init__(self) -> None:
        for name in self.positive:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} is not at least 1")
        if self.topk > self.keys:
            raise ConfigError(
                f"topk={self.topk} is above keys={self.keys}", hint="a list names each row once"
            )
        if self.least is not None and self.least > self.topk:
            raise ConfigError(
                f"least={self.least} is above topk={self.topk}",
                hint="lengths of lists are drawn from least .. topk",
            )
        if not 0 <= self.invalid < 100:
            raise ConfigError(f"invalid={self.invalid} is not in 0 .. 99", hint="it is in percent")
        if self.sorted not in (0, 1):
            raise ConfigError(f"sorted={self.sorted} is not 0 or 1")

    @property
    def entries(self) -> int:
        """What has a length of its own: query rows of prefill, sequences of decode."""
        raise NotImplementedError

    @property
    def tokens(self) -> int:
        """Query rows of an entry."""
        raise NotImplementedError

    @property
    def lists(self) -> int:
        """Lists of each cache."""
        return self.queries

    @property
    def sizes(self) -> Mapping[str, int | None]:
        """By the names of `--shape`."""
        raise NotImplementedError

    @property
    def queries(self) -> int:
        """Query rows, of all heads each."""
        return self.entries * self.tokens

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Places that count, of each entry's lists."""
        if self.least is None:
            return (self.topk,) * self.entries
        drawn = np.random.default_rng(self.seed).integers(self.least, self.topk + 1, self.entries)
        return tuple(int(n) for n in drawn)

    @property
    def full(self) -> bool:
        """Whether every place of every list names a row."""
        return self.least is None and not self.invalid

    @property
    def read(self) -> int:
        """Keys of all query rows."""
        return self.tokens * sum(named(length, self.invalid) for length in self.lengths)

    @property
    def places(self) -> int:
        """Of all lists, up to their lengths."""
        return self.lists // self.entries * sum(self.lengths)

    @property
    def row_bytes(self) -> int:
        """Of a row of a cache, with its scales wherever they lie."""
        row, d_qk = self.config.row_format, self.config.d_qk
        side = FP32_BYTES * row.scales(d_qk) if row.scale == "side" else 0
        return int(row.row_bytes(d_qk)) + side

    @property
    def flop(self) -> int:
        """2 * heads * (d_qk + 512) * keys."""
        return 2 * int(self.config.num_heads) * (int(self.config.d_qk) + D_V) * self.read

    @property
    def bytes(self) -> int:
        """Rows as often as they are listed, lists, queries and output."""
        return self.read * self.row_bytes + self._other_bytes

    @property
    def distinct_bytes(self) -> int:
        """The same with each row of the caches once at most: about what memory gives to an empty
        L2. A little more than that, where lists happen to name the same rows."""
        listed = self.read * self.lists // self.queries
        return min(listed, self.held) * self.row_bytes + self._other_bytes

    @property
    def held(self) -> int:
        """Rows of all caches."""
        raise NotImplementedError

    @property
    def _other_bytes(self) -> int:
        config = self.config
        number = BF16_BYTES if config.dtype == "bf16" else 1
        each = number * config.d_qk + BF16_BYTES * D_V
        return self._list_bytes + int(self.queries * config.num_heads * each)

    @property
    def _list_bytes(self) -> int:
        return INT32_BYTES * self.places

    def to_fields(self) -> dict[str, Any]:
        """Problem, sizes, seed and distinct bytes, for JSON."""
        own = {"seed": self.seed, "distinct_bytes": self.distinct_bytes}
        return {**self.config.to_fields(), **self.sizes, **own}

    def _text(self, *own: str) -> str:
        topk = f"{self.topk}" if self.least is None else f"{self.least}..{self.topk}"
        c = self.config
        text = f"h={c.num_heads} keys={self.keys} topk={topk} d={c.d_qk} {c.rows}"
        more = [f"q {c.dtype}"] if c.dtype != "bf16" else []
        more += [f"invalid={self.invalid}%"] if self.invalid else []
        return " ".join((own[0], text, *own[1:], *more, *["sorted"] * self.sorted))


@dataclass(frozen=True, kw_only=True)
class PrefillWork(SparseWork):
    """`rows` query rows over one cache of `keys` rows."""

    config: MlaSparsePrefillConfig
    rows: int
    positive: ClassVar[tuple[str, ...]] = ("rows", *SparseWork.positive)

    @property
    def entries(self) -> int:
        return self.rows

    @property
    def tokens(self) -> int:
        return 1

    @property
    def held(self) -> int:
        return self.keys

    @property
    def sizes(self) -> Mapping[str, int | None]:
        return {name: getattr(self, name) for name in PREFILL_SIZES}

    def __str__(self) -> str:
        return self._text(f"rows={self.rows}")


@dataclass(frozen=True, kw_only=True)
class SparseDecodeWork(SparseWork):
    """`batch` sequences that have `keys` rows each, in pages of `page_size` rows that lie anywhere;
    with a second cache, `extra_keys` and `extra_topk` of it, full lists but for `invalid` places.

    Where keys are causal, the last of a sequence's rows are those of its new tokens.
    """

    config: MlaSparseDecodeConfig
    batch: int
    page_size: int = 64
    extra_keys: int | None = None
    extra_topk: int | None = None
    positive: ClassVar[tuple[str, ...]] = (
        "batch", "page_size", "extra_keys", "extra_topk", *SparseWork.positive
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        extra = (self.extra_keys, self.extra_topk)
        for name, value in zip(("extra_keys", "extra_topk"), extra, strict=True):
            if (value is not None) != self.config.extra:
                raise ConfigError(
                    f"the size {name} is missing: the problem has a second cache"
                    if self.config.extra
                    else f"{name}={value}, but the problem has no second cache",
                    hint="extra_keys and extra_topk go with extra=true",
                )
        if self.extra_keys is not None and (self.extra_topk or 0) > self.extra_keys:
            raise ConfigError(
                f"extra_topk={self.extra_topk} is above extra_keys={self.extra_keys}",
                hint="a list names each row once",
            )
        if self.config.causal and self.keys < self.config.q_len:
            raise ConfigError(
                f"keys={self.keys} is below q_len={self.config.q_len}: new tokens' rows are among "
                "a sequence's keys"
            )

    @property
    def entries(self) -> int:
        return self.batch

    @property
    def tokens(self) -> int:
        return self.config.q_len

    @property
    def held(self) -> int:
        return self.batch * (self.keys + (self.extra_keys or 0))

    @property
    def lists(self) -> int:
        return self.batch if self.config.shared_list else self.queries

    @property
    def sizes(self) -> Mapping[str, int | None]:
        return {name: getattr(self, name) for name in DECODE_SIZES}

    @property
    def read(self) -> int:
        """Keys of all query rows; what causality hides is not deducted."""
        return super().read + self.queries * named(self.extra_topk or 0, self.invalid)

    @property
    def _list_bytes(self) -> int:
        first = self.places * (2 if self.config.causal else 1)
        return INT32_BYTES * (first + self.lists * (self.extra_topk or 0))

    def __str__(self) -> str:
        c = self.config
        more = [f"page={self.page_size}"]
        if self.extra_keys is not None:
            more.append(f"extra {self.extra_topk} of {self.extra_keys}")
        more += [name for name in ("shared_list", "causal") if getattr(c, name)]
        return self._text(f"b={self.batch} s_q={c.q_len}", *more)


Work = PrefillWork | SparseDecodeWork
