"""One launch of a PTX entry: checked, placed, run, and told."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable

import numpy as np

from mlagen.emulator.buffer import Triple
from mlagen.emulator.findings import PtxFinding
from mlagen.emulator.launch import EmulationResult, Launch, Settings
from mlagen.emulator.ptx.host.checks import check_block, check_memory, grid_and_cluster
from mlagen.emulator.ptx.host.ending import finding_of, unset_reads
from mlagen.emulator.ptx.host.entries import entry_of, machine_of
from mlagen.emulator.ptx.host.findings import ExecutedLaunch, described, merge
from mlagen.emulator.ptx.host.grid import run_grid
from mlagen.emulator.ptx.host.memory import build_memory
from mlagen.emulator.ptx.machine import CheckedLaunch
from mlagen.emulator.ptx.program import translate
from mlagen.emulator.ptx.starting import STARTER
from mlagen.errors import ConfigError, UnsupportedError
from mlagen.ptx import Entry, Instruction, Module


def run_entry(
    module: Module,
    launch: Launch,
    settings: Settings,
    progress: Callable[[int, int], None] | None = None,
    executed: Callable[[int], None] | None = None,
) -> EmulationResult:
    """Translate, check, run all chosen clusters. Buffers are written as the kernel runs.

    ConfigError and UnsupportedError as `emulate` says.
    """
    for name, asked in (("trace_nonfinite", settings.trace_nonfinite), ("record", settings.record)):
        if asked:
            raise UnsupportedError(f"{name} is of gfx950 code; the PTX emulator has none of it")
    if launch.dynamic_lds_bytes:
        raise ConfigError("dynamic_lds_bytes is of gfx950 code", hint="dynamic_shared, for PTX")
    limits = machine_of(module.target).limits
    entry = entry_of(module, launch.kernel)
    check_block(entry, launch.block, limits)
    grid, cluster = grid_and_cluster(entry, launch, limits)
    program = translate(module, entry)
    check_memory(program, launch, cluster, limits)
    memory = build_memory(program, launch)
    setup = CheckedLaunch(
        program,
        grid,
        launch.block,
        cluster,
        launch.dynamic_shared,
        memory.parameters,
        memory.buffers,
        memory.maps,
        settings.mode,
        settings.seed,
        settings.sanitize,
        settings.exact,
        settings.max_instructions,
        _clusters(settings, grid, cluster),
        settings.threads or os.cpu_count() or 1,
        independent(program.entry),
    )
    total = len(setup.numbers()) * setup.cluster_ctas

    def ended(clusters: int) -> None:
        if progress is not None:
            progress(clusters * setup.cluster_ctas, total)

    STARTER.start()  # before there are threads that Ctrl-C does not reach
    started = time.perf_counter()
    ends = run_grid(setup, looked=executed, progress=ended)
    seconds = time.perf_counter() - started
    counts = np.zeros(len(program.rows), np.int64)
    for end in ends:
        counts += end.counts
    run = ExecutedLaunch(setup, memory)
    findings = [described(run, row) for row in merge([end.findings for end in ends])]
    if settings.sanitize:
        findings += unset_reads(run, counts)
    last = finding_of(run, ends[-1])
    return EmulationResult(
        findings=tuple(_sorted(findings, last)),
        wave_instructions=int(counts.sum()),
        counts=_by_opcode(program.entry, counts),
        seconds=seconds,
        dropped_findings=sum(end.dropped for end in ends),
        executions={i.index: int(counts[i.index]) for i in program.entry.instructions},
    )


def independent(entry: Entry) -> bool:
    """Whether no cluster can learn anything of another through global memory: no atomics there, no
    loads that synchronise, nothing that hands out work. Threads may run such clusters."""
    return not any(_shares(instruction) for instruction in entry.instructions)


_WATCHING = ("acquire", "relaxed", "volatile", "mmio", "strong")


def _shares(i: Instruction) -> bool:
    spaces = ("global", "shared", "shared::cta", "shared::cluster", "param", "const", "local")
    space = next((part for part in i.parts if part in spaces), "generic")
    outside = space in ("global", "generic")
    if i.name in ("clusterlaunchcontrol", "griddepcontrol", "multimem", "nanosleep"):
        return True
    if i.name in ("atom", "red", "ld"):
        watching = i.name != "ld" or any(part in _WATCHING for part in i.parts)
        return outside and watching
    # A reduction into global memory by an agent.
    return i.name == "cp" and "reduce" in i.parts and i.parts[-1] != "shared::cluster"


def _clusters(settings: Settings, grid: Triple, cluster: Triple) -> list[int] | None:
    """Numbers of the clusters that hold the blocks to run."""
    if settings.workgroups is None:
        return None
    across, down, _ = (g // c for g, c in zip(grid, cluster, strict=True))
    numbers = []
    for block in settings.workgroups:
        if len(block) != 3 or not all(0 <= b < n for b, n in zip(block, grid, strict=True)):
            raise ConfigError(f"workgroup {block} lies outside the grid {grid}")
        x, second, third = (b // c for b, c in zip(block, cluster, strict=True))
        numbers.append(x + across * (second + down * third))
    return list(dict.fromkeys(numbers))


def _sorted(findings: list[PtxFinding], last: PtxFinding | None) -> list[PtxFinding]:
    """By place, and by kind; what ended the run comes last."""
    ordered = sorted(findings, key=lambda f: (f.pc, f.kind, f.other_pc or -1))
    return ordered if last is None else [*ordered, last]


def _by_opcode(entry: Entry, counts: np.ndarray) -> dict[str, int]:
    found: Counter[str] = Counter()
    for instruction in entry.instructions:
        if counts[instruction.index]:
            found[instruction.opcode] += int(counts[instruction.index])
    return dict(found)
