"""From decoded instructions to program rows, and the refusal of what is not modelled.

A kernel is translated as a whole before anything runs, so an opcode, an operand form or a mode
that the engine does not execute is an `UnsupportedError` that names it and its address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from mlagen.binary import KernelCode, MachineInstruction, Operand
from mlagen.binary.allocated import unallocated
from mlagen.binary.effects import Effects, RegisterAccess, effects, is_lds_dma
from mlagen.binary.flow import read_flow
from mlagen.binary.hazards import (
    CONSUMERS,
    PRODUCERS,
    consumer_class,
    overwrite_class,
    passes_of,
    producer_class,
    read_producer_class,
)
from mlagen.binary.instruction import LEAVES
from mlagen.binary.late_copies import late_copies
from mlagen.binary.operand import EXEC, VCC
from mlagen.binary.text import truth_table, waitcnt_fields
from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950 import matrix, sub_dword
from mlagen.emulator.gfx950 import opcodes as o
from mlagen.emulator.gfx950.engine_operations import OPCODES, Opcode
from mlagen.errors import FindingsError, UnsupportedError
from mlagen.targets.gfx950.limits import GFX950

_QUEUES = {"vm": y.Q_VM, "lds": y.Q_LDS, "smem": y.Q_SMEM}
_CONSUMER_NUMBER = {name: number for number, name in enumerate(CONSUMERS)}
_PRODUCER_NUMBER = {name: number for number, name in enumerate(PRODUCERS)}
# Reads that may meet undefined lanes: what they keep, or pick, is not known here.
_UNCHECKED = frozenset({"merge", "dpp_old", "exec", "lane", "mask"})


@dataclass(frozen=True)
class TranslatedKernel:
    """A kernel as engine rows; row i is `instructions[i]`."""

    kernel: KernelCode
    instructions: tuple[MachineInstruction, ...]
    rows: np.ndarray

    @cached_property
    def late_copies(self) -> frozenset[int]:
        """Byte offsets of loads to LDS that come late after a barrier."""
        return late_copies(read_flow(self.instructions))

    @property
    def atomics(self) -> Literal["none", "silent", "returning"]:
        """Whether it has atomics, and some of them return the value that was there before."""
        atomic = (self.rows[:, y.P_CLASS] == y.X_VMEM) & (self.rows[:, y.P_OP] == o.G_ATOMIC)
        if not atomic.any():
            return "none"
        return "returning" if (self.rows[atomic, y.P_DST] >= 0).any() else "silent"


@lru_cache(maxsize=4)
def translate(kernel: KernelCode) -> TranslatedKernel:
    """Translate every reachable instruction; UnsupportedError names what is not modelled.

    The rows of the last few kernels are kept; nothing writes to them.
    """
    instructions = kernel.instructions
    missing: dict[str, int] = {}
    for ins in instructions:
        if ins.mnemonic not in OPCODES:
            missing.setdefault(ins.mnemonic, ins.offset)
    if missing:
        named = ", ".join(f"{name} (at {offset:#x})" for name, offset in missing.items())
        raise UnsupportedError(
            f"kernel {kernel.name} uses instructions that the emulator does not model: {named}"
        )
    rows = np.zeros((len(instructions), y.P_SIZE), dtype=np.int64)
    for gap in _fill(kernel, rows):
        if gap.fault:
            raise FindingsError(
                f"kernel {kernel.name}, {gap.instruction.offset:#x}: {gap.instruction}: {gap.why}",
                hint="the kernel is at fault: its descriptor allocates less than its code names",
            )
        raise UnsupportedError(
            f"kernel {kernel.name}, {gap.instruction.offset:#x}: {gap.instruction}: {gap.why}, "
            "which the emulator does not model"
        )
    matrices = np.flatnonzero(rows[:, y.P_CLASS] == y.X_MATRIX)
    rows[matrices, y.P_IMM] = np.arange(len(matrices))
    return TranslatedKernel(kernel, instructions, rows)


@dataclass(frozen=True, slots=True)
class Gap:
    """An instruction that `translate` refuses. `why` is "" where its opcode is not modelled, else
    names the form of a known opcode that is not. `fault`: no kernel may have it."""

    instruction: MachineInstruction
    why: str
    fault: bool = False


def gaps(kernel: KernelCode) -> Iterator[Gap]:
    """Every reachable instruction for which `translate` would refuse the kernel."""
    rows = np.zeros((len(kernel.instructions), y.P_SIZE), dtype=np.int64)
    return _fill(kernel, rows)


def _fill(kernel: KernelCode, rows: np.ndarray) -> Iterator[Gap]:
    """Write the program rows; those of the gaps, which are yielded, are of no use."""
    instructions = kernel.instructions
    index = {ins.offset: row for row, ins in enumerate(instructions)}
    accumulators = _names_accumulators(kernel)
    # 0 where the kernel has none, so that all of these are alike.
    accum = kernel.descriptor.accum_offset if accumulators else 0
    all_effects = [effects(ins, accum) for ins in instructions]
    exec_written = any(
        access.file == "s" and access.role == "valu_scalar" and _covers(access, EXEC)
        for effect in all_effects
        for access in effect.writes
    )
    regions = _indexed_regions(instructions)
    targets = {ins.branch_target for ins in instructions}
    written = _written(kernel, accum, exec_written)
    inside: set[tuple[str, str, int, int]] = set()  # instructions whose registers there are
    for row, (ins, effect) in enumerate(zip(instructions, all_effects, strict=True)):
        if ins.mnemonic not in OPCODES:
            yield Gap(ins, "")
            continue
        try:
            key = (ins.mnemonic, ins.encoding, id(ins.operands), id(ins.modifiers))
            if key not in inside:
                name, has = unallocated(ins, effect, kernel.descriptor, accumulators)
                if name:
                    raise _Outside(f"{name}, but the kernel allocates {has}")
                inside.add(key)
            before = written.get(key)
            if before is None:
                _translate_one(kernel, ins, rows[row])
                _note_effects(kernel, ins, effect, rows[row], exec_written)
                written[key] = (ins, rows[row].copy())
            else:
                rows[row] = before[1]
            rows[row, y.P_PC] = ins.offset
            if ins.branch_target is not None:
                rows[row, y.P_IMM] = index[ins.branch_target]
            if ins.mnemonic not in LEAVES and index.get(ins.offset + ins.size) != row + 1:
                raise _Unmodelled("a branch into the middle of an instruction")
            _note_indexing(ins, regions[row], rows[row])
            if regions[row] and ins.offset in targets:
                raise _Unmodelled("a branch into a stretch of indexed registers")
        except _Unmodelled as why:
            yield Gap(ins, str(why), isinstance(why, _Outside))


# Of an instruction: itself, so that the numbers of its parts stay its own, and its row.
_Written = dict[tuple[str, str, int, int], tuple[MachineInstruction, np.ndarray]]
_KEPT = 32768  # rows of 0.6 KB


@lru_cache(maxsize=4)
def _rows_of(accum: int, denormals: int, exec_written: bool) -> _Written:
    return {}


def _written(kernel: KernelCode, accum: int, exec_written: bool) -> _Written:
    """Rows of instructions of this kernel and of those before, as all that they depend on beside
    the instruction is the same for them; without a row's place and what it branches to."""
    found = _rows_of(accum, kernel.descriptor.denormals_f16_64, exec_written)
    if len(found) > _KEPT:
        found.clear()
    return found


