"""One launch: state arrays, the initial registers of every workgroup, the run over host threads."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np

from mlagen.binary import KernelCode
from mlagen.binary.hazards import CONSUMERS, PRODUCERS, REQUIRED
from mlagen.binary.operand import EXEC
from mlagen.emulator.buffer import Triple
from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950.matrix import work_space
from mlagen.emulator.gfx950.memory import BufferArena, build_memory
from mlagen.emulator.gfx950.raw_findings import describe, merge
from mlagen.emulator.gfx950.recording import ROOM, Recorder
from mlagen.emulator.gfx950.starting import STARTER
from mlagen.emulator.gfx950.translate import (
    TranslatedKernel,
    executed_by_mnemonic,
    executed_by_offset,
    translate,
)
from mlagen.emulator.launch import EmulationResult, Launch, Settings, Unlanded
from mlagen.emulator.nonfinite import NonfiniteOrigin, NonfiniteOutput
from mlagen.emulator.streams import ExecutedStream
from mlagen.emulator.tracing.origins import Describer
from mlagen.emulator.tracing.tracer_tables import Shadow, Tracer, make_shadow
from mlagen.errors import ConfigError, UnsupportedError
from mlagen.targets.gfx950.limits import GFX950

_SLICE = 500_000  # wave-instructions between looks at Ctrl-C and the limits
_AHEAD = 64  # workgroups a thread that are handed out before the oldest has ended
_GRACE = 2_000_000  # wave-instructions that a workgroup may go on for after its first finding
_BY_REGISTER = (y.C_UNTIL, y.C_WUNTIL, y.C_PENDING, y.C_WINFO, y.C_WPC, y.C_RINFO, y.C_RPC,
                y.C_WHELD)  # fmt: skip
_MODES = {"latest": y.LATEST, "earliest": y.EARLIEST, "random": y.RANDOM}


@dataclass(frozen=True)
class EmulatorRun:
    """Everything that is fixed for a run; see `emulate`. `workgroups`: those that are executed."""

    kernel: KernelCode
    launch: Launch
    settings: Settings
    workgroups: tuple[Triple, ...]
    executed: Callable[[int], None] | None

    @property
    def waves(self) -> int:
        x, y_size, z = self.launch.block
        return -(-(x * y_size * z) // GFX950.wave_size)

    @property
    def lds_bytes(self) -> int:
        """LDS the workgroup may touch: what was asked for (the hardware rounds up, unasked)."""
        return self.kernel.descriptor.lds_bytes + self.launch.dynamic_lds_bytes


def run_workgroups(
    run: EmulatorRun, progress: Callable[[int, int], None] | None
) -> EmulationResult:
    """Translate, check, run all chosen workgroups, write results back."""
    _check(run)
    program = translate(run.kernel)
    STARTER.start()  # before there are threads that Ctrl-C does not reach
    traced, watched = run.settings.trace_nonfinite, run.settings.sanitize
    watched = watched and program.atomics == "silent"
    memory = build_memory(
        run.launch.arguments,
        run.kernel.kernarg_bytes,
        run.launch.buffers,
        in_place=not (traced or watched),  # they have tables by dword of the arena
    )
    shadow = make_shadow(program, memory) if traced else None
    accesses = None
    if watched:
        accesses = np.zeros((2, memory.arena.size // 4 + 1), dtype=np.int64)
    started = time.perf_counter()
    workers = min(run.settings.threads or os.cpu_count() or 1, len(run.workgroups)) or 1
    if program.atomics != "none":
        workers = 1  # sums of floats depend on the order, and a run is to be repeatable
    local = threading.local()
    stop = threading.Event()

    def work(number: int) -> Outcome:
        if not hasattr(local, "machine"):
            local.machine = WorkgroupState(run, program, memory, shadow, accesses)
        machine: WorkgroupState = local.machine
        return machine.execute(run.workgroups[number], stop)

    total = len(run.workgroups)
    counts = np.zeros(len(program.rows), dtype=np.int64)
    landed = np.zeros(len(program.rows), dtype=np.int64)
    outcomes: list[Outcome] = []  # of the workgroups that have more to say than counts
    done = map(work, range(total)) if workers <= 1 else _run_pool(work, total, workers, stop)
    try:
        for number, outcome in enumerate(done):
            counts += outcome.counts
            landed |= outcome.landed
            if outcome.notable:
                outcomes.append(outcome)
            if progress:
                progress(number + 1, total)
    finally:
        stop.set()
    memory.write_back()
    seconds = time.perf_counter() - started
    raw = merge([o.findings for o in outcomes])
    origins: tuple[NonfiniteOrigin, ...] = ()
    outputs: tuple[NonfiniteOutput, ...] = ()
    if shadow is not None:
        describer = Describer(program, memory, shadow, run.launch.grid)
        found = describer.origins([(o.workgroup, o.nonfinite) for o in outcomes])
        origins, outputs = tuple(found.origins), describer.outputs(found)
    return EmulationResult(
        findings=tuple(describe(row, program, memory, run.launch.grid) for row in raw),
        wave_instructions=int(counts.sum()),
        counts=executed_by_mnemonic(program.instructions, counts),
        seconds=seconds,
        dropped_findings=sum(outcome.dropped for outcome in outcomes),
        nonfinite=origins,
        nonfinite_outputs=outputs,
        streams=tuple(o.stream for o in outcomes if o.stream is not None),
        executions=executed_by_offset(program.instructions, counts),
        unlanded=tuple(
            Unlanded(ins.offset, str(ins), int(counts[row]))
            for row, ins in enumerate(program.instructions)
            if landed[row] == y.ASKED
        ),
    )


def _run_pool(
    work: Callable[[int], Outcome], total: int, workers: int, stop: threading.Event
) -> Iterator[Outcome]:
    """Run all workgroups on host threads; outcomes in the order of the workgroups.

    Only some are under way or waiting at a time, however large the grid is. When a run ends early
    (Ctrl-C, an error), `stop` ends those under way: threads cannot be interrupted.
    """
    with ThreadPoolExecutor(workers) as pool:
        futures: deque[Future[Outcome]] = deque()
        following = 0
        try:
            while futures or following < total:
                while following < total and len(futures) < _AHEAD * workers:
                    futures.append(pool.submit(work, following))
                    following += 1
                yield futures.popleft().result()
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class Outcome:
    """Raw findings (rows of layout.F_*) and executions a program row of one workgroup, and whether
    a row's stores reached memory (`landed`).

    `workgroup`: its number in the grid; `nonfinite`: rows of trace_layout.R_*. `stream`: what it
    executed, where that was asked for.
    """

    findings: np.ndarray
    counts: np.ndarray
    landed: np.ndarray
    dropped: int
    workgroup: int
    nonfinite: np.ndarray
    stream: ExecutedStream | None = None

    @property
    def notable(self) -> bool:
        """Whether it holds anything beside counts."""
        return bool(
            len(self.findings) or self.dropped or len(self.nonfinite) or self.stream is not None
        )


def _check(run: EmulatorRun) -> None:
    """Modes, user registers and sizes that the engine models; the rest is refused by name."""
    kernel = run.kernel
    items = run.launch.block[0] * run.launch.block[1] * run.launch.block[2]
    if items > GFX950.max_workgroup_threads:
        raise ConfigError(
            f"a block of {items} work-items; gfx950 has at most {GFX950.max_workgroup_threads}"
        )
    if run.lds_bytes > GFX950.lds_bytes:
        raise ConfigError(f"{run.lds_bytes} bytes of LDS; gfx950 has {GFX950.lds_bytes}")
    require_modelled(kernel)


def require_modelled(kernel: KernelCode) -> None:
    """UnsupportedError for a kernel whose descriptor asks for what the engine does not model."""
    refused = refused_modes(kernel)
    if refused:
        raise UnsupportedError(
            f"kernel {kernel.name} asks for {', '.join(refused)}, which the emulator does not model"
        )


def refused_modes(kernel: KernelCode) -> list[str]:
    """What the kernel's descriptor asks for and the engine does not model."""
    descriptor = kernel.descriptor
    refused = []
    for name, _ in descriptor.user_sgprs:
        if name not in ("kernarg_segment_ptr", "kernarg_preload"):
            refused.append(f"user SGPRs of kind {name}")
    if descriptor.scratch_bytes or descriptor.private_wave_offset:
        refused.append("scratch memory")
    if descriptor.round_f32 or descriptor.round_f16_64:
        refused.append("rounding other than to nearest even")
    if descriptor.denormals_f32 not in (0, 3):
        refused.append(f"f32 denormal mode {descriptor.denormals_f32}")
    preloaded = 4 * (descriptor.kernarg_preload_offset + descriptor.kernarg_preload)
    if preloaded > kernel.kernarg_bytes:
        refused.append(f"{preloaded} preloaded bytes of {kernel.kernarg_bytes} bytes of arguments")
    if descriptor.workgroup_info:
        refused.append("the workgroup info SGPR")
    return refused


