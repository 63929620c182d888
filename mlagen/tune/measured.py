"""The cost on a GPU: seconds in units of the reference's, timed in the same run.

What a family brings to be timed and checked on a device is a `Workload`; where it brings none,
calls of its kind, as `mlagen verify` makes them, are taken.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from mlagen.app.build import build_artifact, build_with_defaults
from mlagen.artifact import Artifact
from mlagen.bench.torch_clock import TorchClock
from mlagen.errors import ConfigError, MissingError, required
from mlagen.family import Workloads, family_named, family_of
from mlagen.tune.interleave import FEW_ROUNDS, interleaved, ratio
from mlagen.tune.values import TrialJob

_OVER_L2 = 3  # times the L2 cache that copies of a call's buffers take together


def workloads_of(artifact: Artifact) -> Workloads:
    """What makes calls of the artifact's problem. UnsupportedError: nothing does."""
    from mlagen.tune.verified_workload import VerifiedWorkloads

    family, problem_type = family_of(artifact), artifact.manifest.problem_type
    made = family.workloads(problem_type, build_with_defaults)
    return made or VerifiedWorkloads(family.kind(problem_type))


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
    job: TrialJob, artifact: Artifact, stage: Callable[[str], AbstractContextManager[None]]
) -> tuple[dict[str, list[float]], float, bool]:
    """Seconds by "variant" and "reference", the cost, and whether it was clearly slower and not
    timed to the end; `stage` notes how long what took. WrongResultError: a result is wrong; then
    nothing is timed."""
    question = job.question
    with stage("context"):
        _torch().cuda.init()
    made = workloads_of(artifact)
    workload = made.workload(question.problem, question.shape, job.beside)
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
    why = "--cost measured makes its tensors with torch, which is not installed"
    hint = "pip install torch; or --scheduler ADDRESS, on a worker that has it"
    return required("torch", why, hint)


def warm_up(kernel: str) -> None:
    """Load what trials of a kernel on a GPU need, before they are forked. A user's file is left to
    the trial. No driver is started: a context does not outlive a fork."""
    _torch()
    for name in ("mlagen.launch", "mlagen.codegen", "mlagen.tune.verified_workload"):
        importlib.import_module(name)
    if not kernel.endswith(".py"):
        from mlagen.codegen.schedules import load

        problem_type: Any = load(kernel).problem_type
        family = family_named(problem_type.family)
        assert family is not None  # a shipped kernel's
        family.workloads(problem_type.__name__, build_with_defaults)