def _names_accumulators(kernel: KernelCode) -> bool:
    return any(operand.kind == "a" for ins in kernel.instructions for _, operand in ins.operands)


def _indexed_regions(instructions: tuple[MachineInstruction, ...]) -> list[int]:
    """Operands that are indexed (bits 0..3: src0, src1, src2, dst) at each instruction.

    The mode is followed along straight lines from s_set_gpr_idx_on to s_set_gpr_idx_off.
    """
    regions = []
    active = 0
    for ins in instructions:
        regions.append(active)
        if ins.mnemonic == "s_set_gpr_idx_on":
            active = 0x10 | ins.modifier("ssrc1")
        elif ins.mnemonic == "s_set_gpr_idx_off":
            active = 0
    return regions


def _note_indexing(ins: MachineInstruction, region: int, out: np.ndarray) -> None:
    if not region:
        return
    plain = ins.encoding in ("VOP1", "VOP2", "VOP3") and out[y.P_CLASS] == y.X_VALU
    if plain:
        out[y.P_FLAGS] = region & 15
    elif out[y.P_CLASS] not in (y.X_NOP, y.X_SALU) or ins.mnemonic == "s_set_gpr_idx_on":
        raise _Unmodelled("register indexing of this instruction")


class _Unmodelled(Exception):
    """A form of a known instruction that the engine does not execute."""


