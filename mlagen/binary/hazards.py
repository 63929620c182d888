"""Software wait states of gfx950: what the hardware does not interlock, as data.

The checkers' own table. Source: LLVM's GCNHazardRecognizer (its padding for gfx950, observed by
compiling probes) and the CDNA4 ISA guide, section "Manually inserted wait states". Counting is
LLVM's: every instruction between producer and consumer is one wait state, s_nop N is N + 1.

A pair is (producer class, consumer class). Producer classes say what kind of write (or read, for
write-after-read) a register last saw, consumer classes how an instruction reads or overwrites it.
"""

from __future__ import annotations

from mlagen.binary.effects import (
    LANE_READS,
    PERMLANE,
    Access,
    Effects,
    effects,
    is_matrix,
    is_vector_alu,
)
from mlagen.binary.instruction import Instruction

PASSES = {  # matrix instructions by pass count (LLVM SISchedule, AMD CDNA4 matrix-core blog)
    "v_mfma_f32_32x32x16_bf16": 8,
    "v_mfma_f32_32x32x16_f16": 8,
    "v_mfma_f32_16x16x32_bf16": 4,
    "v_mfma_f32_16x16x32_f16": 4,
    "v_mfma_f32_32x32x8_bf16": 8,
    "v_mfma_f32_32x32x8_bf16_1k": 8,
    "v_mfma_f32_32x32x8_f16": 8,
    "v_mfma_f32_16x16x16_bf16": 4,
    "v_mfma_f32_16x16x16_bf16_1k": 4,
    "v_mfma_f32_16x16x16_f16": 4,
    "v_mfma_f32_32x32x2_f32": 16,
    "v_mfma_f32_16x16x4_f32": 8,
    **{f"v_mfma_f32_32x32x16_{a}_{b}": 8 for a in ("fp8", "bf8") for b in ("fp8", "bf8")},
    **{f"v_mfma_f32_16x16x32_{a}_{b}": 4 for a in ("fp8", "bf8") for b in ("fp8", "bf8")},
}
_F8F6F4 = {"32x32x64": (16, 8), "16x16x128": (8, 4)}  # passes with / without an 8-bit operand

PRODUCERS = (
    "none",
    "valu",
    "valu_scalar",
    "trans",
    "half",
    "permlane",
    "xdl4",
    "xdl8",
    "xdl16",
    "mfma4",
    "mfma8",
    "mfma16",
    "salu",
    "memory",
    "read_c4",
    "read_c8",
    "read_c16",
    "read_store",
)
CONSUMERS = (
    "none",
    "valu",
    "trans",
    "dpp",
    "permlane",
    "lane",
    "lane_select",
    "const",
    "carry",
    "mfma_ab",
    "mfma_c",
    "vmem",
    "lds",
    "vmem_scalar",
    "smem",
    "salu",
    "m0_lds",
    "exec",
    "exec_mfma",
    "exec_dpp",
    "exec_permlane",
    "exec_lane",
    "over_valu",
    "over_mfma",
    "over_memory",
    "over_scalar",
)

_VECTOR_READS = ("valu", "trans", "dpp", "permlane", "lane", "vmem", "lds")


def _rules() -> dict[tuple[str, str], int]:
    """Required wait states by pair; what is not listed is 0."""
    table: dict[tuple[str, str], int] = {}
    for producer in ("valu", "trans", "half", "permlane"):
        table[producer, "mfma_ab"] = table[producer, "mfma_c"] = 2
        table[producer, "permlane"] = 2
        table[producer, "dpp"] = 2
        table[producer, "lane"] = 1
    for producer in ("trans", "half"):
        table[producer, "valu"] = 1
    table["half", "trans"] = 1
    table["valu_scalar", "const"] = table["valu_scalar", "carry"] = 2
    table["valu_scalar", "lane_select"] = 4
    table["valu_scalar", "vmem_scalar"] = table["valu_scalar", "m0_lds"] = 5
    table["valu_scalar", "exec_mfma"] = table["valu_scalar", "exec_permlane"] = 4
    table["valu_scalar", "exec_lane"] = 4
    table["valu_scalar", "exec_dpp"] = 5
    table["salu", "m0_lds"] = 1
    for passes in (4, 8, 16):
        xdl, plain = f"xdl{passes}", f"mfma{passes}"
        for consumer in (*_VECTOR_READS, "mfma_ab", "over_valu"):
            table[xdl, consumer] = passes + 4
            table[plain, consumer] = passes + 2
        table[xdl, "mfma_c"] = passes + 2
        table[plain, "mfma_c"] = passes
        table[xdl, "over_memory"] = passes + 4
        table[plain, "over_memory"] = passes + 2
        table[f"read_c{passes}", "over_valu"] = passes - 1
    table["read_store", "over_valu"] = 2
    return table


REQUIRED = _rules()


