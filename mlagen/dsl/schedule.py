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
from typing import Any, Literal, Protocol

from mlagen.dsl.entry import Entry, declare_entry
from mlagen.dsl.lds import Lds, Ring
from mlagen.dsl.operation import Operation, Step, Weave, operations_of
from mlagen.dsl.registers import Registers
from mlagen.dsl.roles import Role, Roles
from mlagen.dsl.signature import Signature
from mlagen.dsl.tile import Tile
from mlagen.dsl.wait import Wait
from mlagen.errors import ConfigError, MlagenError, ScheduleError
from mlagen.targets import GFX950, Gfx950

AccessKind = Literal["copy", "read", "release"]
Mover = Callable[[AccessKind, Tile], Operation]
Section = Literal["prologue", "item", "epilogue"]


@dataclass(frozen=True)
class Cluster:
    """Steps that end in one barrier."""

    name: str
    steps: tuple[Step, ...]
    priority: int
    wait: Wait | None
    line: int

    def operations(self) -> tuple[Operation, ...]:
        return operations_of(self.steps)


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
                hint="choices: "
                + ", ".join(str(choice) for choice in choices)
                + (f"; {comment}" if comment else ""),
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
    items: tuple[Operation, ...]  # at the head of every work item; none: not persistent
    loop: tuple[Cluster, ...]
    epilogue: tuple[Operation, ...]
    signature: Signature
    line: int

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All operations, in the order of the text."""
        looped = operations_of(step for cluster in self.loop for step in cluster.steps)
        return (*self.prologue, *self.items, *looped, *self.epilogue)

    @property
    def apart(self) -> bool:
        """Whether each role has code of its own: it is asked for, or some operation is limited."""
        return self.roles.apart or any(operation.roles for operation in self.operations)

    @property
    def persistent(self) -> bool:
        """Whether a workgroup does one work item after another."""
        return bool(self.items)


class Named(Protocol):
    """Anything with the name of a ring or hand-off."""

    @property
    def name(self) -> str: ...


class Builder:
    """Collects the steps of the schedule that is being written."""

    def __init__(self, author: ScheduleFunction) -> None:
        self.author = author  # whose table it is; another's, where it was handed on
        self.roles: Roles | None = None
        self.clusters: list[Cluster] = []
        self.sections: dict[str, list[Operation]] = {"prologue": [], "item": [], "epilogue": []}
        self.steps: list[Step] | None = None
        self.section: str | None = None
        self.movers: dict[str, Mover] = {}
        self.limit: tuple[str, ...] = ()  # names of the roles that `only` names

    @property
    def file(self) -> str:
        """Whose lines operations are told by."""
        return self.author.source

    def enter_loop(self, waves: Any, step: int) -> None:
        """The tile loop begins."""
        if step != 1:
            raise ScheduleError(f"{self.file}:{self.line()}: clusters are written for one tile")
        if self.roles is not waves:
            raise ScheduleError("tiles() takes the roles of this schedule")
        if self.clusters:
            raise ScheduleError(f"{self.file}: a second tile loop in one schedule")

    def enter_section(self, name: Section, role: Any) -> None:
        """Operations before or after the loop begin."""
        if role is not None:
            raise ScheduleError(
                f"{self.file}:{self.line()}: {name}() takes no role here",
                hint=f"`with only(ROLE)` inside it limits operations of the {name} to a role",
            )
        self.section = name

    def leave(self) -> None:
        """A loop or section ends."""
        self.section = None

    def enter_only(self, members: tuple[Any, ...]) -> None:
        """What follows is for these roles alone."""
        where = f"{self.file}:{self.line()}"
        known = self.roles.members if self.roles is not None else ()
        if not members or any(member not in known for member in members):
            raise ScheduleError(
                f"{where}: only() takes roles of this schedule",
                hint='`waves = roles(...)` declares them; waves["NAME"] is one',
            )
        if self.limit:
            raise ScheduleError(f"{where}: only() stands inside another only()")
        if self.steps is None and self.section is None:
            raise ScheduleError(
                f"{where}: only() stands inside a cluster, prologue, item or epilogue",
                hint="all roles pass all clusters; in one, a role may have nothing to do",
            )
        self.limit = tuple(member.name for member in members)

    def leave_only(self) -> None:
        """What follows is for all roles again."""
        self.limit = ()

    def limited(self, operation: Operation) -> Operation:
        """The operation as it is recorded here: for the roles that `only` and its maker name."""
        known = {role.name for role in self.roles.members} if self.roles is not None else set()
        unknown = sorted(set(operation.roles) - known)
        if unknown:
            raise ScheduleError(
                f"{self.file}:{self.line()}: {operation} is for role {unknown[0]!r}, which is none",
                hint="roles: " + (", ".join(sorted(known)) or "none declared before it"),
            )
        if not self.limit:
            return operation
        kept = tuple(name for name in self.limit if operation.belongs(name))
        if not kept:
            raise ScheduleError(
                f"{self.file}:{self.line()}: {operation} is for {', '.join(operation.roles)}, "
                f"not for {', '.join(self.limit)}"
            )
        return replace(operation, roles=kept)

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
                hint="put it inside `with cluster(...)`, `with prologue()`, `with each_item()` or "
                "`with epilogue()`",
            )


_current: list[Builder] = []


def _builder() -> Builder:
    if not _current:
        raise ScheduleError("schedule words are only understood inside a @schedule function")
    return _current[-1]


def record(operation: Operation) -> Operation:
    """Add an operation to the open cluster, with the schedule line that called it."""
    builder = _builder()
    operation = replace(builder.limited(operation), line=builder.line())
    builder.add(operation)
    return operation


def roles(*, stagger: int = 0, apart: bool = False, **groups: range) -> Roles:
    """The workgroup's roles: `roles(lower=range(0, 4), upper=range(4, 8), stagger=1)`. Each group
    runs `stagger` barriers behind the one before it. `apart`: each gets code of its own, also where
    no operation is limited to one (see `only`)."""
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
    builder.roles = Roles(tuple(members), apart)
    return builder.roles


@contextmanager
def only(*members: Role) -> Iterator[None]:
    """Inside a cluster, prologue, item or epilogue: what is called here belongs to these roles
    alone, got by `waves["lower"]`. Each role has code of its own then; the clusters and their
    barriers stay for all."""
    builder = _builder()
    builder.enter_only(members)
    try:
        yield
    finally:
        builder.leave_only()


def tiles(waves: Any, *, step: int = 1) -> Iterator[Tile]:
    """The tile loop of some roles, written once for tile `i`; prologue and drain are derived from
    it. `step`: tiles a pass, where each role has its own loop; `i` is the first of them."""
    builder = _builder()
    builder.enter_loop(waves, step)
    yield Tile(0)
    builder.leave()


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
def _section(name: Section, role: Any) -> Iterator[None]:
    builder = _builder()
    builder.enter_section(name, role)
    try:
        yield
    finally:
        builder.leave()


def prologue(role: Any = None) -> Any:
    """Operations before the tile loop, once a workgroup; of one role where roles differ."""
    return _section("prologue", role)


def each_item(role: Any = None) -> Any:
    """Operations at the head of every work item of a persistent kernel: between the prologue, which
    then runs once, and the tile loop. Loop and epilogue follow for the item, then the next one
    comes.

    gfx950: the prologue sets `items` of `entry(items=True)`, these operations the number of tiles.
    All waves meet before them, and LDS is free again. Pipeline schedules (`role`): see
    `PipelineSpace.persistent`; in one whose blocks have one item they are a part of the
    prologue."""
    return _section("item", role)


def epilogue(role: Any = None) -> Any:
    """Operations after the tile loop, once a workgroup or work item; of one role where roles
    differ."""
    return _section("epilogue", role)


def weave(first: Operation, *rest: Operation, pattern: str = "even", ordered: bool = False) -> None:
    """Interleave the operations just called: the first with the others, which follow each other
    (see `Weave`). `ordered`: they may touch each other's registers; what comes of it is what the
    operations one after another would give."""
    builder = _builder()
    steps, operations = builder.steps, (first, *rest)
    count = len(operations)
    if steps is None or count < 2 or steps[-count:] != [*operations]:
        raise ScheduleError(
            "weave() takes the operations it is given, two or more, called in place"
        )
    for operation in operations:
        if operation.guarded:
            raise ScheduleError(f"{operation} branches around itself and cannot be woven")
    steps[-count:] = [Weave(first, rest, pattern, ordered, builder.line())]


def copy(ring: Named, tile: Tile) -> Operation:
    """Start the DMA of `tile` into its slot of `ring`."""
    return moved(ring, "copy", tile)


def read(ring: Ring, tile: Tile) -> Operation:
    """Read `tile` from its slot of `ring` into the ring's register tile."""
    return moved(ring, "read", tile)


