"""Libraries of others that attend to latent rows, as peers load them. Each is imported when it is
asked for; what a peer calls of it, its family says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.family.peers import PeerAbsent, imported, version

FLASHINFER_WORKSPACE = 256 << 20  # bytes


class FlashMlaPackage:
    """FlashMLA's Python package."""

    name = "flash_mla"
    library: Any

    def load(self) -> str:
        """Imports it and returns its version. PeerAbsent: it is not there, or is our own."""
        self.library = imported("flash_mla", "github.com/deepseek-ai/FlashMLA, built from source")
        if self.library.__name__.startswith("mlagen."):
            raise PeerAbsent("flash_mla is mlagen's own module here: compat.flash_mla.install()")
        return version(self.library)


class FlashInferPackage:
    """FlashInfer's paged MLA, its kernel for Hopper."""

    name = "flashinfer"
    wrapper: Any
    workspace: Any = None

    def load(self) -> str:
        """Imports it and returns its version. PeerAbsent: why that fails."""
        hint = "pip install flashinfer-python"
        self.wrapper = imported("flashinfer.mla", hint).BatchMLAPagedAttentionWrapper
        return version(imported("flashinfer", hint))

    def planned(self, q: Any, rows: Any, *plan: Any, kv_scale: float | None) -> Callable[[], Any]:
        """A call over `q` [tokens, heads, 576] and `rows` [pages, page_size, 576] that returns O
        [tokens, heads, 512]. `plan`: what the library is told of lists and lengths; `kv_scale`:
        what e4m3 rows are multiples of."""
        import torch  # type: ignore[import-not-found,unused-ignore]

        latent = 512
        if self.workspace is None:
            self.workspace = torch.empty(FLASHINFER_WORKSPACE, dtype=torch.uint8, device=q.device)
        wrapper = self.wrapper(self.workspace, backend="fa3")
        wrapper.plan(*plan, q.dtype, rows.dtype)
        out = torch.empty(*q.shape[:2], latent, dtype=q.dtype, device=q.device)
        parts = q[..., :latent], q[..., latent:], rows[..., :latent], rows[..., latent:]
        named = {} if kv_scale is None else {"ckv_scale": kv_scale, "kpe_scale": kv_scale}

        def call() -> Any:
            return wrapper.run(*parts, out=out, **named)

        return call


class VllmFlashAttention:
    """FlashAttention-3 as vLLM brings it."""

    name = "fa3_vllm"
    library: Any

    def load(self) -> str:
        """Imports it and returns its version. PeerAbsent: why that fails."""
        hint = "pip install vllm"
        self.library = imported("vllm.vllm_flash_attn", hint)
        return version(imported("vllm", hint))

    def paged(self, q: Any, rows: Any, **named: Any) -> Callable[[], Any]:
        """A call over `q` [tokens, heads, 576] and `rows` [pages, page_size, KV heads, 576] that
        returns O [tokens, heads, 512]; `named`: what else the library is told."""
        latent = 512
        given = {
            "q": q[..., latent:], "k": rows[..., latent:], "v": rows[..., :latent],
            "q_v": q[..., :latent], "fa_version": 3, **named,
        }  # fmt: skip

        def call() -> Any:
            return self.library.flash_attn_varlen_func(**given)

        return call
