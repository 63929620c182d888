"""The cost without hardware: cycles at the worst plausible corner of the sensitivity grid.

What nobody has measured of the chip is not guessed: a variant is as slow as in the worst of the
machines that explain the published measurements (docs/timing.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.app.cycle_jobs import job_of_artifact
from mlagen.artifact import Artifact, sha256
from mlagen.errors import ConfigError
from mlagen.timing import Job, machine
from mlagen.timing.corners import corners
from mlagen.timing.simulate import time_job
from mlagen.tune.call_bytes import bytes_of
from mlagen.verify import VerifyReport, kind_of, verify

MOST_BYTES = 1 << 30  # of the tensors of a call that is emulated
_SMALLER = "fewer heads, sequences or tokens: the hot loop is the same"
_FEW = 2  # workgroups of a large grid that are verified


def device() -> dict[str, Any]:
    """The model that predicts, with a hash of its constants."""
    told = repr(machine()) + repr([c for c in corners() if c.plausible])
    return {"name": "the gfx950 cycle model", "model": sha256(told)[:12]}


def check_shape(artifact: Artifact, shape: Mapping[str, Any]) -> None:
    """ConfigError for a call that the kernel refuses, or that is too large to be emulated."""
    kind = kind_of(artifact)
    inputs = kind.made(artifact, data="realistic", seed=0, **shape)
    bytes_ = bytes_of(inputs)
    if bytes_ > MOST_BYTES:
        raise ConfigError(
            f"the tensors of this call have {bytes_ >> 10} KiB; trials emulate calls of up to "
            f"{MOST_BYTES >> 10} KiB",
            hint=_SMALLER,
        )


def record(artifact: Artifact, shape: Mapping[str, Any]) -> Job:
    """What some workgroups of the call execute."""
    return job_of_artifact(artifact, shape, groups=(), tiles=None)


def estimate(job: Job) -> float:
    """Cycles of the launch at the table's constants."""
    return time_job(job, machine()).cycles


def by_corner(job: Job) -> dict[str, list[float]]:
    """Cycles of the launch in every plausible corner, by the corner's name."""
    base = machine()
    return {
        corner.name: [time_job(job, corner.machine(base)).cycles]
        for corner in corners()
        if corner.plausible
    }


def verified(
    artifact: Artifact, shape: Mapping[str, Any], *, seed: int, modes: tuple[str, ...]
) -> list[VerifyReport]:
    """Reports of the call that is tuned, of a few workgroups where it has many, and of one of
    sizes that fill no tile."""
    kind = kind_of(artifact)
    sampled = kind.trial(_inputs(kind, artifact, shape, seed)).samples
    few = _FEW if sampled and not kind.has_planned_work(artifact) else None
    checked: list[Any] = list(modes)
    reports = [verify(artifact, seed=seed, modes=checked, sample=few, **shape)]
    if reports[0].right:
        reports.append(verify(artifact, seed=seed + 1, modes=checked, **kind.uneven))
    return reports


def _inputs(kind: Any, artifact: Artifact, shape: Mapping[str, Any], seed: int) -> Any:
    return kind.made(artifact, data="realistic", seed=seed, **shape)
