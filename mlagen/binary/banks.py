"""What LDS accesses cost: the lanes' addresses against bank phases.

Lanes of one phase are served together, at one cycle a dword of the same bank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlagen.binary.effects import is_lds_dma
from mlagen.binary.instruction import MachineInstruction

Lanes = npt.NDArray[np.uint32]
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


def dma_bytes(ins: MachineInstruction) -> int:
    """Bytes a lane of an LDS DMA moves."""
    return next(
        size
        for suffix, size in (("dwordx4", 16), ("dwordx3", 12), ("dword", 4), ("short", 2), ("", 1))
        if suffix in ins.mnemonic
    )


def access_bytes(ins: MachineInstruction) -> int:
    """Bytes that a lane reads or writes, 0 where it is not one run of them."""
    if "read2" in ins.mnemonic or "write2" in ins.mnemonic:
        return 0
    name = ins.mnemonic.partition("_tr_")[0].partition("_d16")[0]
    return next((size for suffix, size in _WIDTHS if name.endswith(suffix)), 0)


def immediate_offsets(ins: MachineInstruction) -> tuple[int, int]:
    """Immediate offset, lowest and highest, in bytes."""
    if is_lds_dma(ins):
        offset = ins.modifier("offset")
        return offset, offset
    offset = ins.modifier("offset0") | ins.modifier("offset1") << 8
    return offset, offset
