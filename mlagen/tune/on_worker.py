"""What runs in the process of a Dask worker.

Each has a process that forks its trials, as on one machine: a bad variant costs its own process,
never the worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mlagen.tune.sandbox import Sandbox
from mlagen.tune.values import TrialJob, TrialOutcome
from mlagen.tune.workers import judged

_sandboxes: dict[Any, Sandbox] = {}  # of this process


def on_worker(
    stage: Callable[..., Any],
    job: TrialJob,
    before: Any,
    artifacts: tuple[Any, ...] | None,
    limit: float,
    warm: Callable[[], Any] | None,
    code: str,
) -> Any:
    """A stage of a trial on a worker; `before`: what the one before it returned; `artifacts`: what
    the job of a last stage is without. Nothing is run where the worker has other code than who
    asks."""
    if isinstance(before, TrialOutcome):
        return before
    from distributed import get_worker

    from mlagen.tune.versions import code_of

    name = str(get_worker().address)
    if artifacts is not None:
        reference, *beside = artifacts
        job = msgspec.structs.replace(job, reference_artifact=reference, beside=tuple(beside))
    if code != (here := code_of(job.question.kernel)):
        return TrialOutcome("lost", message=f"worker {name} has other code: {here}, not {code}")
    sandbox = _sandboxes.setdefault(warm, Sandbox(warm))
    given = (job,) if before is None else (job, before)
    found = judged(sandbox, stage, *given, limit=limit)
    if isinstance(found, TrialOutcome):
        return msgspec.structs.replace(found, worker=name)
    return found


def itself(*values: Any) -> tuple[Any, ...]:
    """A tuple of values, that the worker which made it keeps for others."""
    return values


def asked(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    limit: float,
    warm: Callable[[], Any] | None,
) -> Any:
    """`function(*arguments)` in a process of the worker's."""
    sandbox = _sandboxes.setdefault(warm, Sandbox(warm))  # what it loads, trials need as well
    return sandbox.call(function, *arguments, limit=limit)
