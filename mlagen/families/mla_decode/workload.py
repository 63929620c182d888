"""MLA decode on a GPU: small calls and the tuned one against both oracles, then timed.

Tensors and judge are those of `mlagen bench`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlagen.artifact import Artifact
from mlagen.attention.latent.facts import order_of
from mlagen.bench.torch_arrays import to_gpu
from mlagen.bench.workload import BenchedWorkload, Second, built_all
from mlagen.errors import ConfigError, WrongResultError
from mlagen.families.mla_decode.benchmark.judge import outside_oracles
from mlagen.families.mla_decode.benchmark.lab import DecodeLab
from mlagen.families.mla_decode.benchmark.work import SIZES, DecodeCase, DecodeWork
from mlagen.families.mla_decode.kernel import decode_kernel
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.unit import MERGE_KERNELS
from mlagen.family.base import Builder

_LENGTHS = (0, 1, 63, 64, 65, 129, 450)  # around a tile of 64 keys, and several of them


class DecodeWorkload(BenchedWorkload):
    """`batch` sequences of `keys` keys, or of `least` .. `keys`; the rest is the problem's."""

    def __init__(
        self,
        problem: Mapping[str, Any],
        shape: Mapping[str, Any],
        build: Builder,
        beside: Sequence[Artifact] = (),
    ) -> None:
        config = MlaDecodeConfig.from_fields(problem)
        least = shape.get("least")
        work = DecodeWork(config, int(shape.get("batch", 64)), int(shape.get("keys", 4096)),
                          None if least is None else int(least))  # fmt: skip
        targets = [artifact.manifest.target for artifact in beside]
        super().__init__(work, build, _seconds(problem, *targets), beside)

    def lab(self, artifact: Artifact) -> DecodeLab:
        return DecodeLab(decode_kernel(artifact, build=self.second))

    def check_small(self, lab: DecodeLab, seed: int) -> None:
        for data, planned in (("realistic", {"blocks": 1}), ("late_max", {"split_keys": 64})):
            self._small(lab, data, planned, seed)

    def _small(self, lab: DecodeLab, data: str, planned: Mapping[str, Any], seed: int) -> None:
        """Lengths at which the code differs. Outputs and workspaces are poisoned before."""
        import torch

        config = self.work.config
        inputs = mla_decode_inputs(config, lengths=_LENGTHS, data=data, seed=seed)
        plan = lab.kernel.plan(inputs.cache_lengths, **planned)
        batch, rows, heads = inputs.batch, config.q_len, config.num_heads
        out = torch.empty((batch, rows, heads, config.d_v), device="cuda", dtype=torch.bfloat16)
        lse = torch.empty((batch, heads, rows), device="cuda")
        for tensor in (out, lse, plan.partial_o, plan.partial_lse):
            tensor.fill_(float("nan"))
        lab.kernel(
            **{name: to_gpu(array) for name, array in inputs.tensors.items()}, **inputs.scales,
            out=out, lse=lse, checked=True, plan=plan,
        )  # fmt: skip
        lab.wait()
        chosen = sorted({0, heads // 2, heads - 1})
        host = lab.host(out), lab.host(lse)
        order = order_of(lab.kernel.artifact)
        wrong = outside_oracles(inputs, *host, heads=chosen, splits=plan.splits, order=order)
        if wrong:
            raise WrongResultError(f"lengths {_LENGTHS}, {data}: {wrong}")

    def prepared(self, lab: DecodeLab, cases: Sequence[DecodeCase]) -> list[Callable[[], Any]]:
        plan = lab.kernel.plan(self.work.lengths)
        return [
            lab.kernel.prepare(case.q, case.cache, case.table, _same(case, cases[0]),
                               **case.scales, plan=plan)
            for case in cases
        ]  # fmt: skip


def _same(case: DecodeCase, first: DecodeCase) -> Any:
    """The first copy's lengths, which the plan is of."""
    if case.lengths.shape != first.lengths.shape:
        raise ConfigError("copies of a call have one batch")
    return first.lengths


def _seconds(problem: Mapping[str, Any], *targets: str) -> tuple[Second, ...]:
    """The kernel that merges split work."""
    return tuple((MERGE_KERNELS[one], {"num_heads": problem["num_heads"]}) for one in targets)


class DecodeWorkloads:
    """Makes the calls of MLA decode; `build` the kernel that they launch besides."""

    sizes: tuple[str, ...] = SIZES
    lists: tuple[str, ...] = ()

    def __init__(self, build: Builder) -> None:
        self._build = build

    def beside(self, artifact: Artifact) -> tuple[Artifact, ...]:
        """The kernel that merges split work."""
        manifest = artifact.manifest
        return built_all(self._build, _seconds(manifest.problem, manifest.target))

    def workload(
        self,
        problem: Mapping[str, Any],
        shape: Mapping[str, Any],
        beside: Sequence[Artifact] = (),
    ) -> DecodeWorkload:
        """The call of these fields and sizes."""
        return DecodeWorkload(problem, shape, self._build, beside)
