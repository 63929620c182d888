"""Inspecting an sm_90a artifact: its `.ptx` with the manifest's line map.

A cluster here is one step of a role: an operation with the waits before it and the arrivals after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlagen.artifact import Artifact, HandoffMap, KernelMap, SourceLine
from mlagen.errors import BinaryError, MissingError, UnsupportedError
from mlagen.inspect.head_facts import artifact_facts, artifact_resources
from mlagen.inspect.model import (
    CodeCluster,
    CodeLine,
    CodeLoop,
    CodeRole,
    CodeWait,
    Handoff,
    Inspection,
    MemoryArea,
    Timeline,
)
from mlagen.inspect.pipes import kind_of, mix_of, ptx_pipe_of
from mlagen.inspect.ptx_blocks import ptx_blocks
from mlagen.ptx import Entry, Instruction, Module, read_ptx
from mlagen.targets.sm_90a.limits import SM_90A
from mlagen.untrusted import Spent, within

# Derived operations that belong to the step after them, or to the one before. Artifacts of
# earlier versions say `acquire` and `signal`.
_BEFORE = ("pipeline/wait", "pipeline/sync", "pipeline/arrive_and_wait", "pipeline/acquire")
_AFTER = ("pipeline/arrive.", "pipeline/advance", "pipeline/signal")
_AGAIN = "build the kernel again"
_MBARRIER = SM_90A.mbarrier_bytes


@dataclass
class _Step:
    """One cluster while it is collected."""

    role: str
    section: str
    name: str
    rows: list[tuple[SourceLine, Instruction]] = field(default_factory=list)


def inspect_ptx(path: Path, artifact: Artifact) -> Inspection:
    """Everything about an sm_90a artifact. UnsupportedError: its text cannot be read, or that takes
    too long or too much."""
    try:
        with within():
            return _inspected(path, artifact)
    except Spent as spent:
        raise UnsupportedError(f"{path}: inspecting it met {spent}") from None
    except (BinaryError, MissingError, UnsupportedError) as error:
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from None


def _inspected(path: Path, artifact: Artifact) -> Inspection:
    manifest = artifact.manifest
    module = read_ptx(artifact.text)
    entry = next((e for e in module.entries if e.name == manifest.symbol), None)
    if entry is None:
        raise BinaryError(f"the text has no kernel {manifest.symbol}", hint=_AGAIN)
    steps = _steps(manifest.source, module, entry)
    clusters = tuple(_cluster(f"c{number}", step) for number, step in enumerate(steps))
    known = manifest.map
    return Inspection(
        name=manifest.kernel,
        path=str(path),
        origin="artifact",
        target=manifest.target,
        facts=artifact_facts(artifact),
        resources=artifact_resources(artifact),
        roles=_roles(known, clusters),
        loops=tuple(_loops(clusters)),
        clusters=clusters,
        timeline=Timeline(0, why="roles on this target meet at mbarriers, not all at one barrier"),
        blocks=ptx_blocks(entry, clusters, known.registers),
        memory=tuple(_memory(known)),
        memory_bytes=manifest.resources.lds_bytes,
        lds=(),
        handoffs=tuple(_handoff(handoff) for handoff in known.handoffs),
        limits=(
            "registers are what the .ptx names; ptxas chooses the machine's",
            "bank phases of shared memory are not counted: wgmma and TMA undo each other's swizzle",
        ),
        code_sha256=manifest.code_sha256,
        schedule_file=manifest.schedule_file,
        tmem=known.tmem,
    )


def _steps(source: Sequence[SourceLine], module: Module, entry: Entry) -> list[_Step]:
    steps: list[_Step] = []
    ahead: list[tuple[SourceLine, Instruction]] = []
    lines = len(module.lines)
    code: dict[int, list[Instruction]] = {}
    for instruction in entry.instructions:
        code.setdefault(instruction.line, []).append(instruction)
    for line in source:
        if not 1 <= line.asm_line <= lines:
            raise BinaryError(
                f"the manifest tells of line {line.asm_line} of the text, which has {lines}",
                hint=_AGAIN,
            )
        rows = [(line, instruction) for instruction in code.get(line.asm_line, ())]
        if not rows:
            continue
        here = (line.role, line.section)
        last = steps[-1] if steps and (steps[-1].role, steps[-1].section) == here else None
        if ahead and (ahead[0][0].role, ahead[0][0].section) != here:
            steps.append(_Step(ahead[0][0].role, ahead[0][0].section, "waits", ahead))
            ahead, last = [], None
        waits = ptx_pipe_of(rows[0][1].opcode) == "wait"
        if line.template.startswith(_AFTER) and last is not None and not ahead:
            last.rows += rows
        elif line.template.startswith((*_BEFORE, *_AFTER)) or waits:
            ahead += rows
        elif last is not None and last.name == line.operation:
            last.rows += [*ahead, *rows]
            ahead = []
        else:
            name = line.operation or "control flow"
            steps.append(_Step(line.role, line.section, name, [*ahead, *rows]))
            ahead = []
    if ahead:
        steps.append(_Step(ahead[0][0].role, ahead[0][0].section, "waits", ahead))
    return steps


def _cluster(id: str, step: _Step) -> CodeCluster:
    lines = tuple(
        CodeLine(
            at=line.asm_line,
            text=instruction.text.rstrip(";"),
            pipe=ptx_pipe_of(instruction.opcode),
            operation=line.operation,
            template=line.template,
            template_line=line.template_line,
            schedule_line=line.schedule_line,
        )
        for line, instruction in step.rows
    )
    mix = mix_of(lines)
    waits = []
    for index, (line, instruction) in enumerate(step.rows):
        joins = instruction.opcode.startswith(("bar.sync", "barrier.sync"))
        if lines[index].pipe != "wait" and not joins:
            continue
        raw = lines[index].text
        placed = not line.template or line.template.startswith("pipeline/")
        after = next((x.text for x in lines[index + 1 :] if x.pipe not in ("wait", "branch")), "")
        waits.append(
            CodeWait(
                line.asm_line,
                raw.partition(" ")[2] if raw.startswith("@") else raw,
                "derived" if placed else "explicit",
                needed=raw if placed else "",
                before=after,
            )
        )
    return CodeCluster(
        id=id,
        name=step.name,
        section=step.section or "role entry and ends",
        roles=(step.role,) if step.role else (),
        loop=f"{step.role} loop" if step.section == "loop" else "",
        kind=kind_of(mix),
        end="",
        mix=mix,
        waits=tuple(waits),
        lines=lines,
    )


def _roles(known: KernelMap, clusters: Sequence[CodeCluster]) -> tuple[CodeRole, ...]:
    if known.roles:
        return tuple(
            CodeRole(r.name, r.first, r.last, "warp", r.stagger, r.registers,
                     "one thread" if r.threads == 1 else f"{r.threads} threads")
            for r in known.roles
        )  # fmt: skip
    names = dict.fromkeys(name for cluster in clusters for name in cluster.roles)
    return tuple(CodeRole(name, 0, 0, "warp") for name in names)


def _loops(clusters: Sequence[CodeCluster]) -> list[CodeLoop]:
    held: dict[str, list[CodeCluster]] = {}
    for cluster in clusters:
        if cluster.loop:
            held.setdefault(cluster.loop, []).append(cluster)
    return [
        CodeLoop(name, min(line.at for c in group for line in c.lines),
                 max(line.at for c in group for line in c.lines), "", group[0].roles, None)
        for name, group in held.items()
    ]  # fmt: skip


def _memory(known: KernelMap) -> list[MemoryArea]:
    areas = [
        MemoryArea(a.name, a.kind, a.base, a.slots, a.slot_bytes, a.layout, a.comment)
        for a in known.memory
    ]
    for handoff in known.handoffs:
        for what, base in (("full", handoff.full), ("empty", handoff.empty)):
            if base >= 0:
                areas.append(MemoryArea(f"{handoff.name} {what}", "mbarriers", base, handoff.depth,
                                        _MBARRIER, note=f"of pipeline {handoff.name}"))  # fmt: skip
    return sorted(areas, key=lambda area: (area.base, area.name))


def _handoff(handoff: HandoffMap) -> Handoff:
    if handoff.named >= 0:
        barrier = f"named barrier {handoff.named}"
    else:
        barrier = f"mbarriers full at {handoff.full:#x}"
        if handoff.empty >= 0:
            barrier += f", empty at {handoff.empty:#x} ({handoff.releases} arrivals)"
    note = "resident" if handoff.resident else ""
    return Handoff(handoff.name, handoff.producer, handoff.consumers, handoff.depth, handoff.bytes,
                   barrier, note)  # fmt: skip
