"""Other libraries that decode MLA. Each is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.attention.latent.libraries import (
    FlashInferPackage,
    FlashMlaPackage,
    VllmFlashAttention,
)
from mlagen.families.mla_decode.benchmark.work import DecodeCase
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.family.peers import Peer, imported, require, version

TRITON_SPLITS = 4
MOST_SDPA_SCORES = 2**31  # of all rows; they are made in memory


def require_bf16(config: MlaDecodeConfig) -> None:
    """PeerUnfit but for bf16 queries and caches whose first keys all queries see."""
    require(config.dtype == "bf16", "bf16 queries only")
    require(config.cache_dtype == "bf16", "bf16 caches only")
    require(not config.cut_at_start, "no sliding window, no chunks")


class FlashMla(FlashMlaPackage):
    """FlashMLA's dense decoding."""

    def prepare(self, case: DecodeCase) -> Callable[[], Any]:
        config = case.work.config
        require_bf16(config)
        require(config.page_size == 64, "pages of 64 only")
        heads = config.q_len * config.num_heads // config.num_kv_heads
        meta, splits = self.library.get_mla_metadata(case.lengths, heads, config.num_kv_heads)

        def call() -> Any:
            return self.library.flash_mla_with_kvcache(
                case.q, case.cache, case.table, case.lengths, config.d_v, meta, splits,
                softmax_scale=case.scale, causal=config.causal,
            )[0]  # fmt: skip

        return call


class FlashInfer(FlashInferPackage):
    """FlashInfer's paged MLA, its kernel for Hopper."""

    def prepare(self, case: DecodeCase) -> Callable[[], Any]:
        import torch  # type: ignore[import-not-found,unused-ignore]

        config, device = case.work.config, case.q.device
        require(config.dtype == "bf16", "bf16 queries only")
        require(config.num_kv_heads == 1, "one KV head only")
        require(not config.rope_aware, "no scales of single rows")
        require(not config.cut_at_start, "no sliding window, no chunks")
        batch, heads, rope = case.work.batch, config.num_heads, config.d_rope
        pages = (case.lengths + config.page_size - 1) // config.page_size
        starts = torch.zeros(batch + 1, dtype=torch.int32, device=device)
        starts[1:] = pages.cumsum(0)
        columns = torch.arange(case.table.shape[1], device=device)
        indices = case.table[columns[None, :] < pages[:, None]].contiguous()
        tokens = torch.arange(batch + 1, dtype=torch.int32, device=device) * config.q_len
        q = case.q.view(batch * config.q_len, heads, config.d_qk)
        kv_scale = None if config.cache_dtype == "bf16" else case.kv_scale
        run = self.planned(
            q, case.cache[:, :, 0], tokens, starts, indices, case.lengths, heads, config.d_v, rope,
            config.page_size, config.causal, case.scale, kv_scale=kv_scale,
        )  # fmt: skip

        def call() -> Any:
            return run().view(batch, config.q_len, heads, config.d_v)

        return call


class FlashAttention3:
    """FlashAttention-3 with a second query for the value's columns (`qv`)."""

    name = "fa3"
    library: Any

    def load(self) -> str:
        where = "github.com/Dao-AILab/flash-attention, its folder hopper"
        self.library = imported("flash_attn_interface", where)
        return version(self.library)

    def prepare(self, case: DecodeCase) -> Callable[[], Any]:
        config = case.work.config
        require_bf16(config)
        latent = config.d_v
        parts = (case.q[..., latent:], case.cache[..., latent:], case.cache[..., :latent])

        def call() -> Any:
            return self.library.flash_attn_with_kvcache(
                *parts, qv=case.q[..., :latent], cache_seqlens=case.lengths, page_table=case.table,
                softmax_scale=case.scale, causal=config.causal,
            )  # fmt: skip

        return call


