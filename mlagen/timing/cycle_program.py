"""Instructions as the cycle engine takes them: unit, port cycles, latency, registers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from mlagen.binary import KernelCode, MachineInstruction
from mlagen.binary.effects import PERMLANE, TRANSCENDENTAL, effects, is_lds_dma, is_matrix
from mlagen.binary.hazards import passes_of
from mlagen.binary.operand import SCALARS
from mlagen.binary.text import waitcnt_fields
from mlagen.errors import UnsupportedError
from mlagen.targets.gfx950.limits import GFX950
from mlagen.timing.constants import Machine

# Units. VALU, TRANS and MATRIX share a SIMD's VALU port.
VALU, TRANS, MATRIX, SALU, SMEM, LDS, VMEM, BRANCH, WAIT, BARRIER, NOP, PRIORITY, END = range(13)
UNITS: Final = ("vector", "transcendental", "matrix", "scalar", "smem", "lds", "vmem", "branch",
                "wait", "barrier", "nop", "priority", "end")  # fmt: skip

VECTORS: Final = GFX950.vgprs_per_simd_lane
REGISTERS: Final = VECTORS + SCALARS

# Row columns.
UNIT: Final = 0
PORT: Final = 1  # cycles it keeps the VALU port; wait states of NOP; priority of PRIORITY
BUSY: Final = 2  # cycles it keeps the matrix unit
LATENCY: Final = 3  # to a use of its result
FORWARD: Final = 4  # of a matrix result to the accumulator of the next
VM: Final = 5  # WAIT: operations that may be in flight
LGKM: Final = 6
READS: Final = 7  # first of its register ranges in `ranges`, and how many
READ_COUNT: Final = 8
WRITES: Final = 9
WRITE_COUNT: Final = 10
STORE: Final = 11
DMA: Final = 12
COLUMNS: Final = 13

_SLOW = ("v_mul_lo_u32", "v_mul_hi_u32", "v_mul_hi_i32", "v_mad_u64_u32", "v_mad_i64_i32")
_SILENT = ("s_icache_inv", "s_dcache_", "s_sethalt", "s_incperflevel", "s_decperflevel", "s_ttrace",
           "buffer_wbl2", "buffer_inv", "s_inst_prefetch", "s_set_gpr_idx_mode")  # fmt: skip


@dataclass(frozen=True, eq=False)
class TimedKernel:
    """A kernel's rows for the engine.

    `ranges`: (first register, count, used as accumulator) of all reads and writes; vector
    registers 0..511, then scalars. `assumed`: mnemonics whose timing is that of their format, with
    how often they stand in the code.
    """

    kernel: KernelCode
    rows: npt.NDArray[np.int64]
    ranges: npt.NDArray[np.int64]
    assumed: dict[str, int]


def read_program(kernel: KernelCode, machine: Machine) -> TimedKernel:
    """Rows of all instructions. UnsupportedError for a matrix instruction of unknown length and
    for formats with no timing entry."""
    places, ranges = _registers(kernel)
    rows = np.zeros((len(kernel.instructions), COLUMNS), dtype=np.int64)
    rows[:, READS : WRITE_COUNT + 1] = places
    assumed: Counter[str] = Counter()
    for out, ins in zip(rows, kernel.instructions, strict=True):
        _time(kernel, ins, out, machine, assumed)
    return TimedKernel(kernel, rows, ranges, dict(assumed))


@lru_cache(maxsize=4)
def _registers(kernel: KernelCode) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Columns READS .. WRITE_COUNT of every row, and the ranges that they point into."""
    accum = kernel.descriptor.accum_offset
    places: list[tuple[int, ...]] = []
    ranges: list[tuple[int, int, int]] = []
    for ins in kernel.instructions:
        effect = effects(ins, accum)
        read = len(ranges)
        for access in effect.reads:
            if access.role not in ("exec", "merge", "dpp_old"):
                first = access.base + (VECTORS if access.file == "s" else 0)
                ranges.append((first, access.count, int(access.role == "mfma_c")))
        write = len(ranges)
        for access in effect.writes:
            if effect.counter == "":  # what comes back on a counter is waited for by counter
                first = access.base + (VECTORS if access.file == "s" else 0)
                ranges.append((first, access.count, 0))
        places.append((read, write - read, write, len(ranges) - write))
    return np.array(places, dtype=np.int64), np.array(ranges or [(0, 0, 0)], dtype=np.int64)


