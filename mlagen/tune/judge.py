"""One variant: built, estimated, verified, then given a cost. Runs in a trial's process."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from mlagen.app.build import build_artifact, knobs_among, written_schedule
from mlagen.app.texts import parse_sizes
from mlagen.artifact import Artifact
from mlagen.codegen.target import schedule_of
from mlagen.errors import (
    CapacityError,
    ConfigError,
    FindingsError,
    MlagenError,
    ProofError,
    ScheduleError,
    WrongResultError,
)
from mlagen.launch.launcher import say_if_ordered
from mlagen.targets.registry import MODELLED
from mlagen.tune.space import SearchSpace, interface, space_of
from mlagen.tune.values import Cost, Question, TrialJob, TrialOutcome, Verdict
from mlagen.tune.versions import versions


class Described(msgspec.Struct, frozen=True):
    """What the tuner must know before the first trial."""

    question: Question
    space: SearchSpace
    default: dict[str, Any]  # of the schedule, whatever the limits
    interface: tuple[Any, ...]
    versions: dict[str, str]
    # Where a device times it: the space's default, and other kernels that a call launches.
    reference: Artifact | None = None
    beside: tuple[Artifact, ...] = ()


def describe(
    kernel: str,
    target: str | None,
    fields: Mapping[str, Any],
    shapes: Sequence[str],
    limits: Mapping[str, str],
    cost: Cost | None,
) -> Described:
    """Everything that the schedule is asked, once. Raises what it, its problem or the shape
    refuses: after this, what fails is a variant."""
    from mlagen.codegen.manifest import plain_fields

    written = written_schedule(kernel, fields, {}, target=target)
    schedule, problem = written.function, written.schedule.problem
    given = knobs_among(written, fields)
    limits = {**{name: str(value) for name, value in given.items()}, **limits}
    cost = cost or ("predicted" if schedule.target in MODELLED else "measured")
    require_cost(cost, schedule.target)
    space = space_of(schedule, problem, limits)
    fields = plain_fields(problem)
    artifact = build_artifact(kernel, fields, space.default, target=schedule.target)
    say_if_ordered(artifact.manifest)  # then verifying alone judges the variants
    shape, device = _call(artifact, shapes, cost)
    question = Question(kernel, schedule.name, schedule.target, type(problem).__name__,
                        fields, shape, cost, device)  # fmt: skip
    made = schedule_of(schedule, problem, space.default)
    whole = {x.name: x.default for x in made.declared.values() if not x.setting}
    usual = interface(schedule_of(schedule, problem, {}).signature)
    if interface(made.signature) != usual:
        named = ", ".join(f"{name}={space.default[name]}" for name in sorted(limits))
        question = msgspec.structs.replace(question, call=f"called as with {named}")
    described = Described(question, space, whole, interface(made.signature),
                          versions(kernel, artifact.manifest.tools))  # fmt: skip
    if cost == "predicted":
        return described
    from mlagen.tune import measured

    return msgspec.structs.replace(
        described, reference=artifact, beside=measured.workloads_of(artifact).beside(artifact)
    )


def require_cost(cost: Cost, target: str) -> None:
    if cost == "predicted" and target not in MODELLED:
        raise ConfigError(
            f"no model predicts {target}; it knows {', '.join(MODELLED)}",
            hint="--cost measured, on a machine with the GPU",
        )


def _call(
    artifact: Artifact, shapes: Sequence[str], cost: Cost
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The sizes of the call and the device that gives its cost; a GPU is asked later, where one
    is."""
    if cost == "measured":
        from mlagen.tune import measured

        made = measured.workloads_of(artifact)
        shape = parse_sizes(shapes, made.sizes, made.lists)
        made.workload(artifact.manifest.problem, shape)  # that there is such a call
        return shape, {}
    from mlagen.app.cycle_jobs import sizes_of
    from mlagen.tune import predicted

    shape = sizes_of(artifact, shapes)
    predicted.check_shape(artifact, shape)
    return shape, predicted.device()


@dataclass
class _Progress:
    """What is known of a trial when it ends, at whatever stage."""

    seconds: dict[str, float] = field(default_factory=dict)
    known: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(time.perf_counter() - started, 4)

    def ended(self, verdict: Verdict, message: str = "", **more: Any) -> TrialOutcome:
        return TrialOutcome(
            verdict, message=message, seconds=self.seconds, **{**self.known, **more}
        )


@dataclass
class PreparedTrial:
    """A variant that was built, on its way to a device."""

    artifact: Artifact
    progress: _Progress


