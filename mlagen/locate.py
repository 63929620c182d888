"""From a finding on machine code or PTX back to the line of the schedule that made it.

    offset in the kernel -> line of the .s (the object's line table) -> template and schedule line
    (the manifest's source map)

PTX is executed as text, so its instructions have their lines.

The checkers know nothing of schedules; this is the only place where the two meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlagen.artifact import Artifact, Manifest, SourceLine, file_names, is_ptx
from mlagen.ptx import Entry, read_ptx
from mlagen.severity import ERROR, LETTER, Severity

if TYPE_CHECKING:
    from mlagen.binary import CodeObject
    from mlagen.emulator import SanitizerFinding

# What the later instruction of a race does, and what the earlier one did.
_RACES = {
    "race-raw": ("reads", "written by"),
    "race-war": ("overwrites", "still being read by"),
    "race-waw": ("overwrites", "also written by"),
}


@dataclass(frozen=True, slots=True)
class Place:
    """One instruction, of a finding or of a kernel (`wave` None). `source` is None where no
    template line made it."""

    pc: int  # bytes from the kernel's entry; of PTX the instruction's number
    asm: str
    wave: int | None
    asm_line: int  # 1-based in the .s or .ptx; 0: the object has no line table
    source: SourceLine | None
    text: str = "kernel.s"  # the file of that line


@dataclass(frozen=True, slots=True)
class LocatedFinding:
    """A finding with the places that made it; `other` is the second instruction of a pair."""

    kind: str
    message: str
    resource: str
    needs: str
    count: int
    workgroup: tuple[int, int, int]
    schedule_file: str
    at: Place
    other: Place | None
    severity: Severity = ERROR

    def render(self) -> str:
        """The diagnostic, as `error[kind] file:line cluster, operation: what happened`."""
        head = f"{self.severity}[{self.kind}] {self._file_line(self.at)}"
        where = _cluster(self.at)
        sentence = f"{head} {where}: {self._what()}" if where else f"{head}: {self._what()}"
        notes = []
        if self.needs:
            notes.append(f"Needs {self.needs}{self._before()}.")
        times = "once" if self.count == 1 else f"{self.count} times"
        notes.append(f"Seen {times}, first in workgroup {self.workgroup}.")
        if self.severity == LETTER:
            notes.append("By the letter of the ISA: known hardware does it right.")
        places = [_listing(place) for place in (self.at, self.other) if place]
        return "\n  ".join([sentence, " ".join(notes), *places])

    def _what(self) -> str:
        race = _RACES.get(self.kind)
        if not race or self.other is None:
            return self.message.rstrip(".") + "."
        verb, relation = race
        line = self.other.source.schedule_line if self.other.source else 0
        at = f" at :{line}" if line else f" at {_offset(self.other)}"
        cluster = _cluster(self.other)
        return (
            f"wave {self.at.wave} {verb} {self.resource},"
            f" {relation} wave {self.other.wave}{at}{f' ({cluster})' if cluster else ''}."
        )

    def _before(self) -> str:
        """Where the wait belongs: before the barrier that closes the earlier access's cluster."""
        if self.kind not in _RACES or not self.other or not self.other.source:
            return ""
        cluster = self.other.source.cluster
        return f" before the barrier that closes cluster {cluster}" if cluster else ""

    def _file_line(self, place: Place) -> str:
        if place.source and place.source.schedule_line:
            return f"{self.schedule_file}:{place.source.schedule_line}"
        return _offset(place)


def locate(
    findings: Iterable[SanitizerFinding], code: CodeObject | Entry, manifest: Manifest
) -> tuple[LocatedFinding, ...]:
    """Places each finding on the kernel that `manifest` names, in the order given.

    For an object without a line table the offsets are told.
    """
    place = _placer(code, manifest)
    return tuple(
        LocatedFinding(
            kind=finding.kind,
            message=finding.message,
            resource=finding.resource,
            needs=finding.needs,
            count=finding.count,
            workgroup=finding.workgroup,
            schedule_file=manifest.schedule_file,
            at=place(finding.pc, finding.asm, finding.wave),
            other=(
                None
                if finding.other_pc is None
                else place(finding.other_pc, finding.other_asm, finding.other_wave)
            ),
            severity=finding.severity,
        )
        for finding in findings
    )


def instructions_of(artifact: Artifact) -> tuple[Place, ...]:
    """Every instruction of the kernel that some path leads to, in the order of the text."""
    manifest, code = artifact.manifest, executed_code(artifact)
    place = _placer(code, manifest)
    if isinstance(code, Entry):
        return tuple(place(i.index, shown(i.text), None) for i in code.instructions)
    instructions = code.kernel(manifest.symbol).instructions
    return tuple(place(ins.offset, str(ins), None) for ins in instructions)


def executed_code(artifact: Artifact) -> CodeObject | Entry:
    """What the emulator executes of an artifact: its machine code, or its entry of PTX."""
    if is_ptx(artifact.manifest):
        entries = {entry.name: entry for entry in read_ptx(artifact.text).entries}
        return entries[artifact.manifest.symbol]
    from mlagen.binary import load_code_object

    return load_code_object(artifact.code)


def shown(text: str, most: int = 100) -> str:
    """An instruction's text, cut where it is long."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."


def _placer(
    code: CodeObject | Entry, manifest: Manifest
) -> Callable[[int, str, int | None], Place]:
    """Makes the place of an offset, its instruction's text and a wave."""
    sources = {line.asm_line: line for line in manifest.source}
    text = file_names(manifest.target)[1]
    if isinstance(code, Entry):
        lines = [instruction.line for instruction in code.instructions]

        def line_of(pc: int) -> int:
            return lines[pc] if pc < len(lines) else 0
    else:
        loaded, kernel = code, code.kernel(manifest.symbol)

        def line_of(pc: int) -> int:
            return loaded.line_of(kernel, pc) or 0

    def place(pc: int, asm: str, wave: int | None) -> Place:
        line = line_of(pc)
        return Place(pc, asm, wave, line, sources.get(line), text)

    return place


def alike(findings: Iterable[LocatedFinding]) -> list[tuple[LocatedFinding, int]]:
    """One finding of each kind and pair of schedule lines, in order, with how many it stands for.

    One missing wait shows up once for every register and row it leaves unguarded.
    """
    groups: dict[tuple[object, ...], list[LocatedFinding]] = {}
    for finding in findings:
        key = (finding.kind, _line(finding.at), finding.other and _line(finding.other))
        groups.setdefault(key, []).append(finding)
    return [(group[0], len(group)) for group in groups.values()]


def _line(place: Place) -> int:
    """The schedule's line, or (negative) where in the kernel, for code that has none."""
    return (place.source.schedule_line if place.source else 0) or -1 - place.pc


def _cluster(place: Place) -> str:
    if place.source is None:
        return ""
    cluster = f"cluster {place.source.cluster}" if place.source.cluster else place.source.section
    return ", ".join(part for part in (cluster, place.source.operation) if part)


def _offset(place: Place) -> str:
    return f"{place.text}:{place.asm_line}" if place.asm_line else f"offset {place.pc:#x}"


def _listing(place: Place) -> str:
    source = place.source
    if source is None:
        return f"{_offset(place)}  {place.asm}"
    parts = (f"{source.template}:{source.template_line}", source.section, source.role)
    return f"{_offset(place)}  {place.asm}  ({', '.join(part for part in parts if part)})"
