"""The audit of a PTX file: the static rules, and every path of one block of each kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlagen.audit.ptx import resources, wgmma
from mlagen.audit.ptx.cta import Cta, Program, Setting
from mlagen.audit.ptx.effects import PROTOCOL, Kind
from mlagen.audit.ptx.paths import Path, Stuck, told
from mlagen.audit.ptx.report import EntryReport, Finding, Notes, Report
from mlagen.audit.ptx.source import Beside
from mlagen.audit.ptx.syntax import Entry, Module, parse

MAX_RUNS = 200
# A block without .reqntid and .maxntid is taken to be one warpgroup.
DEFAULT_THREADS = 128
_MODELLED = ("sm_90", "sm_90a")


def audit_ptx(
    text: str,
    *,
    boxes: Mapping[str, int] | None = None,
    shared_bytes: int = 0,
    threads: int = 0,
    trips: int = 0,
    beside: Beside | None = None,
    first: bool = False,
) -> Report:
    """Audits PTX text.

    `boxes`: bytes that a copy through a tensor map moves, by the map's parameter. `shared_bytes`:
    the launch's dynamic shared memory. `threads`: of a block, where the entry does not say.
    `trips`: how many rounds of a loop of unknown length are followed; 0 derives it from the
    kernel's ring (twice its slots and two more). `first`: one path with a
    finding is enough. Raises UnsupportedError where the text is no PTX.
    """
    beside = beside or Beside()
    module = parse(text)
    known = {**beside.boxes, **(boxes or {})}
    return Report(
        target=module.target,
        version=module.version,
        entries=tuple(
            _entry(
                module,
                entry,
                known,
                shared_bytes or beside.shared_bytes,
                threads or beside.threads,
                trips,
                beside,
                first,
            )
            for entry in module.entries
        ),
    )


def _entry(
    module: Module,
    entry: Entry,
    boxes: Mapping[str, int],
    shared_bytes: int,
    threads: int,
    trips: int,
    beside: Beside,
    first: bool,
) -> EntryReport:
    notes = Notes(entry.name)
    facts: dict[str, Any] = {}
    if module.target not in _MODELLED:
        notes.gap(f"target {module.target}: the rules are those of sm_90a")
    if any(instruction.name == "brx" for instruction in entry.instructions):
        notes.gap("an indirect branch (brx.idx): no path of this kernel was followed")
        return EntryReport(entry.name, 0, (), tuple(notes.unchecked), facts)
    program = Program(entry)
    block = int(np.prod(entry.block)) if entry.block else threads
    if not block:
        block = DEFAULT_THREADS
        notes.gap(f"the entry does not say its threads; {block} were taken")
    elif not entry.exact_threads:
        facts["threads_from"] = ".maxntid" if entry.block else "given"
    symbols, static, base = _layout(entry)
    dynamic = any(not s.size for s in entry.shared)
    total = max(shared_bytes, static)
    if dynamic and not shared_bytes:
        total = resources.SHARED_LIMIT
        notes.gap(f"the launch's dynamic shared memory is not known; {total} bytes were taken")
    resources.check(program, total, block, notes)
    wgmma.check(program.graph, program.wgmma, notes)
    setting = Setting(block, total, base, symbols, _by_parameter(entry, boxes, notes))
    setting = replace(
        setting,
        cluster=any(
            "multicast::cluster" in i.parts or i.name == "mapa" or "shared::cluster" in i.parts[-2:]
            for i in entry.instructions
            if i.name in ("mapa",) or "multicast::cluster" in i.parts
        ),
    )
    if any(kind in PROTOCOL - {Kind.EXIT, Kind.TRAP} for kind in program.graph.kinds):
        setting = _solved(program, setting, notes)
        _explore(program, setting, trips, notes, facts, first)
    findings = sorted(notes.found.values(), key=lambda f: (f.line, f.rule))
    return EntryReport(
        entry.name,
        block,
        tuple(_placed(finding, module, beside) for finding in findings),
        tuple(notes.unchecked),
        facts,
    )


def _layout(entry: Entry) -> tuple[dict[str, int], int, int]:
    """Addresses of shared variables, the bytes of the static ones, the dynamic base."""
    symbols: dict[str, int] = {}
    at = 0
    for variable in entry.shared:
        if variable.size:
            at = -(-at // variable.align) * variable.align
            symbols[variable.name] = at
            at += variable.size
    base = -(-at // 1024) * 1024
    for variable in entry.shared:
        if not variable.size:
            symbols[variable.name] = base
    return symbols, at, base


def _by_parameter(entry: Entry, boxes: Mapping[str, int], notes: Notes) -> dict[str, int]:
    """Boxes by parameter name; a name that ends in `_N` may be given by its number or tail."""
    names = {parameter.name: None for parameter in entry.parameters}
    found = dict(boxes)
    for name in names:
        tail = name.removeprefix(f"{entry.name}_")
        if name not in found and tail in boxes:
            found[name] = boxes[tail]
    return found


def _solved(program: Program, setting: Setting, notes: Notes) -> Setting:
    """Boxes that nobody told, solved from what the kernel expects; then that is not checked."""
    equations: list[tuple[int, list[str]]] = []
    targets: dict[str, set[int]] = {}
    taken: set[int] = set()
    for prefix in ((False,) * 4, (False,) * 3, (False,) * 2, (False,), ()):
        cta = Cta(program, replace(setting, solve=True), Path(prefix, 8), Notes(program.entry.name))
        with contextlib.suppress(Stuck):
            cta.run()
        equations += [(size, names) for size, names in cta.equations if names]
        for name, starts in cta.targets.items():
            targets.setdefault(name, set()).update(starts)
        taken |= set(cta.mbarriers)
        if prefix and not equations and not set(targets) - set(setting.boxes):
            break
    if not equations:
        return setting
    unknown = sorted({name for _, names in equations for name in names})
    taken = taken.union(*targets.values())
    # A box ends before the next thing in shared memory; among the solutions, the nearest to that.
    room = np.array([_room(targets.get(name, set()), taken) for name in unknown], float)
    matrix = np.array([[names.count(name) for name in unknown] for _, names in equations], float)
    sizes = np.array([size for size, _ in equations], float)
    solution = room + np.linalg.pinv(matrix) @ (sizes - matrix @ room)
    boxes = {name: max(round(x), 0) for name, x in zip(unknown, solution, strict=True)}
    shown = ", ".join(f"{name} = {size}" for name, size in boxes.items())
    notes.gap(
        "byte counts of the tensor copies: PTX does not tell a box's size. Taken from what the"
        f" kernel expects: {shown}"
    )
    return replace(setting, boxes={**setting.boxes, **boxes})


def _room(starts: set[int], taken: set[int]) -> int:
    """Bytes from each start to the next thing, the least of them."""
    return min(
        (min((t - start for t in taken if t > start), default=1 << 20) for start in starts),
        default=0,
    )


def _explore(
    program: Program,
    setting: Setting,
    trips: int,
    notes: Notes,
    facts: dict[str, Any],
    first: bool,
) -> None:
    """All paths, copies landing early and late, warps in either order."""
    if first and notes.found:
        return
    walks = [_Walk(late) for late in (False, True)]
    rounds = trips or 4
    slots: dict[int, set[int]] = {}
    if first:
        # A long path meets most of what can go wrong.
        for late in (False, True):
            _Walk(late, (False,) * 12).step(program, setting, 16, notes, slots)
            if notes.found:
                return
    for walk in walks:
        while walk.prefix is not None:
            walk.step(program, setting, rounds, notes, slots)
            if first and notes.found:
                return
            ring = 2 * max((len(seen) for seen in slots.values()), default=0) + 2
            if not trips and ring > rounds:
                # The ring is longer than was thought: begin again with enough rounds.
                rounds = ring
                walk.prefix = ()
                walk.runs = walk.truncated = 0
            elif walk.runs >= MAX_RUNS and walk.prefix is not None:
                notes.gap(f"there are more paths than the {MAX_RUNS} that were followed")
                break
    runs = sum(walk.runs for walk in walks)
    truncated = any(walk.truncated for walk in walks)
    impossible = sum(walk.impossible for walk in walks)
    if impossible:
        notes.gap(
            f"{impossible} combinations of branches were left out: no values of the parameters were"
            " found that lead to them"
        )
    facts["paths"] = runs
    if truncated:
        facts["rounds"] = rounds
        notes.gap(
            f"loops of unknown length were followed for up to {rounds} rounds; beyond, slots and"
            " parities are taken to repeat"
        )


@dataclass(slots=True)
class _Walk:
    """A depth-first walk over the paths, with copies landing early or late."""

    late: bool
    prefix: tuple[bool, ...] | None = ()
    runs: int = 0
    truncated: int = 0
    impossible: int = 0

    def step(
        self,
        program: Program,
        setting: Setting,
        rounds: int,
        notes: Notes,
        slots: dict[int, set[int]],
    ) -> None:
        """One path; its findings go to `notes` if some parameters take it."""
        assert self.prefix is not None
        path = Path(self.prefix, rounds)
        scratch = Notes(notes.function)
        findings = self._run(program, setting, path, scratch, slots)
        self.runs += 1
        self.truncated += path.truncated
        self.prefix = path.following()
        if not findings and not path.unresolved:
            notes.unchecked.update(scratch.unchecked)
            return
        values = path.witnesses()
        if not values:
            self.impossible += 1
            return
        told_of = [(findings, values[0])]
        if path.unresolved:
            # Once more, with numbers for what was left open.
            told_of = []
            for value in values:
                again = Path((), rounds, fixed=value)
                told_of.append((self._run(program, setting, again, notes, slots), value))
                self.runs += 1
        else:
            notes.unchecked.update(scratch.unchecked)
        for found, value in told_of:
            for finding in found:
                notes.add(replace(finding, when=told(value)))

    def _run(
        self,
        program: Program,
        setting: Setting,
        path: Path,
        notes: Notes,
        slots: dict[int, set[int]],
    ) -> list[Finding]:
        cta = Cta(program, replace(setting, late=self.late, reverse=self.late), path, notes)
        try:
            cta.run()
        except Stuck:
            notes.gap("a path did not end within the steps that are followed")
        for wait, seen in cta.slots.items():
            slots.setdefault(wait, set()).update(seen)
        return cta.findings


def _placed(finding: Finding, module: Module, beside: Beside) -> Finding:
    """With the lines around it and, where a manifest tells, the schedule's line."""
    context = []
    for number in range(max(finding.line - 1, 1), min(finding.line + 1, len(module.lines)) + 1):
        mark = ">" if number == finding.line else " "
        context.append(f"{mark} {number}: {_short(module.lines[number - 1])}")
    return replace(
        finding,
        text=_short(finding.text),
        other_text=_short(finding.other_text),
        context=tuple(context),
        place=beside.places.get(finding.line, ""),
        other_place=beside.places.get(finding.other_line, ""),
    )


def _short(text: str, width: int = 110) -> str:
    """One line, without the middle of long register lists."""
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 30]} … {text[-27:]}"