def _blamed(progress: _Progress, work: Callable[[], Any]) -> Any:
    """What `work` returns, or the outcome that an error of the variant's means."""
    try:
        return work()
    except MlagenError as error:
        return progress.ended(_verdict(error), error.message.partition("\n")[0])
    except MemoryError:
        raise  # of this machine, not of the variant
    except Exception as error:
        return progress.ended("error", f"{type(error).__name__}: {error}")


def judge(job: TrialJob) -> TrialOutcome:
    """The outcome of a variant. Raises nothing that the variant is to blame for."""
    return finish(job, prepare(job))


def prepare(job: TrialJob) -> TrialOutcome | PreparedTrial:
    """What needs no device: the build, with its proof. An outcome where that ends the trial."""
    question, progress = job.question, _Progress()
    progress.known = {
        "versions": versions(question.kernel),
        "worker": platform.node(),
        "device": question.device,
    }

    def work() -> TrialOutcome | PreparedTrial:
        with progress.stage("build"):
            artifact = build_artifact(
                question.kernel, question.problem, job.knobs, target=question.target
            )
        text = artifact.manifest.text_sha256
        told = versions(question.kernel, artifact.manifest.tools)
        progress.known |= {"artifact": artifact.key, "text": text, "versions": told}
        if _interface(artifact) != job.interface:
            return progress.ended("refused", "it is called with other arguments than the reference")
        if text in job.known:
            return progress.ended("passed", same_as=job.known[text])  # the tuner has its verdict
        return PreparedTrial(artifact, progress)

    found: TrialOutcome | PreparedTrial = _blamed(progress, work)
    return found


def finish(job: TrialJob, prepared: TrialOutcome | PreparedTrial) -> TrialOutcome:
    """The rest: is it right, and what does it cost."""
    if isinstance(prepared, TrialOutcome):
        return prepared
    rest = _predicted if job.question.cost == "predicted" else _measured
    outcome: TrialOutcome = _blamed(prepared.progress, lambda: rest(job, prepared))
    return outcome


def _predicted(job: TrialJob, prepared: PreparedTrial) -> TrialOutcome:
    from mlagen.tune import predicted

    artifact, progress, shape = prepared.artifact, prepared.progress, job.question.shape
    with progress.stage("estimate"):
        recorded = predicted.record(artifact, shape)
        estimate = predicted.estimate(recorded)
    progress.known["estimate"] = estimate
    if job.hurdle is not None and estimate > job.hurdle:
        what = f"{estimate:.0f} cycles at the table's constants, far from the best"
        return progress.ended("slow", what)
    with progress.stage("verify"):
        reports = predicted.verified(artifact, shape, seed=job.seed, modes=job.modes)
    for report in reports:
        if error := report.error():
            raise error
    with progress.stage("cost"):
        samples = predicted.by_corner(recorded)
    cost = max(cycles for (cycles,) in samples.values())
    return progress.ended("passed", cost=cost, samples=samples)


def _measured(job: TrialJob, prepared: PreparedTrial) -> TrialOutcome:
    from mlagen.tune import measured

    samples, cost, slow = measured.measure(job, prepared.artifact, prepared.progress.stage)
    if job.knobs == job.reference:
        cost = 1.0  # the unit: what its samples say beside that is noise
    if slow:
        return prepared.progress.ended("slow", f"{cost:.2f} of the reference's time, not timed on",
                                       samples=samples)  # fmt: skip
    return prepared.progress.ended("passed", cost=cost, samples=samples)


def _interface(artifact: Artifact) -> tuple[Any, ...]:
    manifest = artifact.manifest
    arguments = tuple((a.name, a.offset, a.kind, a.access) for a in manifest.args)
    return arguments, tuple(dim.size for dim in manifest.grid)


def _verdict(error: MlagenError) -> Verdict:
    match error:
        case WrongResultError():
            return "wrong"
        case FindingsError():
            return "findings"
        case ProofError():
            return "unproved"
        case CapacityError() | ConfigError() | ScheduleError():
            return "refused"
    return "error"


def warm_up() -> None:
    """Load and compile what trials in the emulator need, before they are forked."""
    from mlagen.codegen import build
    from mlagen.codegen.schedules import available, load
    from mlagen.problem.fields import example_of
    from mlagen.tune import predicted
    from mlagen.verify import kind_of

    usual = next(info for info in available() if info.target in MODELLED)
    artifact = build(load(usual.name, usual.target), example_of(usual.problem_type))
    shape = kind_of(artifact).uneven
    predicted.verified(artifact, shape, seed=0, modes=("latest",))
    predicted.estimate(predicted.record(artifact, shape))
