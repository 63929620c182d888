"""Software wait states of gfx950: what the hardware does not interlock, as data.

The checkers' own table. Source: LLVM's GCNHazardRecognizer (its rules, and its padding for gfx950,
observed by compiling probes) and the CDNA4 ISA guide, section "Manually inserted wait states".
`docs/hazards.md` has a row for each function of the recognizer. Counting is
LLVM's: every instruction between producer and consumer is one wait state, s_nop N is N + 1.

A pair is (producer class, consumer class). Producer classes say what kind of write (or read, for
write-after-read) a register last saw, consumer classes how an instruction reads or overwrites it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mlagen.binary.effects import (
    LANE_READS,
    PERMLANE,
    Effects,
    RegisterAccess,
    effects,
    is_dot,
    is_matrix,
    is_vector_alu,
)
from mlagen.binary.instruction import MachineInstruction

_F8F6F4 = {"32x32x64": (16, 8), "16x16x128": (8, 4)}  # passes with / without an 8-bit operand
_F32_PRODUCT = re.compile(r"_\d+x\d+x\d+(_\d+b)?_f32$")

PRODUCERS = (
    "none",
    "valu",
    "valu_scalar",
    "trans",
    "half",
    "permlane",
    "dot",
    "xdl2",
    "xdl4",
    "xdl8",
    "xdl16",
    "mfma2",
    "mfma4",
    "mfma8",
    "mfma16",
    "f64_small",
    "f64_large",
    "salu",
    "hardware",
    "memory",
    "read_c2",
    "read_c4",
    "read_c8",
    "read_c16",
    "read_store",
    "read_store_offset",
    "f64_pipe",
)
CONSUMERS = (
    "none",
    "valu",
    "trans",
    "dpp",
    "dpp_old",
    "permlane",
    "lane",
    "lane_select",
    "const",
    "carry",
    "div_mask",
    "dot_c",
    "mfma_ab",
    "mfma_c",
    "mfma_c_plain",
    "mfma_c_same",
    "mfma_c_other",
    "mfma_c_plain_other",
    "vmem",
    "lds",
    "vmem_scalar",
    "smem",
    "salu",
    "mask",
    "m0_lds",
    "m0_use",
    "hardware",
    "exec",
    "exec_mfma",
    "exec_dpp",
    "exec_permlane",
    "exec_lane",
    "exec_vmem",
    "f64_pipe",
    "over_valu",
    "over_mfma",
    "over_memory",
    "over_scalar",
    "over_hardware",
)

_VECTOR_READS = ("valu", "trans", "dpp", "dpp_old", "permlane", "lane", "vmem", "lds")
_MEMORY_READS = ("vmem", "lds")


def _rules() -> dict[tuple[str, str], int]:
    """Required wait states by pair; what is not listed is 0."""
    table: dict[tuple[str, str], int] = {}
    for producer in ("valu", "trans", "half", "permlane"):
        table[producer, "mfma_ab"] = table[producer, "mfma_c"] = 2
        table[producer, "mfma_c_plain"] = 2
        table[producer, "permlane"] = 2
        table[producer, "dpp"] = table[producer, "dpp_old"] = 2
        table[producer, "lane"] = 1
    for producer in ("trans", "half"):
        table[producer, "valu"] = table[producer, "dot_c"] = 1
    table["half", "trans"] = 1
    # What only overwrites reads the moved result too, for the parity of the register.
    table["half", "over_valu"] = table["half", "over_mfma"] = 1
    table["valu_scalar", "const"] = table["valu_scalar", "carry"] = 2
    table["valu_scalar", "lane_select"] = table["valu_scalar", "div_mask"] = 4
    table["valu_scalar", "vmem_scalar"] = table["valu_scalar", "m0_lds"] = 5
    table["valu_scalar", "exec_mfma"] = table["valu_scalar", "exec_permlane"] = 4
    table["valu_scalar", "exec_lane"] = 4
    table["valu_scalar", "exec_dpp"] = table["valu_scalar", "exec_vmem"] = 5
    table["salu", "m0_lds"] = table["salu", "m0_use"] = 1
    table["hardware", "hardware"] = table["hardware", "over_hardware"] = 2
    for consumer in (*_VECTOR_READS, "dot_c", "over_valu"):
        table["dot", consumer] = 3
    table["read_store", "over_valu"] = table["read_store", "over_mfma"] = 2
    for consumer in ("over_valu", "over_mfma"):
        table["read_store_offset", consumer] = 1
    return table | _matrix_rules()


def _matrix_rules() -> dict[tuple[str, str], int]:
    """Results of matrix instructions, and what they still read."""
    table: dict[tuple[str, str], int] = {}

    def result(producer: str, used: int, memory: int, c: int, c_plain: int) -> None:
        for consumer in (*_VECTOR_READS, "dot_c", "mfma_ab", "over_valu", "over_memory"):
            table[producer, consumer] = used
        for consumer in _MEMORY_READS:
            table[producer, consumer] = memory
        table[producer, "mfma_c"], table[producer, "mfma_c_plain"] = c, c_plain
        table[producer, "mfma_c_other"], table[producer, "mfma_c_plain_other"] = c, c_plain

    result("xdl2", 5, 5, 4, 3)
    result("mfma2", 4, 4, 2, 2)
    table["xdl2", "mfma_c_same"] = table["mfma2", "mfma_c_same"] = 2
    for passes in (4, 8, 16):
        result(f"xdl{passes}", passes + 4, passes + 4, passes + 2, passes + 2)
        result(f"mfma{passes}", passes + 2, passes + 2, 0, passes)
    result("f64_small", 6, 9, 4, 4)
    result("f64_large", 19, 18, 17, 17)
    table["f64_small", "mfma_c_same"] = 4
    table["f64_pipe", "f64_pipe"] = 2  # whatever the registers
    for passes in (2, 4, 8, 16):
        # Only the reduced-precision pipe reads its accumulator so late.
        table[f"read_c{passes}", "over_valu"] = passes - 1
        table[f"read_c{passes}", "over_memory"] = passes - 1
    return table


REQUIRED = _rules()


def passes_of(ins: MachineInstruction) -> int:
    """Passes (of 4 cycles) of a matrix instruction, by its shape (measured on LLVM's padding)."""
    name = ins.mnemonic
    for shape, (with_8_bit, without) in _F8F6F4.items():
        if shape in name and "f8f6f4" in name:
            small = ins.modifier("cbsz") > 1 and ins.modifier("blgp") > 1
            return without if small else with_8_bit
    if "_4x4x" in name:
        return 4 if name.endswith("_f64") else 2
    if name.endswith("_f64") or "_2b_" in name:
        return 16
    large = "_32x32x" in name
    if _F32_PRODUCT.search(name) or "_4b_" in name:
        return 16 if large else 8
    return 8 if large else 4


def _is_plain(ins: MachineInstruction) -> bool:
    """Products of f32 and f64: not on the reduced-precision (XDL) pipe (LLVM isXDL)."""
    return ins.mnemonic.endswith("_f64") or bool(_F32_PRODUCT.search(ins.mnemonic))


def producer_class(ins: MachineInstruction, access: RegisterAccess) -> str:
    """Class of a write."""
    role = access.role
    if role == "mfma":
        return _matrix_class(ins)
    if role in ("vmem", "lds", "smem"):
        return "memory"
    if role == "valu_scalar":
        return "valu_scalar"
    return role


def _matrix_class(ins: MachineInstruction) -> str:
    if ins.mnemonic.endswith("_f64"):
        return "f64_small" if "_4x4x" in ins.mnemonic else "f64_large"
    return f"{'mfma' if _is_plain(ins) else 'xdl'}{passes_of(ins)}"


def read_producer_class(ins: MachineInstruction, access: RegisterAccess, effect: Effects) -> str:
    """Class of a read after which an overwrite has to wait; "none" for all others."""
    if access.role == "mfma_c":
        own = effect.writes[0].base == access.base
        return "none" if own or _is_plain(ins) else f"read_c{passes_of(ins)}"
    if access.role == "vmem_data" and access.count > 2:  # stores, and atomics that compare
        soffset = ins.operand("soffset")
        by_register = soffset is not None and soffset.kind == "s"
        return "read_store_offset" if by_register else "read_store"
    return "none"


_VECTOR_MEMORY = ("MUBUF", "MTBUF", "GLOBAL", "FLAT", "SCRATCH")
_SAME_AS = {"merge": "valu", "mfma_scale": "mfma_ab"}


def consumer_class(ins: MachineInstruction, access: RegisterAccess) -> str:
    """Class of a read."""
    role = access.role
    if role == "exec":
        if is_matrix(ins):
            return "exec_mfma"
        if ins.encoding.endswith("_DPP"):
            return "exec_dpp"
        if ins.mnemonic in PERMLANE:
            return "exec_permlane"
        if ins.mnemonic in LANE_READS:
            return "exec_lane"
        return "exec_vmem" if ins.encoding in _VECTOR_MEMORY else "exec"
    if role == "mfma_c" and _is_plain(ins):
        return "mfma_c_plain"
    if role in _SAME_AS:
        return _SAME_AS[role]
    if role in ("vmem_address", "vmem_data"):
        return "vmem"
    if role in ("lds_address", "lds_data"):
        return "lds"
    if role == "salu" and access.file == "v":
        return "valu"
    return role


def overwrite_class(ins: MachineInstruction, access: RegisterAccess) -> str:
    """Class of a write in its role as an overwrite."""
    if access.file == "s":
        return "over_hardware" if access.role == "hardware" else "over_scalar"
    if is_matrix(ins):
        return "over_mfma"
    return "over_valu" if is_vector_alu(ins) else "over_memory"


SHIPPED_WITHOUT = frozenset(
    {
        ("valu_scalar", "carry"),
        ("salu", "m0_lds"),
        ("permlane", "permlane"),
        ("valu", "dpp_old"),
    }
)
"""Pairs that LLVM pads but AMD's hand-written attention kernels for gfx950 run without."""

_SHIPPED_WITH = {("valu", "dpp"): 1, ("half", "permlane"): 1}
"""Pairs of which such kernels have fewer than required, one state in all of some 250 places of
AITER's pa and mla objects."""

_SHIPPED_BEHIND_VECTORS = frozenset({("xdl4", "valu"), ("xdl8", "valu")})
_VECTORS = 4
"""Results of which AITER's block-scale MoE kernels have four wait states, all of them of vector
instructions, instead of 8 and 12: in the main loop, where each tile ends so. Were they too few,
the last columns of each tile would be wrong in each launch. Of states that s_nop makes, or scalar
instructions, no kernel has so few."""

_ACCUMULATED = ("mfma_c_other", "mfma_c_plain_other")


def by_letter(made: str, used: str, have: int, between: Sequence[MachineInstruction] = ()) -> bool:
    """Whether `have` wait states, fewer than required, are too few by the letter only: shipped
    kernels run so, or LLVM, for which the matrix pipe forwards an accumulator to another opcode
    too, asks for no more (what the guide says of it is of one opcode). `between`: the instructions
    that make them, where they stand in one line (`in_line`)."""
    if used in _ACCUMULATED and made.startswith(("xdl", "mfma")):
        return have >= (2 if made in ("xdl2", "mfma2") else 0)
    if (made, used) in _SHIPPED_BEHIND_VECTORS and sum(map(is_vector_alu, between)) >= _VECTORS:
        return True
    return (made, used) in SHIPPED_WITHOUT or have >= _SHIPPED_WITH.get((made, used), have + 1)


def packs_beside(producer: MachineInstruction, consumer: MachineInstruction) -> bool:
    """Whether two conversions put fp4 numbers into two bytes of one register, and the second reads
    none of it. LLVM asks for a wait state between them, for the register's parity
    (consumesDstSelForwardingOperand); AITER's MoE kernels that quantise to mxfp4 have none
    (478 places in 21 of 400 objects drawn from its commit of docs/foreign_audit.md)."""
    if producer.mnemonic != consumer.mnemonic or "_scalef32_pk_fp4_" not in consumer.mnemonic:
        return False
    target = consumer.operand("vdst")
    sources = [operand for name, operand in consumer.operands if name != "vdst"]
    return (
        target is not None
        and target == producer.operand("vdst")
        and producer.modifier("opsel") >> 2 != consumer.modifier("opsel") >> 2
        and not any(
            one.kind == target.kind and one.index <= target.index < one.index + one.count
            for one in sources
        )
    )


def in_line(between: Iterable[MachineInstruction]) -> tuple[MachineInstruction, ...]:
    """The instructions between two of the same code, none where one of them jumps: then there are
    other ways from the one to the other, or none."""
    kept = tuple(between)
    jumps = any(ins.mnemonic.startswith(("s_branch", "s_cbranch")) for ins in kept)
    return () if jumps else kept


def strictest_pair(
    producer: MachineInstruction, consumer: MachineInstruction, accum_offset: int
) -> tuple[int, str, str]:
    """(required wait states, producer class, consumer class) of the strictest rule that applies."""
    first, second = effects(producer, accum_offset), effects(consumer, accum_offset)
    pairs = [(0, "none", "none")]

    def consider(made: str, used: str, same: bool) -> None:
        used = forwarded(producer, consumer, used, same)
        pairs.append((REQUIRED.get((made, used), 0), made, used))

    for write in first.writes:
        made = producer_class(producer, write)
        for read in second.reads:
            if _overlap(write, read):
                same = (write.base, write.count) == (read.base, read.count)
                consider(made, consumer_class(consumer, read), same)
        for over in second.writes:
            if _overlap(write, over):
                consider(made, overwrite_class(consumer, over), False)
    for read in first.reads:
        held = read_producer_class(producer, read, first)
        for over in second.writes:
            if _overlap(read, over):
                consider(held, overwrite_class(consumer, over), False)
    return max(pairs)


def forwarded(
    producer: MachineInstruction, consumer: MachineInstruction, used: str, same: bool
) -> str:
    """The consumer's class where the hardware forwards within one opcode; else `used` as it is.

    `same`: it reads exactly the registers that were written. A matrix instruction forwards its
    accumulator to the same opcode then; a dot product to the same opcode always. To another opcode
    a class of its own tells of it.
    """
    accumulated = same and used in ("mfma_c", "mfma_c_plain") and is_matrix(producer)
    if producer.mnemonic != consumer.mnemonic:
        return f"{used}_other" if accumulated else used
    if accumulated:
        return "mfma_c_same"
    if used in ("dot_c", "over_valu") and is_dot(producer):
        return "none"
    return used


def _overlap(a: RegisterAccess, b: RegisterAccess) -> bool:
    return a.file == b.file and a.base < b.base + b.count and b.base < a.base + a.count


__all__ = [
    "CONSUMERS",
    "PRODUCERS",
    "REQUIRED",
    "SHIPPED_WITHOUT",
    "by_letter",
    "consumer_class",
    "forwarded",
    "in_line",
    "overwrite_class",
    "packs_beside",
    "passes_of",
    "producer_class",
    "read_producer_class",
    "strictest_pair",
]
