"""From expansion to code for any run-time N: which cluster instances share one piece of code.

Small N are printed straight. From `first_looped` on there are a prologue, the loop unrolled over
the slot period, and one drain for each phase the loop can be left in:

    setup -> N = 0 | N = 1 | ... | prologue -> loop (phase by phase) -> drain (phase) -> epilogue

A persistent kernel repeats all but the setup, for one work item after another:

    setup -> item (none left: end) -> N = 0 | ... -> epilogue -> item

Where roles differ, all of this stands once a role, after an entry that tells the waves apart.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace

from mlagen.codegen.expand import Bounds, Instance
from mlagen.dsl import Binding, Interleave, Operation
from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.codegen.control import ControlFlow
from mlagen.targets.gfx950.codegen.exchanges import Joints
from mlagen.targets.gfx950.codegen.expand import bounds, expand
from mlagen.targets.gfx950.codegen.interleave import interleave
from mlagen.targets.gfx950.codegen.lowering import EXIT, Lowering
from mlagen.targets.gfx950.codegen.program import (
    Layout,
    PathStep,
    Piece,
    ProgramInstruction,
    RoleStream,
    Segment,
    streams_of,
)
from mlagen.targets.gfx950.dsl import Schedule


def build_layout(
    schedule: Schedule, lowering: Lowering, prefix: str, *, end_between: bool = False
) -> Layout:
    """The pieces and segments of a schedule: one stream, or an entry and one stream a role.
    `end_between`: the epilogue stands between the loop and its drains, where branches reach further
    than over all of them."""
    edge, streams = bounds(schedule), streams_of(schedule)
    builders = [StreamBuilder(schedule, lowering, prefix, stream, edge) for stream in streams]
    for builder in builders:
        builder.end_between = end_between
    segments: list[Segment] = []
    if schedule.apart:
        setups = {x.stream.role: x.control.label("SETUP") for x in builders}
        segments.append(ControlFlow(schedule, lowering.parser, prefix).entry(setups))
    for builder in builders:
        segments += builder.build()
    ways = {builder.stream.role: functools.cache(builder.path) for builder in builders}
    once = {x.stream.role: x.once() for x in builders} if schedule.persistent else {}
    return Layout(
        segments, streams, edge.period, edge.first_looped, edge.low, edge.high, ways, once
    )


class StreamBuilder:
    """Builds the segments of one stream."""

    def __init__(
        self, schedule: Schedule, lowering: Lowering, prefix: str, stream: RoleStream, edge: Bounds
    ) -> None:
        self.prefix = f"{prefix}_{stream.role}" if stream.role else prefix
        self.control = ControlFlow(schedule, lowering.parser, self.prefix)
        self.schedule, self.lowering, self.stream, self.edge = schedule, lowering, stream, edge
        self.labels = 0
        self.end_between = False
        for operation in schedule.prologue if schedule.persistent else ():
            if operation.access is not None:
                raise ScheduleError(
                    f"{schedule.file}:{operation.line} {operation} stands ahead of the work items, "
                    f"but LDS is free again where an item begins",
                    hint="put it inside `with each_item()`, or in a cluster",
                )

    def build(self) -> list[Segment]:
        edge = self.edge
        phases = [(edge.low + step) % edge.period for step in range(edge.period)]
        segments = [self._setup()]
        if self.schedule.persistent:
            segments.append(self._item())
        for n in range(1, edge.first_looped):
            segments.append(self._straight(n))
        segments.append(self._prologue())
        segments += [self._loop(phase, phases) for phase in phases]
        drains = [self._drain(phase) for phase in phases]
        end = [self._empty(), self._epilogue()]
        if self.schedule.persistent:
            end.append(self._segment("END", "end", [], tail=self.control.code("s_endpgm")))
        return segments + (end + drains if self.end_between else drains + end)

    # ---- paths -------------------------------------------------------------------------------

    def path(self, n: int) -> list[PathStep]:
        """The pieces of `n` tiles: of a workgroup, or of one work item."""
        steps = [PathStep(self._own("item"), 0)] if self.schedule.persistent else self.once()
        if n == 0:
            steps.append(PathStep(self._own("empty"), 0))
        for instance in self._expand(n):
            steps.append(PathStep(self._key(instance, n), instance.i))
        return [*steps, PathStep(self._own("epilogue"), 0)]

    def once(self) -> list[PathStep]:
        """What runs ahead of everything."""
        return [PathStep(self._own("setup"), 0)]

    def _expand(self, n: int) -> list[Instance]:
        return expand(self.schedule, n, self.stream.role)

    def _own(self, key: str) -> str:
        return f"{self.stream.role}: {key}" if self.stream.role else key

    def _key(self, instance: Instance, n: int) -> str:
        name, i, edge = instance.cluster.name, instance.i, self.edge
        if n < edge.first_looped:
            return self._own(f"N={n} {name}({i})")
        if i < edge.low:
            return self._own(f"prologue {name}({i})")
        if i < n - edge.high:
            return self._own(f"loop{i % edge.period} {name}")
        return self._own(f"drain{(n - edge.high) % edge.period} {name}({i - n})")

    # ---- segments ----------------------------------------------------------------------------

    def _setup(self) -> Segment:
        code, label, prologue = self.control.code, self.control.label, self.schedule.prologue
        piece = Piece(self._own("setup"), "setup", None, self._once(prologue), False)
        if self.schedule.persistent:
            tail = code("s_mov_b32 s[ITEM], 0") + self._to("ITEM")
            piece.control = tail + self._more()
        else:
            piece.stagger = "enter"
            piece.control = tail = self._choose()
        if any(operation.leaves for operation in prologue):
            tail = [*tail, *code(f"{label(EXIT)}:", "s_endpgm")]
        return self._segment("SETUP", "setup", [piece], tail=tail)

    def _item(self) -> Segment:
        """A barrier of all waves before an item, which no longer needs the former one's LDS."""
        body = self.control.code("s_barrier") + self._once(self.schedule.items)
        piece = Piece(self._own("item"), "item", None, body, False, stagger="enter")
        piece.control = self._choose()
        return self._segment("ITEM", "item", [piece], head=self._more(), tail=piece.control)

    def _more(self) -> list[ProgramInstruction]:
        """The end, where no item is left."""
        return self.control.code("s_cmp_ge_u32 s[ITEM], s[ITEMS]",
                                 f"s_cbranch_scc1 {self.control.label('END')}")  # fmt: skip

    def _choose(self) -> list[ProgramInstruction]:
        """Later roles are delayed; then the code for N."""
        code, label = self.control.code, self.control.label
        chosen = self.control.stagger(self.stream, entering=True)
        chosen += code("s_cmp_eq_u32 s[N], 0", f"s_cbranch_scc1 {label('EMPTY')}")
        for n in range(1, self.edge.first_looped):
            chosen += code(f"s_cmp_eq_u32 s[N], {n}", f"s_cbranch_scc1 {label(f'N{n}')}")
        return chosen + self._to("PROLOGUE")

    def _straight(self, n: int) -> Segment:
        section = f"N = {n}"
        return self._segment(
            f"N{n}", section, self._pieces(self._expand(n), n, section), tail=self._to("EPILOGUE")
        )

    def _prologue(self) -> Segment:
        n = self._large()
        instances = [x for x in self._expand(n) if x.i < self.edge.low]
        steady = self.edge.low + self.edge.high  # tiles that prologue and drain have
        head = self.control.code(f"s_sub_u32 s[LEFT], s[N], {steady}")
        pieces = self._pieces(instances, n, "prologue")
        return self._segment("PROLOGUE", "prologue", pieces, head=head)

    def _loop(self, phase: int, phases: list[int]) -> Segment:
        n, code, label = self._large(), self.control.code, self.control.label
        i = next(i for i in range(self.edge.low, n) if i % self.edge.period == phase)
        instances = [x for x in self._expand(n) if x.i == i]
        head = code("s_cmp_eq_u32 s[LEFT], 0", f"s_cbranch_scc1 {label(f'DRAIN{phase}')}")
        tail = code("s_sub_u32 s[LEFT], s[LEFT], 1")
        if phase == phases[-1]:
            tail += self._to(f"LOOP{phases[0]}")
        section = f"loop, i % {self.edge.period} = {phase}" if self.edge.period > 1 else "loop"
        pieces = self._pieces(instances, n, section)
        return self._segment(f"LOOP{phase}", section, pieces, head=head, tail=tail)

    def _drain(self, phase: int) -> Segment:
        n = self._large()
        while (n - self.edge.high) % self.edge.period != phase:
            n += 1
        instances = [x for x in self._expand(n) if x.i >= n - self.edge.high]
        section = f"drain, (N - {self.edge.high}) % {self.edge.period} = {phase}"
        pieces = self._pieces(instances, n, section)
        return self._segment(f"DRAIN{phase}", section, pieces, tail=self._to("EPILOGUE"))

    def _empty(self) -> Segment:
        body = self._once(op for op in self.schedule.epilogue if op.domain == "empty")
        piece = Piece(self._own("empty"), "N = 0", None, body, False)
        return self._segment("EMPTY", "N = 0", [piece])

    def _epilogue(self) -> Segment:
        body = self._once(op for op in self.schedule.epilogue if op.domain == "every")
        piece = Piece(self._own("epilogue"), "epilogue", None, body, False, stagger="leave")
        tail = self.control.stagger(self.stream, entering=False)
        if self.schedule.persistent:
            tail += self.control.code("s_add_u32 s[ITEM], s[ITEM], 1") + self._to("ITEM")
        else:
            tail += self.control.code("s_endpgm")
        return self._segment("EPILOGUE", "epilogue", [piece], tail=tail)

    def _segment(
        self,
        name: str,
        section: str,
        pieces: list[Piece],
        *,
        head: Iterable[ProgramInstruction] = (),
        tail: Iterable[ProgramInstruction] = (),
    ) -> Segment:
        label = self.control.label(name)
        return Segment(label, section, pieces, [*head], [*tail], self.stream.role)

    def _to(self, name: str) -> list[ProgramInstruction]:
        return self.control.code(f"s_branch {self.control.label(name)}")

    # ---- pieces ------------------------------------------------------------------------------

    def _large(self) -> int:
        """A tile count whose loop passes every phase at least once."""
        return self.edge.first_looped + 2 * self.edge.period

    def _once(self, operations: Iterable[Operation]) -> list[ProgramInstruction]:
        """Code outside the loop."""
        at = Binding(0, False, self.stream.role)
        joints = Joints(self.schedule, self.lowering.exchanges)
        body: list[ProgramInstruction] = []
        for operation in operations:
            if operation.belongs(self.stream.role):
                body += joints.before(operation) + self._lower(operation, at)
        return body

    def _pieces(self, instances: list[Instance], n: int, section: str) -> list[Piece]:
        final = self._expand(n)[-1]
        looped = n >= self.edge.first_looped
        pieces = []
        for x in instances:
            if looped and section.startswith("loop"):
                iteration = "i"
            elif looped and section.startswith("drain"):
                iteration = f"i = N{x.i - n:+d}" if x.i != n else "i = N"
            else:
                iteration = f"i = {x.i}"
            body: list[ProgramInstruction] = []
            joints = Joints(self.schedule, self.lowering.exchanges)
            for step in x.steps:
                if isinstance(step, Interleave):
                    joints.beside(step.operations)
                    body += interleave(
                        self._at(step.first, x.i),
                        [y for operation in step.rest for y in self._at(operation, x.i)],
                        step.pattern,
                        f"{self.schedule.file}:{step.line}",
                        ordered=step.ordered,
                    )
                else:
                    body += joints.before(step) + self._at(step, x.i)
            pieces.append(
                Piece(
                    self._key(x, n),
                    section,
                    x.cluster,
                    body,
                    closed=x != final,
                    phase=x.i % self.edge.period,
                    iteration=iteration,
                )
            )
        return pieces

    def _at(self, operation: Operation, i: int) -> list[ProgramInstruction]:
        tile = i + (operation.tile.offset if operation.tile else 0)
        return self._lower(operation, Binding(tile % self.edge.period, tile == 0, self.stream.role))

    def _lower(self, operation: Operation, binding: Binding) -> list[ProgramInstruction]:
        body = self.lowering.lower(operation, binding)
        if operation.leaves:
            # All waves leave before the first barrier, or none: a later one would wait for ever.
            if operation not in self.schedule.prologue:
                raise ScheduleError(
                    f"{self.schedule.file}:{operation.line} {operation} may end the workgroup",
                    hint="that stands in the prologue, ahead of every barrier",
                )
            if operation.roles and len(operation.roles) < len(self.schedule.roles.members):
                raise ScheduleError(
                    f"{self.schedule.file}:{operation.line} {operation} of role "
                    f"{' and '.join(operation.roles)} alone may end the workgroup",
                    hint="the other waves would wait for it at their next barrier",
                )
            place = self.control.label(EXIT)
            body = [
                replace(x, text=x.text.replace(EXIT, place), target=place) if x.target == EXIT
                else x
                for x in body
            ]  # fmt: skip
        if not operation.guarded:
            return body
        self.labels += 1
        label = f".L{self.prefix}_{operation.name}_{self.labels}"
        return [
            replace(x, text=x.text.replace("SKIP", label), target=label) if x.target else x
            for x in body
        ]
