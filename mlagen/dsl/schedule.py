"""Schedules: the `@schedule` decorator, clusters, roles, the tile loop and knobs.

A schedule function runs once. It calls operations inside `cluster(...)` blocks; what it calls is
recorded, with the line it was called on.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from mlagen.dsl.lds import Lds, Ring
from mlagen.dsl.operation import Operation, Step, Weave
from mlagen.dsl.registers import Registers
from mlagen.dsl.signature import Signature
from mlagen.dsl.tile import Tile
from mlagen.dsl.wait import Wait
from mlagen.errors import ConfigError, ScheduleError
from mlagen.targets import GFX950, Gfx950

Mover = Callable[[Literal["copy", "read"], Tile], Operation]

TARGETS: Mapping[str, Gfx950] = {"gfx950": GFX950}


@dataclass(frozen=True, slots=True)
class Role:
    """Waves that run the same stream, `stagger` barriers behind the foremost role."""

    name: str
    waves: range
    stagger: int


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of a workgroup, in wave order."""

    members: tuple[Role, ...]

    @property
    def names(self) -> str:
        return "+".join(role.name for role in self.members)

    @property
    def waves(self) -> int:
        return sum(len(role.waves) for role in self.members)

    @property
    def stagger(self) -> int:
        """Barriers between the foremost and the last role."""
        return max(role.stagger for role in self.members)


@dataclass(frozen=True)
class Cluster:
    """Steps that end in one barrier."""

    name: str
    steps: tuple[Step, ...]
    priority: int
    wait: Wait | None
    line: int

    def operations(self) -> tuple[Operation, ...]:
        found: list[Operation] = []
        for step in self.steps:
            found.extend((step.first, step.second) if isinstance(step, Weave) else (step,))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Knob:
    """A tunable choice of a schedule; the tuner's space is the product of all of them."""

    name: str
    choices: tuple[Any, ...]
    default: Any
    comment: str


@dataclass
class Knobs:
    """Hands out knob values while a schedule is written, and remembers what it declared."""

    chosen: Mapping[str, Any]
    declared: dict[str, Knob] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def choice(self, name: str, *choices: Any, comment: str = "") -> Any:
        """Declare a knob where it is used. The first choice is the default."""
        knob = Knob(name, choices, choices[0], comment)
        if self.declared.setdefault(name, knob) != knob:
            raise ScheduleError(f"knob {name!r} is declared twice with different choices")
        value = self.chosen.get(name, knob.default)
        match = [choice for choice in choices if choice == value or str(choice) == str(value)]
        if not match:
            raise ConfigError(
                f"knob {name}={value!r} is not among its choices",
                hint="choices: " + ", ".join(str(choice) for choice in choices),
            )
        self.values[name] = match[0]
        return match[0]


@dataclass(frozen=True)
class Schedule:
    """What a schedule function said, as a value. Input of the code generator."""

    name: str
    file: str
    doc: str
    target: Gfx950
    problem: Any
    knobs: Mapping[str, Any]
    declared: Mapping[str, Knob]
    roles: Roles
    lds: Lds
    registers: Registers
    prologue: tuple[Operation, ...]
    loop: tuple[Cluster, ...]
    epilogue: tuple[Operation, ...]
    signature: Signature
    line: int


class _Builder:
    """Collects the steps of the schedule that is being written."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.roles: Roles | None = None
        self.clusters: list[Cluster] = []
        self.sections: dict[str, list[Operation]] = {"prologue": [], "epilogue": []}
        self.steps: list[Step] | None = None
        self.section: str | None = None
        self.movers: dict[str, Mover] = {}

    def line(self) -> int:
        """Line of the schedule file that is being executed."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back  # type: ignore[assignment]
        return frame.f_lineno if frame is not None else 0

    def add(self, step: Step) -> None:
        if self.steps is not None:
            self.steps.append(step)
        elif self.section is not None and isinstance(step, Operation):
            self.sections[self.section].append(step)
        else:
            raise ScheduleError(
                f"{self.file}:{self.line()}: {step} stands outside any cluster",
                hint="put it inside `with cluster(...)`, `with prologue()` or `with epilogue()`",
            )


_current: list[_Builder] = []


def _builder() -> _Builder:
    if not _current:
        raise ScheduleError("schedule words are only understood inside a @schedule function")
    return _current[-1]


def record(operation: Operation) -> Operation:
    """Add an operation to the open cluster, with the schedule line that called it."""
    builder = _builder()
    operation = replace(operation, line=builder.line())
    builder.add(operation)
    return operation


def roles(*, stagger: int = 0, **groups: range) -> Roles:
    """The workgroup's roles: `roles(lower=range(0, 4), upper=range(4, 8), stagger=1)`. Each group
    runs `stagger` barriers behind the one before it."""
    builder = _builder()
    expected = 0
    members = []
    for index, (name, waves) in enumerate(groups.items()):
        if waves.start != expected or waves.step != 1 or len(waves) == 0:
            raise ScheduleError(f"role {name!r}: waves {waves} do not continue at {expected}")
        expected = waves.stop
        members.append(Role(name, waves, index * stagger))
    if not members or stagger < 0:
        raise ScheduleError("roles() needs at least one group of waves and a stagger >= 0")
    builder.roles = Roles(tuple(members))
    return builder.roles


def tiles(waves: Roles) -> Iterator[Tile]:
    """The tile loop, written once for tile `i`; prologue and drain are derived from it."""
    builder = _builder()
    if builder.roles is not waves:
        raise ScheduleError("tiles() takes the roles of this schedule")
    if builder.clusters:
        raise ScheduleError(f"{builder.file}: a second tile loop in one schedule")
    yield Tile(0)


