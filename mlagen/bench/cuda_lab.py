"""The lab of an NVIDIA GPU, through torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy.typing as npt

from mlagen.bench.case import Call, Case, Ours
from mlagen.bench.timing import Clock
from mlagen.bench.torch_arrays import to_host
from mlagen.bench.torch_clock import TorchClock
from mlagen.bench.workload import Workload
from mlagen.errors import ConfigError, MissingError
from mlagen.families.mla_decode.kernel import MlaDecodeKernel

MATMUL = 8192
COPIED = 4 << 30  # bytes


class CudaLab:
    """`kernel` on torch's current GPU. MissingError without torch or a GPU."""

    def __init__(self, kernel: MlaDecodeKernel) -> None:
        try:
            import torch  # type: ignore[import-not-found,unused-ignore]
        except ModuleNotFoundError as error:
            raise MissingError(
                "the benchmark's tensors are torch's", hint="pip install torch"
            ) from error
        if not torch.cuda.is_available():
            raise MissingError(
                "torch finds no NVIDIA GPU", hint="`mlagen doctor` shows what is there"
            )
        self.torch, self.kernel = torch, kernel
        self.clock: Clock = TorchClock(torch)

    def facts(self) -> dict[str, str]:
        properties = self.torch.cuda.get_device_properties(self.torch.cuda.current_device())
        return {
            "device": f"{properties.name}, {properties.multi_processor_count} SMs",
            "torch": str(self.torch.__version__),
        }

    def case(self, workload: Workload) -> Case:
        torch, config = self.torch, workload.config
        made = torch.Generator("cuda").manual_seed(workload.seed)
        normal = partial(torch.randn, device="cuda", generator=made)
        lengths = torch.tensor(workload.lengths, dtype=torch.int32)
        columns = config.pages(workload.keys)
        count = workload.batch * columns
        kinds = {"bf16": torch.bfloat16, "fp8_e4m3": torch.float8_e4m3fn}
        kind = kinds[config.cache_element]
        q_shape = (workload.batch, config.q_len, config.num_heads)
        q = normal((*q_shape, config.q_columns)).to(kinds[config.q_element])
        try:
            cache = torch.empty(
                (count, config.page_size, config.num_kv_heads, config.cache_columns), dtype=kind,
                device="cuda",
            )  # fmt: skip
        except torch.cuda.OutOfMemoryError as error:
            rows = count * config.page_size * config.num_kv_heads
            size = rows * config.cache_columns * kind.itemsize / 2**30
            raise ConfigError(
                f"{workload}: a cache of about {size:.0f} GiB does not fit this GPU's memory",
                hint="fewer sequences or keys",
            ) from error
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
        return Case(
            workload,
            q=q,
            cache=cache,
            table=order.int().view(workload.batch, columns),
            lengths=lengths.cuda(),
            **scales,
        )

    def ours(self, case: Case) -> Ours:
        plan = self.kernel.plan(case.workload.lengths)
        step = self.kernel.prepare(
            case.q, case.cache, case.table, case.lengths, **case.scales, plan=plan
        )
        for tensor in (step.output, step.lse, plan.partial_o, plan.partial_lse):
            tensor.fill_(float("nan"))

        def call() -> Any:
            step()
            return step.output, step.lse

        return Ours(call, plan.splits)

    def ceilings(self) -> dict[str, tuple[Call, float, str]]:
        torch = self.torch
        a, b = (torch.randn(MATMUL, MATMUL, device="cuda").bfloat16() for _ in range(2))
        product = torch.empty_like(a)
        source = torch.empty(COPIED, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        multiply: Callable[[], Any] = partial(torch.matmul, a, b, out=product)
        return {
            "matmul": (multiply, 2.0 * MATMUL**3 / 1e12, "TFLOP/s"),
            "copy": (partial(target.copy_, source), 2.0 * COPIED / 1e9, "GB/s"),
        }

    def host(self, tensor: Any) -> npt.NDArray[Any]:
        return to_host(tensor)

    def wait(self) -> None:
        self.torch.cuda.synchronize()
