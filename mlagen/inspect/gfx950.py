"""Inspecting gfx950 machine code, with the names of an artifact's manifest where there is one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from mlagen.artifact import Artifact, MemoryMap, SourceLine, sha256
from mlagen.binary import CodeObject, KernelCode
from mlagen.binary.flow import Flow, read_flow
from mlagen.binary.instruction import MachineInstruction
from mlagen.binary.text import waitcnt_fields, waitcnt_text
from mlagen.inspect import banks, blocks
from mlagen.inspect.head_facts import artifact_facts, artifact_resources
from mlagen.inspect.lifting import Lifted, end_of, find_roles, lift, loops_of, timeline
from mlagen.inspect.liveness import read_liveness
from mlagen.inspect.model import CodeCluster, CodeLine, CodeWait, Inspection, MemoryArea
from mlagen.inspect.pipes import kind_of, mix_of, pipe_of
from mlagen.inspect.values import WaveView, view
from mlagen.targets.gfx950.limits import GFX950

_COUNTERS = re.compile(r"(vm|lgkm|exp)cnt\((\d+)\)")


def inspect_gfx950(
    path: Path, code: CodeObject, kernel: KernelCode, artifact: Artifact | None
) -> Inspection:
    """Everything about one kernel. BinaryError where its code does not decode."""
    flow = read_flow(kernel.instructions)
    accum = kernel.descriptor.accum_offset
    threads, limits = _threads(kernel, artifact)
    views = [view(flow, accum, wave, threads) for wave in range(_waves(threads))]
    sources = {line.asm_line: line for line in artifact.manifest.source} if artifact else {}
    by_index: dict[int, SourceLine] = {}
    if artifact:
        for index, ins in enumerate(flow.instructions):
            line = sources.get(code.line_of(kernel, ins.offset) or 0)
            if line is not None:
                by_index[index] = line
    offsets = {ins.offset: by_index.get(index) for index, ins in enumerate(flow.instructions)}

    def label(ins: MachineInstruction) -> object:
        line = offsets[ins.offset]
        return None if line is None else (line.section, line.cluster)

    known = artifact.manifest.map.roles if artifact else ()
    roles, reached = find_roles(flow, views, known)
    lifted = lift(flow, roles, reached, label)
    ids = tuple(f"c{number}" for number in range(len(lifted.runs)))
    text = artifact.text.splitlines() if artifact else []
    clusters = tuple(
        _cluster(lifted, number, ids[number], code, kernel, by_index, text)
        for number in range(len(ids))
    )
    liveness = read_liveness(flow, accum)
    memory: tuple[MemoryArea, ...] = ()
    if artifact and artifact.manifest.map.registers:
        operations = {index: line.operation for index, line in by_index.items()}
        registers = blocks.declared_blocks(
            lifted, liveness, ids, artifact.manifest.map.registers, operations, accum
        )
        memory = tuple(
            MemoryArea(a.name, a.kind, a.base, a.slots, a.slot_bytes, a.layout, _area_note(a))
            for a in artifact.manifest.map.memory
        )
    else:
        registers = blocks.lifted_blocks(flow, liveness, lifted.runs, ids, accum)
    uses = banks.lds_uses(flow, views, memory)
    if not memory:
        memory = banks.lifted_areas(uses)
        uses = banks.lds_uses(flow, views, memory)
    return Inspection(
        name=artifact.manifest.kernel if artifact else kernel.name,
        path=str(path),
        origin="artifact" if artifact else "binary",
        target=GFX950.name,
        facts=artifact_facts(artifact) if artifact else _binary_facts(kernel),
        resources=(
            *_resources(kernel, artifact, len(views)),
            ("vector registers alive at most", liveness.peak(scalar=False)),
            ("scalar registers alive at most", liveness.peak(scalar=True)),
        ),
        roles=roles,
        loops=loops_of(lifted),
        clusters=clusters,
        timeline=timeline(lifted, ids),
        blocks=registers,
        memory=memory,
        memory_bytes=kernel.descriptor.lds_bytes,
        lds=tuple(uses),
        handoffs=(),
        limits=(*limits, *_limits(flow, views)),
        code_sha256=sha256(kernel.code),
        schedule_file=artifact.manifest.schedule_file if artifact else "",
    )


def _threads(
    kernel: KernelCode, artifact: Artifact | None
) -> tuple[tuple[int, int, int], tuple[str, ...]]:
    """The workgroup's threads, and what had to be assumed of them."""
    if artifact:
        return artifact.manifest.block, ()
    if kernel.info is None:
        return (256, 1, 1), (
            "no metadata note: a workgroup of 256 threads in one dimension is assumed; roles of "
            "larger ones are not told apart",
        )
    count = kernel.info.max_workgroup_threads
    return (count, 1, 1), (
        f"the workgroup is taken as {count} threads in one dimension, its declared maximum",
    )


