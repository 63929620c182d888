"""MLA decode on a GPU: small calls against both oracles, the tuned call against float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.errors import ConfigError, WrongResultError
from mlagen.ops import MlaDecodeKernel, kernel_of
from mlagen.problem import MlaDecodeConfig, MlaDecodeInputs, compare, compare_lse
from mlagen.problem.mla_decode_exact import exact
from mlagen.problem.mla_decode_rounded import rounded
from mlagen.request import build_artifact
from mlagen.testdata import mla_decode_inputs

_LENGTHS = (0, 1, 63, 64, 65, 129, 450)  # around a tile of 64 keys, and several of them
_SCALE = 192**-0.5
_FAR = 2.0**-7  # relative error of the tuned call: a bf16 output and P in bf16


class DecodeWorkload:
    """`batch` sequences of `num_keys` keys; `q_len` and the rest are the problem's."""

    SIZES = ("batch", "num_keys")

    def __init__(self, problem: Mapping[str, Any], shape: Mapping[str, Any]) -> None:
        self.config = MlaDecodeConfig.from_fields(problem)
        self.batch = int(shape.get("batch", 64))
        self.keys = int(shape.get("num_keys", 4096))
        for name, value in (("batch", self.batch), ("num_keys", self.keys)):
            if not 1 <= value <= 1 << 24:
                raise ConfigError(f"{name}={value} is not in 1 .. {1 << 24}")
        if self.config.num_kv_heads != 1:
            raise ConfigError(f"num_kv_heads={self.config.num_kv_heads}: calls of 1 are timed")
        self._sets: list[dict[str, Any]] = []

    @property
    def bytes(self) -> int:
        """Of the cache and the queries."""
        config = self.config
        wide = 1 if config.cache_dtype == "fp8_e4m3" else 2
        rows = -(-self.keys // config.page_size) * config.page_size
        queries = self.batch * config.q_len * config.num_heads * 576 * 2
        return self.batch * rows * 576 * wide + queries

    def _kernel(self, artifact: Artifact) -> MlaDecodeKernel:
        kernel = kernel_of(artifact, build=lambda name, fields: build_artifact(name, fields, {}))
        assert isinstance(kernel, MlaDecodeKernel)
        return kernel

    # ---- right ------------------------------------------------------------------------------

    def check(self, artifact: Artifact, seed: int) -> None:
        kernel = self._kernel(artifact)
        for data in ("realistic", "late_max"):
            inputs = mla_decode_inputs(self.config, lengths=_LENGTHS, data=data, seed=seed)
            for planned in ({"blocks": 1}, {"split_keys": 64}):
                self._against_oracles(kernel, inputs, planned)
        self._against_float64(kernel)

    def _against_oracles(
        self, kernel: MlaDecodeKernel, inputs: MlaDecodeInputs, planned: Mapping[str, int]
    ) -> None:
        import torch

        plan = kernel.plan(inputs.cache_lengths, **planned)  # type: ignore[arg-type]
        poison(plan.partial_o, plan.partial_lse)
        config = inputs.config
        rows = (inputs.batch, config.q_len, config.num_heads)
        out = torch.empty((*rows, config.d_v), device="cuda", dtype=torch.bfloat16)
        lse = torch.empty((rows[0], rows[2], rows[1]), device="cuda")
        poison(out, lse)
        kernel(
            *(to_gpu(t) for t in (inputs.q, inputs.cache, inputs.block_table,
                                  inputs.cache_lengths)),
            scale=inputs.scale, kv_scale=inputs.kv_scale, out=out, lse=lse, checked=True, plan=plan,
        )  # fmt: skip
        torch.cuda.synchronize()
        last = config.num_heads - 1
        heads = sorted({0, last // 2, last})
        for oracle in (exact, rounded):
            expected = oracle(inputs, heads=heads, splits=plan.splits)
            for found in (compare(expected.output, to_host(out)),
                          compare_lse(expected.lse, to_host(lse))):  # fmt: skip
                if not found.passed:
                    raise WrongResultError(
                        f"{kernel.artifact.manifest.kernel}: {found.failures} elements, "
                        f"{found.nans} of them NaN, are outside the {found.oracle} oracle's bound"
                    )

    def _against_float64(self, kernel: MlaDecodeKernel) -> None:
        """The last sequence of the tuned call; a window is the oracles' to judge."""
        import torch

        if self.config.mask not in ("null", "causal"):
            return

        (tensors,) = self._tensors(1)
        call = kernel.prepare(**tensors, scale=_SCALE, plan=self._plan(kernel))
        poison(call.output)
        call()
        last = self.batch - 1
        bits = torch.uint8 if self.config.cache_dtype == "fp8_e4m3" else torch.bfloat16
        pages = tensors["cache"].view(bits)[tensors["block_table"][last].long()]
        rows = pages.view(tensors["cache"].dtype).view(-1, 576)[: self.keys].double()
        q = tensors["q"][last, -1].double()
        expected = torch.softmax(q @ rows.T * _SCALE, -1) @ rows[:, :512]
        error = float((call.output[last, -1].double() - expected).norm() / expected.norm())
        if not error <= _FAR:
            raise WrongResultError(
                f"{kernel.artifact.manifest.kernel}: the last sequence of this call is off by "
                f"{error:.3g}, relative; {_FAR:.3g} is allowed"
            )

    # ---- fast -------------------------------------------------------------------------------

    def calls(self, artifact: Artifact, copies: int) -> list[Callable[[], Any]]:
        kernel = self._kernel(artifact)
        plan = self._plan(kernel)
        return [
            kernel.prepare(**tensors, scale=_SCALE, plan=plan) for tensors in self._tensors(copies)
        ]

    def _plan(self, kernel: MlaDecodeKernel) -> Any:
        return kernel.plan([self.keys] * self.batch)

    def _tensors(self, copies: int) -> list[dict[str, Any]]:
        """Copies of the call's tensors, made once: all variants run on the same."""
        import torch

        config = self.config
        pages = -(-self.keys // config.page_size)
        draw = torch.Generator(device="cuda").manual_seed(len(self._sets))
        while len(self._sets) < copies:
            shape = (self.batch * pages, config.page_size, 1, 576)
            cache = torch.empty(shape, device="cuda", dtype=torch.bfloat16).normal_(generator=draw)
            if config.cache_dtype == "fp8_e4m3":
                cache = cache.to(torch.float8_e4m3fn)
            table = torch.randperm(self.batch * pages, device="cuda", generator=draw)
            rows = (self.batch, config.q_len, config.num_heads, 576)
            q = torch.empty(rows, device="cuda", dtype=torch.bfloat16).normal_(generator=draw)
            lengths = torch.full((self.batch,), self.keys, dtype=torch.int32, device="cuda")
            self._sets.append({"q": q, "cache": cache, "cache_lengths": lengths,
                               "block_table": table.int().view(self.batch, pages)})  # fmt: skip
        return self._sets[:copies]


def poison(*tensors: Any) -> None:
    """NaN everywhere."""
    for tensor in tensors:
        if tensor is not None:
            tensor.fill_(float("nan"))


def to_gpu(array: npt.NDArray[Any]) -> Any:
    """The array on the GPU; bf16 and e4m3 by their bits."""
    import torch

    kinds = {
        "bfloat16": (np.int16, torch.bfloat16),
        "float8_e4m3fn": (np.uint8, torch.float8_e4m3fn),
    }
    bits, kind = kinds.get(array.dtype.name, (None, None))
    tensor = torch.from_numpy(np.ascontiguousarray(array).view(bits or array.dtype)).cuda()
    return tensor if kind is None else tensor.view(kind)


def to_host(tensor: Any) -> npt.NDArray[Any]:
    """The tensor as an array; bf16 by its bits."""
    import ml_dtypes
    import torch

    if tensor.dtype == torch.bfloat16:
        bits: npt.NDArray[Any] = tensor.contiguous().view(torch.int16).cpu().numpy()
        return bits.view(ml_dtypes.bfloat16)
    host: npt.NDArray[Any] = tensor.cpu().numpy()
    return host
