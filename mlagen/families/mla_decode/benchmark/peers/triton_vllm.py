"""vLLM's decoding in Triton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.families.mla_decode.benchmark.case import Case
from mlagen.family.peers import imported, require, version

SPLITS = 4
MODULE = "vllm.v1.attention.ops.triton_decode_attention"


class VllmTriton:
    name = "triton_vllm"
    function: Any

    def load(self) -> str:
        hint = "pip install vllm"
        self.function = imported(MODULE, hint).decode_attention_fwd
        return version(imported("vllm", hint))

    def prepare(self, case: Case) -> Callable[[], Any]:
        import torch  # type: ignore[import-not-found,unused-ignore]

        config = case.work.config
        require(config.dtype == "bf16", "bf16 queries only")
        require(config.q_len == 1, "one new token only")
        require(config.cache_dtype == "bf16", "timed with bf16 caches only")
        require(config.num_kv_heads == 1, "timed with one KV head only")
        require(not config.window, "no sliding window")
        batch, heads, latent = case.work.batch, config.num_heads, config.d_v
        q = case.q.view(batch, heads, config.d_qk)
        out = torch.empty(batch, heads, latent, dtype=q.dtype, device=q.device)
        lse = torch.empty(batch, heads, dtype=q.dtype, device=q.device)
        parts = torch.empty(batch, heads, SPLITS, latent + 1, device=q.device, dtype=torch.float32)
        one = torch.ones((), dtype=torch.float32, device=q.device)

        def call() -> Any:
            self.function(
                q, case.cache, case.cache[..., :latent], out, lse, case.table, case.lengths, parts,
                SPLITS, case.scale, config.page_size, k_scale=one, v_scale=one, is_mla=True,
            )  # fmt: skip
            return out.view(batch, 1, heads, latent)

        return call
