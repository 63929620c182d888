"""FlashAttention-3 as vLLM brings it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.families.mla_decode.benchmark.case import Case
from mlagen.family.peers import imported, require, version


class VllmFlashAttention3:
    name = "fa3_vllm"
    library: Any

    def load(self) -> str:
        hint = "pip install vllm"
        self.library = imported("vllm.vllm_flash_attn", hint)
        return version(imported("vllm", hint))

    def prepare(self, case: Case) -> Callable[[], Any]:
        import torch  # type: ignore[import-not-found,unused-ignore]

        config = case.work.config
        require(config.dtype == "bf16", "bf16 queries only")
        require(config.cache_dtype == "bf16", "bf16 caches only")
        require(not config.window, "no sliding window")
        batch, latent = case.work.batch, config.d_v
        q = case.q.view(batch * config.q_len, config.num_heads, config.d_qk)
        tokens = torch.arange(batch + 1, dtype=torch.int32, device=case.q.device) * config.q_len

        def call() -> Any:
            return self.library.flash_attn_varlen_func(
                q=q[..., latent:], k=case.cache[..., latent:], v=case.cache[..., :latent],
                q_v=q[..., :latent], max_seqlen_q=config.q_len, cu_seqlens_q=tokens,
                max_seqlen_k=case.work.keys, seqused_k=case.lengths, block_table=case.table,
                softmax_scale=case.scale, causal=config.causal, fa_version=3,
            ).view(*case.q.shape[:3], latent)  # fmt: skip

        return call