class _Outside(_Unmodelled):
    """An instruction names registers that its kernel does not allocate."""


def _covers(access: RegisterAccess, register: int) -> bool:
    return access.base <= register < access.base + access.count


def _note_effects(
    kernel: KernelCode,
    ins: MachineInstruction,
    effect: Effects,
    out: np.ndarray,
    exec_written: bool,
) -> None:
    """Fill the columns that the register checks use, and bound the scalar numbers."""
    for access in (*effect.reads, *effect.writes):
        last = access.base + access.count
        if access.file == "s" and last > 129:
            raise _Unmodelled(f"scalar operand {last - 1}")
    reads = [a for a in effect.reads if a.role != "exec" or exec_written]
    if len(reads) > y.MAX_READS or len(effect.writes) > y.MAX_WRITES:
        raise _Unmodelled("so many operands")
    out[y.P_READS] = len(reads)
    for number, access in enumerate(reads):
        consumer = _CONSUMER_NUMBER[consumer_class(ins, access)]
        unchecked = access.role in _UNCHECKED
        base = y.P_READ + number * y.READ_SIZE
        out[base] = access.base + (y.VECTOR_ROWS if access.file == "s" else 0)
        out[base + 1] = access.count
        out[base + 2] = -consumer - 1 if unchecked else consumer
        out[base + 3] = _PRODUCER_NUMBER[read_producer_class(ins, access, effect)]
        out[y.P_FORBIDS] |= out[base + 3] != 0
    out[y.P_WRITES] = len(effect.writes)
    for number, access in enumerate(effect.writes):
        base = y.P_WRITE + number * y.WRITE_SIZE
        out[base] = access.base + (y.VECTOR_ROWS if access.file == "s" else 0)
        out[base + 1] = access.count
        out[base + 2] = _CONSUMER_NUMBER[overwrite_class(ins, access)]
        out[base + 3] = _PRODUCER_NUMBER[producer_class(ins, access)]
    out[y.P_QUEUE] = _QUEUES[effect.counter] if effect.counter else -1


def _translate_one(kernel: KernelCode, ins: MachineInstruction, out: np.ndarray) -> None:
    entry = OPCODES[ins.mnemonic]
    out[y.P_CLASS] = entry.kind
    out[y.P_OP] = entry.op
    out[y.P_NOPS] = ins.modifier("simm16") + 1 if ins.mnemonic == "s_nop" else 1
    if ins.encoding.endswith("_SDWA"):
        _sub_dword(kernel, ins, entry, out)
        return
    translator = _TRANSLATORS.get(entry.kind)
    if translator is not None:
        translator(kernel, ins, entry, out)


def _physical(kernel: KernelCode, operand: Operand) -> int:
    return operand.index + (kernel.descriptor.accum_offset if operand.kind == "a" else 0)


def _constant64(operand: Operand, signed: bool) -> int:
    """A constant as 64 bits: integers sign-extend, literals as asked, floats stay 32 bits wide."""
    bits = operand.bits
    if operand.is_float_constant:
        return bits
    if bits & 0x80000000 and (signed or operand.kind == "inline"):
        return bits - (1 << 32)
    return bits


def _set_source(
    kernel: KernelCode, out: np.ndarray, which: int, operand: Operand | None, wide: bool = False
) -> None:
    place = y.P_KIND + 2 * which
    if operand is None or operand.kind == "off":
        return
    if operand.kind in ("v", "a"):
        out[place], out[place + 1] = y.S_VECTOR, _physical(kernel, operand)
    elif operand.kind == "s":
        out[place], out[place + 1] = y.S_SCALAR, operand.index
    else:
        out[place] = y.S_CONST
        out[place + 1] = _constant64(operand, False) if wide else operand.bits


