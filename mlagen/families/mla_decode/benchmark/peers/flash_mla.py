"""FlashMLA's dense decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.families.mla_decode.benchmark.case import Case
from mlagen.family.peers import PeerAbsent, imported, require, version


class FlashMla:
    name = "flash_mla"
    library: Any

    def load(self) -> str:
        self.library = imported("flash_mla", "github.com/deepseek-ai/FlashMLA, built from source")
        if self.library.__name__.startswith("mlagen."):
            raise PeerAbsent("flash_mla is mlagen's own module here: compat.flash_mla.install()")
        return version(self.library)

    def prepare(self, case: Case) -> Callable[[], Any]:
        config = case.work.config
        require(config.dtype == "bf16", "bf16 queries only")
        require(config.page_size == 64, "pages of 64 only")
        require(config.cache_dtype == "bf16", "its dense decoding takes bf16 caches only")
        require(not config.window, "no sliding window")
        heads = config.q_len * config.num_heads // config.num_kv_heads
        meta, splits = self.library.get_mla_metadata(case.lengths, heads, config.num_kv_heads)

        def call() -> Any:
            return self.library.flash_mla_with_kvcache(
                case.q, case.cache, case.table, case.lengths, config.d_v, meta, splits,
                softmax_scale=case.scale, causal=config.causal,
            )[0]  # fmt: skip

        return call
