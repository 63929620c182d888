"""Software wait states: s_nop where the hardware does not interlock, on every path.

The program is walked in print order with a tracker of what is still owed; at a label the trackers
of all ways there are joined. A branch back may tighten what an earlier label knows: the walk is
repeated until nothing changes, and only then are the s_nops inserted.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.codegen import dpp
from mlagen.targets.gfx950.codegen.hazards import HazardInfo, HazardKind, HazardTracker, mask
from mlagen.targets.gfx950.codegen.isa import SCC, SGPR
from mlagen.targets.gfx950.codegen.program import Layout, ProgramInstruction

NOP_STATES = 16  # s_nop 15 is the longest (CDNA4 ISA, SOPP)
SWEEPS = 8  # a loop's head settles after two; more means that the tracker does not forget

_KINDS = {
    "matrix": HazardKind.MFMA,
    "transcendental": HazardKind.TRANS,
    "vector": HazardKind.VALU,
    "scalar": HazardKind.SALU,
    "smem": HazardKind.SMEM,
    "lds": HazardKind.LDS,
    "vmem": HazardKind.VMEM,
}
# Control of the sequencer: takes part in no hazard.
_NO_HAZARD = frozenset({"s_setprio", "s_nop"})


def hazard_info(x: ProgramInstruction) -> HazardInfo:
    """The instruction as the hazard table sees it."""
    kind = HazardKind.OTHER if x.mnemonic in _NO_HAZARD else _KINDS.get(x.pipe, HazardKind.OTHER)
    if not kind:
        return HazardInfo(HazardKind.OTHER)
    if x.pipe == "vmem" and (x.text.endswith(" lds") or "_load_lds_" in x.mnemonic):
        kind = HazardKind.LDS_DMA
    elif x.mnemonic.startswith("v_permlane"):
        kind = HazardKind.PERMLANE
    elif x.mnemonic.startswith("v_read"):
        kind = HazardKind.READLANE
    elif x.mnemonic == "v_writelane_b32":
        kind = HazardKind.WRITELANE
    elif x.mnemonic in ("v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32"):
        kind = HazardKind.CONVERT_PART
        if "op_sel:[0,0,1]" in x.text:
            kind |= HazardKind.PARTIAL
    if x.pipe in ("vector", "transcendental") and dpp.has_control(x.text):
        kind |= HazardKind.DPP
    by_lane = x.mnemonic in ("v_readlane_b32", "v_writelane_b32")
    matrix = x.pipe == "matrix"
    store, by_register = _wide_store(x)
    return HazardInfo(
        kind,
        opcode=x.mnemonic,
        passes=x.passes,
        vgpr_reads=_vector(x.reads),
        vgpr_writes=_vector(x.writes),
        src_ab=_vector(x.operands[1] + x.operands[2]) if matrix else 0,
        src_c=_vector(x.operands[3]) if matrix else 0,
        store_data=0 if by_register else _vector(store),
        store_data_offset=_vector(store) if by_register else 0,
        sgpr_reads=_scalar(x.reads),
        sgpr_writes=_scalar(x.writes),
        lane_select=_scalar(x.operands[2]) if by_lane else 0,
    )


def _wide_store(x: ProgramInstruction) -> tuple[tuple[int, ...], bool]:
    """The data of a store of three or four dwords; and whether it is a buffer store whose offset is
    an SGPR, which holds its data for a shorter time."""
    if x.mnemonic.startswith("global_store_dwordx"):
        return (x.operands[1] if x.mnemonic[-1] in "34" else ()), False
    if x.mnemonic in ("buffer_store_dwordx3", "buffer_store_dwordx4"):
        return x.operands[0], bool(x.operands[3])
    return (), False


def pad(layout: Layout) -> int:
    """Insert the wait states that every path through the program needs; returns their sum."""
    runs = layout.runs()
    known: dict[str, HazardInfo] = {}  # by text: registers have their numbers in it
    for run in runs:
        for x in run:
            if x.text not in known:
                known[x.text] = hazard_info(x)
    infos = [[known[x.text] for x in run] for run in runs]
    nops = [[0] * len(run) for run in runs]
    at_label: dict[str, _Entry] = {}
    for _ in range(SWEEPS):
        if not _sweep(runs, infos, at_label, nops):
            break
    else:
        raise ScheduleError("wait states do not settle around a loop")
    for run, before in zip(runs, nops, strict=True):
        padded: list[ProgramInstruction] = []
        for x, states in zip(run, before, strict=True):
            padded += _nops(states, x)
            padded.append(x)
        run[:] = padded
    return sum(map(sum, nops))


@dataclass(slots=True)
class _Entry:
    """What may come before a label; `walked`: the code from there to the next label was walked with
    it, and walking it again would change nothing."""

    tracker: HazardTracker
    walked: bool = False

    def merge(self, tracker: HazardTracker) -> None:
        if self.tracker.merge(tracker):
            self.walked = False


def _sweep(
    runs: list[list[ProgramInstruction]],
    infos: list[list[HazardInfo]],
    at_label: dict[str, _Entry],
    nops: list[list[int]],
) -> bool:
    """One walk in print order, which sets the wait states before each instruction: whether a label
    is left that something stricter comes before now."""
    tracker: HazardTracker | None = HazardTracker()
    skips = False

    def arrive(label: str, tracker: HazardTracker) -> None:
        if label in at_label:
            at_label[label].merge(tracker)
        else:
            at_label[label] = _Entry(tracker.copy())

    for run, described, needed in zip(runs, infos, nops, strict=True):
        for at, (x, info) in enumerate(zip(run, described, strict=True)):
            if x.pipe == "label":
                if not skips:
                    arrive(x.target, tracker or HazardTracker())
                entry = at_label[x.target]
                skips, entry.walked = entry.walked, True
                tracker = entry.tracker.copy()
            elif not skips:
                if tracker is None:
                    raise ScheduleError(f"{x.text!r} follows a branch and no label leads to it")
                states = needed[at] = tracker.required(info)
                tracker.nop(states)
                tracker.advance(info)
                if x.pipe == "branch" and x.target:
                    arrive(x.target, tracker)
                if x.mnemonic in ("s_branch", "s_endpgm"):
                    tracker = None
    return not all(entry.walked for entry in at_label.values())


def _nops(states: int, before: ProgramInstruction) -> list[ProgramInstruction]:
    result = []
    while states > 0:
        count = min(states, NOP_STATES)
        result.append(
            ProgramInstruction(f"s_nop {count - 1}", "s_nop", "scalar", origin=before.origin)
        )
        states -= count
    return result


def _vector(registers: tuple[int, ...]) -> int:
    return mask(register for register in registers if register < SGPR)


def _scalar(registers: tuple[int, ...]) -> int:
    return mask(r - SGPR for r in registers if r >= SGPR and r not in SCC)
