"""One decode call's tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlagen.families.mla_decode.benchmark.work import DecodeWork
from mlagen.families.mla_decode.inputs import MODEL_SCALE


@dataclass(frozen=True, eq=False)
class Case:
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