@contextmanager
def cluster(name: str, *, priority: int = 0, wait: Wait | None = None) -> Iterator[None]:
    """Steps that end in a barrier. `priority`: s_setprio 0..3 while it runs. `wait`: a wait placed
    by hand before the barrier, instead of the derived one."""
    builder = _builder()
    if builder.steps is not None:
        raise ScheduleError(f"cluster {name!r} stands inside another cluster")
    if not 0 <= priority <= 3:
        raise ScheduleError(f"cluster {name!r}: priority {priority} is outside 0..3")
    line, builder.steps = builder.line(), []
    try:
        yield
        builder.clusters.append(Cluster(name, tuple(builder.steps), priority, wait, line))
    finally:
        builder.steps = None


@contextmanager
def _section(name: str) -> Iterator[None]:
    builder = _builder()
    builder.section = name
    try:
        yield
    finally:
        builder.section = None


def prologue() -> Any:
    """Operations before the tile loop, once a workgroup."""
    return _section("prologue")


def epilogue() -> Any:
    """Operations after the tile loop, once a workgroup."""
    return _section("epilogue")


def weave(first: Operation, second: Operation, *, pattern: str = "even") -> None:
    """Interleave the two operations just called (see `Weave`)."""
    builder = _builder()
    steps = builder.steps
    if steps is None or len(steps) < 2 or steps[-2:] != [first, second]:
        raise ScheduleError("weave() takes the two operations it is given, called in place")
    for operation in (first, second):
        if operation.guarded:
            raise ScheduleError(f"{operation} branches around itself and cannot be woven")
    steps[-2:] = [Weave(first, second, pattern, builder.line())]


def copy(ring: Ring, tile: Tile) -> Operation:
    """Start the DMA of `tile` into its slot of `ring`."""
    return record(_mover(ring, "copy", tile))


def read(ring: Ring, tile: Tile) -> Operation:
    """Read `tile` from its slot of `ring` into the ring's register tile."""
    return record(_mover(ring, "read", tile))


def bind(ring: Ring, mover: Mover) -> None:
    """Say how `copy` and `read` of a ring are spelled (their templates and operands)."""
    _builder().movers[ring.name] = mover


def _mover(ring: Ring, kind: Literal["copy", "read"], tile: Tile) -> Operation:
    mover = _builder().movers.get(ring.name)
    if mover is None:
        raise ScheduleError(f"ring {ring.name!r} is not bound to a global operand")
    return mover(kind, tile)


@dataclass(frozen=True)
class ScheduleFunction:
    """A schedule that can be built: `fn(problem, space)` with its target and problem type."""

    name: str
    target: str
    problem_type: type
    function: Callable[..., None]
    path: Path
    doc: str

    def build(self, problem: Any, knobs: Mapping[str, Any], *, file: str | None = None) -> Schedule:
        """Run the function for one problem and one choice of knobs."""
        target = TARGETS[self.target]
        source = self.function.__code__.co_filename
        builder = _Builder(source)
        chosen = Knobs(dict(knobs))
        waves = getattr(problem, "num_warps", 4)
        space = Space(
            chosen,
            Lds(target.lds_bytes, target.lds_offset_bits),
            Registers(target.vgpr_budget(waves), target.sgprs_per_wave),
        )
        _current.append(builder)
        try:
            self.function(problem, space)
        finally:
            _current.pop()
        unknown = sorted(set(knobs) - set(chosen.declared))
        if unknown:
            raise ConfigError(
                f"{self.name} has no knob {unknown[0]!r}",
                hint="knobs: " + (", ".join(sorted(chosen.declared)) or "none"),
            )
        if builder.roles is None or not builder.clusters or space.signature is None:
            raise ScheduleError(
                f"{self.name}: a schedule needs roles(), a tile loop and a kernel signature"
            )
        return Schedule(
            name=self.name,
            file=file or display_path(self.path),
            doc=self.doc,
            target=target,
            problem=problem,
            knobs=dict(chosen.values),
            declared=dict(chosen.declared),
            roles=builder.roles,
            lds=space.lds,
            registers=space.registers,
            prologue=tuple(builder.sections["prologue"]),
            loop=tuple(builder.clusters),
            epilogue=tuple(builder.sections["epilogue"]),
            signature=space.signature,
            line=self.function.__code__.co_firstlineno,
        )


@dataclass
class Space:
    """What a schedule function is handed besides the problem: knobs, LDS and registers."""

    knobs: Knobs
    lds: Lds
    registers: Registers
    signature: Signature | None = None

    def choice(self, name: str, *choices: Any, comment: str = "") -> Any:
        return self.knobs.choice(name, *choices, comment=comment)


def schedule(*, problem: type, target: str) -> Callable[[Callable[..., None]], ScheduleFunction]:
    """Mark a function as a schedule of `problem` for `target`."""
    if target not in TARGETS:
        raise ScheduleError(
            f"target {target!r} is not known", hint="targets: " + ", ".join(sorted(TARGETS))
        )

    def decorate(function: Callable[..., None]) -> ScheduleFunction:
        path = Path(function.__code__.co_filename)
        doc = inspect.getdoc(function) or inspect.getdoc(sys.modules[function.__module__]) or ""
        return ScheduleFunction(function.__name__, target, problem, function, path, doc)

    return decorate


def display_path(path: Path) -> str:
    """A schedule's path as messages and listings show it: the last folder and the file."""
    return f"{path.parent.name}/{path.name}"