class VllmFlashAttention3(VllmFlashAttention):
    """FlashAttention-3 as vLLM brings it."""

    def prepare(self, case: DecodeCase) -> Callable[[], Any]:
        import torch  # type: ignore[import-not-found,unused-ignore]

        config = case.work.config
        require_bf16(config)
        batch = case.work.batch
        q = case.q.view(batch * config.q_len, config.num_heads, config.d_qk)
        tokens = torch.arange(batch + 1, dtype=torch.int32, device=case.q.device) * config.q_len
        run = self.paged(
            q, case.cache, max_seqlen_q=config.q_len, cu_seqlens_q=tokens,
            max_seqlen_k=case.work.keys, seqused_k=case.lengths, block_table=case.table,
            softmax_scale=case.scale, causal=config.causal,
        )  # fmt: skip

        def call() -> Any:
            return run().view(*case.q.shape[:3], config.d_v)

        return call


class VllmTriton:
    """vLLM's decoding in Triton."""

    name = "triton_vllm"
    function: Any

    def load(self) -> str:
        hint = "pip install vllm"
        self.function = imported(
            "vllm.v1.attention.ops.triton_decode_attention", hint
        ).decode_attention_fwd
        return version(imported("vllm", hint))

    def prepare(self, case: DecodeCase) -> Callable[[], Any]:
        import torch  # type: ignore[import-not-found,unused-ignore]

        config = case.work.config
        require_bf16(config)
        require(config.q_len == 1, "one new token only")
        require(config.num_kv_heads == 1, "timed with one KV head only")
        batch, heads, latent = case.work.batch, config.num_heads, config.d_v
        q = case.q.view(batch, heads, config.d_qk)
        out = torch.empty(batch, heads, latent, dtype=q.dtype, device=q.device)
        lse = torch.empty(batch, heads, dtype=q.dtype, device=q.device)
        parts = torch.empty(
            batch, heads, TRITON_SPLITS, latent + 1, device=q.device, dtype=torch.float32
        )
        one = torch.ones((), dtype=torch.float32, device=q.device)

        def call() -> Any:
            self.function(
                q, case.cache, case.cache[..., :latent], out, lse, case.table, case.lengths, parts,
                TRITON_SPLITS, case.scale, config.page_size, k_scale=one, v_scale=one, is_mla=True,
            )  # fmt: skip
            return out.view(batch, 1, heads, latent)

        return call


class TorchSdpa:
    """torch's scaled_dot_product_attention. It knows no pages: its rows are gathered beforehand,
    and that is not timed."""

    name = "torch_sdpa"
    torch: Any

    def load(self) -> str:
        self.torch = imported("torch", "pip install torch")
        return version(self.torch)

    def prepare(self, case: DecodeCase) -> Callable[[], Any]:
        work, config = case.work, case.work.config
        require_bf16(config)
        require(config.num_kv_heads == 1, "timed with one KV head only")
        require(work.least is None, "sequences of one length only")
        require(config.q_len == 1, "timed without masks only")
        rows = config.q_len * config.num_heads
        require(
            work.batch * rows * work.keys <= MOST_SDPA_SCORES, "its scores would fill the memory"
        )
        pages = config.pages(work.keys)
        gathered = case.cache[case.table[:, :pages].long()]
        k = gathered.view(work.batch, 1, -1, config.d_qk)[:, :, : work.keys]
        v = k[..., : config.d_v]
        # Heads share the rows, as queries of one head do.
        q = case.q.view(work.batch, 1, rows, config.d_qk)
        attend = self.torch.nn.functional.scaled_dot_product_attention

        def call() -> Any:
            found = attend(q, k, v, scale=case.scale)
            return found.view(work.batch, config.q_len, config.num_heads, config.d_v)

        return call


# In the order of a report.
_ALL = (FlashMla, FlashInfer, FlashAttention3, VllmFlashAttention3, VllmTriton, TorchSdpa)
PEERS: dict[str, Callable[[], Peer]] = {peer.name: peer for peer in _ALL}
