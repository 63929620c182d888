"""The cost on a GPU: seconds in units of the reference's, timed in the same run.

What a kind of problem brings to be timed and checked on a device is a `Workload`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from mlagen.artifact import Artifact
from mlagen.bench.torch_clock import TorchClock
from mlagen.errors import ConfigError, MissingError, UnsupportedError
from mlagen.request import build_artifact, parse_sizes
from mlagen.tune.interleave import FEW_ROUNDS, interleaved, ratio
from mlagen.tune.values import Job

_OVER_L2 = 3  # times the L2 cache that copies of a call's buffers take together


class Workload(Protocol):
    """One call of a kind of problem on a device. Made of the problem's fields, the shape, and the
    kernels `beside` the one that is tuned."""

    bytes: int  # that a call reads

    def check(self, artifact: Artifact, seed: int) -> None:
        """WrongResultError where outputs of small calls are outside the oracles' bounds, or those
        of this very call far from a float64 one."""
        ...

    def calls(self, artifact: Artifact, copies: int) -> list[Callable[[], Any]]:
        """The call, prepared, once for each copy of its buffers."""
        ...


def sizes_of(problem_type: str) -> tuple[str, ...]:
    """Names of the sizes that a call of the problem takes. UnsupportedError: none is known."""
    sizes: tuple[str, ...] = _workload(problem_type).SIZES
    return sizes


def beside(problem_type: str, artifact: Artifact) -> tuple[Artifact, ...]:
    """Other kernels that a call of the artifact launches, built once for all trials."""
    found: tuple[Artifact, ...] = _workload(problem_type).beside(artifact)
    return found


def _workload(problem_type: str) -> Any:
    """What makes workloads of a kind of problem: MLA decode's own, or that of any kind which
    `mlagen verify` knows."""
    if problem_type == "MlaDecodeConfig":
        from mlagen.families.mla_decode.workload import DecodeWorkload

        return DecodeWorkload
    from mlagen.tune.verified_workload import VerifiedKind
    from mlagen.verify.kinds import kind_named

    if kind_named(problem_type) is None:
        raise UnsupportedError(
            f"nothing here times a {problem_type} on a GPU",
            hint="its schedule's file registers what `mlagen verify` judges it by",
        )
    return VerifiedKind(problem_type)


def device(target: str) -> dict[str, Any]:
    """The GPU of this process, by what changes its times. MissingError: there is none of the
    target."""
    torch = _torch()
    there = "none"
    if torch.cuda.is_available():
        found = torch.cuda.get_device_properties(0)
        name = f"sm_{found.major}{found.minor}a"
        if torch.version.hip:
            name = found.gcnArchName.partition(":")[0]  # "gfx950:sramecc+:xnack-"
        if name == target:
            return {"name": found.name, "units": found.multi_processor_count}
        there = f"a {name}, {found.name}"
    raise MissingError(
        f"--cost measured for {target} needs its GPU: torch finds {there}",
        hint="--scheduler ADDRESS measures on a worker that has one",
    )


def measure(
    job: Job, artifact: Artifact, stage: Callable[[str], AbstractContextManager[None]]
) -> tuple[dict[str, list[float]], float, bool]:
    """Seconds by "variant" and "reference", the cost, and whether it was clearly slower and not
    timed to the end; `stage` notes how long what took. WrongResultError: a result is wrong; then
    nothing is timed."""
    question = job.question
    with stage("context"):
        _torch().cuda.init()
    workload = _workload(question.problem_type)(question.problem, question.shape, job.beside)
    with stage("verify"):
        workload.check(artifact, job.seed)
    reference = job.reference_artifact
    if reference is None or dict(job.reference) != reference.manifest.knobs:
        reference = build_artifact(
            question.kernel, question.problem, job.reference, target=question.target
        )
    with stage("cost"):
        copies = _copies(workload.bytes)
        calls = {name: workload.calls(one, copies)
                 for name, one in (("variant", artifact), ("reference", reference))}  # fmt: skip
        samples = interleaved(calls, TorchClock(_torch()), keep="reference")
    slow = len(samples["variant"]) <= FEW_ROUNDS
    return samples, ratio(samples["variant"], samples["reference"]), slow


def _copies(bytes_: int) -> int:
    found = _torch().cuda.get_device_properties(0)
    free, _ = _torch().cuda.mem_get_info()
    wanted = max(2, -(-_OVER_L2 * found.L2_cache_size // max(bytes_, 1)))
    room = int(free * 0.4 // max(bytes_, 1))
    if room < 1:
        raise ConfigError(
            f"the tensors of this call have {bytes_ / 2**30:.1f} GiB; the GPU has "
            f"{free / 2**30:.1f} GiB free",
            hint="a smaller shape",
        )
    return min(wanted, room)


def _torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError:
        raise MissingError(
            "--cost measured makes its tensors with torch, which is not installed",
            hint="pip install torch; or --scheduler ADDRESS, on a worker that has it",
        ) from None
    return torch


def parse_shape(problem_type: str, texts: Any) -> Mapping[str, Any]:
    """`NAME=SIZE` texts as the sizes of the problem's call."""
    return parse_sizes(texts, sizes_of(problem_type), _workload(problem_type).LISTS)


def warm_up() -> None:
    """Load what trials on a GPU need, before they are forked. No driver is started: a context does
    not outlive a fork."""
    _torch()
    for name in (
        "mlagen.launch",
        "mlagen.codegen",
        "mlagen.families.mla_decode.workload",
        "mlagen.tune.verified_workload",
    ):
        importlib.import_module(name)
