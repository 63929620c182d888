"""torch's scaled_dot_product_attention. It knows no pages: its rows are gathered beforehand, and
that is not timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.families.mla_decode.benchmark.case import Case
from mlagen.family.peers import imported, require, version

MOST_SCORES = 2**31  # of all rows; they are made in memory


class TorchSdpa:
    name = "torch_sdpa"
    torch: Any

    def load(self) -> str:
        self.torch = imported("torch", "pip install torch")
        return version(self.torch)

    def prepare(self, case: Case) -> Callable[[], Any]:
        work, config = case.work, case.work.config
        require(config.dtype == "bf16", "bf16 queries only")
        require(config.cache_dtype == "bf16", "bf16 caches only")
        require(config.num_kv_heads == 1, "timed with one KV head only")
        require(work.least is None, "sequences of one length only")
        require(config.q_len == 1 and not config.window, "timed without masks only")
        rows = config.q_len * config.num_heads
        require(work.batch * rows * work.keys <= MOST_SCORES, "its scores would fill the memory")
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