def _sources(ins: MachineInstruction) -> list[Operand | None]:
    """Vector sources in order: src0 (or the DPP / SDWA source), src1, src2."""
    first = ins.operand("vsrc0") or ins.operand("src0")
    second = ins.operand("vsrc1") or ins.operand("src1")
    if ins.mnemonic == "v_fmamk_f32":
        return [first, ins.operand("simm32"), second]
    return [first, second, ins.operand("src2") or ins.operand("simm32")]


def _modifiers(ins: MachineInstruction, entry: Opcode, out: np.ndarray) -> None:
    neg, absolute = ins.modifier("neg"), ins.modifier("abs")
    if ins.encoding.endswith("_DPP"):
        neg = ins.modifier("src0_neg") | ins.modifier("src1_neg") << 1
        absolute = ins.modifier("src0_abs") | ins.modifier("src1_abs") << 1
        dpp = ins.modifier("dpp") | ins.modifier("bc") << 9 | ins.modifier("row_mask") << 10
        out[y.P_DPP] = dpp | ins.modifier("bank_mask") << 14 | 1 << 20
        control = ins.modifier("dpp")
        known = control < 0x130 or 0x150 <= control < 0x160 or control in _DPP_CONTROLS
        if not known or control in (0x100, 0x110, 0x120):
            raise _Unmodelled(f"DPP control {control:#x}")
    if (neg or absolute) and not entry.is_float:
        raise _Unmodelled("a sign modifier on integers")
    if (neg or absolute) and ins.mnemonic in _SMALL_SOURCES:
        raise _Unmodelled("a sign modifier on less than 32 bits")
    if (neg or absolute) >> 2 and "_scalef32_" in ins.mnemonic:
        raise _Unmodelled("a sign modifier on a scale")
    out[y.P_MOD] = neg | absolute << 3 | ins.modifier("opsel") << 6
    out[y.P_OMOD] = ins.modifier("omod") | ins.modifier("clmp") << 2
    if out[y.P_OMOD] and ins.mnemonic in _F16_RESULTS:
        raise _Unmodelled("an output modifier on f16")
    if out[y.P_OMOD] and not entry.is_float:
        raise _Unmodelled("clamping of integers")


_SMALL_SOURCES = ("v_cvt_f32_f16", "v_cvt_f32_bf16", "v_cvt_f32_fp8", "v_cvt_f32_bf8")
_F16_RESULTS = ("v_cvt_f16_f32", "v_cvt_pk_f16_f32", "v_cvt_pkrtz_f16_f32")
_DPP_CONTROLS = (0x130, 0x134, 0x138, 0x13C, 0x140, 0x141, 0x142, 0x143)


_OPSEL = {  # the one op_sel value that each of these knows, beside none
    "v_cvt_pk_fp8_f32": 8,
    "v_cvt_pk_bf8_f32": 8,
    "v_cvt_scalef32_pk_bf16_fp8": 1,
    "v_cvt_scalef32_pk_fp8_f32": 8,
    "v_cvt_scalef32_pk_bf8_f32": 8,
}


