"""Streams to PTX lines: roles, tile loops, waits, and a cursor for every slot an operation uses.

A cursor is a slot number and a phase bit in two registers. Operations see tiles 0, 1, 2, ... in
order, so each keeps its own cursor and advances it after it ran: no arithmetic on the tile number,
and nothing to unroll.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlagen.artifact import SourceLine
from mlagen.codegen.expand import Instance, expand_loop
from mlagen.codegen.render import Templates
from mlagen.codegen.sm_90a.derive import Loop, resident_waits, section
from mlagen.dsl import Binding, Operation
from mlagen.dsl.pipeline import PipelineSchedule, Stream
from mlagen.dsl.smem import Handoff


@dataclass(frozen=True, slots=True)
class PtxLine:
    """One line of the body and where it came from."""

    text: str
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """Slot and phase registers of one operation."""

    slot: str
    phase: str
    depth: int
    phase_at_start: int


@dataclass
class Emitter:
    """Prints the streams of one schedule. `cursors` and `lines` fill up as it goes."""

    schedule: PipelineSchedule
    templates: Templates
    lines: list[PtxLine] = field(default_factory=list)
    cursors: list[Cursor] = field(default_factory=list)

    def stream(self, loop: Loop) -> None:
        """One role's code, from its label to the jump to the end."""
        stream, role, edge = loop.stream, loop.stream.role, loop.edge
        name = role.name.upper()
        cursors = {
            id(op): self._cursor(role.name, index, op)
            for index, op in enumerate(loop.cluster.operations())
        }
        self._heading(f"role {role.name}: warps {role.warps.start}..{role.warps.stop - 1}")
        self._code(stream, f"{name}:")
        self._render(stream, "pipeline/enter.ptx.j2", {"role": role, "share": self._share()}, "")
        for cursor in cursors.values():
            if cursor is not None:
                self._code(stream, f"mov.u32 {cursor.slot}, 0;",
                           f"mov.u32 {cursor.phase}, {cursor.phase_at_start};")  # fmt: skip
        for operation in (*stream.prologue, *resident_waits(self.schedule, stream)):
            self._operation(stream, operation, None, "prologue", Binding(0, False))
        self._code(stream, "setp.eq.u32 %done, %tiles, 0;", f"@%done bra {name}_END;")
        for n in range(1, edge.first_looped):
            self._code(stream, f"setp.eq.u32 %done, %tiles, {n};", f"@%done bra {name}_N{n};")
        large = edge.first_looped + 2
        instances = expand_loop([loop.cluster], edge, large)
        self._instances(loop, cursors, [x for x in instances if x.i < edge.low], large)
        self._heading(f"{role.name}, loop")
        self._code(stream, f"mov.u32 %i, {edge.low};", f"sub.u32 %last, %tiles, {edge.high};",
                   f"{name}_LOOP:", "setp.ge.u32 %done, %i, %last;",
                   f"@%done bra {name}_DRAIN;", '.pragma "nounroll";')  # fmt: skip
        steady = next(x for x in instances if edge.low <= x.i < large - edge.high)
        self._instances(loop, cursors, [steady], large)
        self._code(stream, "add.u32 %i, %i, 1;", f"bra {name}_LOOP;")
        self._code(stream, f"{name}_DRAIN:")
        self._instances(loop, cursors, [x for x in instances if x.i >= large - edge.high], large)
        self._code(stream, f"bra {name}_END;")
        for n in range(1, edge.first_looped):
            self._code(stream, f"{name}_N{n}:")
            self._instances(loop, cursors, expand_loop([loop.cluster], edge, n), n)
            self._code(stream, f"bra {name}_END;")
        self._heading(f"{role.name}, after the loop")
        self._code(stream, f"{name}_END:")
        if loop.final is not None:
            self._code(stream, f"wgmma.wait_group.sync.aligned {loop.final};")
        for operation in stream.epilogue:
            self._operation(stream, operation, None, "epilogue", Binding(0, False))
        self._code(stream, "bra EXIT;")

    def _share(self) -> int:
        """Registers a thread starts with: the launch's even share, in eights."""
        return 65536 // self.schedule.threads // 8 * 8  # registers of an SM (CUDA guide, sm_90)

    def _instances(
        self,
        loop: Loop,
        cursors: Mapping[int, Cursor | None],
        instances: list[Instance],
        n: int,
    ) -> None:
        index_of = {id(op): index for index, op in enumerate(loop.cluster.steps)}
        for instance in instances:
            where = section(loop.edge, instance.i, n)
            if where != "loop" and instance.operations:
                self._heading(f"{loop.stream.role.name}, {where}")
            for op in instance.operations:
                wait = loop.groups.get((where, index_of[id(op)]))
                if wait is not None:
                    self._code(loop.stream, f"wgmma.wait_group.sync.aligned {wait};", op=op,
                               section=where)  # fmt: skip
                tile = instance.i + (op.tile.offset if op.tile else 0)
                self._operation(loop.stream, op, cursors[id(op)], where, Binding(tile, tile == 0))

    def _cursor(self, role: str, index: int, op: Operation) -> Cursor | None:
        handoff = self._handoff(op)
        if handoff is None:
            return None
        # A fresh barrier counts as having completed phase 1: the first empty wait passes at once.
        start = 1 if op.name == "wait_empty" else 0
        cursor = Cursor(f"%{role}_{index}_slot", f"%{role}_{index}_phase", handoff.depth, start)
        self.cursors.append(cursor)
        return cursor

    def _handoff(self, op: Operation) -> Handoff | None:
        names = [op.access.target.ring] if op.access else []
        names += [value.block for value in op.uses]
        held = self.schedule.smem.handoffs
        return next((held[name] for name in names if name in held), None)

    def _operation(
        self, stream: Stream, op: Operation, cursor: Cursor | None, where: str, at: Binding
    ) -> None:
        context: dict[str, Any] = {"smem": "%smem", "tiles": "%tiles", **op.context(at)}
        if cursor is not None:
            context |= {"slot": cursor.slot, "phase": cursor.phase}
        self._render(stream, op.template, context, where, op)
        if cursor is not None:
            advance = {"slot": cursor.slot, "phase": cursor.phase, "depth": cursor.depth}
            self._render(stream, "pipeline/advance.ptx.j2", advance, where, op)

    def _render(
        self,
        stream: Stream,
        template: str,
        context: Mapping[str, Any],
        where: str,
        op: Operation | None = None,
    ) -> None:
        line = op.line if op else stream.line
        asked_by = f"{self.schedule.file}:{line}, {op or stream.role.name}"
        for source, number, text in self.templates.render(template, context, asked_by):
            if text.strip():
                self.lines.append(
                    PtxLine(
                        f"    {text.rstrip()}",
                        self._source(stream, where, source, number, line, str(op or "role entry")),
                    )
                )

    def _code(
        self, stream: Stream, *lines: str, op: Operation | None = None, section: str = ""
    ) -> None:
        for text in lines:
            indent = "" if text.endswith(":") else "    "
            line, what = (op.line, str(op)) if op else (stream.line, "control flow")
            self.lines.append(
                PtxLine(f"{indent}{text}", self._source(stream, section, "", 0, line, what))
            )

    def _heading(self, text: str) -> None:
        self.lines += [PtxLine(""), PtxLine(f"    // ---- {text}")]

    @staticmethod
    def _source(
        stream: Stream, where: str, template: str, number: int, line: int, operation: str
    ) -> SourceLine:
        return SourceLine(
            asm_line=0,
            section=where,
            cluster="",
            role=stream.role.name,
            template=template,
            template_line=number,
            schedule_line=line,
            operation=operation,
        )