def passes_of(ins: Instruction) -> int:
    """Passes (of 4 cycles) of a matrix instruction."""
    for shape, (with_8_bit, without) in _F8F6F4.items():
        if shape in ins.mnemonic and "f8f6f4" in ins.mnemonic:
            small = ins.modifier("cbsz") > 1 and ins.modifier("blgp") > 1
            return without if small else with_8_bit
    return PASSES.get(ins.mnemonic, 16)


def producer_class(ins: Instruction, access: Access) -> str:
    """Class of a write."""
    role = access.role
    if role == "mfma":
        return _matrix_class(ins)
    if role in ("vmem", "lds", "smem"):
        return "memory"
    if role == "valu_scalar":
        return "valu_scalar"
    return role


def _matrix_class(ins: Instruction) -> str:
    # f32 x f32 products do not run on the reduced-precision (XDL) pipe (LLVM isXDL).
    prefix = "mfma" if ins.mnemonic.endswith(("x2_f32", "x4_f32")) else "xdl"
    return f"{prefix}{passes_of(ins)}"


def read_producer_class(ins: Instruction, access: Access, effect: Effects) -> str:
    """Class of a read after which an overwrite has to wait; "none" for all others."""
    if access.role == "mfma_c":
        written = effect.writes[0]
        return "none" if written.base == access.base else f"read_c{passes_of(ins)}"
    if access.role == "vmem_data" and access.count > 2 and "store" in ins.mnemonic:
        soffset = ins.operand("soffset")
        guarded = ins.encoding == "MUBUF" and soffset is not None and soffset.kind == "s"
        return "none" if guarded else "read_store"
    return "none"


def consumer_class(ins: Instruction, access: Access) -> str:
    """Class of a read."""
    role = access.role
    if role == "exec":
        if is_matrix(ins):
            return "exec_mfma"
        if ins.encoding.endswith("_DPP"):
            return "exec_dpp"
        if ins.mnemonic in PERMLANE:
            return "exec_permlane"
        return "exec_lane" if ins.mnemonic in LANE_READS else "exec"
    if role in ("merge", "mfma_scale"):
        return "mfma_ab" if role == "mfma_scale" else "valu"
    if role in ("vmem_address", "vmem_data"):
        return "vmem"
    if role in ("lds_address", "lds_data"):
        return "lds"
    if role == "salu" and access.file == "v":
        return "valu"
    return role


def overwrite_class(ins: Instruction, access: Access) -> str:
    """Class of a write in its role as an overwrite."""
    if access.file == "s":
        return "over_scalar"
    if is_matrix(ins):
        return "over_mfma"
    return "over_valu" if is_vector_alu(ins) else "over_memory"


SHIPPED_WITHOUT = frozenset(
    {
        ("valu_scalar", "carry"),
        ("salu", "m0_lds"),
        ("permlane", "permlane"),
    }
)
"""Pairs that LLVM pads but AMD's hand-written attention kernels for gfx950 run without."""


def required_wait_states(
    producer: Instruction, consumer: Instruction, accum_offset: int = 256
) -> int:
    """Wait states that must lie between two instructions, over all registers they share.

    0 when they share none, or the hardware interlocks. `accum_offset`: physical number of a0.
    """
    return strictest_pair(producer, consumer, accum_offset)[0]


def strictest_pair(
    producer: Instruction, consumer: Instruction, accum_offset: int
) -> tuple[int, str, str]:
    """(required wait states, producer class, consumer class) of the strictest rule that applies."""
    first, second = effects(producer, accum_offset), effects(consumer, accum_offset)
    pairs = [(0, "none", "none")]
    for write in first.writes:
        made = producer_class(producer, write)
        for read in second.reads:
            if _overlap(write, read) and not _chained(producer, consumer, write, read):
                used = consumer_class(consumer, read)
                pairs.append((REQUIRED.get((made, used), 0), made, used))
        for over in second.writes:
            if _overlap(write, over):
                used = overwrite_class(consumer, over)
                pairs.append((REQUIRED.get((made, used), 0), made, used))
    for read in first.reads:
        held = read_producer_class(producer, read, first)
        for over in second.writes:
            if _overlap(read, over):
                used = overwrite_class(consumer, over)
                pairs.append((REQUIRED.get((held, used), 0), held, used))
    return max(pairs)


def _overlap(a: Access, b: Access) -> bool:
    return a.file == b.file and a.base < b.base + b.count and b.base < a.base + a.count


def _chained(producer: Instruction, consumer: Instruction, write: Access, read: Access) -> bool:
    """The same matrix opcode accumulating onto exactly the same registers is forwarded."""
    same = producer.mnemonic == consumer.mnemonic and is_matrix(producer)
    return same and read.role == "mfma_c" and (write.base, write.count) == (read.base, read.count)


__all__ = [
    "CONSUMERS",
    "PASSES",
    "PRODUCERS",
    "REQUIRED",
    "SHIPPED_WITHOUT",
    "consumer_class",
    "overwrite_class",
    "passes_of",
    "producer_class",
    "read_producer_class",
    "required_wait_states",
    "strictest_pair",
]
