"""FlashInfer's paged MLA, its kernel for Hopper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.families.mla_decode.benchmark.case import Case
from mlagen.family.peers import imported, require, version

WORKSPACE_BYTES = 256 << 20


class FlashInfer:
    name = "flashinfer"
    wrapper: Any
    workspace: Any = None

    def load(self) -> str:
        hint = "pip install flashinfer-python"
        self.wrapper = imported("flashinfer.mla", hint).BatchMLAPagedAttentionWrapper
        return version(imported("flashinfer", hint))

    def prepare(self, case: Case) -> Callable[[], Any]:
        import torch  # type: ignore[import-not-found,unused-ignore]

        config, device = case.work.config, case.q.device
        require(config.dtype == "bf16", "bf16 queries only")
        require(config.num_kv_heads == 1, "one KV head only")
        require(not config.rope_aware, "no scales of single rows")
        require(not config.window, "no sliding window")
        if self.workspace is None:
            self.workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        wrapper = self.wrapper(self.workspace, backend="fa3")
        batch, heads, rope = case.work.batch, config.num_heads, config.d_rope
        pages = (case.lengths + config.page_size - 1) // config.page_size
        starts = torch.zeros(batch + 1, dtype=torch.int32, device=device)
        starts[1:] = pages.cumsum(0)
        columns = torch.arange(case.table.shape[1], device=device)
        indices = case.table[columns[None, :] < pages[:, None]].contiguous()
        tokens = torch.arange(batch + 1, dtype=torch.int32, device=device) * config.q_len
        wrapper.plan(
            tokens, starts, indices, case.lengths, heads, config.d_v, rope, config.page_size,
            config.causal, case.scale, case.q.dtype, case.cache.dtype,
        )  # fmt: skip
        q = case.q.view(batch * config.q_len, heads, config.d_qk)
        rows = case.cache[:, :, 0]
        out = torch.empty(*q.shape[:2], config.d_v, dtype=case.q.dtype, device=device)
        parts = (
            q[..., : config.d_v], q[..., config.d_v :],
            rows[..., : config.d_v], rows[..., config.d_v :],
        )  # fmt: skip
        named = {}
        if config.cache_dtype != "bf16":
            named = {"ckv_scale": case.kv_scale, "kpe_scale": case.kv_scale}

        def call() -> Any:
            found = wrapper.run(*parts, out=out, **named)
            return found.view(batch, config.q_len, heads, config.d_v)

        return call
