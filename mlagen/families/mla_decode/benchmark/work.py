"""One MLA decode call: its sizes, how its work is counted, and its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlagen.attention.latent.scales import MODEL_SCALE
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.problem import MlaDecodeConfig

SIZES = ("batch", "keys", "least")
OPTIONAL = ("least",)
FORMULAS = {
    "flop": "2 * heads * new tokens * sum(keys) * (576 + 512); causal masking not deducted",
    "bytes": "sum(keys) * KV heads * 576 * bytes of a cached number, each row once, "
    "+ batch * new tokens * heads * (576 + 512) * 2",
    "error": "norm(O - exact) / norm(exact) over the rows that are judged",
}
ELEMENT_BYTES = {"bf16": 2, "fp8_e4m3": 1}
SCALE_BYTES = 4  # of a row


@dataclass(frozen=True)
class DecodeWork:
    """`batch` sequences of `keys` keys; with `least`, lengths drawn from least .. keys.

    Raises ConfigError for sizes below 1 and a `least` above `keys`.
    """

    config: MlaDecodeConfig
    batch: int
    keys: int
    least: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in SIZES:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} is not at least 1")
        if self.least is not None and self.least > self.keys:
            raise ConfigError(
                f"least={self.least} is above keys={self.keys}",
                hint="lengths are drawn from least .. keys",
            )

    @property
    def lengths(self) -> tuple[int, ...]:
        """Keys of each sequence."""
        if self.least is None:
            return (self.keys,) * self.batch
        drawn = np.random.default_rng(self.seed).integers(self.least, self.keys + 1, self.batch)
        return tuple(int(n) for n in drawn)

    @property
    def read(self) -> int:
        """Keys of all sequences that some token sees."""
        seen = ([keys for keys in self.config.visible(n) if keys] for n in self.lengths)
        return sum(keys[-1].stop - keys[0].start for keys in seen if keys)

    @property
    def flop(self) -> int:
        """2 * heads * new tokens * keys * (576 + 512); keys that the causal mask hides from older
        tokens are not deducted."""
        config = self.config
        return 2 * config.num_heads * config.q_len * self.read * (config.d_qk + config.d_v)

    @property
    def bytes(self) -> int:
        """Cache rows once, queries and output once."""
        config = self.config
        rows = self.batch * config.q_len * config.num_heads
        row = config.cache_columns * ELEMENT_BYTES[config.cache_element]
        row += SCALE_BYTES if config.rope_aware else 0
        cached = self.read * config.num_kv_heads * row
        queries = config.q_columns * ELEMENT_BYTES[config.q_element]
        return cached + rows * (queries + config.d_v * ELEMENT_BYTES[config.output_dtype])

    def to_fields(self) -> dict[str, Any]:
        """Problem, sizes and seed, for JSON."""
        sizes = {"batch": self.batch, "keys": self.keys, "least": self.least}
        return {**self.config.to_fields(), **sizes, "seed": self.seed}

    def __str__(self) -> str:
        c = self.config
        keys = f"{self.keys}" if self.least is None else f"{self.least}..{self.keys}"
        kv = f"/{c.num_kv_heads}" if c.num_kv_heads > 1 else ""
        text = f"b={self.batch} h={c.num_heads}{kv} s_q={c.q_len} keys={keys} page={c.page_size}"
        text += f" q {c.dtype}" if c.dtype != "bf16" else ""
        return text + (f" {c.cache_dtype}" if c.cache_dtype != "bf16" else "")


@dataclass(frozen=True, eq=False)
class DecodeCase:
    """Tensors that all contenders share: `q` [B, q_len, H, 576], `cache` [pages,
    page, KV heads, 576], `table` [B, pages] and `lengths` [B] int32; `kv_scales` [pages, page] of
    rope-aware rows, `q_scales` [B, q_len] of such queries."""

    work: DecodeWork
    q: Any
    cache: Any
    table: Any
    lengths: Any
    scale: float = MODEL_SCALE
    kv_scale: float = 1.0
    q_scale: float = 1.0
    kv_scales: Any = None
    q_scales: Any = None

    @property
    def scales(self) -> dict[str, Any]:
        """What our call is given by name besides its tensors."""
        return {
            "scale": self.scale, "kv_scale": self.kv_scale, "q_scale": self.q_scale,
            "kv_scales": self.kv_scales, "q_scales": self.q_scales,
        }  # fmt: skip