class StoppedError(Exception):
    """A workgroup ended because the run did; nobody is told."""


class WorkgroupState:
    """State arrays of one workgroup at a time; each host thread has its own."""

    def __init__(
        self,
        run: EmulatorRun,
        program: TranslatedKernel,
        memory: BufferArena,
        shadow: Shadow | None,
        accesses: np.ndarray | None,
    ) -> None:
        self.fixed = run
        self.program = program
        self._run_slice = STARTER.start()
        waves = run.waves
        self.context = np.zeros(y.C_SIZE, dtype=np.int64)
        slots = waves * y.QUEUES * y.QUEUE_SLOTS
        registers = waves * y.REGISTERS
        dwords = GFX950.lds_bytes // 4
        # Those that are not zeros are filled for each workgroup, or written before they are read.
        self._arrays: dict[int, np.ndarray] = {
            y.C_PROGRAM: program.rows,
            y.C_VECTOR: np.empty((waves, y.ROWS, y.LANES), dtype=np.uint32),
            y.C_SCALAR: np.zeros((waves, y.SCALAR_SLOTS), dtype=np.uint32),
            y.C_WAVE: np.zeros((waves, y.W_SIZE), dtype=np.int64),
            y.C_DEFINED: np.zeros((waves, y.REGISTERS), dtype=np.int64),
            **{slot: np.zeros(registers, dtype=np.int64) for slot in _BY_REGISTER},
            y.C_QUEUE: np.zeros((slots, y.E_SIZE), dtype=np.int64),
            y.C_QADDR: np.zeros((slots, y.LANES), dtype=np.int64),
            y.C_QDATA: np.zeros((slots, y.QDATA_ROWS, y.LANES), dtype=np.uint32),
            y.C_LDS: np.empty(dwords + 4, dtype=np.uint32),
            y.C_SHADOW_W: np.empty(y.SHADOW_DWORDS, dtype=np.uint32),
            y.C_SHADOW_R: np.empty((waves, y.SHADOW_DWORDS), dtype=np.uint32),
            y.C_OPS: np.empty((y.OPS_RING, y.O_SIZE), dtype=np.int64),
            y.C_FIND: np.zeros((y.MAX_FINDINGS, y.F_SIZE), dtype=np.int64),
            y.C_FIND_INDEX: np.zeros(y.FIND_SLOTS, dtype=np.int64),
            y.C_COUNT: np.zeros(len(program.rows), dtype=np.int64),
            y.C_LANDED: np.zeros(len(program.rows), dtype=np.int64),
            y.C_BUFFERS: memory.table,
            y.C_UNSET: memory.unset,
            y.C_HAZARD: hazard_matrix(),
            y.C_LONGEST: longest_waits(),
            y.C_PATCHED: np.zeros(y.P_SIZE, dtype=np.int64),
            y.C_TEMP: work_space(),
        }
        if accesses is not None:
            self._arrays |= {y.C_ATOMIC: accesses[0], y.C_PLAIN: accesses[1]}
        for slot, array in self._arrays.items():
            self.context[slot] = array.ctypes.data
        descriptor = run.kernel.descriptor
        context = self.context
        context[y.C_ARENA] = memory.origin
        context[y.C_WAVES] = waves
        context[y.C_VGPRS] = descriptor.vgprs
        context[y.C_ROWS_PROGRAM] = len(program.rows)
        context[y.C_LDS_BYTES] = run.lds_bytes
        context[y.C_SANITIZE] = int(run.settings.sanitize)
        context[y.C_MODE] = _MODES[run.settings.mode]
        context[y.C_FLUSH] = 0x80000000 if descriptor.denormals_f32 == 0 else 0xFFFFFFFF
        context[y.C_CLAMP_NAN] = int(descriptor.dx10_clamp)
        context[y.C_FP8_CLAMP] = int(descriptor.fp16_overflow_clamp)
        context[y.C_BUFFER_COUNT] = len(memory.table)
        self._tracer = Tracer(shadow, waves) if shadow is not None else None
        context[y.C_TRACE] = self._tracer.address if self._tracer else 0
        self._recorder = Recorder() if run.settings.record else None
        context[y.C_RECORD] = self._recorder.address if self._recorder else 0
        self._kernarg = memory.kernarg_address
        self._unset = memory.unset
        self._kernarg_bytes = memory.held[-1]

    def execute(self, group: tuple[int, int, int], stop: threading.Event) -> Outcome:
        """Execute one workgroup to its end, or until `stop` is set: StoppedError."""
        self._reset(group)
        limit = self.fixed.settings.max_instructions
        longest = ROOM if self._recorder else _SLICE
        budget = longest if limit is None else min(longest, limit + 1)
        ends: int | None = None
        while True:
            if stop.is_set():
                raise StoppedError
            code = self._run_slice(self.context.ctypes.data, budget)
            if self._recorder:
                self._recorder.empty()
            if code == y.R_DONE:
                break
            if code == y.R_UNMODELLED:
                ins = self.program.instructions[int(self.context[y.C_FAULT])]
                raise UnsupportedError(
                    f"kernel {self.fixed.kernel.name}, {ins.offset:#x}: {ins}: its buffer "
                    "resource asks for swizzled or thread-indexed addressing, which the emulator "
                    "does not model"
                )
            executed = int(self.context[y.C_EXECUTED])
            if self.fixed.executed is not None:
                self.fixed.executed(executed)
            if limit is not None and executed > limit:
                raise UnsupportedError(
                    f"workgroup {group} has not ended after {executed} wave-instructions; the "
                    f"limit is {limit}",
                    hint="--max-instructions allows more",
                )
            if self.context[y.C_FIND_COUNT]:
                # A loop count that was poison or garbage can keep a wave busy for hours.
                ends = executed + _GRACE if ends is None else ends
                if executed >= ends:
                    self._note_cut()
                    break
        found = int(self.context[y.C_FIND_COUNT])
        linear = int(self.context[y.C_WORKGROUP])
        stream = self._recorder.stream(linear, self.fixed.waves) if self._recorder else None
        return Outcome(
            findings=self._arrays[y.C_FIND][:found].copy(),
            counts=self._arrays[y.C_COUNT].copy(),
            landed=self._arrays[y.C_LANDED].copy(),
            dropped=int(self.context[y.C_DROPPED]),
            workgroup=linear,
            nonfinite=self._tracer.records() if self._tracer else np.zeros((0, 0), np.int64),
            stream=stream,
        )

    def _note_cut(self) -> None:
        """Record that the workgroup was stopped, at the instruction of its first running wave."""
        waves = self._arrays[y.C_WAVE]
        wave = int(np.argmax(waves[:, y.W_STATE] == y.RUNNING))
        number = min(int(self.context[y.C_FIND_COUNT]), y.MAX_FINDINGS - 1)
        row = self._arrays[y.C_FIND][number]
        row.fill(0)
        row[y.F_KIND], row[y.F_ROW], row[y.F_OTHER] = y.NOT_ENDED, waves[wave, y.W_PC], -1
        row[y.F_WAVE], row[y.F_A], row[y.F_COUNT] = wave, _GRACE, 1
        row[y.F_WORKGROUP] = self.context[y.C_WORKGROUP]
        self.context[y.C_FIND_COUNT] = number + 1

    def _reset(self, group: tuple[int, int, int]) -> None:
        run, arrays, context = self.fixed, self._arrays, self.context
        for slot in (y.C_UNTIL, y.C_WUNTIL, y.C_DEFINED, y.C_PENDING, y.C_RINFO):
            arrays[slot].fill(0)
        arrays[y.C_WINFO].fill(-256)  # no write: one at clock -1, of a class that nothing waits for
        for slot in (y.C_WAVE, y.C_COUNT, y.C_LANDED, y.C_FIND_INDEX):
            arrays[slot].fill(0)
        if self._tracer:
            self._tracer.reset()
        if self._recorder:
            self._recorder.reset()
        if run.settings.sanitize:
            arrays[y.C_SHADOW_W].fill(0)
            arrays[y.C_SHADOW_R].fill(0)
        arrays[y.C_VECTOR].fill(y.POISON)
        arrays[y.C_SCALAR].fill(y.POISON)
        arrays[y.C_LDS].fill(y.POISON)
        grid = run.launch.grid
        linear = group[0] + grid[0] * (group[1] + grid[1] * group[2])
        context[[y.C_NEXT_OP, y.C_SAFE_OP, y.C_SAFE_READ, y.C_EPOCH_OP]] = 1
        context[[y.C_FIND_COUNT, y.C_DROPPED, y.C_EXECUTED, y.C_CURRENT, y.C_HINT]] = 0
        context[y.C_WORKGROUP] = linear
        seed = run.settings.seed
        mixed = (seed * 0x9E3779B97F4A7C15 + linear * 0xBF58476D1CE4E5B9 + 1) % (1 << 63)
        context[y.C_RANDOM] = mixed | 1
        arrays[y.C_UNTIL].fill(y.HUGE)  # nothing is defined yet
        for wave in range(run.waves):
            self._reset_wave(wave, group)

    def _reset_wave(self, wave: int, group: tuple[int, int, int]) -> None:
        """Registers as the dispatcher leaves them: only what the descriptor enables."""
        run, arrays = self.fixed, self._arrays
        descriptor = run.kernel.descriptor
        scalars, vectors = arrays[y.C_SCALAR][wave], arrays[y.C_VECTOR][wave]
        first = 0
        for name, count in descriptor.user_sgprs:
            if name == "kernarg_segment_ptr":
                scalars[first] = self._kernarg & 0xFFFFFFFF
                scalars[first + 1] = self._kernarg >> 32
            else:
                start = 4 * descriptor.kernarg_preload_offset
                raw = self._kernarg_bytes[start : start + 4 * count].copy().view(np.uint32)
                scalars[first : first + count] = raw
            for register in range(first, first + count):
                self._define(wave, y.VECTOR_ROWS + register)
                dword = descriptor.kernarg_preload_offset + register - first
                if name == "kernarg_preload" and self._unset[dword]:
                    self._leave_unset(wave, y.VECTOR_ROWS + register, 4 * dword)
            first += count
        for enabled, number in zip(descriptor.workgroup_ids, group, strict=True):
            if enabled:
                scalars[first] = number
                self._define(wave, y.VECTOR_ROWS + first)
                first += 1
        x_size, y_size, z_size = run.launch.block
        items = np.arange(wave * y.LANES, (wave + 1) * y.LANES)
        live = items < x_size * y_size * z_size
        packed = items % x_size
        if descriptor.workitem_id >= 1:
            packed = packed | (items // x_size % y_size) << 10
        if descriptor.workitem_id >= 2:
            packed = packed | (items // (x_size * y_size)) << 20
        vectors[0] = packed.astype(np.uint32)
        self._define(wave, 0)
        scalars[EXEC : EXEC + 2] = np.packbits(live, bitorder="little").view(np.uint32)
        self._define(wave, y.VECTOR_ROWS + EXEC)
        self._define(wave, y.VECTOR_ROWS + EXEC + 1)

    def _leave_unset(self, wave: int, register: int, byte: int) -> None:
        """The register holds that byte of the argument segment, which nobody set."""
        index = wave * y.REGISTERS + register
        self._arrays[y.C_DEFINED].reshape(-1)[index] = 2 * (byte + 1)
        self._arrays[y.C_UNTIL][index] = y.HUGE
        self._arrays[y.C_WPC][index] = -1

    def _define(self, wave: int, register: int) -> None:
        index = wave * y.REGISTERS + register
        self._arrays[y.C_DEFINED].reshape(-1)[index] = -1
        self._arrays[y.C_UNTIL][index] = 0


@cache
def hazard_matrix() -> np.ndarray:
    """Required wait states by class numbers, from the checkers' table."""
    matrix = np.zeros((y.HAZARD_CLASSES, y.HAZARD_CLASSES), dtype=np.int64)
    for (producer, consumer), states in REQUIRED.items():
        matrix[PRODUCERS.index(producer), CONSUMERS.index(consumer)] = states
    return matrix


@cache
def longest_waits() -> np.ndarray:
    """Per producer class: the most wait states any read, and any overwrite, can need."""
    result = np.zeros((y.HAZARD_CLASSES, 2), dtype=np.int64)
    for (producer, consumer), states in REQUIRED.items():
        column = 1 if consumer.startswith("over_") else 0
        number = PRODUCERS.index(producer)
        result[number, column] = max(result[number, column], states)
    return result