def _valu(kernel: KernelCode, ins: MachineInstruction, entry: Opcode, out: np.ndarray) -> None:
    for which, operand in enumerate(_sources(ins)):
        _set_source(kernel, out, which, operand)
    destination = _required(ins, "vdst")
    out[y.P_DST] = _physical(kernel, destination)
    if "f16" in ins.mnemonic and kernel.descriptor.denormals_f16_64 != 3:
        raise _Unmodelled(f"f16 under denormal mode {kernel.descriptor.denormals_f16_64}")
    if ins.mnemonic == "v_div_scale_f32":
        out[y.P_SDST] = _required(ins, "sdst").index
    if ins.mnemonic in ("v_bitop3_b32", "v_bitop3_b16"):
        if ins.modifier("opsel"):
            raise _Unmodelled("op_sel")
        out[y.P_AUX] = truth_table(ins)  # it lies in the fields of the modifiers
        return
    _modifiers(ins, entry, out)
    opsel = ins.modifier("opsel")
    if opsel and opsel != _OPSEL.get(ins.mnemonic):
        raise _Unmodelled("op_sel")
    if ins.mnemonic == "v_cvt_scalef32_pk_bf16_fp8":
        out[y.P_AUX] = opsel
    if ins.mnemonic in ("v_fmac_f32",):
        out[y.P_KIND + 4], out[y.P_KIND + 5] = y.S_VECTOR, out[y.P_DST]
    if ins.mnemonic == "v_cndmask_b32" and ins.operand("src2") is None:
        out[y.P_KIND + 4], out[y.P_KIND + 5] = y.S_SCALAR, VCC


def _required(ins: MachineInstruction, field: str) -> Operand:
    operand = ins.operand(field)
    if operand is None:
        raise _Unmodelled(f"a missing {field}")
    return operand


def _packed(kernel: KernelCode, ins: MachineInstruction, entry: Opcode, out: np.ndarray) -> None:
    sources = _sources(ins)
    high = ins.modifier("opsel_hi") | ins.modifier("opsel_hi2") << 2
    low = ins.modifier("opsel")
    for which, operand in enumerate(sources):
        constant = operand is not None and not operand.is_register and entry.op != o.PK_MOV
        if constant and (high | low) >> which & 1:
            # What the upper dword of an inline constant reads as is not documented.
            raise _Unmodelled("the high half of a constant")
        _set_source(kernel, out, which, operand, wide=True)
    out[y.P_DST] = _physical(kernel, _required(ins, "vdst"))
    out[y.P_MOD] = ins.modifier("neg") | low << 6 | high << 10 | ins.modifier("neg_hi") << 13
    out[y.P_OMOD] = ins.modifier("clmp") << 2


def _wide(kernel: KernelCode, ins: MachineInstruction, entry: Opcode, out: np.ndarray) -> None:
    if ins.modifier("neg") or ins.modifier("abs") or ins.modifier("clmp") or ins.modifier("omod"):
        raise _Unmodelled("a modifier")
    if ins.modifier("opsel") > int(entry.op == o.WIDE_CVT_SCALED):
        raise _Unmodelled("op_sel")
    for which, operand in enumerate(_sources(ins)):
        wide = operand is not None and operand.count > 1
        if wide and operand is not None and operand.is_float_constant:
            raise _Unmodelled("a float constant of 64 bits")
        _set_source(kernel, out, which, operand, wide)
    out[y.P_DST] = _physical(kernel, _required(ins, "vdst"))
    if entry.op in (o.WIDE_CVT_FP8, o.WIDE_CVT_SCALED):
        out[y.P_AUX] = int(ins.mnemonic.endswith("bf8")) | ins.modifier("opsel") << 1
    if entry.op in (o.WIDE_MAD_U64, o.WIDE_MAD_I64):
        out[y.P_SDST] = _required(ins, "sdst").index


_SDWA_SIGNS = ("src0_neg", "src0_abs", "src1_neg", "src1_abs", "clmp", "omod")


def _sub_dword(kernel: KernelCode, ins: MachineInstruction, entry: Opcode, out: np.ndarray) -> None:
    """SDWA on 32-bit results and compares, and on the source of packed fp8 conversions."""
    source = ins.operand("vsrc0")
    select = ins.modifier("src0_sel")
    if any(ins.modifier(name) for name in _SDWA_SIGNS):
        raise _Unmodelled("a sign or output modifier with SDWA")
    if entry.kind in (y.X_VALU, y.X_COMPARE):
        if max(select, ins.modifier("src1_sel"), ins.modifier("dst_sel")) > sub_dword.DWORD:
            raise _Unmodelled("this SDWA selection")
        _TRANSLATORS[entry.kind](kernel, ins, entry, out)
        first = select | ins.modifier("src0_sext") << 3
        second = ins.modifier("src1_sel") | ins.modifier("src1_sext") << 3
        result = ins.modifier("dst_sel") | ins.modifier("dst_unused") << 3
        if entry.kind == y.X_COMPARE:
            result = sub_dword.DWORD
        out[y.P_AUX + 1] = first | second << 4 | result << 8 | sub_dword.PRESENT
        return
    if entry.op != o.WIDE_CVT_FP8 or entry.kind != y.X_WIDE or source is None:
        raise _Unmodelled("SDWA")
    if select not in (4, 5) or source.kind != "v":
        raise _Unmodelled("this SDWA selection")
    out[y.P_KIND], out[y.P_KIND + 1] = y.S_VECTOR, source.index
    out[y.P_DST] = _required(ins, "vdst").index
    out[y.P_AUX] = int(ins.mnemonic.endswith("bf8")) | (2 if select == 5 else 0)


