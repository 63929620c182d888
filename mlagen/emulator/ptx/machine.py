"""Runs of a grid: clusters of CTAs, their memory, and the engine that executes them.

Clusters are run one after another. One that waits for what another has to write gives way: the
next one begins, and both go on in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import layout as agents
from mlagen.emulator.ptx.matrix import layout as matrix
from mlagen.emulator.ptx.order import layout as order
from mlagen.emulator.ptx.order.layout import G_CLUSTERS
from mlagen.emulator.ptx.order.tables import GridTables, grid_tables
from mlagen.emulator.ptx.program import Program
from mlagen.emulator.ptx.starting import STARTER

Triple = tuple[int, int, int]

_SLICE = 1 << 19  # instructions between two looks of Python's
_VAINLY = 8  # rounds in which no cluster gets anywhere before a deadlock is told
_FIND_WORDS = y.MAX_FINDINGS * y.F_SIZE
MODES = {"latest": y.LATEST, "earliest": y.EARLIEST, "drawn": y.DRAWN}


@dataclass(frozen=True)
class GlobalBuffer:
    """Global memory at a simulated address. `array` is C-contiguous bytes, read and written in
    place. `access`: 1 to read, 3 to write as well."""

    base: int
    array: np.ndarray
    access: int
    name: str = ""


@dataclass(frozen=True)
class Setup:
    """A launch, checked: `parameters` are the bytes of the parameter space."""

    program: Program
    grid: Triple
    block: Triple
    cluster: Triple
    dynamic_shared: int
    parameters: np.ndarray
    buffers: Sequence[GlobalBuffer] = ()
    maps: np.ndarray = field(default_factory=lambda: np.zeros((0, 32), np.int64))
    mode: str = "latest"
    seed: int = 0
    sanitize: bool = True
    exact: bool = True
    max_instructions: int | None = None
    clusters: Sequence[int] | None = None  # numbers of the clusters to run; None: all


@dataclass
class ClusterEnd:
    """How the run of one cluster ended: an R_ code of `layout`, and its context."""

    number: int
    code: int
    state: ClusterState


class ClusterState:
    """The arrays of one cluster. `context` is what the engine works on; see `layout`."""

    def __init__(self, setup: Setup, shared: Shared, number: int) -> None:
        self.setup, self.shared, self.number = setup, shared, number
        program = setup.program
        ctas = int(np.prod(setup.cluster))
        threads = int(np.prod(setup.block))
        warps = -(-threads // y.LANES)
        total = ctas * warps
        self.context = np.zeros(y.C_SIZE, np.int64)
        self.arrays: dict[int, np.ndarray] = {}
        count = len(program.entry.registers)
        room = program.dynamic + setup.dynamic_shared
        room += -room % 1024
        clocks = order.components(ctas, warps)
        sizes = {
            y.C_REGISTERS: total * program.register_bytes,
            y.C_WARPS: total * y.W_SIZE * 8,
            y.C_CTAS: ctas * y.T_SIZE * 8,
            y.C_LOCAL: total * y.LANES * program.local_bytes,
            y.C_OPS: agents.OPS * agents.OP_SIZE * 8,
            y.C_OP_DATA: agents.OPS * agents.OP_DATA * 8,
            y.C_MBARRIERS: ctas * agents.MBARRIERS * agents.MB_SIZE * 8,
            y.C_NAMED: ctas * agents.NAMED * agents.NB_SIZE * 8,
            y.C_GROUPS: total * agents.GROUPS * 8,
            y.C_MATRIX: total * matrix.WORDS * 8,
            y.C_DEFINED: total * count * 4,
            y.C_BUSY: total * count * 8,
            y.C_CLOCKS: total * clocks * 8,
            y.C_OBJECTS: order.objects(ctas) * clocks * 8,
            y.C_SHADOW: (ctas * room // 4 * order.CELL) if setup.sanitize else 0,
            y.C_TEMP: y.TEMP_BYTES,
        }
        for slot, size in sizes.items():
            self._place(slot, np.zeros(max(size, 64), np.uint8))
        memory = np.full(ctas * room // 4, y.POISON, np.uint32)
        self._place(y.C_SHARED, memory)
        for slot, array in shared.arrays.items():
            self._place(slot, array)
        numbers = {
            y.C_WARPS_ALL: total,
            y.C_CTA_WARPS: warps,
            y.C_CTAS_ALL: ctas,
            y.C_THREADS: threads,
            y.C_REGISTER_BYTES: program.register_bytes,
            y.C_REGISTER_COUNT: count,
            y.C_SHARED_BYTES: program.dynamic + setup.dynamic_shared,
            y.C_SHARED_ROOM: room,
            y.C_LOCAL_BYTES: program.local_bytes,
            y.C_PARAM_BYTES: len(setup.parameters),
            y.C_CONST_BYTES: program.const.nbytes,
            y.C_BUFFER_COUNT: len(setup.buffers),
            y.C_MAP_COUNT: len(setup.maps),
            y.C_SANITIZE: int(setup.sanitize),
            y.C_MODE: MODES[setup.mode],
            y.C_EXACT: int(setup.exact),
            y.C_RANDOM: (setup.seed * 0x9E3779B97F4A7C15 + number * 2 + 1) & ((1 << 62) - 1),
            y.C_COMPONENTS: clocks,
            y.C_CURRENT: -1,
            y.C_STALLS: -1,
            y.C_CLUSTER: number,
        }
        for slot, value in numbers.items():
            self.context[slot] = value
        self._begin(ctas, warps, threads)

    def _place(self, slot: int, array: np.ndarray) -> None:
        self.arrays[slot] = array
        self.context[slot] = array.ctypes.data

    def words(self, slot: int, size: int) -> np.ndarray:
        """An array as rows of `size` int64."""
        return self.arrays[slot].view(np.int64).reshape(-1, size)

    def _begin(self, ctas: int, warps: int, threads: int) -> None:
        """CTAs and warps before their first instruction."""
        setup = self.setup
        per = [-(-g // c) for g, c in zip(setup.grid, setup.cluster, strict=True)]
        n = self.number
        corner = (n % per[0], n // per[0] % per[1], n // (per[0] * per[1]))
        cta_words, warp_words = self.words(y.C_CTAS, y.T_SIZE), self.words(y.C_WARPS, y.W_SIZE)
        for rank in range(ctas):
            cx, cy, _ = setup.cluster
            inside = (rank % cx, rank // cx % cy, rank // (cx * cy))
            at = [o * c + i for o, c, i in zip(corner, setup.cluster, inside, strict=True)]
            cta_words[rank, : y.T_LIVE] = [*at, rank]
            cta_words[rank, y.T_LIVE] = warps
            for number in range(warps):
                w = rank * warps + number
                live = (1 << min(threads - number * y.LANES, y.LANES)) - 1
                warp_words[w, [y.W_MASK, y.W_LIVE, y.W_CTA]] = live, live, rank
                warp_words[w, y.W_OTHER] = y.NEVER
                warp_words[w, y.W_ASKED] = -1
                self._specials(w, rank, number, at, inside, corner)

    def _specials(
        self, w: int, rank: int, number: int, where: list[int], inside: Triple, corner: Triple
    ) -> None:
        """Special registers and addresses of shared variables, of one warp."""
        setup, program = self.setup, self.setup.program
        bx, by, _ = setup.block
        thread = number * y.LANES + np.arange(y.LANES)
        base = w * program.register_bytes
        registers = self.arrays[y.C_REGISTERS]
        xyz = "xyz"
        known: dict[str, object] = {
            "%laneid": np.arange(y.LANES),
            "%warpid": number,
            "%nwarpid": -(-int(np.prod(setup.block)) // y.LANES),
            "%smid": self.number % 132,
            "%nsmid": 132,
            "%gridid": 1,
            "%cluster_ctarank": rank,
            "%cluster_nctarank": int(np.prod(setup.cluster)),
            "%is_explicit_cluster": int(np.prod(setup.cluster)) > 1,
            "%dynamic_smem_size": setup.dynamic_shared,
            "%total_smem_size": program.dynamic + setup.dynamic_shared,
            "%lanemask_eq": 1 << np.arange(y.LANES),
            "%lanemask_lt": (1 << np.arange(y.LANES)) - 1,
            "%lanemask_le": (2 << np.arange(y.LANES)) - 1,
            "%lanemask_gt": y.ALL & ~((2 << np.arange(y.LANES)) - 1),
            "%lanemask_ge": y.ALL & ~((1 << np.arange(y.LANES)) - 1),
        }
        tid = (thread % bx, thread // bx % by, thread // (bx * by))
        for axis in range(3):
            known[f"%tid.{xyz[axis]}"] = tid[axis]
            known[f"%ntid.{xyz[axis]}"] = setup.block[axis]
            known[f"%ctaid.{xyz[axis]}"] = where[axis]
            known[f"%nctaid.{xyz[axis]}"] = setup.grid[axis]
            known[f"%clusterid.{xyz[axis]}"] = corner[axis]
            known[f"%nclusterid.{xyz[axis]}"] = -(-setup.grid[axis] // setup.cluster[axis])
            known[f"%cluster_ctaid.{xyz[axis]}"] = inside[axis]
            known[f"%cluster_nctaid.{xyz[axis]}"] = setup.cluster[axis]
        for special in program.specials:
            if special.name == "shared":
                value: object = rank << y.RANK_SHIFT | special.value
            else:
                value = known.get(special.name, 0)
            word = np.uint64 if special.size == 256 else np.uint32
            row = np.broadcast_to(np.asarray(value).astype(word), y.LANES)
            registers[base + special.place : base + special.place + row.nbytes] = (
                np.ascontiguousarray(row).view(np.uint8)
            )


class Shared:
    """Arrays that all clusters of a launch share."""

    def __init__(self, setup: Setup) -> None:
        program = setup.program
        rows = sorted(setup.buffers, key=lambda buffer: buffer.base)
        table = np.zeros((max(len(rows), 1), y.B_SIZE), np.int64)
        for number, buffer in enumerate(rows):
            host = buffer.array.ctypes.data
            table[number, :4] = buffer.base, buffer.array.nbytes, host, buffer.access
            table[number, y.B_NUMBER] = number
        self.buffers = rows
        self.counts = np.zeros(len(program.rows), np.int64)
        self.grid = np.zeros(64, np.int64)
        self.order = _order_tables(setup)
        if self.order is not None:
            self.grid[G_CLUSTERS : G_CLUSTERS + len(self.order.words)] = self.order.words
        self.find = np.zeros(_FIND_WORDS, np.int64)
        self.arrays = {
            y.C_PROGRAM: program.rows,
            y.C_LIST: program.lists,
            y.C_CONSTANTS: program.constants,
            y.C_PARAM: setup.parameters,
            y.C_CONST: program.const,
            y.C_BUFFERS: table,
            y.C_MAPS: np.ascontiguousarray(setup.maps)
            if len(setup.maps)
            else np.zeros(64, np.int64),
            y.C_COUNT: self.counts,
            y.C_GRID: self.grid,
            y.C_FIND: self.find,
            y.C_FIND_INDEX: np.zeros(y.FIND_SLOTS, np.int64),
        }


def _order_tables(setup: Setup) -> GridTables | None:
    """What keeps the order between clusters, where the launch may need it."""
    if not setup.sanitize:
        return None
    per = [-(-g // c) for g, c in zip(setup.grid, setup.cluster, strict=True)]
    warps = -(-int(np.prod(setup.block)) // y.LANES)
    components = order.components(int(np.prod(setup.cluster)), warps)
    return grid_tables(setup.program.entry, int(np.prod(per)), components)


def run_grid(setup: Setup, ended: Callable[[ClusterEnd], None] | None = None) -> list[ClusterEnd]:
    """Run the clusters of a launch. `ended` is called as each ends. A fault, or a cluster that can
    go nowhere, ends the run: the last of the result tells."""
    run = STARTER.start()
    shared = Shared(setup)
    found: list[ClusterEnd] = []
    waiting: list[ClusterState] = []
    numbers = iter(_clusters(setup))
    findings = 0
    vainly = 0
    while True:
        state = _next(setup, shared, numbers, waiting)
        if state is None:
            return found
        state.context[y.C_FIND_COUNT] = findings
        before = int(state.context[y.C_PROGRESS])
        code = run(state.context.ctypes.data, _SLICE)
        findings = int(state.context[y.C_FIND_COUNT])
        limit = setup.max_instructions
        if code in (y.R_BUDGET, y.R_YIELD) and not (
            limit is not None and state.context[y.C_EXECUTED] >= limit
        ):
            moved = code == y.R_BUDGET or int(state.context[y.C_PROGRESS]) != before
            vainly = 0 if moved else vainly + 1
            if vainly <= _VAINLY * (len(waiting) + 1):
                waiting.append(state)
                continue
        vainly = 0
        end = ClusterEnd(state.number, code, state)
        found.append(end)
        if ended is not None:
            ended(end)
        if code != y.R_DONE:
            return found


def _next(
    setup: Setup, shared: Shared, numbers: Iterator[int], waiting: list[ClusterState]
) -> ClusterState | None:
    """The cluster to run next: one that gave way, or, where the last one did, a new one."""
    if waiting and (len(waiting) > 1 or int(waiting[0].context[y.C_EXECUTED]) % _SLICE == 0):
        return waiting.pop(0)
    number = next(numbers, None)
    if number is not None:
        return ClusterState(setup, shared, number)
    return waiting.pop(0) if waiting else None


def _clusters(setup: Setup) -> Sequence[int]:
    per = [-(-g // c) for g, c in zip(setup.grid, setup.cluster, strict=True)]
    return setup.clusters if setup.clusters is not None else range(int(np.prod(per)))
