"""The program as the lines of a `.s` that people read, and where each line came from."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from mlagen.artifact import SourceLine
from mlagen.dsl import Interleave, Operation
from mlagen.targets.gfx950.codegen.program import Layout, Piece, ProgramInstruction, Segment
from mlagen.targets.gfx950.dsl import Exchange, Schedule

COMMENT_COLUMN = 88


@dataclass(frozen=True, slots=True)
class PrintedLine:
    """One line of code, and its source when it is an instruction."""

    text: str
    source: SourceLine | None = None


def code_lines(schedule: Schedule, layout: Layout) -> list[PrintedLine]:
    """All segments, with headings for sections and clusters; lines are numbered from 0 here."""
    lines: list[PrintedLine] = []
    for segment in layout.segments:
        roles = segment.role or schedule.roles.names
        title = f"{segment.role}: {segment.section}" if segment.role else segment.section
        lines += [PrintedLine(""), PrintedLine(f"; ==== {title} " + "=" * (60 - len(title)))]
        lines.append(PrintedLine(f"{segment.label}:"))
        lines += _instructions(segment, None, segment.head, roles, len(lines))
        for piece in segment.pieces:
            heading = _heading(schedule, piece)
            if heading:
                lines.append(PrintedLine(heading))
            lines += _instructions(segment, piece, piece.body, roles, len(lines))
        lines += _instructions(segment, None, segment.tail, roles, len(lines))
    return lines


def _heading(schedule: Schedule, piece: Piece) -> str:
    if piece.cluster is None:
        return ""
    held = [instruction.origin for instruction in piece.body if instruction.origin]
    operations = list(dict.fromkeys(o.operation for o in held if o.template))
    what = "; ".join(operations) or "a bare barrier"
    return (
        f"; ---- cluster {piece.cluster.name}, {piece.iteration}: {what}"
        f"   [{schedule.file}:{piece.cluster.line}]"
    )


def _instructions(
    segment: Segment, piece: Piece | None, body: list[ProgramInstruction], roles: str, base: int
) -> list[PrintedLine]:
    lines: list[PrintedLine] = []
    cluster = piece.cluster.name if piece and piece.cluster else ""
    shown = ""
    for instruction in body:
        origin = instruction.origin
        if instruction.note:
            lines.append(PrintedLine(f"  ; {instruction.note}"))
        if instruction.pipe == "label":
            lines.append(PrintedLine(instruction.text))
            continue
        text = f"  {instruction.text}"
        operation = origin.operation if origin else ""
        if origin and operation != shown:
            where = f" {origin.template}:{origin.template_line}" if origin.template else ""
            text = f"{text:<{COMMENT_COLUMN}}; {operation}{where}"
            shown = operation
        source = SourceLine(
            asm_line=0,
            section=segment.section,
            cluster=cluster,
            role=roles,
            template=origin.template if origin else "",
            template_line=origin.template_line if origin else 0,
            schedule_line=origin.schedule_line if origin else 0,
            operation=operation,
            needed=instruction.needed,
        )
        lines.append(PrintedLine(text, source))
    return lines


def cluster_table(schedule: Schedule) -> list[str]:
    """One line a cluster, as the schedule says it."""
    table = []
    for cluster in schedule.loop:
        parts = []
        for roles, steps in groupby(cluster.steps, _limit):
            who = f"{' and '.join(roles)}: " if roles else ""
            parts.append(who + "; ".join(map(str, steps)))
        priority = f" priority {cluster.priority}" if cluster.priority else ""
        wait = f" wait {cluster.wait}" if cluster.wait is not None else ""
        table.append(f"{cluster.name} (:{cluster.line}){priority}{wait}: {' | '.join(parts)}")
    return table


def _limit(step: Operation | Interleave) -> tuple[str, ...]:
    """The roles that a step is limited to."""
    return step.first.roles if isinstance(step, Interleave) else step.roles


def lds_map(schedule: Schedule) -> list[str]:
    """One line a slot, with the layout and what reading a tile costs in LDS cycles."""
    lines = []
    for ring in schedule.lds.slotted.values():
        for slot in range(ring.slots):
            base = ring.slot_base(slot)
            lines.append(
                f"{base:#07x}..{base + ring.slot_bytes - 1:#07x}  {ring.name} slot {slot}: "
                f"{ring.describe()}"
            )
        if isinstance(ring, Exchange):
            continue
        cycles, ideal = ring.cycles
        lines.append(
            f"{'':18}  {ring.comment}; {cycles} LDS cycles a wave and tile, "
            f"{ideal} without conflicts"
        )
    return lines