def _compare(kernel: KernelCode, ins: MachineInstruction, entry: Opcode, out: np.ndarray) -> None:
    wide = ins.mnemonic.endswith("64")
    for which, operand in enumerate(_sources(ins)[:2]):
        _set_source(kernel, out, which, operand, wide)
    _modifiers(ins, entry, out)
    if ins.modifier("opsel") or out[y.P_OMOD]:
        raise _Unmodelled("a modifier")
    if ins.encoding.endswith("_DPP"):
        raise _Unmodelled("DPP on a compare")
    destination = ins.operand("vdst") or ins.operand("sdst")
    out[y.P_SDST] = destination.index if destination is not None else VCC
    out[y.P_FLAGS] = int(ins.mnemonic.startswith("v_cmpx"))


def _carry(kernel: KernelCode, ins: MachineInstruction, entry: Opcode, out: np.ndarray) -> None:
    if ins.modifier("clmp") or ins.encoding.endswith("_DPP"):
        raise _Unmodelled("a modifier")
    for which, operand in enumerate(_sources(ins)[:2]):
        _set_source(kernel, out, which, operand)
    out[y.P_DST] = _physical(kernel, _required(ins, "vdst"))
    destination, carry = ins.operand("sdst"), ins.operand("src2")
    out[y.P_SDST] = destination.index if destination is not None else VCC
    out[y.P_AUX] = carry.index if carry is not None else VCC


def _lane(kernel: KernelCode, ins: MachineInstruction, entry: Opcode, out: np.ndarray) -> None:
    if ins.encoding.endswith("_DPP"):
        raise _Unmodelled("DPP")
    for which, operand in enumerate(_sources(ins)[:2]):
        _set_source(kernel, out, which, operand)
    destination = _required(ins, "vdst")
    out[y.P_DST] = _physical(kernel, destination)
    if entry.op in (o.L_SWAP, o.L_PERMLANE32, o.L_PERMLANE16) and out[y.P_KIND] != y.S_VECTOR:
        raise _Unmodelled("a swap with something that is no vector register")
    if entry.op in (o.L_READ, o.L_READFIRST) and out[y.P_KIND] != y.S_VECTOR:
        raise _Unmodelled("a lane read of something that is no vector register")


