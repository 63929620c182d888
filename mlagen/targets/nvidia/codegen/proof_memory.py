"""Accesses to SMEM and TMEM in a run of a proof: each comes after those that it needs."""

from __future__ import annotations

from mlagen.dsl import Operation
from mlagen.targets.nvidia.codegen.actors import TMEM_SPACE, RoleEvent, Touched, Warp
from mlagen.targets.nvidia.codegen.clocks import Region, RegionAccess
from mlagen.targets.nvidia.codegen.derived import FENCES
from mlagen.targets.nvidia.codegen.proof_state import RunState
from mlagen.targets.nvidia.codegen.tracks import resident_of


class MemoryRun(RunState):
    """Reads, writes, products and fences of a run."""

    def _touch(self, warp: Warp, does: Touched, event: RoleEvent) -> None:
        """Its reads and writes of SMEM."""
        op, tile, now = does.op, event.tile, warp.clock[warp.actor]
        flies, key = op.asynchronous, (warp.role, id(op), event.tile)
        met = self._aside(warp, op, tile).met if op.guarded else None
        reads, writes, names = does.places[tile % does.period]
        access = RegionAccess(
            warp.actor, None if flies else now, tile, op, key, not flies, names, met=met
        )
        if reads and not flies and self.loads.of:
            access.loads = self.loads.left_by(id(op))
            warp.loading += [access] if access.loads else []
        for region, resident in reads:
            held = resident_of(event.item) if resident else tile
            if region.base >= TMEM_SPACE:
                warp.tensor.append(access)
            if op.guarded or (warp.actor, held, flies) not in region.seen:
                self._look(warp, op, region, access, held)
            region.reads.append(access)
        self.checked += len(reads)
        if writes:
            for region, fills in writes:
                held = resident_of(event.item) if region.name in does.stays else tile
                smem = region.base < TMEM_SPACE
                written = RegionAccess(warp.actor, now, held, op, key, generic=smem, met=met)
                self._check_write(warp, op, region, tile, fills=fills)
                region.write(written)
                (warp.unfenced if smem else warp.tensor).append(written)
        if flies:
            warp.groups.append((does, access))

    def _product(self, warp: Warp, does: Touched, event: RoleEvent) -> None:
        """A product that the tensor pipe does: what it reads must be there when it is issued, and
        to its sums it adds after the products before it. An operand that tcgen05.cp copied before
        is there. No other order of products is relied on (PTX ISA, pipelined tcgen05 instructions):
        not that one has read an operand."""
        op, tile, owner = does.op, event.tile, (warp.block, warp.role)
        pipe = self.pipes[owner]
        self.issued[owner] += 1
        time, key = self.issued[owner], (warp.role, id(op), tile)
        for block in self._reached(warp):
            reads, writes, names = self.touched[block][id(op)].places[tile % does.period]
            access = RegionAccess(pipe, time, tile, op, key, generic=False, regions=names)
            for region, resident in reads:
                self._look(warp, op, region, access, resident_of(event.item) if resident else tile)
                region.reads.append(access)
            self.checked += len(reads)
            for region, fills in writes:
                held = resident_of(event.item) if region.name in does.stays else tile
                written = RegionAccess(pipe, time, held, op, key, generic=False)
                if region.lost and any(old.tile == held for old in region.writes):
                    self._problem(op, warp, f"adds to {region.name}, in place of which lies "
                                  f"{region.lost}")  # fmt: skip
                self._check_write(warp, op, region, tile, fills=fills, pipe=pipe)
                region.write(written)

    def _look(
        self, warp: Warp, op: Operation, region: Region, access: RegionAccess, held: int
    ) -> None:
        """Whether a read finds `held` in a region, a tile or what is resident for an item."""
        key, tile, certain = access.key, access.tile, not op.guarded
        # Where one of this tile is done that may skip itself, only it is there for another.
        done = [write for write in region.skipped if op.guarded and write.tile == tile]
        if not region.writes:
            self._problem(op, warp, f"uses {region.name} before it is full")
        elif region.lost is not None and not done:
            self._problem(op, warp, f"uses {region.name} of tile {tile}, in place of which lies "
                          f"{region.lost}")  # fmt: skip
        for write in done or region.writes + (region.skipped if not op.guarded else []):
            certain &= write.key != key
            if write.tile != held:
                of = f"item {-1 - write.tile}" if write.tile < 0 else f"tile {write.tile}"
                self._problem(op, warp, f"uses {region.name} of tile {tile}, which holds that of "
                              f"{of} ({write.op})")  # fmt: skip
            elif op.asynchronous and region.name in self.operands and write.actor == access.actor:
                continue  # a copy to TMEM and the product after it are in order
            elif write.key != key and not write.known(warp.clock):
                filled = write.actor >= len(self.warps)
                what = "before it is full" if filled else f"before {write.op} is known to be over"
                self._problem(op, warp, f"uses {region.name} of tile {tile} {what}")
            elif op.asynchronous and not write.fenced_for(warp.clock, warp.fence):
                self._problem(op, warp, f"reads {region.name} through the async proxy without a "
                              f"fence after {write.op}")  # fmt: skip
            elif unfenced := self._unfenced(warp, region, write):
                self._problem(op, warp, f"reads {region.name} {unfenced}")
        if certain and not self.problems:
            region.seen.add((warp.actor, held, op.asynchronous))

    def _check_write(
        self,
        warp: Warp,
        op: Operation,
        region: Region,
        tile: int,
        *,
        fills: bool,
        proxy: bool = False,
        pipe: int = -1,
    ) -> None:
        """`fills`: what was there does not matter; `proxy`: the write is one of the async proxy;
        `pipe`: that of the product which writes, after those that wrote the same sums."""
        self.checked += 1
        key = (warp.role, id(op), tile)
        for other, accesses, writes in region.pending():
            for access in accesses:
                if access.key == key:
                    continue
                sums = writes and other is region and access.actor == pipe
                known = sums or access.known(warp.clock)
                fenced = not proxy or not writes or access.fenced_for(warp.clock, warp.fence)
                unfenced = known and not sums and self._unfenced(warp, other, access)
                late = known and proxy and not access.has_read(warp.clock)
                right = known and fenced and not unfenced and not late
                if right or self._other_rows(warp, op, access):
                    continue
                if late:
                    what = (
                        f"for tile {tile} while loads of {self._name(access.actor)} may still have "
                        f"to read {other.name} ({access.op}, tile {access.tile}): it releases them "
                        "before their values are used, or fence.proxy.async"
                    )
                elif unfenced:
                    what = unfenced
                elif known:
                    what = f"through the async proxy without a fence after {access.op}"
                else:
                    what = (
                        f"for tile {tile} while {self._name(access.actor)} may still "
                        f"{'write' if writes else 'read'} {other.name} "
                        f"({access.op}, tile {access.tile})"
                    )
                self._problem(op, warp, f"{'fills' if fills else 'writes'} {region.name} {what}")
        if not fills and any(write.tile != tile for write in region.writes):
            self._problem(op, warp, f"changes {region.name} of tile {tile}, which is not there")

    def _other_rows(self, warp: Warp, op: Operation, access: RegionAccess) -> bool:
        """Whether another warp of the role reads rows there that this one does not write: both make
        rows of their own of what is within the pipeline."""
        if op.access is None or access.actor == warp.actor or access.key[0] != warp.role:
            return False
        pipelines = self.schedule.smem.pipelines
        pipeline = pipelines[op.access.target.ring]
        return pipeline.by_warps and any(
            value.block in pipelines and pipelines[value.block].within == pipeline.name
            for value in access.op.uses
        )

    # ---- fences -----------------------------------------------------------------------------

    def _pass_loads(self, warp: Warp, op: Operation | None) -> None:
        """What an operation does to open loads of its warp; None: it is a proxy fence, behind which
        none is open."""
        for access in warp.loading:
            access.loads = tuple(
                after for load in access.loads for after in self.loads.after(id(op), load)
            ) if op is not None else ()  # fmt: skip
            access.read = warp.clock[warp.actor]
        warp.loading = [access for access in warp.loading if access.loads]

    def _fence(self, warp: Warp) -> None:
        self._pass_loads(warp, None)
        for access in warp.unfenced:
            access.fenced = warp.clock[warp.actor]
        warp.unfenced = []
        warp.fence = list(warp.clock)

    def _leave(self, warp: Warp) -> None:
        """A fence after what the warp did in TMEM."""
        for access in warp.tensor:
            access.left = warp.clock[warp.actor]
        warp.tensor = []

    def _unfenced(self, warp: Warp, region: Region, access: RegionAccess) -> str:
        """The fence of tcgen05 that lacks between an access of TMEM, which the warp knows to be
        over, and what it does there now. "" where none does."""
        actor = access.actor
        if region.base < TMEM_SPACE or actor == warp.actor:
            return ""
        by_warp = actor < len(self.warps)
        if by_warp and self._apart(warp, self.warps[actor]):
            return ""
        left = access.left if by_warp else access.over
        if left is None or warp.clock[actor] < left:
            return f"without {FENCES['fence_before']} after {access.op} of {self._name(actor)}"
        if warp.entered is None or warp.entered[actor] < left:
            over = f"{access.op} of {self._name(actor)} is known to be over"
            return f"without {FENCES['fence_after']} once {over}"
        return ""

    @staticmethod
    def _apart(warp: Warp, other: Warp) -> bool:
        """Whether two warps never reach the same lanes: those of a role of one warpgroup."""
        return warp.role == other.role and warp.block == other.block and warp.alone

    def _retire(self, warp: Warp, stay: int) -> None:
        done = warp.groups[: max(len(warp.groups) - stay, 0)]
        warp.groups = warp.groups[len(done) :]
        for _, access in done:
            access.over = warp.clock[warp.actor]
