"""Slots of pipelines in a run of a proof: filled, waited for, released, and filled again."""

from __future__ import annotations

from mlagen.dsl import Operation
from mlagen.targets.nvidia.codegen.actors import RoleEvent, Slot, Touched, Warp
from mlagen.targets.nvidia.codegen.clocks import Clock, RegionAccess, join
from mlagen.targets.nvidia.codegen.proof_memory import MemoryRun
from mlagen.targets.nvidia.codegen.tracks import fills_of, resident_of
from mlagen.targets.nvidia.dsl.smem import Pipeline


class FillingRun(MemoryRun):
    """Fills, waits for them and releases of a run."""

    def _copy(self, warp: Warp, does: Touched, tile: int) -> None:
        assert does.op.access is not None
        pipeline = self.schedule.smem.pipelines[does.op.access.target.ring]
        self._fill(warp, does.op, pipeline, tile, self.line.items[tile])

    def _fill(self, warp: Warp, op: Operation, pipeline: Pipeline, tile: int, item: int) -> None:
        if not warp.issues and not pipeline.producer_threads:
            return
        for block in self._blocks_of(warp, pipeline):
            self._fill_slot(warp, op, pipeline, (tile, item), block)

    def _fill_slot(
        self, warp: Warp, op: Operation, pipeline: Pipeline, place: tuple[int, int], block: int
    ) -> None:
        """Fill a slot of a block, for the tile and item `place`."""
        tile, item = place
        (name, number), fill = fills_of(self.line, pipeline, tile, item)
        full = 0 if pipeline.pair else block  # whose barrier tells that the slot is full
        slot, filler = self.slots[(full, name, number)], self.filler[(full, name, number)]
        held = resident_of(item) if pipeline.resident else tile
        arrives = full == warp.block or pipeline.producer_threads > 0
        if arrives or pipeline.blocks > 1:
            self._check_waits(warp, op, pipeline, tile, slot.waits.get(fill - 1, {}))
        elif warp.clock[filler] < fill - 1:  # only its bytes come, before the arrival or after it
            self._problem(
                op, warp, f"fills {pipeline.name} for tile {tile} without knowing that the tile "
                f"before was complete, for which its bytes would count"
            )  # fmt: skip
        access = RegionAccess(filler, fill, held, op, (warp.role, id(op), tile),
                              generic=pipeline.producer_threads > 0
                              and not pipeline.fenced)  # fmt: skip
        for part in pipeline.parts:
            region = self.regions[block][f"{part.name}[{tile % pipeline.depth}]"]
            self._check_write(
                warp, op, region, tile, fills=True, proxy=not pipeline.producer_threads
            )
            region.write(access)
        # Its arrival; elsewhere its bytes arrive, and nothing with them.
        tells = full == warp.block or (bool(pipeline.pair) and arrives)
        self._gather(slot, pipeline, warp.clock if tells else None, tile, full)

    def _gather(
        self, slot: Slot, pipeline: Pipeline, clock: Clock | None, tile: int, block: int
    ) -> None:
        """One of those that fill a slot of a block has done so. `clock`: what its arrival tells."""
        slot.gathered += 1
        if slot.gathered == 1:
            slot.merged.append([0] * sum(map(len, (self.warps, self.filler, self.pipes))))
            if not block:
                self.order.setdefault((pipeline.name, "fills"), []).append(tile)
        if clock is not None:
            join(slot.merged[-1], clock)
        makers = self.members[pipeline.producer] if pipeline.producer_threads else 1
        makers *= 2 if pipeline.pair else pipeline.blocks if pipeline.producer_threads else 1
        if slot.gathered == makers:
            slot.filled, slot.gathered = slot.filled + 1, 0

    def _arrive_full(self, warp: Warp, does: Touched, event: RoleEvent) -> None:
        """A warp has filled its part of a slot of TMEM."""
        pipeline, tile = does.pipeline, event.tile
        assert pipeline is not None
        (name, number), fill = fills_of(self.line, pipeline, tile, event.item)
        full = 0 if pipeline.pair else warp.block
        slot = self.slots[(full, name, number)]
        self._check_waits(warp, does.op, pipeline, tile, slot.waits.get(fill - 1, {}))
        self._gather(slot, pipeline, warp.clock, tile, full)

    def _check_waits(
        self, warp: Warp, op: Operation, pipeline: Pipeline, tile: int,
        waits: dict[int, int | None],
    ) -> None:  # fmt: skip
        """A problem where some may still wait for the slot's last fill, which `waits` are for."""
        for actor, seen in waits.items():
            if seen is None or warp.clock[actor] < seen:
                self._problem(
                    op, warp, f"fills {pipeline.name} for tile {tile} while {self._name(actor)} "
                    "may still wait for what was there, whose phase it would miss"
                )  # fmt: skip

    def _fill_by_commit(self, warp: Warp, does: Touched, event: RoleEvent) -> None:
        """Products have filled a slot of TMEM, when they are done."""
        pipeline = does.pipeline
        assert pipeline is not None
        (name, number), fill = fills_of(self.line, pipeline, event.tile, event.item)
        for block in self.blocks if does.both else (warp.block,):
            slot = self.slots[(block, name, number)]
            self._check_waits(warp, does.op, pipeline, event.tile, slot.waits.get(fill - 1, {}))
            slot.merged.append(self._at_commit(warp))
            slot.filled += 1
        if not warp.block:
            self.order.setdefault((pipeline.name, "fills"), []).append(event.tile)

    def _hand_over(self, warp: Warp, does: Touched) -> None:
        """Products have left the sums of an item in a region, when they are done."""
        name = does.op.uses[0].block
        for block in self.blocks if does.both else (warp.block,):
            told = self.committed.setdefault((block, name), [])
            seen = self.handed.get((block, name, len(told) - 1), {})
            for taker in self.takers[block, name] if told else ():
                if taker not in seen or warp.clock[taker] < seen[taker]:
                    self._problem(
                        does.op, warp, f"hands {name} over while {self._name(taker)} may still "
                        "wait for that of the item before, whose phase it would miss"
                    )  # fmt: skip
            told.append(self._at_commit(warp))

    def _take_over(self, warp: Warp, event: RoleEvent) -> bool:
        """Whether the sums of the item are there."""
        assert event.op is not None
        block, name = warp.block, event.op.uses[0].block
        told = self.committed.get((block, name), [])
        if len(told) <= event.item:
            return False
        join(warp.clock, told[event.item])
        self.handed.setdefault((block, name, event.item), {})[warp.actor] = warp.clock[warp.actor]
        return True

    def _release(self, warp: Warp, does: Touched, event: RoleEvent) -> None:
        op, tile = does.op, event.tile
        assert op.access is not None
        pipeline = self.schedule.smem.pipelines[op.access.target.ring]
        regions = {region.name for region in does.slots[tile % pipeline.depth]}
        flying = [access for _, access in warp.groups]
        if not does.commits and (warp.block, warp.role) in self.pipes:
            held = (self.regions[warp.block][region] for region in regions)
            flying += [x for region in held for x in region.reads if not x.known(warp.clock)]
        if any(
            (access.tile == tile or pipeline.resident) and regions & access.regions
            for access in flying
        ):
            self._problem(op, warp, f"{pipeline.name}({tile}) is still read by a matrix group")
        last = self._before(pipeline, tile, event.item)
        freeing = event.item if pipeline.resident else tile
        for block in self._freed_in(warp, does, pipeline):
            before = self.releases.get((block, pipeline.name, -1 if last is None else last), {})
            if last is not None and not (
                len(before) == self._releases_of(pipeline)
                and all(warp.clock[actor] >= clock[actor] for actor, clock in before.items())
            ):
                self._problem(
                    op, warp, f"releases {pipeline.name}({tile}) without knowing that all have "
                    f"released the tile before: their arrivals would count for one phase"
                )  # fmt: skip
            freed = self.releases.setdefault((block, pipeline.name, freeing), {})
            freed[warp.actor] = self._at_commit(warp) if does.commits else list(warp.clock)
        if warp.issues and not warp.block:
            done = self.line.starts[event.item] if pipeline.resident else tile
            self.order.setdefault((pipeline.name, f"{warp.role} releases"), []).append(done)

    # ---- waits ------------------------------------------------------------------------------

    def _wait(self, warp: Warp, does: Touched, event: RoleEvent) -> bool:
        op = does.op
        pipeline, tile = self.schedule.smem.pipelines[op.uses[0].block], event.tile
        if op.name == "wait_empty":
            return self._wait_empty(warp, pipeline, event)
        key, fill = fills_of(self.line, pipeline, tile, event.item)
        slot, filler = self.slots[(warp.block, *key)], self.filler[(warp.block, *key)]
        if does.fence or warp.clock[filler] < fill:
            self.busy.add(id(op))
        if warp.clock[filler] < fill - 1:
            # Its parity cannot be told from that of the phase before the last.
            self._problem(
                op, warp, f"waits for {pipeline.name}({tile}) without knowing that the slot's tile "
                f"before was complete"
            )  # fmt: skip
        if slot.filled < fill:
            return False
        slot.waits[fill][warp.actor] = warp.clock[warp.actor]
        join(warp.clock, slot.merged[fill - 1])
        warp.clock[filler] = max(warp.clock[filler], fill)
        if does.fence:
            self._fence(warp)
        return True

    def _wait_empty(self, warp: Warp, pipeline: Pipeline, event: RoleEvent) -> bool:
        before = self._before(pipeline, event.tile, event.item)
        if before is None:
            return True
        freed = self.releases.get((warp.block, pipeline.name, before), {})
        if len(freed) < self._releases_of(pipeline):
            return False
        for clock in freed.values():
            join(warp.clock, clock)
        return True