def _waves(block: tuple[int, int, int]) -> int:
    return -(-block[0] * block[1] * block[2] // GFX950.wave_size)


def _cluster(
    lifted: Lifted,
    number: int,
    id: str,
    code: CodeObject,
    kernel: KernelCode,
    by_index: dict[int, SourceLine],
    text: Sequence[str],
) -> CodeCluster:
    first, last = lifted.runs[number]
    found = []
    for index in range(first, last + 1):
        ins, line = lifted.flow.instructions[index], by_index.get(index)
        shown = str(ins)
        if line is not None and line.asm_line <= len(text):
            shown = text[line.asm_line - 1].partition(";")[0].strip()
        elif ins.branch_target is not None:
            shown = f"{ins.mnemonic} {ins.branch_target:#x}"
        found.append(
            CodeLine(ins.offset, shown, pipe_of(ins))
            if line is None
            else CodeLine(ins.offset, shown, pipe_of(ins), line.operation, line.template,
                          line.template_line, line.schedule_line)
        )  # fmt: skip
    mix = mix_of(found)
    loop = lifted.loop_name(lifted.loop_of[number])
    source = by_index.get(first)
    priorities = [
        ins.modifier("simm16")
        for ins in lifted.flow.instructions[first : last + 1]
        if ins.mnemonic == "s_setprio"
    ]
    return CodeCluster(
        id=id,
        name=(source.cluster or "control") if source else id,
        section=source.section if source else loop or "outside loops",
        roles=lifted.roles_of[number],
        loop=loop,
        kind=kind_of(mix),
        end=end_of(lifted.flow.instructions[last]),
        mix=mix,
        waits=tuple(_waits(lifted, first, last, by_index)),
        lines=tuple(found),
        priority=max(priorities) if priorities else None,
    )


def _waits(
    lifted: Lifted, first: int, last: int, by_index: dict[int, SourceLine]
) -> list[CodeWait]:
    found = []
    code = lifted.flow.instructions
    for index in range(first, last + 1):
        ins = code[index]
        if ins.mnemonic != "s_waitcnt":
            continue
        line = by_index.get(index)
        needed = line.needed if line else ""
        text = waitcnt_text(ins.modifier("simm16"))
        after = index + 1
        while after < last and code[after].mnemonic in ("s_nop", "s_setprio", "s_waitcnt"):
            after += 1
        before = str(code[after]) if after <= last else ""
        source: Literal["binary", "explicit", "derived"]
        source = "binary" if line is None else "explicit" if needed else "derived"
        slack = slack_of(ins.modifier("simm16"), needed) if needed else ""
        told = needed or (text if line is not None else "")
        found.append(CodeWait(ins.offset, text, source, told, slack, before))
    return found


def _area_note(area: MemoryMap) -> str:
    if not area.cycles:
        return area.comment
    return f"{area.comment}; {area.cycles} cycles a wave and tile, {area.ideal} without conflicts"


def slack_of(placed: int, needed: str) -> str:
    """How much stricter an s_waitcnt immediate is than the counts of `needed`; "": it is not."""
    wanted = {name: int(count) for name, count in _COUNTERS.findall(needed)}
    vm, _, lgkm = waitcnt_fields(placed)
    lost = []
    for name, count, full in (("vm", vm, GFX950.vmcnt_max), ("lgkm", lgkm, GFX950.lgkmcnt_max)):
        if count == full:
            continue
        if name not in wanted:
            lost.append(f"{name}cnt({count}) is not needed")
        elif count < wanted[name]:
            lost.append(f"{name}cnt({wanted[name]}) would do")
    return "; ".join(lost)


def _binary_facts(kernel: KernelCode) -> tuple[tuple[str, str], ...]:
    facts = [("kernel", kernel.name), ("code", f"{len(kernel.code)} bytes")]
    if kernel.info and kernel.info.arguments:
        facts.append(("arguments", f"{len(kernel.info.arguments)} in {kernel.kernarg_bytes} bytes"))
    return tuple(facts)


def _resources(
    kernel: KernelCode, artifact: Artifact | None, waves: int
) -> tuple[tuple[str, int], ...]:
    if artifact:
        return artifact_resources(artifact)
    held = kernel.descriptor
    agprs = kernel.info.agprs if kernel.info else 0
    return (
        ("vector registers", min(held.vgprs, held.accum_offset) if agprs else held.vgprs),
        ("accumulator registers", max(0, held.vgprs - held.accum_offset) if agprs else 0),
        ("scalar registers", held.sgprs),
        ("LDS bytes", held.lds_bytes),
        ("scratch bytes", held.scratch_bytes),
        ("spills", kernel.info.vgpr_spills + kernel.info.sgpr_spills if kernel.info else 0),
        ("threads", waves * GFX950.wave_size),
    )


def _limits(flow: Flow, views: Sequence[WaveView]) -> tuple[str, ...]:
    said = []
    if flow.indirect:
        places = ", ".join(f"{offset:#x}" for offset in flow.indirect[:4])
        said.append(f"indirect jumps at {places}: code after them is not followed")
    for loop in flow.loops:
        if len(loop.entries) > 1:
            head = flow.instructions[flow.blocks[loop.head].first].offset
            said.append(f"the loop at {head:#x} is entered at {len(loop.entries)} places")
    unreached = [b for b in flow.order if not any(b in v.reached for v in views)]
    if unreached:
        said.append(f"{len(unreached)} blocks of code are reached by none of the waves")
    return tuple(said)