def _matrix(kernel: KernelCode, ins: MachineInstruction, entry: Opcode, out: np.ndarray) -> None:
    a, b, c = (_required(ins, field) for field in ("src0", "src1", "src2"))
    d = _required(ins, "vdst")
    kinds = entry.kinds
    if entry.op in (o.M_32X32X64_F8, o.M_16X16X128_F8):
        formats = (ins.modifier("cbsz"), ins.modifier("blgp"))
        if max(formats) > 1:
            raise _Unmodelled(f"matrix formats cbsz:{formats[0]} blgp:{formats[1]}")
        kinds = formats[0] | formats[1] << 1
    elif ins.modifier("cbsz") or ins.modifier("blgp") or ins.modifier("abid"):
        raise _Unmodelled("broadcast or permutation of matrix operands")
    for which, operand in enumerate((a, b, c)):
        _set_source(kernel, out, which, operand)
    if out[y.P_KIND] != y.S_VECTOR or out[y.P_KIND + 2] != y.S_VECTOR:
        raise _Unmodelled("a matrix operand that is no vector register")
    if c.is_register and out[y.P_KIND + 4] != y.S_VECTOR:
        raise _Unmodelled("a scalar accumulator")
    out[y.P_DST] = _physical(kernel, d)
    if out[y.P_KIND + 4] == y.S_VECTOR:
        distance = abs(int(out[y.P_KIND + 5]) - int(out[y.P_DST]))
        if 0 < distance < entry.accumulators:
            raise _Unmodelled("an accumulator that partly overlaps the result")
    out[y.P_FLAGS] = kinds
    out[y.P_AUX], out[y.P_AUX + 1] = entry.accumulators, a.count
    if not ins.mnemonic.endswith(("bf16", "bf16_1k")):
        eight = 8 if a.count == 2 else 16  # values of a lane that are next to each other
        out[y.P_AUX + 2] = matrix.F16 if ins.mnemonic.endswith("f16") else eight
    out[y.P_EXACT] = 1 + entry.op * 4 + kinds
    out[y.P_PASSES] = passes_of(ins)
    out[y.P_ALL_LANES] = 1


def _scalar(kernel: KernelCode, ins: MachineInstruction, entry: Opcode, out: np.ndarray) -> None:
    destination = ins.operand("sdst")
    first, second = ins.operand("ssrc0"), ins.operand("ssrc1")
    immediate = ins.modifier("simm16")
    immediate -= 0x10000 if immediate & 0x8000 else 0
    wide0 = first is not None and first.count == 2
    wide1 = second is not None and second.count == 2
    if any(
        operand is not None
        and operand.kind == "inline"
        and operand.is_float_constant
        and operand.count == 2
        for operand in (first, second)
    ):
        raise _Unmodelled("a float constant of 64 bits")
    _set_source(kernel, out, 0, first, wide0)
    _set_source(kernel, out, 1, second, wide1)
    out[y.P_FLAGS] = int(wide0) | int(wide1) << 1
    out[y.P_IMM] = immediate
    if ins.mnemonic.startswith("s_cmpk"):
        out[y.P_KIND], out[y.P_KIND + 1] = y.S_SCALAR, _required(ins, "sdst").index
        out[y.P_KIND + 2] = y.S_CONST
        signed = ins.mnemonic.endswith("i32")
        out[y.P_KIND + 3] = (immediate if signed else ins.modifier("simm16")) & 0xFFFFFFFF
        return
    if ins.mnemonic == "s_set_gpr_idx_on":
        out[y.P_IMM] = ins.modifier("ssrc1")
    if destination is not None:
        out[y.P_DST] = destination.index


def _wait(kernel: KernelCode, ins: MachineInstruction, entry: Opcode, out: np.ndarray) -> None:
    vm, _, lgkm = waitcnt_fields(ins.modifier("simm16"))
    # A field at its maximum asks for nothing: issue stalls before the counter passes it.
    out[y.P_AUX] = vm if vm < GFX950.vmcnt_max else 1 << 30
    out[y.P_AUX + 1] = lgkm if lgkm < GFX950.lgkmcnt_max else 1 << 30


def _scalar_memory(
    kernel: KernelCode, ins: MachineInstruction, entry: Opcode, out: np.ndarray
) -> None:
    destination = _required(ins, "sdata")
    if destination.index + entry.dwords > 108:
        raise _Unmodelled("a scalar load to special registers")
    base, extra = _required(ins, "sbase"), ins.operand("soffset")
    out[y.P_KIND], out[y.P_KIND + 1] = y.S_SCALAR, base.index
    offset = 0
    if extra is not None:
        out[y.P_KIND + 2], out[y.P_KIND + 3] = y.S_SCALAR, extra.index
    if ins.modifier("imm"):
        offset = ins.modifier("offset")
        offset -= 0x200000 if offset & 0x100000 else 0
    out[y.P_IMM] = offset
    out[y.P_AUX] = entry.dwords
    out[y.P_AUX + 3] = y.VECTOR_ROWS + destination.index


