"""What is asked, tried and found, as values that go between processes and into the store."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import msgspec

from mlagen.tune.space import Value

Cost = Literal["predicted", "measured"]
# What a record or a file of winners may hold: numbers that sizes and ratios can be made of.
Size = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Plain = Size | float | str | bool | None
Positive = Annotated[float, msgspec.Meta(gt=0)]
Verdict = Literal[
    "passed",  # right, clean, proved: its cost counts
    "refused",  # the problem, a resource or the call's form forbids it
    "unproved",  # an order that it relies on is not established
    "slow",  # a first estimate was hopeless: not verified
    "wrong",  # a result outside the bounds
    "findings",  # the sanitizer found a defect
    "timeout",  # the trial did not end
    "crashed",  # the trial's process died of what it did
    "error",  # anything else that it raised
    "lost",  # its machine went away, or its process was killed from outside: says nothing of it
]


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is tuned: a kernel of a problem at a shape, by a cost on a device.

    `kernel`: as it was given, a name or a file; `name`: the schedule's. `device`: what predicts or
    measures, by name and the properties that change its answers. `call`: how the kernel is called,
    where that is not how the schedule's default is; no launch takes such a winner unasked.
    """

    kernel: str
    name: str
    target: str
    problem_type: str
    problem: dict[str, Plain]
    shape: dict[str, Size | list[Size]]
    cost: Cost
    device: dict[str, Plain]
    call: str = ""

    @property
    def key(self) -> str:
        """The study's: questions of one key share their trials."""
        parts = (self.name, self.target, self.problem_type, sorted(self.problem.items()),
                 sorted(self.shape.items()), self.cost, sorted(self.device.items()),
                 self.call)  # fmt: skip
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]

    @property
    def title(self) -> str:
        """In one line."""
        shape = ", ".join(f"{name}={_text(value)}" for name, value in self.shape.items())
        return f"{self.name}, {shape or 'its own shape'}, {self.cost} on {self.device.get('name')}"


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


class TrialJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One variant to be judged. `known`: texts of kernels that were judged before, by trial.
    `hurdle`: a first estimate above it is hopeless. Where a device times it, `reference_artifact`
    is that of `reference`, and `beside` are other kernels that a call launches."""

    question: Question
    knobs: dict[str, Value]
    reference: dict[str, Value]
    interface: tuple[Any, ...]
    known: dict[str, int] = {}
    hurdle: float | None = None
    seed: int = 0
    modes: tuple[str, ...] = ("latest", "earliest")
    reference_artifact: Any = None
    beside: tuple[Any, ...] = ()


class TrialOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What became of a trial.

    `cost`: what is to be small: cycles at the worst plausible corner, or seconds in units of the
    reference's in the same run. `samples`: cycles by corner, or seconds by "variant" and
    "reference". `same_as`: the trial that had this very kernel. `seconds`: of the judging, by
    stage. `artifact`, `text`: hashes of the artifact and of its text.
    """

    verdict: Verdict
    cost: Positive | None = None
    estimate: float | None = None
    message: str = ""
    artifact: str = ""
    text: str = ""
    same_as: int | None = None
    samples: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    versions: dict[str, str] = {}
    device: dict[str, Plain] = {}
    worker: str = ""
