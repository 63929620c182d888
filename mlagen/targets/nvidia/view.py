"""The view of a pipeline schedule: read off the streams that `build` would hand to ptxas."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from mlagen.codegen.manifest import plain_fields
from mlagen.codegen.templates import Templates
from mlagen.dsl import Binding, Operation
from mlagen.inspect.pipes import ptx_pipe_of
from mlagen.schedule_view.model import (
    Appearance,
    ScheduleRow,
    ScheduleView,
    Unit,
    Use,
    sections_of,
    spelled,
    title_of,
    unit_of,
)
from mlagen.targets.nvidia.codegen.build import proof_of, prove_pipeline
from mlagen.targets.nvidia.codegen.derived import FENCES, WAITS
from mlagen.targets.nvidia.codegen.emit import Emitter, Printed, PtxLine
from mlagen.targets.nvidia.codegen.map import kernel_map
from mlagen.targets.nvidia.codegen.runs import Loop
from mlagen.targets.nvidia.dsl import PipelineSchedule
from mlagen.targets.nvidia.limits import Nvidia

PASS_END = "end of the pass"
AHEAD = ("fetch", "head")  # of a persistent block: sections before an item's first pass
_GUARD = re.compile(r"^@!?%\w+\s+")


def view(schedule: PipelineSchedule, templates: Templates) -> ScheduleView:
    """The view of a schedule whose roles are streams of their own."""
    printed, proof = prove_pipeline(schedule, templates, allow_unproved=True)
    smem, tmem = schedule.smem, schedule.tmem
    taken = sum(
        (s.role.registers or schedule.share) * Nvidia.warp_size * len(s.role.warps)
        for s in schedule.streams
    )
    return ScheduleView(
        name=schedule.name,
        target=schedule.target.name,
        schedule_file=schedule.file,
        title=title_of(schedule.doc),
        problem=plain_fields(schedule.problem),
        knobs=dict(schedule.knobs),
        rows=tuple(row for loop in printed.loops for row in _Stream(printed, loop).rows()),
        around={
            f"{section}, {stream.role.name}": names
            for stream in schedule.streams
            for section, names in sections_of(
                stream.prologue, stream.items, stream.epilogue
            ).items()
        },
        notes=tuple(_notes(printed)),
        uses=(
            Use("SMEM bytes", smem.used, smem.capacity),
            *([Use("TMEM columns", tmem.allocated, tmem.capacity)] if tmem.used else ()),
            Use("registers of a block, by setmaxnreg", taken, schedule.share * schedule.threads),
            Use("named barriers, that of the block included", smem.barriers, Nvidia.named_barriers),
        ),
        map=kernel_map(schedule),
        proof=proof_of(schedule, proof),
    )


def _notes(printed: Emitter) -> Iterator[str]:
    for loop in printed.loops:
        edge = loop.edge
        tiles = f"{edge.step} tiles a pass; " if edge.step > 1 else ""
        yield (
            f"{loop.stream.role.name}: {tiles}the loop is steady for {edge.low} <= i < N"
            f"{-edge.high or ''}"
        )
    yield f"a thread starts with {printed.schedule.share} registers"
    yield "all waits are derived; none is placed by hand"
    for _, names, purpose in printed.registers:
        yield f"{names}: {purpose}"


class _Stream:
    """One role's operations where they are printed."""

    def __init__(self, printed: Emitter, loop: Loop) -> None:
        self.loop, self.steps = loop, loop.cluster.operations()
        self.lines: dict[int, dict[str, list[PtxLine]]] = {}  # of an operation, by section
        sections: dict[str, None] = {}  # in the order of the text
        for line in printed.lines:
            if line.source is not None and line.source.role == loop.stream.role.name:
                sections.setdefault(line.source.section)
                if line.printed is not None:
                    held = self.lines.setdefault(id(line.printed.op), {})
                    held.setdefault(line.source.section, []).append(line)
        self.sections = tuple(sections)

    def rows(self) -> Iterator[ScheduleRow]:
        """The operations in the order of the schedule, each with the waits before it and the
        arrivals after it; then what is waited for at the end of a pass."""
        first, end = 0, len(self.steps)
        for index, operation in enumerate(self.steps):
            if operation.name in WAITS:
                continue
            after = index + 1
            while after < end and self.steps[after].name in ("arrive", "commit"):
                after += 1
            printed = {s for step in self.steps[first:after] for s in self.lines.get(id(step), ())}
            where = [section for section in self.sections if section in printed]
            shown = "loop" if "loop" in printed else where[0] if where else ""
            row = self._row(spelled(operation), operation.line, range(first, after), where)
            own = self.lines.get(id(operation), {})
            yield replace(row, units=_count(own.get(shown, ())))
            first = after
        where = [section for section in self.sections if (section, end) in self.loop.groups]
        if where:
            line = self.loop.stream.line
            yield self._row(PASS_END, line, range(end, end + 1), where)

    def _row(self, name: str, line: int, steps: range, where: Sequence[str]) -> ScheduleRow:
        """What is done in the sections `where`, and waited for at these steps of a pass."""
        places: dict[str, list[Appearance]] = {"prologue": [], "drain": []}
        for section in where:
            part, _, at = section.partition(", i = ")
            waits = tuple(self._waits(section, steps))
            if part in places:
                places[part].append(Appearance(at, waits))
            elif part in AHEAD:
                places["prologue"].append(Appearance(part, waits))
        return ScheduleRow(
            cluster="",
            roles=(self.loop.stream.role.name,),
            operation=name,
            line=line,
            waits=tuple(self._waits("loop", steps)),
            prologue=tuple(places["prologue"]),
            drain=tuple(sorted(places["drain"], key=lambda place: _tiles_left(place.at))),
        )

    def _waits(self, section: str, steps: range) -> Iterator[str]:
        """What is derived for these steps in a section, as it is printed there."""
        for index in steps:
            count = self.loop.groups.get((section, index))
            if count is not None:
                yield f"wgmma.wait_group {count}"
            step = self.steps[index] if index < len(self.steps) else None
            if step is not None and step.name in WAITS:
                lines = self.lines.get(id(step), {}).get(section)
                if lines:
                    yield self._told(step, lines[0].printed)

    def _told(self, step: Operation, printed: Printed | None) -> str:
        """A derived operation in words. Slot and parity as they are printed: a number, or the
        register that has it."""
        if step.name in FENCES:
            return FENCES[step.name]
        made, what = step.context(Binding(0, False)), step.uses[0]
        fence = "fence.proxy.async" if made.get("fence") else ""
        if step.name in ("wait_full", "wait_empty"):
            slot = (printed and printed.slot) or made.get("slot", "")
            phase = (printed and printed.phase) or made.get("phase", "")
            kind = step.name.removeprefix("wait_")
            name = what.block if what.tile is None else f"{what.block}, {what.tile}"
            text = f"mbarrier {kind}({name}): slot {slot}, parity {phase}"
            return f"{text}; {fence}" if fence else text
        if step.name == "commit":
            return f"then tcgen05.commit ({what.block})"
        if step.name == "sync":
            return f"bar.sync {made['barrier']} (warps of {self.loop.stream.role.name})"
        if step.name == "arrive_and_wait":
            return f"bar.sync {made['barrier']} ({what.block})"
        return f"then {f'{fence}; ' if fence else ''}bar.arrive {made['barrier']} ({what.block})"


def _tiles_left(at: str) -> int:
    """The order of "N-3", "N-1", "N"."""
    return int(at.removeprefix("N") or 0)


def _count(lines: Iterable[PtxLine]) -> dict[Unit, int]:
    """Instructions of some lines, by unit."""
    code = (line.text.partition("//")[0].strip() for line in lines)
    told = (text for text in code if text and not text.startswith((".", "{", "}")))
    bodies = (text.rpartition(": ")[2] for text in told if not text.endswith(":"))
    opcodes = (_GUARD.sub("", text).split()[0] for text in bodies)
    return dict(Counter(unit_of(ptx_pipe_of(opcode)) for opcode in opcodes))