def _data_share(
    kernel: KernelCode, ins: MachineInstruction, entry: Opcode, out: np.ndarray
) -> None:
    if ins.modifier("gds"):
        raise _Unmodelled("GDS")
    first, second = ins.modifier("offset0"), ins.modifier("offset1")
    if entry.op in (o.D_READ2, o.D_WRITE2):
        unit = entry.size // 2 * (64 if "st64" in ins.mnemonic else 1)
        out[y.P_IMM], out[y.P_SDST] = first * unit, second * unit
    else:
        out[y.P_IMM] = first | second << 8
    for which, field in enumerate(("addr", "data0", "data1")):
        _set_source(kernel, out, which, ins.operand(field))
    destination = ins.operand("vdst")
    out[y.P_AUX], out[y.P_AUX + 1], out[y.P_AUX + 2] = entry.dwords, entry.size, entry.align
    if destination is not None:
        out[y.P_AUX + 3] = _physical(kernel, destination)


def _vector_memory(
    kernel: KernelCode, ins: MachineInstruction, entry: Opcode, out: np.ndarray
) -> None:
    buffer = ins.encoding == "MUBUF"
    dma = is_lds_dma(ins)
    if buffer:
        out[y.P_FLAGS] = 1 | ins.modifier("offen") << 1 | ins.modifier("idxen") << 2
        _set_source(kernel, out, 0, ins.operand("vaddr"))
        _set_source(kernel, out, 1, _required(ins, "srsrc"))
        _set_source(kernel, out, 2, _required(ins, "soffset"))
        out[y.P_IMM] = ins.modifier("offset")
    else:
        base = ins.operand("saddr")
        address = _required(ins, "addr")
        _set_source(kernel, out, 0, address)
        _set_source(kernel, out, 1, base)
        if base is not None and base.kind == "s":
            out[y.P_FLAGS] = 8
        offset = ins.modifier("offset")
        out[y.P_IMM] = offset - 0x2000 if offset & 0x1000 else offset
    if dma:
        if entry.dwords not in (1, 3, 4) or entry.size < 4:
            raise _Unmodelled("a load to LDS of this width")
        out[y.P_OP] = o.G_LOAD_LDS
        data = None
    elif entry.op == o.G_ATOMIC:
        data = ins.operand("vdata") or _required(ins, "data")
        returned = ins.operand("vdata" if buffer else "vdst") if ins.modifier("sc0") else None
        out[y.P_SDST] = entry.atomic
        out[y.P_DST] = _physical(kernel, returned) if returned is not None else -1
    else:
        data = ins.operand("vdata") or ins.operand("vdst") or ins.operand("data")
        # A load that goes past the caches of the compute unit may look for what others wrote.
        out[y.P_DST] = ins.modifier("sc1")
    out[y.P_AUX], out[y.P_AUX + 1], out[y.P_AUX + 2] = entry.dwords, entry.size, entry.signed
    if data is not None:
        out[y.P_AUX + 3] = _physical(kernel, data)


_TRANSLATORS = {
    y.X_VALU: _valu,
    y.X_PACKED: _packed,
    y.X_WIDE: _wide,
    y.X_COMPARE: _compare,
    y.X_CARRY: _carry,
    y.X_LANE: _lane,
    y.X_MATRIX: _matrix,
    y.X_SALU: _scalar,
    y.X_WAIT: _wait,
    y.X_SMEM: _scalar_memory,
    y.X_LDS: _data_share,
    y.X_VMEM: _vector_memory,
}


def executed_by_offset(
    instructions: Sequence[MachineInstruction], counts: np.ndarray
) -> dict[int, int]:
    """Executions of each program row that ran, by its instruction's byte offset."""
    return {
        ins.offset: count for ins, count in zip(instructions, counts.tolist(), strict=True) if count
    }


def executed_by_mnemonic(
    instructions: Sequence[MachineInstruction], counts: np.ndarray
) -> dict[str, int]:
    """Sum the executions of program rows by mnemonic."""
    result: dict[str, int] = {}
    for ins, count in zip(instructions, counts.tolist(), strict=True):
        if count:
            result[ins.mnemonic] = result.get(ins.mnemonic, 0) + count
    return result
