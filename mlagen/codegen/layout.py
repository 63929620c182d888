"""From expansion to code for any run-time N: which cluster instances share one piece of code.

Small N are printed straight. From `first_looped` on there are a prologue, the loop unrolled over
the slot period, and one drain for each phase the loop can be left in:

    setup -> N = 0 | N = 1 | ... | prologue -> loop (phase by phase) -> drain (phase) -> epilogue
"""

from __future__ import annotations

from dataclasses import replace

from mlagen.codegen.expand import Bounds, Instance, bounds, expand
from mlagen.codegen.gfx950.isa import Parser
from mlagen.codegen.program import Instruction, Layout, Origin, Piece, Segment, Step
from mlagen.codegen.render import EXIT, Lowering
from mlagen.codegen.weave import weave
from mlagen.dsl import Binding, Operation, Schedule, Weave
from mlagen.errors import ScheduleError

CONTROL = ("N", "LEFT", "WAVE")  # scalar registers that the control flow reads


class LayoutBuilder:
    """Builds the pieces and segments of one schedule."""

    def __init__(self, schedule: Schedule, lowering: Lowering, prefix: str) -> None:
        missing = [name for name in CONTROL if name not in schedule.registers.scalars]
        if missing:
            raise ScheduleError(
                f"{schedule.file}: control flow needs the scalar register {missing[0]!r}",
                hint="entry(...) of the schedule's space declares it",
            )
        self.schedule, self.lowering, self.prefix = schedule, lowering, prefix
        self.parser: Parser = lowering.parser
        self.edge: Bounds = bounds(schedule)
        self.labels = 0

    def build(self) -> Layout:
        edge, looped = self.edge, self.edge.first_looped
        phases = [(edge.low + step) % edge.period for step in range(edge.period)]
        segments = [self._setup()]
        for n in range(1, looped):
            segments.append(self._straight(n))
        segments.append(self._prologue())
        segments += [self._loop(phase, phases) for phase in phases]
        segments += [self._drain(phase) for phase in phases]
        segments += [self._empty(), self._epilogue()]
        return Layout(segments, edge.period, looped, edge.low, edge.high, self._path)

    # ---- paths -------------------------------------------------------------------------------

    def _path(self, n: int) -> list[Step]:
        steps = [Step("setup", 0)]
        if n == 0:
            steps.append(Step("empty", 0))
        for instance in expand(self.schedule, n):
            steps.append(Step(self._key(instance, n), instance.i))
        return [*steps, Step("epilogue", 0)]

    def _key(self, instance: Instance, n: int) -> str:
        name, i, edge = instance.cluster.name, instance.i, self.edge
        if n < edge.first_looped:
            return f"N={n} {name}({i})"
        if i < edge.low:
            return f"prologue {name}({i})"
        if i < n - edge.high:
            return f"loop{i % edge.period} {name}"
        return f"drain{(n - edge.high) % edge.period} {name}({i - n})"

    # ---- segments ----------------------------------------------------------------------------

    def _setup(self) -> Segment:
        body = [
            instruction
            for operation in self.schedule.prologue
            for instruction in self._lower(operation, Binding(0, False))
        ]
        tail = self._stagger(entering=True)
        tail += self._code("s_cmp_eq_u32 s[N], 0", f"s_cbranch_scc1 {self._name('EMPTY')}")
        for n in range(1, self.edge.first_looped):
            tail += self._code(f"s_cmp_eq_u32 s[N], {n}", f"s_cbranch_scc1 {self._name(f'N{n}')}")
        tail += self._code(f"s_branch {self._name('PROLOGUE')}")
        if any(operation.leaves for operation in self.schedule.prologue):
            tail += self._code(f"{self._name(EXIT)}:", "s_endpgm")
        return Segment(self._name("SETUP"), "setup", [Piece("setup", "setup", None, body, False)],
                       tail=tail)  # fmt: skip

    def _straight(self, n: int) -> Segment:
        section = f"N = {n}"
        pieces = self._pieces(expand(self.schedule, n), n, section)
        return Segment(self._name(f"N{n}"), section, pieces,
                       tail=self._code(f"s_branch {self._name('EPILOGUE')}"))  # fmt: skip

    def _prologue(self) -> Segment:
        n = self._large()
        instances = [x for x in expand(self.schedule, n) if x.i < self.edge.low]
        head = self._code(f"s_sub_u32 s[LEFT], s[N], {self.edge.first_looped}")
        return Segment(self._name("PROLOGUE"), "prologue",
                       self._pieces(instances, n, "prologue"), head=head)  # fmt: skip

    def _loop(self, phase: int, phases: list[int]) -> Segment:
        n = self._large()
        i = next(i for i in range(self.edge.low, n) if i % self.edge.period == phase)
        instances = [x for x in expand(self.schedule, n) if x.i == i]
        head = self._code("s_cmp_eq_u32 s[LEFT], 0",
                          f"s_cbranch_scc1 {self._name(f'DRAIN{phase}')}")  # fmt: skip
        tail = self._code("s_sub_u32 s[LEFT], s[LEFT], 1")
        if phase == phases[-1]:
            tail += self._code(f"s_branch {self._name(f'LOOP{phases[0]}')}")
        section = f"loop, i % {self.edge.period} = {phase}" if self.edge.period > 1 else "loop"
        return Segment(self._name(f"LOOP{phase}"), section,
                       self._pieces(instances, n, section), head, tail)  # fmt: skip

    def _drain(self, phase: int) -> Segment:
        n = self._large()
        while (n - self.edge.high) % self.edge.period != phase:
            n += 1
        instances = [x for x in expand(self.schedule, n) if x.i >= n - self.edge.high]
        section = f"drain, (N - {self.edge.high}) % {self.edge.period} = {phase}"
        return Segment(self._name(f"DRAIN{phase}"), section, self._pieces(instances, n, section),
                       tail=self._code(f"s_branch {self._name('EPILOGUE')}"))  # fmt: skip

    def _empty(self) -> Segment:
        body = self._once("empty")
        return Segment(self._name("EMPTY"), "N = 0", [Piece("empty", "N = 0", None, body, False)])

    def _epilogue(self) -> Segment:
        body = self._once("every")
        tail = self._stagger(entering=False) + self._code("s_endpgm")
        return Segment(self._name("EPILOGUE"), "epilogue",
                       [Piece("epilogue", "epilogue", None, body, False)], tail=tail)  # fmt: skip

    # ---- pieces ------------------------------------------------------------------------------

    def _large(self) -> int:
        """A tile count whose loop passes every phase at least once."""
        return self.edge.first_looped + 2 * self.edge.period

    def _once(self, domain: str) -> list[Instruction]:
        return [
            instruction
            for operation in self.schedule.epilogue
            if operation.domain == domain
            for instruction in self._lower(operation, Binding(0, False))
        ]

    def _pieces(self, instances: list[Instance], n: int, section: str) -> list[Piece]:
        final = expand(self.schedule, n)[-1]
        looped = n >= self.edge.first_looped
        pieces = []
        for x in instances:
            if looped and section.startswith("loop"):
                iteration = "i"
            elif looped and section.startswith("drain"):
                iteration = f"i = N{x.i - n:+d}" if x.i != n else "i = N"
            else:
                iteration = f"i = {x.i}"
            body: list[Instruction] = []
            for step in x.steps:
                if isinstance(step, Weave):
                    body += weave(
                        self._at(step.first, x.i),
                        self._at(step.second, x.i),
                        step.pattern,
                        f"{self.schedule.file}:{step.line}",
                    )
                else:
                    body += self._at(step, x.i)
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

    def _at(self, operation: Operation, i: int) -> list[Instruction]:
        tile = i + (operation.tile.offset if operation.tile else 0)
        return self._lower(operation, Binding(tile % self.edge.period, tile == 0))

    def _lower(self, operation: Operation, binding: Binding) -> list[Instruction]:
        body = self.lowering.lower(operation, binding)
        if operation.leaves:
            # All waves leave before the first barrier, or none: a later one would wait for ever.
            if operation not in self.schedule.prologue:
                raise ScheduleError(
                    f"{self.schedule.file}:{operation.line} {operation} may end the workgroup",
                    hint="that stands in the prologue, ahead of every barrier",
                )
            place = self._name(EXIT)
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

    # ---- control flow ------------------------------------------------------------------------

    def _name(self, label: str) -> str:
        return f".L{self.prefix}_{label}"

    def _code(self, *lines: str) -> list[Instruction]:
        origin = Origin("control flow", "", 0, self.schedule.line)
        parsed = [self.parser.line(line, origin) for line in lines]
        return [instruction for instruction in parsed if instruction is not None]

    def _stagger(self, *, entering: bool) -> list[Instruction]:
        """Bare barriers that set later roles behind on entry, and even the totals at the end."""
        code: list[Instruction] = []
        members = self.schedule.roles.members
        for level in range(self.schedule.roles.stagger):
            behind = next(role for role in members if role.stagger > level)
            label = self._name(f"{'BEHIND' if entering else 'EVEN'}{level}")
            branch = "s_cbranch_scc1" if entering else "s_cbranch_scc0"
            code += self._code(
                f"s_cmp_lt_u32 s[WAVE], {behind.waves.start}",
                f"{branch} {label}",
                "s_barrier",
                f"{label}:",
            )
        return code
