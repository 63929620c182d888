"""What LDS accesses cost: the lanes' addresses, as the code computes them, against bank phases.

Lanes of one phase are served together, at one cycle a dword of the same bank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlagen.binary.effects import is_lds_dma
from mlagen.binary.flow import Flow
from mlagen.binary.instruction import Instruction
from mlagen.inspect.model import LdsUse, MemoryArea
from mlagen.inspect.values import Lanes, WaveView, dma_bytes

BANK_BYTES = 4


@dataclass(frozen=True, slots=True)
class Phases:
    """How the 64 lanes of an access are split, and over how many banks."""

    bytes: int
    banks: int
    lanes: tuple[tuple[int, ...], ...]
    assumed: bool = False


def _twice(*phases: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The phases of the lower 32 lanes, then the same of the upper."""
    return tuple(tuple(lane + half for lane in phase) for half in (0, 32) for phase in phases)


_B64 = (tuple(range(32)), tuple(range(32, 64)))
# Source: HipKittens, measured on MI35x (analysis/paper_experiments/phases). Nothing is measured of
# the transposing reads: the phases of ds_read_b64 are assumed for them.
PHASES: dict[str, Phases] = {
    "ds_read_b128": Phases(16, 64, _twice(
        (0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27),
        (4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 28, 29, 30, 31))),
    "ds_read_b96": Phases(12, 32, _twice(
        (0, 1, 2, 3, 20, 21, 22, 23), (4, 5, 6, 7, 16, 17, 18, 19),
        (8, 9, 10, 11, 28, 29, 30, 31), (12, 13, 14, 15, 24, 25, 26, 27))),
    "ds_read_b64": Phases(8, 64, _B64),
    "ds_read_b64_tr_b16": Phases(8, 64, _B64, assumed=True),
    "ds_read_b64_tr_b8": Phases(8, 64, _B64, assumed=True),
    "ds_read_b64_tr_b4": Phases(8, 64, _B64, assumed=True),
    "ds_write_b64": Phases(8, 32, tuple(tuple(range(a, a + 16)) for a in range(0, 64, 16))),
}  # fmt: skip
_WIDTHS = (("b128", 16), ("b96", 12), ("b64", 8), ("b32", 4), ("b16", 2), ("u16", 2), ("i16", 2),
           ("b8", 1), ("u8", 1), ("i8", 1))  # fmt: skip


def served(addresses: Sequence[int] | Lanes, phases: Phases) -> tuple[tuple[int, ...], ...]:
    """Distinct dwords of each bank, phase by phase; a phase takes as many cycles as its maximum."""
    found = []
    for lanes in phases.lanes:
        dwords: dict[int, set[int]] = {}
        for lane in lanes:
            for part in range(phases.bytes // BANK_BYTES):
                index = int(addresses[lane]) // BANK_BYTES + part
                dwords.setdefault(index % phases.banks, set()).add(index)
        found.append(tuple(len(dwords.get(bank, ())) for bank in range(phases.banks)))
    return tuple(found)


def cycles(banks: Sequence[Sequence[int]]) -> int:
    """LDS cycles of an access, from what each bank serves in each phase."""
    return sum(max(phase) for phase in banks)


def lds_uses(flow: Flow, views: Sequence[WaveView], areas: Sequence[MemoryArea]) -> list[LdsUse]:
    """All LDS accesses, those alike together, in the order of their first."""
    groups: dict[tuple[object, ...], list[tuple[Instruction, Mapping[int, Lanes]]]] = {}
    for ins in flow.instructions:
        dma = is_lds_dma(ins)
        if ins.encoding != "DS" and not dma:
            continue
        address = ins.operand("addr")
        if address is None and not dma:
            continue  # permutes use no memory
        lanes = {v.wave: v.addresses[ins.offset] for v in views if ins.offset in v.addresses}
        where = "m0" if dma else str(address)
        # A DMA writes whole lines in lane order: its base does not matter for what it is.
        what = frozenset[bytes]() if dma else frozenset(held.tobytes() for held in lanes.values())
        groups.setdefault((ins.mnemonic, where, bool(lanes), what), []).append((ins, lanes))
    return [_use(where, group, areas) for (_, where, *_), group in groups.items()]


def _use(
    where: object, group: list[tuple[Instruction, Mapping[int, Lanes]]], areas: Sequence[MemoryArea]
) -> LdsUse:
    first, lanes = group[0]
    dma = is_lds_dma(first)
    lowest = highest = None
    bytes_ = dma_bytes(first) if dma else _width(first)
    if lanes and bytes_:
        ends = [
            (int(held.min()) + low, int(held.max()) + high + bytes_ - 1)
            for ins, known in group
            for held in known.values()
            for low, high in (_offsets(ins),)
        ]
        lowest, highest = min(low for low, _ in ends), max(high for _, high in ends)
    phases = PHASES.get(first.mnemonic)
    worst: tuple[tuple[int, ...], ...] = ()
    unknown = ""
    if dma:
        unknown = "written in lane order"
    elif phases is None:
        unknown = "phases not published"
    elif not lanes:
        unknown = "address not constant"
    else:
        offset = _offsets(first)[0]
        worst = max((served(held + np.uint32(offset), phases) for held in lanes.values()),
                    key=cycles)  # fmt: skip
        unknown = "phases assumed" if phases.assumed else ""
    return LdsUse(
        mnemonic=f"{first.mnemonic} lds" if dma and "lds" not in first.mnemonic else first.mnemonic,
        address=str(where),
        count=len(group),
        first_at=first.offset,
        lowest=lowest,
        highest=highest,
        cycles=cycles(worst) if worst else None,
        ideal=len(worst) if worst else None,
        banks=worst,
        unknown=unknown,
        areas=()
        if lowest is None or highest is None
        else tuple(a.name for a in areas if a.base <= highest and lowest < a.base + a.bytes),
    )


def _width(ins: Instruction) -> int:
    """Bytes that a lane reads or writes, 0 where it is not one run of them."""
    if "read2" in ins.mnemonic or "write2" in ins.mnemonic:
        return 0
    name = ins.mnemonic.partition("_tr_")[0]
    return next((size for suffix, size in _WIDTHS if name.endswith(suffix)), 0)


def _offsets(ins: Instruction) -> tuple[int, int]:
    """Immediate offset, lowest and highest, in bytes."""
    if is_lds_dma(ins):
        offset = ins.modifier("offset")
        return offset, offset
    offset = ins.modifier("offset0") | ins.modifier("offset1") << 8
    return offset, offset


def lifted_areas(uses: Sequence[LdsUse]) -> tuple[MemoryArea, ...]:
    """The parts of LDS that reads and writes with known addresses cover, run by run; transfers
    into LDS (whose lines lie all over a tile) only where nothing reads."""
    merged: list[list[int]] = []
    for transfers in (False, True):
        spans = [
            (use.lowest, use.highest)
            for use in uses
            if use.lowest is not None
            and use.highest is not None
            and (use.address == "m0") == transfers
        ]
        if transfers:
            spans = [s for s in spans if not any(a <= s[1] and s[0] <= b for a, b in merged)]
        runs: list[list[int]] = []
        for low, high in sorted(spans):
            if runs and low <= runs[-1][1] + 1:
                runs[-1][1] = max(runs[-1][1], high)
            else:
                runs.append([low, high])
        merged += runs
    return tuple(
        MemoryArea(f"area {index}", "lifted", low, 1, high - low + 1, note="touched by the code")
        for index, (low, high) in enumerate(sorted(merged))
    )
