"""A pipeline schedule as the text of a `.ptx`, and where each of its lines came from."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mlagen.artifact import SourceLine
from mlagen.artifact.manifest import TENSOR_MAP_ALIGN, TENSOR_MAP_BYTES
from mlagen.codegen.manifest import header
from mlagen.codegen.templates import Templates
from mlagen.targets.nvidia.codegen.emit import Emitter
from mlagen.targets.nvidia.codegen.emit_apart import ApartEmitter
from mlagen.targets.nvidia.codegen.emit_items import ItemEmitter
from mlagen.targets.nvidia.codegen.runs import Loop
from mlagen.targets.nvidia.dsl.pipeline import PipelineSchedule
from mlagen.targets.nvidia.dsl.smem import Exchange, Scratch
from mlagen.targets.nvidia.limits import Nvidia

PARAMETERS = {"pointer": ".u64", "u32": ".u32", "i32": ".s32", "f32": ".f32"}


def print_streams(
    schedule: PipelineSchedule, templates: Templates, loops: Sequence[Loop]
) -> Emitter:
    """The streams as they are printed."""
    kinds = {"": Emitter, "ahead": ItemEmitter, "apart": ApartEmitter}
    emitter = kinds[schedule.persistent](schedule, templates, loops)
    for loop in loops:
        emitter.stream(loop)
    return emitter


def render_pipeline(
    schedule: PipelineSchedule, templates: Templates, emitter: Emitter
) -> tuple[str, list[SourceLine]]:
    """The `.ptx` and the source of each generated line."""
    rendered = templates.render(
        "kernel.ptx.j2",
        {
            **header(schedule),
            "symbol": schedule.symbol,
            "ptx_version": ".".join(map(str, schedule.ptx_version)),
            "blocks": schedule.blocks,
            "pair": schedule.smem.pair,
            "group": schedule.cta_group,
            "roles": _roles(schedule),
            "dispatch": [stream.role for stream in schedule.streams],
            "smem_bytes": schedule.smem.used,
            "smem_capacity": schedule.smem.capacity,
            "smem_map": _smem_map(schedule),
            "arguments": [
                f".align {TENSOR_MAP_ALIGN} .b8 {a.name}[{TENSOR_MAP_BYTES}]"
                if a.kind == "tensor_map"
                else f"{PARAMETERS[a.kind]} {a.name}"
                for a in schedule.signature.arguments
            ],
            "threads": schedule.threads,
            "resident": schedule.signature.resident,
            "registers": [(r.type, f"%{r.name}<{r.count}>", r.comment) for r in schedule.registers]
            + emitter.registers,
            "barriers": [
                (base + slot * Nvidia.mbarrier_bytes, count)
                for pipeline in schedule.smem.pipelines.values()
                for base, count in (
                    (pipeline.full, pipeline.arrivals),
                    (pipeline.empty, pipeline.empties),
                )
                if count
                for slot in range(pipeline.depth)
            ]
            + [(region.barrier, 1) for region in schedule.tmem.handed],
            "tmem": schedule.tmem if schedule.tmem.used else None,
            "tmem_map": _tmem_map(schedule),
            "tmem_warp": _tmem_warp(schedule),
            "code": "\n".join(line.text for line in emitter.lines),
        },
        schedule.file,
    )
    text = "\n".join(line for _, _, line in rendered) + "\n"
    body = "\n".join(line.text for line in emitter.lines)
    start = text[: text.index(body)].count("\n") + 1
    source = [
        msgspec.structs.replace(line.source, asm_line=number)
        for number, line in enumerate(emitter.lines, start)
        if line.source is not None
    ]
    return text, source


def _roles(schedule: PipelineSchedule) -> list[str]:
    lines = []
    for stream in schedule.streams:
        role = stream.role
        who = "one thread" if role.single else f"{Nvidia.warp_size * len(role.warps)} threads"
        who += " of the leader" if role.leader else ""
        loop = "; ".join(str(operation) for operation in stream.loop)
        lines.append(
            f"{role.name}: warps {role.warps.start}..{role.warps.stop - 1}, {who}, "
            f"{role.registers or schedule.share} registers; tile i: {loop}"
        )
    return lines


def _tmem_map(schedule: PipelineSchedule) -> list[str]:
    return [
        f"{region.column:3}..{region.column + region.columns - 1:3}  {region.name}: "
        + (
            f"operand of {region.producer}"
            if region.operand
            else f"{region.producer} -> {region.consumer}, commit on {region.barrier:#07x}"
        )
        for region in schedule.tmem.regions.values()
    ] + [
        f"{tile.slot_column(slot):3}..{tile.slot_column(slot) + tile.columns - 1:3}  {tile.name} "
        f"slot {slot}"
        for tile in schedule.tmem.tiles.values()
        for slot in range(tile.slots)
    ]


def _tmem_warp(schedule: PipelineSchedule) -> int:
    """The warp that allocates TMEM and gives it back."""
    owner = schedule.tmem.owner
    return next((s.role.warps.start for s in schedule.streams if s.role.name == owner), 0)


def _smem_map(schedule: PipelineSchedule) -> list[str]:
    lines = [
        f"{tile.slot_base(slot):#07x}..{tile.slot_base(slot) + tile.bytes - 1:#07x}  "
        f"{tile.name} slot {slot}: {tile.rows} rows x {tile.row_bytes} bytes, 128-byte swizzle"
        for tile in schedule.smem.tiles.values()
        for slot in range(tile.slots)
    ]
    told: list[tuple[Exchange | Scratch, str]] = [
        (x, f"exchange {x.name}: {x.producer} -> {x.consumer}, named barrier {x.barrier}")
        for x in schedule.smem.exchanges.values()
    ]
    told += [(x, f"{x.name}, written by one role") for x in schedule.smem.scratches.values()]
    lines += [f"{x.base:#07x}..{x.base + x.bytes - 1:#07x}  {what}" for x, what in told]
    for pipeline in schedule.smem.pipelines.values():
        what = f"{pipeline.depth} full barrier{'s' if pipeline.depth > 1 else ''}"
        what += ", resident" if pipeline.resident else ""
        what += ", then as many empty ones" if pipeline.releases else ""
        what += f", filled by {pipeline.blocks} blocks" if pipeline.blocks > 1 else ""
        lines.append(
            f"{pipeline.full:#07x}  pipeline {pipeline.name}: {what}; {pipeline.producer} -> "
            f"{' and '.join(pipeline.consumers)}, {pipeline.bytes} bytes"
        )
    return lines
