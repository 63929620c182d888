"""A kernel ready to be followed: its blocks as steps on a wave, its branches, its LDS sites."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mlagen.audit.gfx950.budget import Budget
from mlagen.audit.gfx950.lds.exchanges import LaneExchange, read_exchange, taken
from mlagen.audit.gfx950.lds.expressions import Expressions, Lanes, Node, Scalar, Vector
from mlagen.audit.gfx950.lds.footprints import Footprint, Footprints
from mlagen.audit.gfx950.lds.operands import Step, relate
from mlagen.audit.gfx950.lds.relevant import changes_exec, is_lds_memory, relevant
from mlagen.audit.gfx950.lds.sites import Site, read_site
from mlagen.audit.gfx950.lds.sources import Source, Sources, Written
from mlagen.audit.gfx950.lds.steps import compile_step
from mlagen.audit.gfx950.lds.wave import LANES, LdsOperation, Wave, lanes_of
from mlagen.audit.launch import NOT_KNOWN, KnownLaunch
from mlagen.binary.code_object import KernelCode
from mlagen.binary.effects import TRANSPOSING, effects, is_lds_dma
from mlagen.binary.flow import Flow, read_flow
from mlagen.binary.instruction import MachineInstruction
from mlagen.binary.late_copies import late_copies
from mlagen.binary.operand import EXEC, M0, SCC, VCC
from mlagen.binary.text import waitcnt_fields
from mlagen.targets.gfx950.limits import GFX950

_EMPTY = Footprint(0, 0, 0)
_BLOCKS = 4  # loops in loops, and what can be reached from where, grow with the square of blocks


@dataclass(slots=True)
class Seen:
    """What was seen of one LDS instruction on any path."""

    addresses: dict[bytes, Lanes] = field(default_factory=dict)
    unknown: int = 0
    masked: int = 0
    start: int | None = None
    end: int = 0
    enlarged_end: int = 0  # on paths whose arguments were made large
    last: tuple[object, bool, Footprint] | None = None


class LdsProgram:
    """`blocks[i]`: steps of block i. `seen`: by LDS site, filled while waves are followed.
    `launch`: what is known of it.

    `sourced`: also follow where loads to LDS take their bytes from, and what writes put there.
    Raises OutOfSteps.
    """

    def __init__(
        self,
        kernel: KernelCode,
        budget: Budget | None = None,
        launch: KnownLaunch = NOT_KNOWN,
        *,
        sourced: bool = False,
    ) -> None:
        self.kernel, self.launch = kernel, launch
        self.budget = budget = budget or Budget("LDS")
        self.flow: Flow = read_flow(kernel.instructions)
        budget.spend(len(self.flow.instructions) + len(self.flow.blocks) ** 2 // _BLOCKS)
        self.accum = kernel.descriptor.accum_offset
        self.expressions = Expressions(budget, launch)
        self.sources = Sources(self.expressions) if sourced else None
        self.seen: dict[Site, Seen] = {}
        self.enlarged = False  # whether the path that is followed has arguments made large
        self.undescribed: dict[int, str] = {}  # pc -> LDS instruction that no site describes
        self.other: dict[int, str] = {}  # pc -> what else is not followed
        self.exchanges: list[LaneExchange] = []  # between lanes, where some may be off
        self.partial = changes_exec(self.flow, self.accum)
        wanted = relevant(self.flow, self.accum, sourced)
        sites = self._sites()
        narrow = any(w % 4 or offset % 4 for s in sites.values() for offset, w in s.parts)
        self.footprints = Footprints(1 if narrow else 4, budget)
        self.blocks: list[tuple[Step, ...]] = [
            tuple(
                step
                for index in range(block.first, block.last + 1)
                for step in self._compile(index, sites.get(index), index in wanted)
            )
            for block in self.flow.blocks
        ]

    @cached_property
    def late_copies(self) -> frozenset[int]:
        """Byte offsets of loads to LDS that come late after a barrier."""
        return late_copies(self.flow)

    @cached_property
    def edge_number(self) -> dict[tuple[int, int], int]:
        """All edges of the flow, numbered."""
        edges = [(b.index, after) for b in self.flow.blocks for after in b.successors]
        return {edge: number for number, edge in enumerate(edges)}

    @cached_property
    def edges_from(self) -> tuple[int, ...]:
        """For each block, the edges that can follow it, as bits."""
        found = [
            sum(1 << self.edge_number[b.index, after] for after in b.successors)
            for b in self.flow.blocks
        ]
        changed = True
        while changed:
            changed = False
            for at in reversed(self.flow.order):
                bits = found[at]
                for after in self.flow.blocks[at].successors:
                    bits |= found[after]
                changed |= bits != found[at]
                found[at] = bits
        return tuple(found)

    @cached_property
    def to_end(self) -> tuple[int, ...]:
        """The fewest instructions from the start of each block to the end of the program."""
        blocks = self.flow.blocks
        far = len(self.flow.instructions) + 1
        found = [far] * len(blocks)
        changed = True
        while changed:
            changed = False
            for at in reversed(self.flow.order):
                block = blocks[at]
                size = block.last - block.first + 1
                best = min((found[after] for after in block.successors), default=0) + size
                changed |= best < found[at]
                found[at] = min(found[at], best)
        return tuple(found)

    @cached_property
    def silent(self) -> frozenset[int]:
        """Blocks that neither touch LDS nor wait: nothing is missed where they are not reached."""
        return frozenset(
            block.index
            for block in self.flow.blocks
            if not any(
                i.encoding == "DS" or is_lds_dma(i) or i.mnemonic in ("s_barrier", "s_waitcnt")
                for i in self.flow.instructions[block.first : block.last + 1]
            )
        )

    @cached_property
    def working(self) -> frozenset[int]:
        """Blocks that access memory or LDS."""
        return frozenset(
            block.index
            for block in self.flow.blocks
            if any(
                effects(i, self.accum).counter
                for i in self.flow.instructions[block.first : block.last + 1]
            )
        )

    @cached_property
    def stretch(self) -> dict[int, int]:
        """By byte offset: the number of the stretch of code between barriers, blocks apart."""
        found, number = {}, 0
        for block in self.flow.blocks:
            number += 1
            for ins in self.flow.instructions[block.first : block.last + 1]:
                number += ins.mnemonic == "s_barrier"
                found[ins.offset] = number
        return found

    def entry_scalars(self) -> dict[int, Scalar]:
        """What the loader puts into scalar registers (LLVM AMDGPUUsage, initial kernel state)."""
        found: dict[int, Scalar] = {}
        at = 0
        descriptor, leaf = self.kernel.descriptor, self.expressions.leaf
        first = descriptor.kernarg_preload_offset
        for name, count in descriptor.user_sgprs:
            for part in range(count):
                if name == "kernarg_segment_ptr":
                    found[at + part] = leaf("kernarg pointer", part)
                elif name == "kernarg_preload":
                    found[at + part] = self.expressions.argument(4 * (first + part))
                else:
                    found[at + part] = leaf(name, part)
            at += count
        for axis, enabled in enumerate(descriptor.workgroup_ids):
            if enabled:
                found[at] = self.expressions.workgroup(axis)
                at += 1
        if descriptor.workgroup_info:
            found[at] = leaf("workgroup info")
        return found

    def _sites(self) -> dict[int, Site]:
        found: dict[int, Site] = {}
        for index, ins in enumerate(self.flow.instructions):
            if not is_lds_dma(ins) and not is_lds_memory(ins):
                continue
            site = read_site(ins, self.accum)
            if site is None:
                self.undescribed[ins.offset] = str(ins)
            else:
                found[index] = site
                self.seen[site] = Seen()
        return found

    def _compile(self, index: int, site: Site | None, wanted: bool) -> list[Step]:
        ins = self.flow.instructions[index]
        name = ins.mnemonic
        if name == "s_waitcnt":
            return [_wait(ins)]
        if name == "s_barrier":
            return [_barrier]
        steps: list[Step] = []
        exchange = read_exchange(ins, self.accum) if self.partial else None
        if exchange is not None:
            self.exchanges.append(exchange)
            steps.append(_exchanged(exchange))
        if site is not None:
            steps.append(self._dma(site) if site.kind == "dma" else self._ds(site))
        elif ins.encoding == "DS":
            steps.append(lambda w: w.ds.issue(None))
        elif effects(ins, self.accum).counter == "vm":
            steps.append(lambda w: w.vm.issue(None))
        if name.startswith("s_set_gpr_idx") and name != "s_set_gpr_idx_off":
            if ins.modifier("simm8", ins.modifier("imm", 0)) & 0b1000:
                self.other[ins.offset] = "registers are written by index"
        elif wanted and not name.startswith(("s_cbranch", "s_branch")):
            steps.append(compile_step(ins, self.accum))
        return steps

    def _ds(self, site: Site) -> Step:
        register, seen = site.register, self.seen[site]
        needs_all = site.ins.mnemonic in TRANSPOSING
        data = self._data(site) if self.sources is not None and site.kind == "write" else None

        def step(w: Wave) -> None:
            if needs_all and not w.full:
                w.masked.setdefault(site, set()).add((w.s[EXEC], w.s[EXEC + 1]))
            footprint = self._footprint(w, seen, site, w.read(register))
            w.place += 1
            w.touched = w.epoch
            if footprint is None:
                w.ds.issue(None)
                return
            operation = LdsOperation(site, footprint, w.epoch, w.place)
            if data is not None and footprint is not _EMPTY:
                operation.source = data(w)
            w.issue(operation)

        return step

    def _data(self, site: Site) -> Callable[[Wave], Written]:
        """What finds what a write puts where; its address and EXEC are known."""
        reads = [a for a in effects(site.ins, self.accum).reads if a.role == "lds_data"]
        registers = [a.base + i for a in reads for i in range(a.count)]

        def written(w: Wave) -> Written:
            low, high = w.s[EXEC], w.s[EXEC + 1]
            assert isinstance(low, int) and isinstance(high, int)
            active = lanes_of(low, high)
            w.budget.spend(LANES)

            def lanes(register: int) -> Any:
                value = w.read(register)
                if isinstance(value, Node):
                    return value
                return np.broadcast_to(np.asarray(value), active.shape)[active].tobytes()

            return Written(lanes(site.register), tuple(lanes(number) for number in registers))

        return written

    def _dma(self, site: Site) -> Step:
        """LDS address of a lane: M0 + immediate + lane * bytes (CDNA4 ISA guide, MUBUF to LDS)."""
        seen = self.seen[site]
        width = site.parts[0][1]
        lanes = np.arange(LANES, dtype=np.int64) * width
        source = self._source(site) if self.sources is not None else None

        def step(w: Wave) -> None:
            base = w.s[M0]
            value: Vector = base if isinstance(base, Node) else lanes + base
            footprint = self._footprint(w, seen, site, value)
            w.place += 1
            w.touched = w.epoch
            if footprint is None:
                w.vm.issue(None)
                return
            operation = LdsOperation(site, footprint, w.epoch, w.place)
            if source is not None and footprint is not _EMPTY:
                operation.source = source(w)
            w.issue(operation)

        return step

    def _source(self, site: Site) -> Callable[[Wave], Source | None]:
        """What finds the source of a load to LDS, whose M0 and EXEC are known."""
        ins, (start, width) = site.ins, site.parts[0]
        target = np.arange(LANES, dtype=np.int64) * width + start
        reads = [a for a in effects(ins, self.accum).reads if a.role.startswith("vmem")]
        scalars = [a.base + i for a in reads if a.file == "s" for i in range(a.count)]
        vectors = [a.base + i for a in reads if a.file == "v" for i in range(a.count)]
        sources = self.sources
        assert sources is not None

        def source(w: Wave) -> Source | None:
            low, high, base = w.s[EXEC], w.s[EXEC + 1], w.s[M0]
            assert isinstance(low, int) and isinstance(high, int) and isinstance(base, int)
            active = lanes_of(low, high)
            w.budget.spend(LANES)
            return sources.of(
                ins,
                tuple(w.s[number] for number in scalars),
                tuple(w.read(number) for number in vectors),
                target[active] + base,
                width,
                active,
            )

        return source

    def _footprint(self, w: Wave, seen: Seen, site: Site, value: Vector) -> Footprint | None:
        if isinstance(value, Node):
            seen.unknown += 1
            return None
        full = w.full
        last = seen.last
        if full and last is not None and last[0] is value and last[1] == self.enlarged:
            return last[2]
        if isinstance(value, int):
            value = np.full(LANES, value, dtype=np.int64)
        addresses = value
        if not full:
            low, high = w.s[EXEC], w.s[EXEC + 1]
            if isinstance(low, Node) or isinstance(high, Node):
                seen.masked += 1
                return None
            addresses = addresses[lanes_of(low, high)]
            if not len(addresses):
                return _EMPTY
        footprint = self.footprints.of(addresses, site.parts)
        if full:
            seen.addresses.setdefault(addresses.tobytes(), addresses)
            seen.last = (value, self.enlarged, footprint)
        seen.start = footprint.start if seen.start is None else min(seen.start, footprint.start)
        if self.enlarged:
            seen.enlarged_end = max(seen.enlarged_end, footprint.end)
        else:
            seen.end = max(seen.end, footprint.end)
        return footprint

    def condition(self, w: Wave, ins: MachineInstruction) -> Scalar:
        """Whether a conditional branch is taken, as a value or an expression."""
        name = ins.mnemonic
        if "cdbg" in name:
            return w.expressions.leaf("the debugger")
        if name.endswith(("scc0", "scc1")):
            scc = w.s[SCC]
            if isinstance(scc, int):
                return int(bool(scc) == name.endswith("1"))
            return scc
        number = VCC if "vcc" in name else EXEC
        low, high = w.s[number], w.s[number + 1]
        if isinstance(low, int) and isinstance(high, int):
            zero = not low and not high
            return int(zero if name.endswith(("vccz", "execz")) else not zero)
        if low == 0 or high == 0:
            return relate(w, "lg", "u32", low if high == 0 else high, 0)
        return w.expressions.of("lg_u64", low, high, 0, 0)

    @staticmethod
    def inverted(ins: MachineInstruction) -> bool:
        """Whether the branch is taken when its expression is false."""
        return ins.mnemonic.endswith(("scc0", "vccz", "execz"))


def _exchanged(exchange: LaneExchange) -> Step:
    """Notes what lanes take from others that are off."""
    register = exchange.register

    def step(w: Wave) -> None:
        if not w.full:
            w.budget.spend(LANES)
            address = w.read(register) if register >= 0 else 0
            found = taken(exchange, (w.s[EXEC], w.s[EXEC + 1]), address)
            if found is not None:
                w.taken.setdefault(exchange, set()).add(found)

    return step


def _barrier(w: Wave) -> None:
    w.epoch += 1
    w.passed.append(len(w.path))


def _wait(ins: MachineInstruction) -> Step:
    """s_waitcnt: the highest count of a field waits for nothing."""
    vm, _, lgkm = waitcnt_fields(ins.modifier("simm16"))
    some_vm = None if vm == GFX950.vmcnt_max else vm
    some_lgkm = None if lgkm == GFX950.lgkmcnt_max else lgkm
    return lambda w: w.wait(ins.offset, some_vm, some_lgkm)
