"""Raw findings of clusters joined, and in words: what happened, to what, and what would repair it.

Each kind has a function of a `Raw` that gives message, resource and repair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mlagen.emulator.findings import PtxFinding
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as agents
from mlagen.emulator.ptx.host.memory import LaunchMemory
from mlagen.emulator.ptx.machine import CheckedLaunch
from mlagen.emulator.ptx.order import maps
from mlagen.emulator.ptx.order import meeting as order
from mlagen.emulator.ptx.tensor import tensor_memory as tensor
from mlagen.names import short_name
from mlagen.ptx import Instruction, Location
from mlagen.severity import ERROR, LETTER

Told = tuple[str, str, str]  # message, resource, needs
PLACES = 8  # of inlined code, that a finding tells


def merge(tables: Sequence[np.ndarray]) -> list[list[int]]:
    """The findings of all clusters: one row a (kind, instruction, other instruction), the gravest
    race or that of the first cluster, with the count of all."""
    merged: dict[tuple[int, int, int], list[int]] = {}
    for table in tables:
        for row in table.tolist():
            key = (row[y.F_KIND], row[y.F_ROW], row[y.F_OTHER])
            held = merged.setdefault(key, row)
            if held is row:
                continue
            count = held[y.F_COUNT] + row[y.F_COUNT]
            if row[y.F_KIND] == y.RACE and row[y.F_C] > held[y.F_C]:
                held[:] = row
            held[y.F_COUNT] = count
    return sorted(merged.values(), key=lambda row: (row[y.F_ROW], row[y.F_KIND], row[y.F_OTHER]))


@dataclass(frozen=True)
class Met:
    """Where something was met first, and how often: row of the program, warp and number of a
    cluster, and the other side; -1 for none."""

    row: int
    warp: int
    cluster: int
    other: int = -1
    other_warp: int = -1
    severity: int = y.ERROR
    count: int = 1


@dataclass(frozen=True)
class ExecutedLaunch:
    """What the numbers of a run are numbers of."""

    setup: CheckedLaunch
    memory: LaunchMemory

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return self.setup.program.entry.instructions

    def instruction(self, row: int) -> Instruction | None:
        """None past the text's last one."""
        return self.instructions[row] if 0 <= row < len(self.instructions) else None

    def text(self, row: int) -> str:
        """An instruction with its line."""
        found = self.instruction(row)
        return f"{shown(found)} at line {found.line}" if found else "the end of the text"

    def warp(self, warp: int) -> int:
        """A warp's number in its block."""
        return warp % self.warps

    @property
    def warps(self) -> int:
        x, down, deep = self.setup.block
        return -(-(x * down * deep) // y.LANES)

    def block(self, cluster: int, warp: int) -> tuple[int, int, int]:
        """The block of a warp of a cluster."""
        return self.setup.block_of(cluster, warp // self.warps)

    def shared(self, address: int, size: int = 4) -> str:
        """Bytes of shared memory, with the variable that they lie in."""
        offset = address & ((1 << y.RANK_SHIFT) - 1)
        rank = address >> y.RANK_SHIFT
        whose = f" of rank {rank}" if self.setup.cluster_ctas > 1 else ""
        cell = self.cell(address)
        if cell is not None:
            return f"lane {cell[0]}, column {cell[1]} of tensor memory{whose}"
        named = ""
        for variable in self.setup.program.entry.variables:
            space, at = self.setup.program.symbols.get(variable.name, ("", 0))
            room = variable.size or self.setup.dynamic_shared
            if space == "shared" and at <= offset < at + room:
                named = f" ({short_name(variable.name)} + {offset - at:#x})"
        return f"shared memory {offset:#x}..{offset + size - 1:#x}{named}{whose}"

    def cell(self, address: int) -> tuple[int, int] | None:
        """Lane and column, where the record of accesses has a cell of tensor memory at an
        address."""
        program = self.setup.program
        room = program.dynamic + self.setup.dynamic_shared
        at = (address & ((1 << y.RANK_SHIFT) - 1)) - (room + -room % 1024)
        if not program.tensor or at < 0 or address >= 1 << 40:
            return None
        return at // tensor.LANE_BYTES, at % tensor.LANE_BYTES // 4

    def finding(self, kind: str, told: Told, met: Met) -> PtxFinding:
        """A finding in words."""
        here = self.instruction(met.row)
        there = self.instruction(met.other) if met.other >= 0 else None
        return PtxFinding(
            kind=kind,
            message=told[0],
            pc=met.row,
            asm=shown(here),
            wave=self.warp(met.warp),
            workgroup=self.block(met.cluster, met.warp),
            other_pc=met.other if there else None,
            other_asm=shown(there),
            other_wave=self.warp(met.other_warp) if there and met.other_warp >= 0 else None,
            resource=told[1],
            needs=told[2],
            count=met.count,
            line=here.line if here else 0,
            other_line=there.line if there else 0,
            location=located(here),
            other_location=located(there),
            severity=LETTER if met.severity == y.LETTER else ERROR,
        )


@dataclass(frozen=True)
class Raw:
    """A raw row of a run."""

    run: ExecutedLaunch
    row: list[int]

    @property
    def numbers(self) -> tuple[int, int, int]:
        """What the kind says of itself: A, B, C."""
        return self.row[y.F_A], self.row[y.F_B], self.row[y.F_C]

    @property
    def who(self) -> str:
        return f"warp {self.run.warp(self.row[y.F_WARP])}"

    @property
    def here(self) -> str:
        return f"{self.who}: {self.run.text(self.row[y.F_ROW])}"

    @property
    def there(self) -> str:
        return self.run.text(self.row[y.F_OTHER]) if self.row[y.F_OTHER] >= 0 else ""

    @property
    def other(self) -> str:
        """The other side's warp, with its block where that is another one."""
        warp, other = self.row[y.F_WARP], self.row[y.F_OTHER_WARP]
        if other < 0:
            return "an agent's"
        name = f"warp {self.run.warp(other)}"
        if other // self.run.warps != warp // self.run.warps:
            name += f" of block {self.run.block(self.row[y.F_CLUSTER], other)}"
        return f"{name}'s"

    def register(self, number: int) -> str:
        names = list(self.run.setup.program.entry.registers)
        return names[number] if 0 <= number < len(names) else f"register {number}"


def described(run: ExecutedLaunch, row: list[int]) -> PtxFinding:
    """A raw row in words."""
    kind, tell, severity = KINDS[row[y.F_KIND]]
    raw = Raw(run, row)
    if row[y.F_KIND] == y.RACE:
        kind = _RACES[row[y.F_B] & 3][0]
    if row[y.F_KIND] == y.UNDEFINED_SHARED and run.cell(row[y.F_A]) is not None:
        kind = "undefined-tensor"
    met = Met(
        row[y.F_ROW],
        row[y.F_WARP],
        row[y.F_CLUSTER],
        row[y.F_OTHER],
        row[y.F_OTHER_WARP],
        severity or row[y.F_C],
        row[y.F_COUNT],
    )
    return run.finding(kind, tell(raw), met)


def shown(instruction: Instruction | None, most: int = 100) -> str:
    """An instruction's text, cut where it is long."""
    text = " ".join(instruction.text.split()) if instruction else ""
    return text if len(text) <= most else text[: most - 3] + "..."


def located(instruction: Instruction | None) -> str:
    """Where `.loc` says that it came from, innermost first; "" for nowhere. Of more than PLACES the
    middle ones are left out: the outermost are those of whoever wrote the kernel."""
    place: Location | None = instruction.location if instruction else None
    places = []
    while place is not None:
        name = short_name(place.function)
        places.append(str(place) + (f" in {name}" if name else ""))
        place = place.inlined_at
    if len(places) > PLACES:
        left = len(places) - PLACES
        places[PLACES // 2 : PLACES // 2 + left] = [f"{left} more places"]
    return ", inlined at ".join(places)


_ALLOC = "tcgen05.alloc"
# Of a pair: its kind, what the later side does, what the earlier one did.
_RACES = {
    order.AFTER_WRITE_READ: ("race-raw", "reads", "writes"),
    order.AFTER_READ_WRITE: ("race-war", "overwrites", "reads"),
    order.AFTER_WRITE_WRITE: ("race-waw", "overwrites", "writes"),
}


def _race(raw: Raw) -> Told:
    address, pair, _ = raw.numbers
    _, now, before = _RACES[pair & 3]
    if _ALLOC in raw.there and raw.run.cell(address) is not None:
        before = "allocates"
    place = raw.run.shared(address) if address < 1 << 40 else raw.run.memory.place_of(address)[1]
    if pair & order.LANES:
        return _lanes(raw, place)
    if pair & order.PROXY:
        needs = "fence.proxy.async"
        tail = f"ordered, but for the proxies: needs {needs} between the write and what follows it"
    elif pair & order.TENSOR_FENCE:
        needs = "tcgen05.fence::before_thread_sync and tcgen05.fence::after_thread_sync"
        tail = f"ordered, but for the fences of tensor memory: needs {needs} beside the barrier"
    elif pair & order.SAME:
        needs = "an mbarrier or a barrier"
        tail = f"unordered, of the same value: needs {needs} between them, or one writer"
    elif pair & order.MEET:
        needs = "a barrier of the warpgroup"
        tail = f"unordered, but for the warpgroup's own meeting at its wgmma: needs {needs}"
    elif pair & order.LATE:
        return _late(raw, place)
    elif raw.run.cell(address) is not None:
        needs = _completion(raw.run.instruction(raw.row[y.F_OTHER]))
        tail = f"unordered: needs {needs} before it"
    elif raw.row[y.F_OTHER_WARP] == raw.row[y.F_WARP]:
        needs = "a wait for its completion"
        tail = f"unordered: needs {needs}"
    else:
        needs = "an mbarrier or a barrier"
        tail = f"unordered: needs {needs} between them"
    return f"{raw.here} {now} {place}, which {raw.other} {raw.there} {before}; {tail}", place, needs


def _lanes(raw: Raw, place: str) -> Told:
    """Two lanes of one warp."""
    _, now, before = _RACES[pair_of(raw)]
    earlier, later = raw.row[y.F_RELEASE] >> 5, raw.row[y.F_RELEASE] & 31
    how = "unordered"
    if raw.numbers[1] & order.SAME:
        how = "unordered, of the same value"
    needs = "bar.warp.sync"
    return (
        f"{raw.here} of lane {later} {now} {place}, which lane {earlier}'s {raw.there} {before}; "
        f"{how}: needs {needs} between them",
        place,
        needs,
    )


def _late(raw: Raw, place: str) -> Told:
    """A copy overwrites what a load has perhaps not read."""
    copies = pair_of(raw) == order.AFTER_READ_WRITE
    load, copy = (raw.there, raw.here) if copies else (raw.here, raw.there)
    whose = f"{raw.other} {load}" if copies else load
    release = raw.run.text(raw.row[y.F_RELEASE])
    needs = "its values used, or fence.proxy.async, between the load and the release"
    return (
        f"{copy} overwrites {place}, which {whose} may still have to read: {release} released it "
        f"before a value of that load was used; needs {needs}",
        place,
        needs,
    )


def pair_of(raw: Raw) -> int:
    """How the later access of a race met the earlier one."""
    return raw.row[y.F_B] & 3


def _completion(instruction: Instruction | None) -> str:
    """What completes an access to tensor memory."""
    which = ".".join(instruction.parts[:2]) if instruction else ""
    if which in ("tcgen05.ld", "tcgen05.st"):
        return f"tcgen05.wait::{which[-2:]} and a barrier"
    if which == _ALLOC:
        return "an mbarrier or a barrier"
    return "tcgen05.commit and a wait for its mbarrier"


def _undefined_register(raw: Raw) -> Told:
    name = raw.register(raw.row[y.F_A])
    return f"{raw.here} reads {name}, which was never written", name, "a write"


def _in_flight(raw: Raw) -> Told:
    name = raw.register(raw.row[y.F_A])
    other = raw.run.instruction(raw.row[y.F_OTHER])
    loads = other is not None and other.name == "tcgen05"
    needs = "tcgen05.wait::ld" if loads else "wgmma.wait_group"
    return (
        f"{raw.here} uses {name}, which {raw.there} still has: needs {needs} before it",
        name,
        needs,
    )


def _undefined_shared(raw: Raw) -> Told:
    place = raw.run.shared(raw.row[y.F_A])
    return f"{raw.here} reads {place}, which was never written", place, "a write"


def _diverged(raw: Raw) -> Told:
    lanes, wanted, _ = raw.numbers
    return (
        f"{raw.here} is executed by lanes {lanes:#010x} and asks for {wanted:#010x}",
        "lanes",
        "all of these lanes together",
    )


def _barrier_count(raw: Raw) -> Told:
    number, count, before = raw.numbers
    if number == agents.CLUSTER_BARRIER:
        return (
            f"{raw.here}: lanes {count:#010x} arrive at the cluster's barrier a second time before "
            "it is complete",
            "the cluster's barrier",
            "a wait between two arrivals",
        )
    name = f"barrier {number}"
    return (
        f"{raw.here} and {raw.there or 'the warps there'} do not agree on {name}: {count} threads "
        f"against {before}",
        name,
        "one count of threads, a multiple of 32",
    )


def _barrier_order(raw: Raw) -> Told:
    name = f"barrier {raw.numbers[0]}"
    return (
        f"{raw.here} arrives at {name} without knowing of {raw.other} arrival there ({raw.there}), "
        "which completed the use before: either may take the place of the other",
        name,
        "another barrier's number, or an order between the two uses",
    )


def _mbarrier_misuse(raw: Raw) -> Told:
    rule, address, _ = raw.numbers
    place = raw.run.shared(address, 8)
    return f"{raw.here}: {agents.MISUSE.get(rule, 'misuse')} ({place})", place, "mbarrier.init"


def _bytes_uncounted(raw: Raw) -> Told:
    address, size, _ = raw.numbers
    place = raw.run.shared(address, 8)
    return (
        f"{raw.here}: the phase of the mbarrier in {place} ended before the {size} bytes of this "
        "copy had come",
        place,
        "mbarrier.arrive.expect_tx with these bytes",
    )


def _pending(raw: Raw) -> Told:
    return (
        f"{raw.here} may still be on its way when its block ends: no warp of the block waits for "
        "it",
        raw.run.shared(raw.row[y.F_A]) if raw.row[y.F_A] >= 0 else "",
        "a wait before the end",
    )


def _shared_gone(raw: Raw) -> Told:
    place = raw.run.shared(raw.row[y.F_A])
    return (
        f"{raw.here} accesses {place} of a block of the cluster that may have ended: nothing "
        "orders the access before the block's end",
        place,
        "barrier.cluster, or an arrival that the block waits for, between the access and that end",
    )


def _shared_early(raw: Raw) -> Told:
    place = raw.run.shared(raw.row[y.F_A])
    return (
        f"{raw.here} accesses {place} of a block of the cluster that may not have begun: nothing "
        "that it did comes before",
        place,
        "barrier.cluster between the blocks' begin and the access",
    )


def _registers(raw: Raw) -> Told:
    asked, room, _ = raw.numbers
    return (
        f"{raw.here} asks for {asked} registers a thread; the block's budget has {room}",
        "registers",
        "setmaxnreg.dec of other warps first",
    )


_WGMMA = {
    1: "has a scale-d that its lanes do not agree on",
    2: "is not executed by all lanes",
    3: "uses a register without wgmma.fence",
}
_WGMMA_NEEDS = {1: "one value in all lanes", 2: "all lanes together", 3: "wgmma.fence"}


def _wgmma(raw: Raw) -> Told:
    rule, a, _ = raw.numbers
    name = raw.register(a) if rule == 3 else "a warpgroup"
    needs = _WGMMA_NEEDS[rule]
    tail = f": {name}, after {raw.there}" if rule == 3 and raw.there else ""
    return f"{raw.here} {_WGMMA[rule]}{tail}", name, needs


def _bounds(raw: Raw) -> Told:
    name, place = raw.run.memory.place_of(raw.row[y.F_A])
    if raw.run.memory.is_late(raw.row[y.F_A]):
        text = f"{raw.here} accesses {place}, which the kernel before it may still write"
        return text, name, "griddepcontrol.wait before it"
    text = f"{raw.here} accesses {place}, where it may not"
    return text, name, "an address inside the buffer, or another access"


def _shared_bounds(raw: Raw) -> Told:
    place = raw.run.shared(raw.row[y.F_A], 1)
    size = raw.run.setup.program.dynamic + raw.run.setup.dynamic_shared
    text = f"{raw.here} accesses {place}; what the block has ends at {size:#x}"
    return text, place, "an address inside the allocation"


def _alignment(raw: Raw) -> Told:
    address = raw.row[y.F_A]
    return (
        f"{raw.here} accesses address {address:#x}, which is not aligned",
        "",
        "an aligned address",
    )


MAP_RULES = {
    agents.BAD_FIELDS: "the map's fields fit no tensor",
    agents.NOT_A_MAP: "there is no tensor map at the address",
    agents.MISALIGNED: "the address in shared memory is not aligned as the map asks",
    agents.TOO_WIDE: "the box is wider than the swizzle",
    agents.NARROW: "a row of the box is narrower than the swizzle, which is not modelled",
    agents.OTHER_RANK: "the map has not as many dimensions as the instruction",
    agents.OTHER_ROWS: "the map's box has not the one row that gather4 and scatter4 take",
    agents.NO_SUMS: "a reduction has no elements of one byte",
    agents.BAD_EDIT: "a tensor map has no such field, dimension or value",
}


def _tensor(raw: Raw) -> Told:
    rule, what, _ = raw.numbers
    text = f"{raw.here}: {tensor.MISUSE.get(rule, 'misuse')}"
    return f"{text} ({what:#x})", "tensor memory", "an allocation, lanes and groups that fit"


def _map(raw: Raw) -> Told:
    rule = MAP_RULES.get(raw.row[y.F_A], "the tensor map does not fit")
    return f"{raw.here}: {rule}", "a tensor map", "a map that fits"


_EDITS = {
    maps.NOT_TOLD: ("which this warp may not know", "a synchronisation between the two"),
    maps.NOT_RELEASED: (
        "and did not fence",
        "fence.proxy.tensormap::generic.release by the warp that edits, before it tells others",
    ),
    maps.NOT_ACQUIRED: (
        "without the fence of whoever uses it",
        "fence.proxy.tensormap::generic.acquire of the map's 128 bytes between edit and copy",
    ),
}


def _map_fence(raw: Raw) -> Told:
    why, address, _ = raw.numbers
    lacks, needs = _EDITS[why]
    place = raw.run.memory.place_of(address)[1]
    text = f"{raw.here} goes through the tensor map in {place} that {raw.other} {raw.there} edited"
    return f"{text}, {lacks}; needs {needs}", place, needs


# How a finding is called, who tells of it, and its severity; 0 where the row's C says it.
KINDS: dict[int, tuple[str, Callable[[Raw], Told], int]] = {
    y.RACE: ("race", _race, 0),
    y.UNDEFINED_REGISTER: ("undefined-register", _undefined_register, 0),
    y.REGISTER_IN_FLIGHT: ("register-in-flight", _in_flight, 0),
    y.UNDEFINED_SHARED: ("undefined-shared", _undefined_shared, 0),
    y.DIVERGED: ("diverged", _diverged, y.ERROR),
    y.BARRIER_COUNT: ("barrier-count", _barrier_count, y.ERROR),
    y.BARRIER_ORDER: ("bar-order", _barrier_order, y.ERROR),
    y.MBARRIER_MISUSE: ("mbarrier-misuse", _mbarrier_misuse, 0),
    y.BYTES_UNCOUNTED: ("bytes-uncounted", _bytes_uncounted, y.ERROR),
    y.PENDING_AT_EXIT: ("pending-at-exit", _pending, 0),
    y.SHARED_GONE: ("shared-gone", _shared_gone, y.ERROR),
    y.SHARED_EARLY: ("shared-early", _shared_early, y.ERROR),
    y.REGISTERS_BUDGET: ("registers-budget", _registers, y.ERROR),
    y.WGMMA_MISUSE: ("wgmma-misuse", _wgmma, y.ERROR),
    y.GLOBAL_BOUNDS: ("global-bounds", _bounds, y.ERROR),
    y.SHARED_BOUNDS: ("shared-bounds", _shared_bounds, y.ERROR),
    y.ALIGNMENT: ("alignment", _alignment, y.ERROR),
    y.MAP_MISUSE: ("map-misuse", _map, y.ERROR),
    y.MAP_FENCE: ("tensormap-fence", _map_fence, y.ERROR),
    y.TENSOR_MISUSE: ("tensor-misuse", _tensor, 0),
}
