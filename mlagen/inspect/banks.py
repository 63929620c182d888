"""LDS accesses of a kernel, alike ones together: what they touch and what their banks cost."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from mlagen.binary.banks import (
    PHASES,
    Lanes,
    access_bytes,
    cycles,
    dma_bytes,
    immediate_offsets,
    served,
)
from mlagen.binary.effects import is_lds_dma
from mlagen.binary.flow import Flow
from mlagen.binary.instruction import MachineInstruction
from mlagen.inspect.model import LdsUse, MemoryArea
from mlagen.inspect.values import WaveView

_MOVES = re.compile(r"permute|swizzle")  # between lanes: they use no memory


def lds_uses(flow: Flow, views: Sequence[WaveView], areas: Sequence[MemoryArea]) -> list[LdsUse]:
    """All LDS accesses, those alike together, in the order of their first."""
    groups: dict[tuple[object, ...], list[tuple[MachineInstruction, Mapping[int, Lanes]]]] = {}
    for ins in flow.instructions:
        dma = is_lds_dma(ins)
        if ins.encoding != "DS" and not dma:
            continue
        address = ins.operand("addr")
        if (address is None and not dma) or _MOVES.search(ins.mnemonic):
            continue
        lanes = {v.wave: v.addresses[ins.offset] for v in views if ins.offset in v.addresses}
        where = "m0" if dma else str(address)
        # A DMA writes whole lines in lane order: its base does not matter for what it is.
        what = frozenset[bytes]() if dma else frozenset(held.tobytes() for held in lanes.values())
        groups.setdefault((ins.mnemonic, where, bool(lanes), what), []).append((ins, lanes))
    return [_use(where, group, areas) for (_, where, *_), group in groups.items()]


def _use(
    where: object,
    group: list[tuple[MachineInstruction, Mapping[int, Lanes]]],
    areas: Sequence[MemoryArea],
) -> LdsUse:
    first, lanes = group[0]
    dma = is_lds_dma(first)
    lowest = highest = None
    bytes_ = dma_bytes(first) if dma else access_bytes(first)
    if lanes and bytes_:
        ends = [
            (int(held.min()) + low, int(held.max()) + high + bytes_ - 1)
            for ins, known in group
            for held in known.values()
            for low, high in (immediate_offsets(ins),)
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
        offset = immediate_offsets(first)[0]
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
