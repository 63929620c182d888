"""FlashAttention-3 with a second query for the value's columns (`qv`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.families.mla_decode.benchmark.case import Case
from mlagen.family.peers import imported, require, version


class FlashAttention3:
    name = "fa3"
    library: Any

    def load(self) -> str:
        where = "github.com/Dao-AILab/flash-attention, its folder hopper"
        self.library = imported("flash_attn_interface", where)
        return version(self.library)

    def prepare(self, case: Case) -> Callable[[], Any]:
        config = case.work.config
        require(config.dtype == "bf16", "bf16 queries only")
        require(config.cache_dtype == "bf16", "bf16 caches only")
        require(not config.window, "no sliding window")
        latent = config.d_v
        parts = (case.q[..., latent:], case.cache[..., latent:], case.cache[..., :latent])

        def call() -> Any:
            return self.library.flash_attn_with_kvcache(
                *parts, qv=case.q[..., :latent], cache_seqlens=case.lengths, page_table=case.table,
                softmax_scale=case.scale, causal=config.causal,
            )  # fmt: skip

        return call