def bind(ring: Named, mover: Mover) -> None:
    """Say how `copy` and `read` of a ring are spelled (their templates and operands)."""
    _builder().movers[ring.name] = mover


def moved(ring: Named, kind: AccessKind, tile: Tile) -> Operation:
    """Record what moves `tile` of a bound ring or hand-off."""
    mover = _builder().movers.get(ring.name)
    if mover is None:
        raise ScheduleError(f"ring {ring.name!r} is not bound to a global operand")
    return record(mover(kind, tile))


@dataclass(frozen=True)
class ScheduleFunction:
    """A schedule that can be built: `fn(problem, space)` with its target and problem type."""

    name: str
    target: str
    problem_type: type
    function: Callable[..., None]
    path: Path
    doc: str
    templates: Path | None = None  # folder of templates that go before the shipped ones

    def build(self, problem: Any, knobs: Mapping[str, Any]) -> Any:
        """Run the function for one problem and one choice of knobs: the schedule as a value."""
        return MAKERS[self.target](self, problem, knobs)

    def __call__(self, problem: Any, space: Any) -> None:
        """Inside another schedule function: hand its problem on to this schedule, to its table and
        its knobs. The lines and the file of what is made are then this one's; the name stays.

        ScheduleError: not inside a schedule function, another target, or templates of its own."""
        builder = _builder()
        first = builder.author
        if self.target != first.target:
            raise ScheduleError(
                f"{first.name} is for {first.target} and hands its problem on to {self.name}, "
                f"which is for {self.target}"
            )
        if self.templates not in (None, first.templates):
            raise ScheduleError(
                f"{first.name} hands its problem on to {self.name}, which has templates of its "
                f"own: {self.templates}",
                hint=f"give {first.name} that folder",
            )
        builder.author = self
        self.function(problem, space)

    @property
    def source(self) -> str:
        """The file that the function's lines belong to."""
        return self.function.__code__.co_filename

    @property
    def line(self) -> int:
        return self.function.__code__.co_firstlineno

    @contextmanager
    def own_code(self) -> Iterator[None]:
        """Where code of the schedule's folder runs: what a user's file raises there is told by its
        line, without a traceback. What a shipped one raises is a defect of ours, and stays."""
        try:
            yield
        except MlagenError:
            raise
        except Exception as error:
            folder, place, trace = str(self.path.parent), "", error.__traceback__
            while trace is not None:
                name = trace.tb_frame.f_code.co_filename
                if name.startswith(folder):
                    place = f"{name}:{trace.tb_lineno}"
                trace = trace.tb_next
            if not place or self.function.__module__.startswith("mlagen."):
                raise
            raise ScheduleError(f"{place}: {type(error).__name__}: {error}") from error

    def run(self, builder: Builder, space: Any, problem: Any) -> None:
        """Call the function with `builder` listening. ConfigError for a knob it did not declare."""
        _current.append(builder)
        try:
            with self.own_code():
                self.function(problem, space)
        finally:
            _current.pop()
        unknown = sorted(set(space.knobs.chosen) - set(space.knobs.declared))
        if unknown:
            raise ConfigError(
                f"{self.name} has no knob {unknown[0]!r}",
                hint="knobs: " + (", ".join(sorted(space.knobs.declared)) or "none"),
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

    def entry(
        self, x: str, y: str = "one", z: str = "one", *, temporaries: int = 4, items: bool = False
    ) -> Entry:
        """Declare the registers that a kernel starts with, before all others. `x`, `y`, `z`: what
        the workgroup ids count. `items`: of a persistent kernel too (see `each_item`)."""
        return declare_entry(self.registers, (x, y, z), temporaries, items=items)


def _clustered(function: ScheduleFunction, problem: Any, knobs: Mapping[str, Any]) -> Schedule:
    """A schedule whose roles share one stream of clusters."""
    target = GFX950
    builder, chosen = Builder(function), Knobs(dict(knobs))
    space = Space(
        chosen,
        Lds(target.lds_bytes, target.lds_offset_bits),
        Registers(target.vgpr_budget(1), target.sgprs_per_wave),
    )
    function.run(builder, space, problem)
    if builder.roles is None or not builder.clusters or space.signature is None:
        raise ScheduleError(
            f"{function.name}: a schedule needs roles(), a tile loop and a kernel signature"
        )
    if ("ITEMS" in space.registers.scalars) != bool(builder.sections["item"]):
        raise ScheduleError(
            f"{function.name}: a persistent kernel declares entry(items=True) and says in "
            "`with each_item()` what begins a work item; here is one without the other"
        )
    # Only the roles say how many waves share a SIMD's registers.
    space.registers.limit(target.vgpr_budget(builder.roles.waves))
    return Schedule(
        name=function.name,
        file=display_path(builder.author.path),
        doc=function.doc,
        target=target,
        problem=problem,
        knobs=dict(chosen.values),
        declared=dict(chosen.declared),
        roles=builder.roles,
        lds=space.lds,
        registers=space.registers,
        prologue=tuple(builder.sections["prologue"]),
        items=tuple(builder.sections["item"]),
        loop=tuple(builder.clusters),
        epilogue=tuple(builder.sections["epilogue"]),
        signature=space.signature,
        line=builder.author.line,
    )


# How a target's schedule functions become values: (function, problem, knobs).
Maker = Callable[["ScheduleFunction", Any, Mapping[str, Any]], Any]
MAKERS: dict[str, Maker] = {"gfx950": _clustered}


def schedule(
    *, problem: type, target: str, templates: str | None = None
) -> Callable[[Callable[..., None]], ScheduleFunction]:
    """Mark a function as a schedule of `problem` for `target`. `templates`: a folder of its own
    templates, relative to the schedule's file; they go before the shipped ones."""
    if target not in MAKERS:
        raise ScheduleError(
            f"target {target!r} is not known", hint="targets: " + ", ".join(sorted(MAKERS))
        )

    def decorate(function: Callable[..., None]) -> ScheduleFunction:
        path = Path(function.__code__.co_filename)
        doc = inspect.getdoc(function) or inspect.getdoc(sys.modules[function.__module__]) or ""
        folder = path.parent / templates if templates is not None else None
        return ScheduleFunction(function.__name__, target, problem, function, path, doc, folder)

    return decorate


def display_path(path: Path) -> str:
    """A schedule's path as messages and listings show it: the last folder and the file."""
    return f"{path.parent.name}/{path.name}"
