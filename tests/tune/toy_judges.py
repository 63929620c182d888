"""Judges for the toy space: functions of the knobs, and ways to go wrong."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec

from mlagen.errors import WrongResultError
from mlagen.tune.values import TrialJob, TrialOutcome


def cost_of(knobs: dict) -> float:
    """Least, 10, at a=3, b=y, c=2; 46 at the default."""
    return 10 + 4 * (knobs["a"] - 3) ** 2 + 3 * (knobs["b"] != "y") + knobs["c"] - 2


def honest(job: TrialJob) -> TrialOutcome:
    return passed(job, cost_of(dict(job.knobs)))


def passed(job: TrialJob, cost: float) -> TrialOutcome:
    return TrialOutcome("passed", cost=cost, estimate=cost, text=str(sorted(job.knobs.items())),
                        versions={"code": "now"})  # fmt: skip


def slow_honest(job: TrialJob) -> TrialOutcome:
    time.sleep(0.1)
    return honest(job)


def planted(job: TrialJob) -> TrialOutcome:
    """Faults where a is 1, 2, 4; and a=3 is fast, but wrong."""
    match job.knobs["a"]:
        case 1:
            while True:
                pass
        case 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        case 3:
            return TrialOutcome("wrong", message="planted", text=str(sorted(job.knobs.items())))
        case 4:
            raise ZeroDivisionError("planted")
    return honest(job)


def killed_once(job: TrialJob) -> TrialOutcome:
    """Killed from outside at its first turn, where a is 1, b is x and c is 8."""
    note = Path(os.environ["TOY_NOTES"])
    if job.knobs == {"a": 1, "b": "x", "c": 8} and not note.exists():
        note.write_text("killed\n")
        os.kill(os.getpid(), signal.SIGKILL)
    return honest(job)


def always_killed(job: TrialJob) -> TrialOutcome:
    if job.knobs["a"] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return honest(job)


def out_of_memory(job: TrialJob) -> TrialOutcome:
    if job.knobs["a"] == 1:
        raise MemoryError
    return honest(job)


def second_thoughts(job: TrialJob) -> TrialOutcome:
    """Right at the first look; the second finds a=3 wrong."""
    if job.seed >= 1000 and job.knobs["a"] == 3:
        return TrialOutcome("wrong", message="planted for the second look")
    return honest(job)


def noted(job: TrialJob) -> TrialOutcome:
    """Leaves a line for each judgement in the file that the environment names."""
    with Path(os.environ["TOY_NOTES"]).open("a") as file:
        file.write(f"{sorted(job.knobs.items())}\n")
    time.sleep(0.15)
    return honest(job)


def deaf(seconds: float) -> None:
    """Cannot be ended but by force; leaves a child behind that is as deaf."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        Path(os.environ["TOY_NOTES"]).write_text(str(os.getpid()))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def exits(code: int) -> None:
    print("last words")
    os._exit(code)


def raises() -> None:
    raise WrongResultError("planted", hint="none")


def ten() -> int:
    print("noise that is no reply")
    return 10


def built(job: TrialJob) -> dict:
    """A first stage, that says which process it ran in."""
    time.sleep(0.1)
    return {"knobs": dict(job.knobs), "process": os.getppid()}


def measured_where(job: TrialJob, before: dict) -> TrialOutcome:
    """A second stage; the message is the processes of both."""
    assert before["knobs"] == dict(job.knobs)
    time.sleep(0.1)
    outcome = honest(job)
    return msgspec.structs.replace(outcome, message=f"{before['process']} {os.getppid()}")


def without_artifacts(job: TrialJob) -> dict:
    """A first stage, that is sent none."""
    return {"artifacts": (job.reference_artifact, *job.beside)}


def with_artifacts(job: TrialJob, before: dict) -> TrialOutcome:
    """A second stage, whose message is the artifacts that both had."""
    told = f"{before['artifacts']} {(job.reference_artifact, *job.beside)}"
    return msgspec.structs.replace(honest(job), message=told)
