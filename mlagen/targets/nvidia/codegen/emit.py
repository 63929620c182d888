"""Prints streams as PTX lines: roles, tile loops, waits, and a cursor for every slot in use.

A cursor is a slot number and a phase bit. Operations see tiles 0, 1, 2, ... in order, so each keeps
its own in two registers and advances it after it ran: this needs no arithmetic on the tile number,
and no unrolling. Where a pass goes round the whole ring, the slot is a constant and the phase is
that of the pass: all operations of a role share two registers that change places at its end. Where
a pass of several tiles goes round a part of it, operations for the same tile of a pass share one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from mlagen.artifact import SourceLine
from mlagen.codegen.expand import Instance, expand_loop
from mlagen.codegen.templates import Templates
from mlagen.dsl import Binding, Operation
from mlagen.errors import ScheduleError, TemplateError
from mlagen.targets.nvidia.codegen.names import ALL, another
from mlagen.targets.nvidia.codegen.runs import Loop, common, left_early, offset, parts, straight
from mlagen.targets.nvidia.dsl.pipeline import PipelineSchedule, Stream
from mlagen.targets.nvidia.dsl.smem import Pipeline


@dataclass(frozen=True, slots=True, eq=False)
class Printed:
    """An operation where it is printed. `first`: as that of tile 0; `slot` and `phase`: numbers, or
    the registers that they are in, "" without a pipeline."""

    op: Operation
    first: bool
    slot: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True)
class PtxLine:
    """One line of the body and where it came from. `printed`: the operation that it is a line of;
    None where it is control flow."""

    text: str
    source: SourceLine | None = None
    printed: Printed | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """Slot and phase of one operation. `step`: slots it advances by after it ran, 0 where the
    pass does."""

    slot: str
    phase: str
    depth: int
    phase_at_start: int
    step: int


@dataclass
class Emitter:
    """Prints the streams of one schedule: `loops`. `cursors` and `lines` fill up as it goes."""

    schedule: PipelineSchedule
    templates: Templates
    loops: Sequence[Loop] = ()
    lines: list[PtxLine] = field(default_factory=list)
    cursors: list[Cursor] = field(default_factory=list)
    turns: dict[str, None] = field(default_factory=dict)  # roles whose pass turns whole rings
    # Cursors that a role's passes advance, by the ring's depth, the tile's offset and the phase.
    shared: dict[str, dict[tuple[int, int, int], Cursor]] = field(default_factory=dict)
    # Operations without a line of their own, by the number of lines before them.
    silent: dict[int, list[Printed]] = field(default_factory=dict)

    @property
    def registers(self) -> list[tuple[str, str, str]]:
        """Type, names and purpose of the registers that cursors live in."""
        held = [(".b32", f"{c.slot}, {c.phase}", "slot and phase") for c in self.cursors]
        held += [
            (".b32", f"{c.slot}, {c.phase}", "slot and phase of a tile of a pass")
            for cursors in self.shared.values() for c in cursors.values()
        ]  # fmt: skip
        return held + [
            (".b32", ", ".join(self._turn(role)), "phase of the pass, and the other one")
            for role in self.turns
        ]

    @property
    def out(self) -> str:
        """Where roles end. Of a pair, products and commits of the leader may reach a block until
        its sums are read."""
        return "LEAVE" if self.schedule.smem.pair else "EXIT"

    def stream(self, loop: Loop) -> None:
        """One role's code, from its label to the jump to the end."""
        stream = loop.stream
        cursors = {
            id(op): self._cursor(loop, index, op)
            for index, op in enumerate(loop.cluster.operations())
        }
        self._enter(stream)
        for cursor in cursors.values():
            if cursor is not None and cursor.step:
                self._code(stream, f"mov.u32 {cursor.slot}, 0;",
                           f"mov.u32 {cursor.phase}, {cursor.phase_at_start};")  # fmt: skip
        for operation in loop.prologue:
            self._operation(stream, operation, None, "prologue", Binding(0, False))
        self._tiles(loop, cursors)

    def _tiles(self, loop: Loop, cursors: dict[int, Cursor | None]) -> None:
        """All tiles of an item, and its end."""
        stream, edge = loop.stream, loop.edge
        name = stream.role.name.upper()
        if not loop.operations:
            self._end(loop)
            return
        few = [n for n in range(1, edge.first_looped) if straight(loop, n)]
        # Not one "equals" after the other: ptxas makes a table of those, which costs a load.
        self._code(stream, f"setp.le.u32 %done, %tiles, {int(bool(few))};",
                   f"@%done bra {name}_{'N1' if few else 'END'};")  # fmt: skip
        for n in few[1:]:
            self._code(stream, f"setp.le.u32 %done, %tiles, {n};", f"@%done bra {name}_N{n};")
        # Run lengths that show every section: the loop twice, and a drain for each remainder. What
        # runs of whole passes execute comes first and without a jump: one to code that no cache
        # holds waits a microsecond for DRAM.
        large = [edge.first_looped + 2 * edge.step + more for more in range(edge.step)]
        large.sort(key=lambda n: n % edge.step)
        instances = expand_loop([loop.cluster], edge, large[0])
        self._first_turn(loop, instances[0])
        self._instances(loop, cursors, [x for x in instances if x.i < edge.low], large[0])
        steady = next(x for x in instances if edge.low <= x.i < large[0] - edge.high)
        self._loop(loop, cursors, steady)
        if edge.step > 1:
            self._code(stream, f"rem.u32 %last, %tiles, {edge.step};")
        for n in large[1:]:
            self._code(stream, f"setp.eq.u32 %done, %last, {n % edge.step};",
                       f"@%done bra {name}_DRAIN{n % edge.step};")  # fmt: skip
        self._drain(loop, cursors, large[0])
        if few or large[1:]:  # these have an end of their own, to which they jump
            self._done(loop)
        for n in large[1:]:
            self._code(stream, f"{name}_DRAIN{n % edge.step}:")
            self._drain(loop, cursors, n)
            self._code(stream, f"bra {name}_END;")
        for n in reversed(few):
            self._code(stream, f"{name}_N{n}:")
            if n == 1:
                self._code(stream, "setp.eq.u32 %done, %tiles, 0;", f"@%done bra {name}_END;")
            instances = expand_loop([loop.cluster], edge, n)
            self._first_turn(loop, instances[0])
            self._instances(loop, cursors, instances, n)
            if n > 1:
                self._code(stream, f"bra {name}_END;")
        self._code(stream, f"{name}_END:")
        self._end(loop)

    def _enter(self, stream: Stream) -> None:
        """The label of a role, and the registers that it takes or gives up."""
        role = stream.role
        self._heading(f"role {role.name}: warps {role.warps.start}..{role.warps.stop - 1}")
        self._code(stream, f"{role.name.upper()}:")
        entry = {"role": role, "share": self.schedule.share, "out": self.out}
        self._render(stream, "pipeline/enter.ptx.j2", entry, "")

    def _loop(self, loop: Loop, cursors: Mapping[int, Cursor | None], steady: Instance) -> None:
        """The loop, which runs leave before the first pass that lacks tiles, or in the middle of
        it, when its own tiles are done."""
        stream, edge, name = loop.stream, loop.edge, loop.stream.role.name.upper()
        self._heading(f"{stream.role.name}, loop")
        self._code(stream, f"mov.u32 %i, {edge.low};", f"{name}_LOOP:")
        held = common(loop) if left_early(loop) else ()
        steps = [(op, steady.i + offset(op)) for op in steady.operations]
        first = [step for step in steps if id(step[0]) in held]

        def absent(op: Operation, tile: int) -> tuple[str, ...]:
            """In a run's last pass there may be no tiles of the next one."""
            if offset(op) < edge.step:
                return ()
            return f"sub.u32 %last, %tiles, {offset(op)};", "setp.ge.s32 %done, %i, %last;"

        self._steps(loop, cursors, "loop", first, absent)
        self._code(stream, f"sub.u32 %last, %tiles, {edge.high};", "setp.ge.s32 %done, %i, %last;",
                   f"@%done bra {name}_DRAIN;", '.pragma "nounroll";')  # fmt: skip
        self._steps(loop, cursors, "loop", steps[len(first) :])
        self._pass_end(loop, "loop")
        self._code(stream, f"add.u32 %i, %i, {edge.step};")
        if left_early(loop):
            # Always so. A loop that is left in one place ptxas turns round until it ends there, and
            # matrix groups would be in flight over its back edge.
            self._code(stream, "setp.ne.u32 %done, %i, 0;", f"@%done bra {name}_LOOP;",
                       "trap;", f"{name}_DRAIN:")  # fmt: skip
            self._group_wait(loop, "loop", len(loop.cluster.steps), None)
        else:
            self._code(stream, f"bra {name}_LOOP;", f"{name}_DRAIN:")

    def _done(self, loop: Loop) -> None:
        """What comes after the loop, for runs that need no jump to it."""
        self._end(loop)

    def _end(self, loop: Loop) -> None:
        """What comes after the loop."""
        self._heading(f"{loop.stream.role.name}, after the loop")
        if loop.final is not None:
            self._code(loop.stream, f"wgmma.wait_group.sync.aligned {loop.final};")
        if self.schedule.blocks > 1 and not self.schedule.smem.pair:
            # What this role does in other blocks' SMEM is over; no block ends before all said so.
            self._code(loop.stream, "barrier.cluster.arrive.release;")
        for operation in loop.epilogue:
            self._operation(loop.stream, operation, None, "epilogue", Binding(0, False))
        self._code(loop.stream, f"bra {self.out};")

    def _drain(self, loop: Loop, cursors: Mapping[int, Cursor | None], n: int) -> None:
        """What is left of a run of `n` tiles after the loop."""
        drain = [x for x in expand_loop([loop.cluster], loop.edge, n) if x.i >= n - loop.edge.high]
        self._instances(loop, cursors, drain, n)

    def _instances(
        self,
        loop: Loop,
        cursors: Mapping[int, Cursor | None],
        instances: list[Instance],
        n: int,
    ) -> None:
        """Passes of a run of `n` tiles, but for what of them is the loop's."""
        for instance in instances:
            for where, operations in parts(loop, instance, n):
                if where == "loop":
                    continue
                if operations:
                    self._heading(f"{loop.stream.role.name}, {where}")
                steps = ((op, instance.i + offset(op)) for op in operations)
                self._steps(loop, cursors, where, steps)
                self._pass_end(loop, where)

    def _steps(
        self,
        loop: Loop,
        cursors: Mapping[int, Cursor | None],
        where: str,
        steps: Iterable[tuple[Operation, int]],
        absent: Callable[[Operation, int], tuple[str, ...]] = lambda op, tile: (),
    ) -> None:
        """Operations of a pass, with their tiles. `absent`: code that sets %done where one is to be
        left out, none for those that are always there; what follows each other with the same code
        is left out together. Matrix groups are waited for either way, between such runs."""
        stream = loop.stream
        index_of = {id(op): index for index, op in enumerate(loop.cluster.steps)}
        waits = 0

        def run_of(step: tuple[Operation, int]) -> tuple[tuple[str, ...], int]:
            nonlocal waits
            waits += (where, index_of[id(step[0])]) in loop.groups
            return absent(*step), waits

        for (asks, _), run in groupby(steps, key=run_of):
            held = list(run)
            self._group_wait(loop, where, index_of[id(held[0][0])], held[0][0])
            skip = f"{stream.role.name.upper()}_SKIP{len(self.lines)}"
            if asks:
                self._code(stream, *asks, f"@%done bra {skip};", section=where)
            for op, tile in held:
                self._operation(stream, op, cursors[id(op)], where, Binding(tile, tile == 0))
            if asks:
                self._code(stream, f"{skip}:")

    def _pass_end(self, loop: Loop, where: str) -> None:
        """What comes after all operations of a pass."""
        self._group_wait(loop, where, len(loop.cluster.steps), None)
        if loop.stream.role.name in self.turns:
            for register in self._turn(loop.stream.role.name):
                self._code(loop.stream, f"xor.b32 {register}, {register}, 1;", section=where)
        for cursor in self.shared.get(loop.stream.role.name, {}).values():
            advance = {"slot": cursor.slot, "phase": cursor.phase, "depth": cursor.depth,
                       "step": loop.edge.step}  # fmt: skip
            self._render(loop.stream, "pipeline/advance.ptx.j2", advance, where)

    def _first_turn(self, loop: Loop, first: Instance) -> None:
        """The phases, and slots, of the pass that a run begins with."""
        if loop.stream.role.name in self.turns:
            for phase, register in enumerate(self._turn(loop.stream.role.name)):
                at = phase ^ (first.i // loop.edge.step & 1)
                self._code(loop.stream, f"mov.u32 {register}, {at};")
        for (depth, ahead, start), cursor in self.shared.get(loop.stream.role.name, {}).items():
            turn, slot = divmod(first.i + ahead, depth)
            self._code(loop.stream, f"mov.u32 {cursor.slot}, {slot};",
                       f"mov.u32 {cursor.phase}, {turn + start & 1};")  # fmt: skip

    def _group_wait(self, loop: Loop, where: str, index: int, op: Operation | None) -> None:
        wait = loop.groups.get((where, index))
        if wait is not None:
            self._code(loop.stream, f"wgmma.wait_group.sync.aligned {wait};", op=op, section=where)

    def _cursor(self, loop: Loop, index: int, op: Operation) -> Cursor | None:
        pipeline = self.pipeline_of(op)
        if pipeline is None:
            return None
        if pipeline.resident:
            return Cursor("0", "0", 1, 0, 0)
        role, step, depth = loop.stream.role.name, loop.edge.step, pipeline.depth
        # A fresh barrier counts as having completed phase 1: the first empty wait passes at once.
        start = 1 if op.name == "wait_empty" else 0
        if step % depth == 0 and step > 1:
            turned = (offset(op) // depth + start) & 1
            if step // depth % 2 == 0:
                return Cursor(str(offset(op) % depth), str(turned), depth, start, 0)
            self.turns[role] = None
            return Cursor(str(offset(op) % depth), self._turn(role)[turned], depth, start, 0)
        if step > depth:
            raise ScheduleError(
                f"{self.schedule.file}:{op.line} {op}: {step} tiles a pass over a ring of {depth}",
                hint=f"a ring of {step} or more slots, or of a divisor of {step}",
            )
        if step > 1:
            cursors = self.shared.setdefault(role, {})
            name = f"%{role}_ring{len(cursors)}"
            made = Cursor(f"{name}_slot", f"{name}_phase", depth, start, 0)
            return cursors.setdefault((depth, offset(op), start), made)
        name = f"%{role}_{index}"
        cursor = Cursor(f"{name}_slot", f"{name}_phase", depth, start, step)
        self.cursors.append(cursor)
        return cursor

    @staticmethod
    def _turn(role: str) -> tuple[str, str]:
        """Registers with the phase of a role's pass, and with the other one."""
        return f"%{role}_turn0", f"%{role}_turn1"

    def pipeline_of(self, op: Operation) -> Pipeline | None:
        """The pipeline whose slot an operation is printed with."""
        names = [op.access.target.ring] if op.access else []
        held = self.schedule.smem.pipelines
        names += [value.block for value in op.uses]
        names += [value.block for value in op.defines if value.block in held
                  and held[value.block].tensor]  # fmt: skip
        return next((held[name] for name in names if name in held), None)

    def _operation(
        self, stream: Stream, op: Operation, cursor: Cursor | None, where: str, at: Binding
    ) -> None:
        context: dict[str, Any] = {
            "smem": "%smem", "tiles": "%tiles", "own": stream.role, "tmem": "%tmem",
            "rank": "%rank", "group": self.schedule.cta_group,
            **op.context(at),
        }  # fmt: skip
        if cursor is not None:
            context |= {"slot": cursor.slot, "phase": cursor.phase}
            printed = Printed(op, at.first, cursor.slot, cursor.phase)
        else:
            printed = Printed(op, at.first)
        before = len(self.lines)
        self._render(stream, op.template, context, where, op, printed)
        if len(self.lines) == before:  # its place in the order is all that it is
            self.silent.setdefault(before, []).append(printed)
        if cursor is not None and cursor.step:
            advance = {"slot": cursor.slot, "phase": cursor.phase, "depth": cursor.depth,
                       "step": cursor.step}  # fmt: skip
            self._render(stream, "pipeline/advance.ptx.j2", advance, where, op)

    def _render(
        self,
        stream: Stream,
        template: str,
        context: Mapping[str, Any],
        where: str,
        op: Operation | None = None,
        printed: Printed | None = None,
    ) -> None:
        line = op.line if op else stream.line
        asked_by = f"{self.schedule.file}:{line}, {op or stream.role.name}"
        for source, number, text in self.templates.render(template, context, asked_by):
            if text.strip():
                self._check_names(text, f"{source}:{number}")
                self.lines.append(
                    PtxLine(
                        f"    {text.rstrip()}",
                        _source(stream, where, source, number, line, str(op or "role entry")),
                        printed,
                    )
                )

    def _check_names(self, text: str, place: str) -> None:
        """TemplateError where a template's own register hides one of the schedule: PTX takes it
        without a word, and the kernel computes with the wrong one."""
        declared = re.match(r"\s*\.reg\s+\S+\s+([^;]*);", text)
        for name in declared[1].split(",") if declared else ():
            own, many, _ = name.strip().removeprefix("%").partition("<")
            if f"%{own}" in ALL:
                raise TemplateError(
                    f"{place}: the register %{own} hides one of mlagen's own", hint=another(own)
                )
            for held in self.schedule.registers:
                if own == held.name if many else re.fullmatch(rf"{held.name}\d+", own):
                    raise TemplateError(
                        f"{place}: the register %{own} hides {self.schedule.name}'s "
                        f"%{held.name}0 .. {held.count - 1} ({held.comment})",
                        hint="give it another name",
                    )

    def _code(
        self, stream: Stream, *lines: str, op: Operation | None = None, section: str = ""
    ) -> None:
        for text in lines:
            indent = "" if text.endswith(":") else "    "
            line, what = (op.line, str(op)) if op else (stream.line, "control flow")
            self.lines.append(
                PtxLine(f"{indent}{text}", _source(stream, section, "", 0, line, what))
            )

    def _heading(self, text: str) -> None:
        self.lines += [PtxLine(""), PtxLine(f"    // ---- {text}")]


def _source(
    stream: Stream, where: str, template: str, number: int, line: int, operation: str
) -> SourceLine:
    return SourceLine(
        asm_line=0, section=where, cluster="", role=stream.role.name, template=template,
        template_line=number, schedule_line=line, operation=operation,
    )  # fmt: skip