def _time(
    kernel: KernelCode,
    ins: MachineInstruction,
    out: np.ndarray,
    machine: Machine,
    assumed: Counter[str],
) -> None:
    name, form = ins.mnemonic, ins.encoding
    if form.startswith("VOP"):
        _time_vector(kernel, ins, out, machine, assumed)
    elif form == "DS":
        out[UNIT] = LDS
        if "_gws_" in name or "consume" in name or "append" in name or "ordered" in name:
            raise _unknown(kernel, ins)
    elif form in ("MUBUF", "GLOBAL", "FLAT", "MTBUF"):
        out[UNIT] = SALU if name.startswith(_SILENT) else VMEM
        out[STORE] = int("store" in name or "atomic" in name)
        out[DMA] = int(is_lds_dma(ins))
        if "atomic" in name or form in ("FLAT", "MTBUF"):
            assumed[name] += 1
    elif form == "SMEM":
        out[UNIT] = SALU if name.startswith(_SILENT) else SMEM
    elif form == "SCRATCH":
        raise _unknown(kernel, ins)
    else:
        _time_scalar(ins, out, machine, assumed)


def _unknown(kernel: KernelCode, ins: MachineInstruction) -> UnsupportedError:
    return UnsupportedError(
        f"kernel {kernel.name}, {ins.offset:#x}: {ins}: the cycle model has no timing for it"
    )


def _time_vector(
    kernel: KernelCode,
    ins: MachineInstruction,
    out: np.ndarray,
    machine: Machine,
    assumed: Counter[str],
) -> None:
    name = ins.mnemonic
    out[LATENCY] = machine.valu_latency
    out[PORT] = machine.valu
    if is_matrix(ins):
        if "smfmac" in name or "f64" in name or "xf32" in name:
            raise _unknown(kernel, ins)
        busy = machine.slot * passes_of(ins)
        out[UNIT], out[PORT], out[BUSY] = MATRIX, machine.mfma_port, busy
        out[LATENCY], out[FORWARD] = busy + machine.mfma_tail, busy
    elif name in TRANSCENDENTAL:
        out[UNIT], out[PORT] = TRANS, machine.exp
        out[LATENCY] = max(machine.exp + machine.trans_latency, machine.valu_latency)
    elif name in PERMLANE:
        out[PORT] = machine.permlane
        out[LATENCY] = machine.permlane + machine.valu_latency - machine.valu
    elif name in _SLOW:
        out[PORT] = machine.slow_int
        out[LATENCY] = machine.slow_int + machine.valu_latency - machine.valu
    elif "f64" in name or name.startswith(("v_dot", "v_cvt_scalef32", "v_div_", "v_mqsad")):
        assumed[name] += 1


def _time_scalar(
    ins: MachineInstruction, out: np.ndarray, machine: Machine, assumed: Counter[str]
) -> None:
    name = ins.mnemonic
    out[UNIT], out[LATENCY] = SALU, machine.salu_latency
    if name == "s_nop":
        out[UNIT], out[PORT] = NOP, ins.modifier("simm16") + 1
    elif name == "s_sleep":
        out[UNIT], out[PORT] = NOP, 16 * (ins.modifier("simm16") & 127) + 1  # 64 cycles a unit
    elif name == "s_waitcnt":
        vm, _, lgkm = waitcnt_fields(ins.modifier("simm16"))
        out[UNIT], out[VM], out[LGKM] = WAIT, vm, lgkm
    elif name == "s_barrier":
        out[UNIT] = BARRIER
    elif name == "s_setprio":
        out[UNIT], out[PORT] = PRIORITY, ins.modifier("simm16") & 3
    elif name == "s_endpgm":
        out[UNIT] = END
    elif name.startswith(("s_branch", "s_cbranch", "s_setpc", "s_swappc", "s_call")):
        out[UNIT] = BRANCH
    elif name.startswith(("s_sendmsg", "s_trap", "s_setreg", "s_getreg")):
        assumed[name] += 1
