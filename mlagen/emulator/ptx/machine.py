"""A launch as the engine takes it, and the arrays of each of its clusters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import agent_records as agents
from mlagen.emulator.ptx.matrix import work_space as matrix
from mlagen.emulator.ptx.order import record_sizes as order
from mlagen.emulator.ptx.order.maps import edits_bytes
from mlagen.emulator.ptx.order.tables import GridTables, communicates, grid_tables
from mlagen.emulator.ptx.program import Program
from mlagen.emulator.ptx.tensor import tensor_memory as tensor

Triple = tuple[int, int, int]

MOST_TRACKED = 1 << 28  # bytes of buffers whose accesses have records
MODES = {"latest": y.LATEST, "earliest": y.EARLIEST, "random": y.DRAWN}


@dataclass(frozen=True)
class GlobalBuffer:
    """Global memory at a simulated address. `array` is C-contiguous bytes, read and written in
    place. `access`: 1 to read, 3 to write as well; `late`: not before the kernel before has ended.
    """

    base: int
    array: np.ndarray
    access: int
    name: str = ""
    late: bool = False


@dataclass(frozen=True)
class CheckedLaunch:
    """A launch, checked: `parameters` are the bytes of the parameter space, `maps` a row of words
    for each tensor map. `clusters`: numbers of those to run (None: all), at most
    `max_instructions` of each; `threads`: of the host. `apart`: no cluster can learn anything of
    another one, so several threads may run them."""

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
    clusters: Sequence[int] | None = None
    threads: int = 1
    apart: bool = False

    @property
    def cluster_ctas(self) -> int:
        return math.prod(self.cluster)

    @property
    def per(self) -> Triple:
        """Clusters of the grid in x, y, z."""
        across, down, deep = (-(-g // c) for g, c in zip(self.grid, self.cluster, strict=True))
        return across, down, deep

    def corner(self, number: int) -> Triple:
        """A cluster's place in the grid of clusters."""
        across, down, _ = self.per
        return number % across, number // across % down, number // (across * down)

    def inside(self, rank: int) -> Triple:
        """A CTA's place in its cluster."""
        across, down, _ = self.cluster
        return rank % across, rank // across % down, rank // (across * down)

    def block_of(self, number: int, rank: int) -> Triple:
        """%ctaid of a CTA of a cluster."""
        places = zip(self.corner(number), self.cluster, self.inside(rank), strict=True)
        x, down, deep = (corner * size + at for corner, size, at in places)
        return x, down, deep

    def numbers(self) -> Sequence[int]:
        """Of the clusters to run."""
        return range(math.prod(self.per)) if self.clusters is None else self.clusters


