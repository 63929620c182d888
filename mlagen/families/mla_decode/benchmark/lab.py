"""Tensors of MLA decode on an NVIDIA GPU, filled there, and the kernel on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mlagen.attention.latent.facts import order_of
from mlagen.bench.torch_lab import TorchLab
from mlagen.families.mla_decode.benchmark.judge import DecodeJudge
from mlagen.families.mla_decode.benchmark.work import DecodeCase, DecodeWork
from mlagen.families.mla_decode.kernel import MlaDecodeKernel


class DecodeLab(TorchLab):
    """`kernel` on torch's current GPU. MissingError without torch or a GPU."""

    def __init__(self, kernel: MlaDecodeKernel) -> None:
        super().__init__()
        self.kernel = kernel

    def case(self, work: DecodeWork) -> DecodeCase:
        torch, config = self.torch, work.config
        made = torch.Generator("cuda").manual_seed(work.seed)
        normal = partial(torch.randn, device="cuda", generator=made)
        lengths = torch.tensor(work.lengths, dtype=torch.int32)
        columns = config.pages(work.keys)
        count = work.batch * columns
        kinds = {"bf16": torch.bfloat16, "fp8_e4m3": torch.float8_e4m3fn}
        kind = kinds[config.cache_element]
        q_shape = (work.batch, config.q_len, config.num_heads)
        q = normal((*q_shape, config.q_columns)).to(kinds[config.q_element])
        shape = (count, config.page_size, config.num_kv_heads, config.cache_columns)
        cache = self.new_cache(work, shape, kind)
        step = max(1, (1 << 28) // max(1, cache[0].numel()))
        for first in range(0, count, step):
            part = cache[first : first + step]
            part.copy_(normal(part.shape).to(kind))
            if config.rope_aware:
                rope = normal((*part.shape[:-1], config.d_rope)).bfloat16()
                part[..., config.d_v :] = rope.view(kind)
        scales: dict[str, Any] = {}
        if config.rope_aware:
            scales["kv_scales"] = normal((count, config.page_size)).mul_(0.25).exp_()
        if config.rope_aware_queries:
            rope = normal((*q_shape, config.d_rope)).bfloat16()
            q[..., config.d_v :] = rope.view(q.dtype)
            scales["q_scales"] = normal(q_shape[:2]).mul_(0.25).exp_()
        order = torch.randperm(count, device="cuda", generator=made)
        return DecodeCase(
            work,
            q=q,
            cache=cache,
            table=order.int().view(work.batch, columns),
            lengths=lengths.cuda(),
            **scales,
        )

    def ours(self, case: DecodeCase) -> Callable[[], Any]:
        plan = self.kernel.plan(case.work.lengths)
        step = self.kernel.prepare(
            case.q, case.cache, case.table, case.lengths, **case.scales, plan=plan
        )
        for tensor in (step.output, step.lse, plan.partial_o, plan.partial_lse):
            tensor.fill_(float("nan"))

        def call() -> Any:
            step()
            return step.output, step.lse, plan.splits

        return call

    def judge(self, case: DecodeCase) -> DecodeJudge:
        return DecodeJudge(case, self.host, order_of(self.kernel.artifact))
