"""What each memory access of a stream costs: LDS cycles by bank phases, bytes and cache lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from mlagen.binary import KernelCode
from mlagen.binary.banks import PHASES, Phases, access_bytes, dma_bytes
from mlagen.binary.effects import is_lds_dma
from mlagen.binary.instruction import MachineInstruction
from mlagen.emulator.native.kept_code import keep
from mlagen.emulator.streams import ExecutedStream
from mlagen.timing.constants import Machine
from mlagen.timing.cycle_state import MODEL

LINE = 128  # bytes of a cache line of L1 and L2 (CDNA3 ISA guide)
SECTOR = 64  # bytes that the L1 asks the L2 for at least: half a line (TCP_TCC requests of rocprof)
_HALF = (1 << 32) - 1


def _kept(function: Any) -> Any:
    return keep(njit(function), MODEL)


@dataclass(frozen=True, eq=False)
class AccessCosts:
    """By access of a stream. `lds`: LDS cycles at full bandwidth, 0 for no DS access. `ideal`:
    the same without conflicts. `bytes`: moved from or to memory; `lines`, `sectors`: that
    they touch. `unmeasured`: DS mnemonics whose phases nobody published, with their executions."""

    lds: npt.NDArray[np.int64]
    ideal: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]
    lines: npt.NDArray[np.int64]
    sectors: npt.NDArray[np.int64]
    unmeasured: dict[str, int]


@_kept
def _phase_cycles(addresses, lanes, first, banks, dwords):  # type: ignore[no-untyped-def]
    """LDS cycles of each access: the most distinct dwords that a bank serves, phase by phase.

    `lanes`: the lanes in order of phases; phase i takes lanes[first[i]:first[i + 1]].
    """
    count = len(addresses)
    result = np.zeros(count, dtype=np.int64)
    seen = np.full((banks, 64 * 4), -1, dtype=np.int64)
    held = np.zeros(banks, dtype=np.int64)
    for access in range(count):
        total = 0
        if access > 0:  # most accesses repeat the one of the iteration before
            same = True
            for lane in range(64):
                if addresses[access, lane] != addresses[access - 1, lane]:
                    same = False
                    break
            if same:
                result[access] = result[access - 1]
                continue
        for phase in range(len(first) - 1):
            held[:] = 0
            worst = 0
            for place in range(first[phase], first[phase + 1]):
                base = addresses[access, lanes[place]]
                if base < 0:
                    continue
                for part in range(dwords):
                    word = base // 4 + part
                    bank = word % banks
                    new = True
                    for i in range(held[bank]):
                        if seen[bank, i] == word:
                            new = False
                            break
                    if new:
                        seen[bank, held[bank]] = word
                        held[bank] += 1
                        if held[bank] > worst:
                            worst = held[bank]
            total += worst
        result[access] = total
    return result


@_kept
def _count_lines(addresses, size, line):  # type: ignore[no-untyped-def]
    """Distinct cache lines of each access, lanes in order (a wave's lines come in few runs)."""
    count = len(addresses)
    result = np.zeros(count, dtype=np.int64)
    seen = np.zeros(64 * 2, dtype=np.int64)
    for access in range(count):
        held = 0
        for lane in range(64):
            base = addresses[access, lane]
            if base < 0:
                continue
            for word in range(base // line, (base + size - 1) // line + 1):
                new = True
                for i in range(held - 1, -1, -1):
                    if seen[i] == word:
                        new = False
                        break
                if new:
                    seen[held] = word
                    held += 1
        result[access] = held
    return result


def phases_of(ins: MachineInstruction, machine: Machine) -> tuple[Phases, bool]:
    """Phases of a DS access, and whether nobody measured them.

    Unmeasured ones: as many lanes a phase as 256 bytes feed, in lane order, over 64 banks; the
    transposing reads as the constant `tr_phases` says.
    """
    known = PHASES.get(ins.mnemonic)
    if known is not None and not known.assumed:
        return known, False
    size = 8 if ins.mnemonic.endswith("2_b64") else max(access_bytes(ins), 4)
    each = 64 // machine.tr_phases if known is not None else min(64, 256 // size)
    lanes = tuple(tuple(range(a, a + each)) for a in range(0, 64, each))
    return Phases(size, 64, lanes, True), True


def access_costs(stream: ExecutedStream, kernel: KernelCode, machine: Machine) -> AccessCosts:
    """Costs of every access of a stream, at `machine`'s phases."""
    count = len(stream.addresses)
    lds, ideal, moved, lines, sectors = (np.zeros(count, dtype=np.int64) for _ in range(5))
    costs = AccessCosts(lds, ideal, moved, lines, sectors, {})
    steps = np.flatnonzero(stream.access >= 0)
    if not len(steps):
        return costs
    steps = steps[np.argsort(stream.row[steps], kind="stable")]
    rows, accesses = stream.row[steps], stream.access[steps]
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        mine = accesses[start:end]
        ins = kernel.instructions[rows[start]]
        addresses = stream.addresses[mine]
        if ins.encoding == "DS":
            _lds_costs(ins, addresses, mine, costs, machine)
        else:
            size = memory_bytes(ins)
            costs.bytes[mine] = size * (addresses >= 0).sum(axis=1)
            costs.lines[mine] = _count_lines(addresses, size, LINE)
            costs.sectors[mine] = _count_lines(addresses, size, SECTOR)
    return costs


def _lds_costs(
    ins: MachineInstruction,
    addresses: np.ndarray,
    mine: np.ndarray,
    costs: AccessCosts,
    machine: Machine,
) -> None:
    phases, unmeasured = phases_of(ins, machine)
    if unmeasured:
        costs.unmeasured[ins.mnemonic] = costs.unmeasured.get(ins.mnemonic, 0) + len(mine)
    lanes = np.array([lane for phase in phases.lanes for lane in phase], dtype=np.int64)
    first = np.cumsum([0, *(len(phase) for phase in phases.lanes)])
    if "permute" in ins.mnemonic or "swizzle" in ins.mnemonic:
        costs.lds[mine] = costs.ideal[mine] = 2
        return
    dwords = -(-phases.bytes // 4)
    low = np.where(addresses >= 0, addresses & _HALF, -1)
    found = _phase_cycles(low, lanes, first, phases.banks, dwords)
    ideal = len(phases.lanes)
    if "read2" in ins.mnemonic or "write2" in ins.mnemonic:
        high = np.where(addresses >= 0, addresses >> 32, -1)
        found = found + _phase_cycles(high, lanes, first, phases.banks, dwords)
        ideal *= 2
    costs.lds[mine] = found
    costs.ideal[mine] = ideal


def memory_bytes(ins: MachineInstruction) -> int:
    """Bytes that a lane of a load or store moves, 0 for all other instructions."""
    if ins.encoding not in ("MUBUF", "GLOBAL", "FLAT", "MTBUF"):
        return 0
    if is_lds_dma(ins):
        return dma_bytes(ins)
    for suffix, size in (("dwordx4", 16), ("dwordx3", 12), ("dwordx2", 8), ("dword", 4),
                         ("short", 2), ("byte", 1), ("x2", 8)):  # fmt: skip
        if suffix in ins.mnemonic:
            return size
    return 4