class ClusterState:
    """The arrays of one cluster. `context` is what the engine works on; see `layout`. `cut_after`:
    instructions after which it is stopped, once it has a finding."""

    cut_after: int | None = None

    def __init__(self, setup: CheckedLaunch, shared: Shared, number: int) -> None:
        self.setup, self.shared, self.number = setup, shared, number
        program = setup.program
        ctas = setup.cluster_ctas
        threads = math.prod(setup.block)
        warps = -(-threads // y.LANES)
        total = ctas * warps
        self.context = np.zeros(y.C_SIZE, np.int64)
        self.arrays: dict[int, np.ndarray] = {}
        count = len(program.entry.registers)
        room = _room(setup)
        clocks = _components(setup)
        general = shared.tracked // 4  # words of buffers
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
            y.C_TENSOR: 8 * (ctas * tensor.TC_SIZE + total * tensor.TW_SIZE),
            y.C_AFTER: total * clocks * 8 if program.tensor else 0,
            y.C_USES: ctas * clocks * order.USE_SIZE * 8 if setup.sanitize else 0,
            y.C_SHADOW: ctas * room + shared.tracked if setup.sanitize else 0,
            y.C_LOADS: total * order.KEPT * order.L_SIZE * 8 if program.loads else 0,
            y.C_LOADED: total * count * 8 if program.loads else 0,
            y.C_NEAR: total * order.NEAR_ROOM * 8 if setup.sanitize else 0,
            y.C_TEMP: y.TEMP_BYTES,
            y.C_FIND: y.MAX_FINDINGS * y.F_SIZE * 8,
            y.C_FIND_INDEX: y.FIND_SLOTS * 8,
            y.C_COUNT: len(program.rows) * 8,
        }
        for slot, size in sizes.items():
            self._place(slot, np.zeros(max(size, 64), np.uint8))
        if setup.sanitize and program.edits:
            self._place(y.C_EDITS, np.zeros(edits_bytes(total), np.uint8))
        if setup.sanitize:
            self._place(y.C_RECORDS, order.record_table(ctas * room // 4, general))
        memory = np.full(ctas * room // 4, y.POISON, np.uint32)
        self._place(y.C_SHARED, memory)
        for slot, array in shared.arrays.items():
            self._place(slot, array)
        self.order = shared.order or _own_tables(setup)
        self._place(y.C_ORDER, self.order.words)
        self._note_numbers(ctas, warps)
        self._begin(ctas, warps, threads)

    def _note_numbers(self, ctas: int, warps: int) -> None:
        """What the engine asks of this cluster, a word each."""
        setup, number, program = self.setup, self.number, self.setup.program
        kinds, fenced_more, fenced_global = _kinds(setup)
        numbers = {
            y.C_WARPS_ALL: ctas * warps,
            y.C_CTA_WARPS: warps,
            y.C_CTAS_ALL: ctas,
            y.C_THREADS: math.prod(setup.block),
            y.C_REGISTER_BYTES: program.register_bytes,
            y.C_REGISTER_COUNT: len(program.entry.registers),
            y.C_SHARED_BYTES: program.dynamic + setup.dynamic_shared,
            y.C_SHARED_ROOM: _room(setup),
            y.C_LOCAL_BYTES: program.local_bytes,
            y.C_PARAM_BYTES: len(setup.parameters),
            y.C_CONST_BYTES: program.const.nbytes,
            y.C_BUFFER_COUNT: len(setup.buffers),
            y.C_MAP_COUNT: len(setup.maps),
            y.C_SANITIZE: int(setup.sanitize),
            y.C_MODE: MODES[setup.mode],
            y.C_EXACT: int(setup.exact),
            y.C_RANDOM: (setup.seed * 0x9E3779B97F4A7C15 + number * 2 + 1) & ((1 << 62) - 1),
            y.C_COMPONENTS: _components(setup),
            y.C_CURRENT: -1,
            y.C_STALLS: -1,
            y.C_CLUSTER: number,
            y.C_KINDS: kinds,
            y.C_TENSOR_AT: _cells(setup) if program.tensor else 0,
            y.C_FENCED_MORE: fenced_more,
            y.C_FENCED_GLOBAL: fenced_global,
        }
        for slot, value in numbers.items():
            self.context[slot] = value

    def _place(self, slot: int, array: np.ndarray) -> None:
        self.arrays[slot] = array
        self.context[slot] = array.ctypes.data

    @property
    def bytes(self) -> int:
        """What it takes of memory, without the records of buffers: of these only what was made is
        there."""
        tracked = self.shared.tracked
        general = tracked + min(tracked // 4, order.MOST_GENERAL) * order.RECORD
        return sum(array.nbytes for array in self.arrays.values()) - general

    def words(self, slot: int, size: int) -> np.ndarray:
        """An array as rows of `size` int64."""
        return self.arrays[slot].view(np.int64).reshape(-1, size)

    def _begin(self, ctas: int, warps: int, threads: int) -> None:
        """CTAs and warps before their first instruction."""
        cta_words, warp_words = self.words(y.C_CTAS, y.T_SIZE), self.words(y.C_WARPS, y.W_SIZE)
        cta_words[:ctas, y.T_LIVE] = warps
        for rank in range(ctas):
            for number in range(warps):
                w = rank * warps + number
                live = (1 << min(threads - number * y.LANES, y.LANES)) - 1
                warp_words[w, [y.W_MASK, y.W_LIVE, y.W_CTA]] = live, live, rank
                warp_words[w, y.W_OTHER] = y.NEVER
                warp_words[w, y.W_ASKED] = -1
                warp_words[w, [y.W_MET, y.W_ORDERED]] = 1
                warp_words[w, y.W_NEAR_LAST] = -1
                self._specials(w, rank, number)
        clocks = _components(self.setup)
        block = clocks // ctas
        known = self.words(y.C_CLOCKS, clocks)
        for w in range(ctas * warps):  # a warp's own: it has begun (order.blocks)
            known[w, w // warps * block + w % warps] = 1

    def _specials(self, w: int, rank: int, number: int) -> None:
        """Special registers and addresses of shared variables, of one warp."""
        setup, program = self.setup, self.setup.program
        where, inside = setup.block_of(self.number, rank), setup.inside(rank)
        corner, per = setup.corner(self.number), setup.per
        bx, by, _ = setup.block
        thread = number * y.LANES + np.arange(y.LANES)
        base = w * program.register_bytes
        registers = self.arrays[y.C_REGISTERS]
        xyz = "xyz"
        known: dict[str, object] = {
            "%laneid": np.arange(y.LANES),
            "%warpid": number,
            "%nwarpid": -(-math.prod(setup.block) // y.LANES),
            "%smid": self.number % 132,
            "%nsmid": 132,
            "%gridid": 1,
            "%cluster_ctarank": rank,
            "%cluster_nctarank": setup.cluster_ctas,
            "%is_explicit_cluster": setup.cluster_ctas > 1,
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
            known[f"%nclusterid.{xyz[axis]}"] = per[axis]
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

    def __init__(self, setup: CheckedLaunch) -> None:
        program = setup.program
        rows = sorted(setup.buffers, key=lambda buffer: buffer.base)
        table = np.zeros((max(len(rows), 1), y.B_SIZE), np.int64)
        self.tracked = 0  # bytes of buffers whose accesses have records, in C_SHADOW from
        self.first_tracked = setup.cluster_ctas * _room(setup)  # on
        for number, buffer in enumerate(rows):
            host = buffer.array.ctypes.data
            access = 0 if buffer.late else buffer.access
            shadow = self._shadow(setup, buffer)
            table[number] = buffer.base, buffer.array.nbytes, host, access, shadow
        self.buffers, self._table = rows, table
        self.grid = np.zeros(64, np.int64)
        self.grid[agents.GRID_UNFINISHED] = any(buffer.late for buffer in rows)
        if any(i.name == "clusterlaunchcontrol" for i in program.entry.instructions):
            self._offer(setup)
        strong = communicates(program.entry) and not setup.apart
        self.order = _order_tables(setup) if strong else None
        self.alone = setup.sanitize and not strong  # clusters cannot tell each other anything
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
            y.C_GRID: self.grid,
        }

    def _shadow(self, setup: CheckedLaunch, buffer: GlobalBuffer) -> int:
        """Where the records of a buffer's words begin, in bytes of C_SHADOW: of those that kernels
        may write to, as far as there is room."""
        size = buffer.array.nbytes + 3 & ~3
        if not setup.sanitize or buffer.access & 2 == 0 or self.tracked + size > MOST_TRACKED:
            return -1
        self.tracked += size
        return self.first_tracked + self.tracked - size

    def end_before(self) -> bool:
        """The kernel before ends, and what it wrote may be accessed. False: it had ended."""
        if not self.grid[agents.GRID_UNFINISHED]:
            return False
        self._table[: len(self.buffers), y.B_ACCESS] = [buffer.access for buffer in self.buffers]
        self.grid[agents.GRID_UNFINISHED] = 0
        return True

    def _offer(self, setup: CheckedLaunch) -> None:
        """All clusters of a grid may be taken; of a choice of them none may."""
        self.grid[agents.GRID_PER : agents.GRID_PER + 3] = setup.per
        self.grid[agents.GRID_CLUSTER : agents.GRID_CLUSTER + 3] = setup.cluster
        if setup.clusters is None:
            self.grid[agents.GRID_END] = math.prod(setup.per)


def _order_tables(setup: CheckedLaunch) -> GridTables | None:
    """What keeps the order between clusters, where they may tell each other something."""
    clusters = math.prod(setup.per)
    if not setup.sanitize or clusters > order.MOST_CLUSTERS:
        return None
    return grid_tables(clusters, _components(setup), others=True)


def _own_tables(setup: CheckedLaunch) -> GridTables:
    """What keeps the order within a cluster alone."""
    flags = setup.sanitize and communicates(setup.program.entry)
    return grid_tables(int(flags), _components(setup), others=False)


def _cells(setup: CheckedLaunch) -> int:
    """Bytes of shared memory of a CTA, to a whole number of KiB."""
    room = setup.program.dynamic + setup.dynamic_shared
    return room + -room % 1024


def _room(setup: CheckedLaunch) -> int:
    """The same with tensor memory, where there is some."""
    return _cells(setup) + (tensor.BYTES if setup.program.tensor else 0)


def _warps(setup: CheckedLaunch) -> int:
    return -(-math.prod(setup.block) // y.LANES)


def _kinds(setup: CheckedLaunch) -> tuple[int, int, int]:
    """See `order.kinds`."""
    own = order.TENSOR_KINDS if setup.program.tensor else order.KINDS
    return order.kinds(setup.cluster_ctas, _warps(setup), own)


def _components(setup: CheckedLaunch) -> int:
    """Of a vector clock."""
    return order.components(setup.cluster_ctas, _warps(setup), _kinds(setup)[0])
