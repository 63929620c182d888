"""What the manifest tells of a kernel's inside: roles, registers, memory, pipelines."""

from __future__ import annotations

from collections.abc import Iterator

from mlagen.artifact import HandoffMap, KernelMap, MemoryMap, RegisterMap, RoleMap, TmemMap
from mlagen.targets.nvidia.dsl import PipelineSchedule


def kernel_map(schedule: PipelineSchedule) -> KernelMap:
    """The map of a schedule whose roles are programs of their own."""
    smem = schedule.smem
    areas = [
        MemoryMap(
            name=tile.name,
            kind="tile",
            base=tile.base,
            slots=tile.slots,
            slot_bytes=tile.bytes,
            layout=f"{tile.rows} rows x {tile.row_bytes} bytes, {tile.row_bytes}-byte swizzle",
            comment=f"filled from {tile.tensor}",
        )
        for tile in smem.tiles.values()
    ]
    areas += [MemoryMap(x.name, "buffer", x.base, 1, x.bytes) for x in smem.scratches.values()]
    areas += [MemoryMap(x.name, "message", x.base, 1, x.bytes) for x in smem.exchanges.values()]
    return KernelMap(
        roles=tuple(
            RoleMap(
                stream.role.name,
                stream.role.warps.start,
                stream.role.warps.stop - 1,
                registers=stream.role.registers,
                threads=stream.role.threads,
            )
            for stream in schedule.streams
        ),
        registers=tuple(
            RegisterMap(regs.name, regs.type, regs.count, comment=regs.comment)
            for regs in schedule.registers
        ),
        memory=tuple(areas),
        handoffs=tuple(_handoffs(schedule)),
        tmem=tuple(_tmem(schedule)),
    )


def _handoffs(schedule: PipelineSchedule) -> list[HandoffMap]:
    """Pipelines, exchanges, and regions of TMEM."""
    smem = schedule.smem
    pipelines = [
        HandoffMap(
            name=pipeline.name,
            producer=pipeline.producer,
            consumers=pipeline.consumers,
            depth=pipeline.depth,
            bytes=pipeline.bytes,
            areas=tuple(tile.name for tile in pipeline.parts),
            full=pipeline.full,
            empty=pipeline.empty if pipeline.releases else -1,
            releases=pipeline.empties,
            resident=pipeline.resident,
        )
        for pipeline in smem.pipelines.values()
    ]
    pipelines += [
        HandoffMap(
            name=exchange.name,
            producer=exchange.producer,
            consumers=(exchange.consumer,),
            depth=1,
            bytes=exchange.bytes,
            areas=(exchange.name,),
            named=exchange.barrier,
        )
        for exchange in smem.exchanges.values()
    ]
    pipelines += [
        HandoffMap(
            name=region.name,
            producer=region.producer,
            consumers=(region.consumer,),
            depth=1,
            bytes=region.bytes,
            areas=(region.name,),
            full=region.barrier,
        )
        for region in schedule.tmem.handed
    ]
    return pipelines


def _tmem(schedule: PipelineSchedule) -> Iterator[TmemMap]:
    for region in schedule.tmem.regions.values():
        sums = f"sums of {region.producer} for {region.consumer}"
        what = f"operand of {region.producer}" if region.operand else sums
        yield TmemMap(region.name, region.column, region.columns, comment=what)
    for tile in schedule.tmem.tiles.values():
        apart = tile.stride if tile.stride != tile.columns else 0
        yield TmemMap(tile.name, tile.column, tile.columns, tile.slots, apart)
