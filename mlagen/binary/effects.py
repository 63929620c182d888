"""What each instruction reads, writes and counts: the checkers' own table of effects.

Derived from the operand lists of AMD's machine-readable ISA (by way of the decoder) and the CDNA4
ISA guide for everything an encoding leaves unsaid: VCC, SCC, EXEC, M0, operands that are read and
written, registers that a load fills later. It knows nothing of any generator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mlagen.binary.instruction import MachineInstruction
from mlagen.binary.operand import EXEC, F64_PIPE, HARDWARE, M0, SCC, VCC, Operand, words

File = Literal["v", "s"]
Counter = Literal["", "vm", "lds", "smem"]
"""Which queue an asynchronous result belongs to; "lds" and "smem" share lgkmcnt."""


@dataclass(frozen=True, slots=True)
class RegisterAccess:
    """`count` registers from `base` in one file. Vector numbers are physical (a0 = accum_offset).

    `role` says how the register is used; wait-state rules are written over roles.
    Reads: valu, const (scalar source of a vector instruction), carry (mask or carry in), lane
    (source of a lane read), lane_select, dpp, dpp_old (what a DPP instruction keeps of its
    destination), trans, permlane, merge (kept part of a
    destination), mfma_ab, mfma_c, mfma_scale, dot_c, vmem_address, vmem_data, vmem_scalar,
    lds_address, lds_data, smem, salu, mask (a lane mask combined with EXEC: what the bits of
    inactive lanes hold does not matter), div_mask (VCC of v_div_fmas), m0_lds, m0_use, hardware,
    f64_pipe, exec.
    Writes: valu, trans, permlane, half, mfma, dot, vmem, lds, smem, salu, valu_scalar, hardware,
    f64_pipe (no register: products and fused sums of f64 share a pipe).
    """

    file: File
    base: int
    count: int
    role: str


@dataclass(frozen=True, slots=True)
class Effects:
    """Reads and writes of one instruction, and the counter its results come back on."""

    reads: tuple[RegisterAccess, ...]
    writes: tuple[RegisterAccess, ...]
    counter: Counter = ""


TRANSCENDENTAL = frozenset(
    f"v_{name}"
    for name in words(
        "exp_f32 log_f32 rcp_f32 rcp_iflag_f32 rsq_f32 sqrt_f32 sin_f32 cos_f32 exp_f16 "
        "log_f16 rcp_f16 rsq_f16 sqrt_f16 sin_f16 cos_f16 exp_legacy_f32 log_legacy_f32"
    )
)
PERMLANE = frozenset({"v_permlane16_swap_b32", "v_permlane32_swap_b32"})
LANE_READS = frozenset({"v_readfirstlane_b32", "v_readlane_b32"})
_SWAPS = PERMLANE | {"v_swap_b32"}
_READ_DESTINATION = frozenset({"v_fmac_f32", "v_fmac_f64", "v_mac_f32", "v_pk_fmac_f16"})
_READ_DESTINATION |= {"v_writelane_b32", "v_fmac_f16", "v_fmac_dx9_zero_f32", "v_mac_f16"}
_READ_DESTINATION |= {"v_dot2c_f32_f16", "v_dot2c_f32_bf16", "v_dot2c_i32_i16", "v_dot4c_i32_i8"}
_READ_DESTINATION |= {"v_dot8c_i32_i4"}
_CARRY_OUT = frozenset(f"v_{n}_co_u32" for n in ["add", "sub", "subrev", "addc", "subb", "subbrev"])
_CARRY_IN = frozenset(f"v_{n}_co_u32" for n in ["addc", "subb", "subbrev"])
_HALF_WRITES = frozenset(
    f"v_cvt_{n}_f32"
    for n in words("pk_fp8 pk_bf8 scalef32_pk_fp8 scalef32_pk_bf8 scalef32_pk_fp4 sr_fp8 sr_bf8")
)
# Conversions whose op_sel picks a byte of the result: bit 2, or bits 2 and 3 (LLVM FPType).
_FP4_RESULT = ("v_cvt_scalef32_pk_fp4_", "v_cvt_scalef32_sr_pk_fp4_")
_FP8_BYTE = tuple(f"v_cvt_{scaled}sr_{kind}_" for scaled in ("", "scalef32_")
                  for kind in ("fp8", "bf8"))  # fmt: skip
_FUSED_F64 = frozenset({"v_fma_f64", "v_fmac_f64"})
CACHE_MAINTENANCE = frozenset({"buffer_inv", "buffer_wbl2"})
"""They move no data and count in vmcnt, in order (CDNA4 ISA guide, MUBUF; LLVM pull requests 178316
and 220694)."""
TRANSPOSING = frozenset({"ds_read_b64_tr_b16", "ds_read_b64_tr_b8", "ds_read_b64_tr_b4"})
TRANSPOSING |= {"ds_read_b96_tr_b6"}
"""Reads of LDS that move data between lanes: EXEC must be all ones (CDNA4 ISA guide, 11.4)."""
_ADD_TID = frozenset({"ds_write_addtid_b32", "ds_read_addtid_b32"})
_SCC_READERS = frozenset(
    f"s_{n}"
    for n in words(
        "addc_u32 subb_u32 cselect_b32 cselect_b64 cmov_b32 cmov_b64 cbranch_scc0 cbranch_scc1"
    )
)
# Prefixes of the SOP2 and SOP1 instructions that leave SCC alone (CDNA4 ISA guide, SALU tables).
_SCC_SILENT_SOP2 = words("s_cselect s_mul_i32 s_mul_hi s_bfm s_pack s_rfe s_cbranch")
_SCC_SILENT_SOP1 = words(
    "s_mov s_cmov s_brev s_ff0 s_ff1 s_flbit s_sext s_bitset s_getpc s_setpc s_swappc "
    "s_movrel s_bitreplicate s_cbranch"
)


_KEPT = 65536
# What was asked for, with the instruction: as long as it is here, its parts' numbers are its own.
_ASKED: dict[tuple[str, str, int, int, int], tuple[MachineInstruction, Effects]] = {}


def effects(ins: MachineInstruction, accum_offset: int) -> Effects:
    """Effects of one instruction of a kernel whose a0 is physical register `accum_offset`."""
    key = (ins.mnemonic, ins.encoding, id(ins.operands), id(ins.modifiers), accum_offset)
    asked = _ASKED.get(key)
    if asked is None:
        if len(_ASKED) >= _KEPT:
            _ASKED.clear()
        asked = _ASKED[key] = (ins, _effects(ins, accum_offset))
    return asked[1]


def _effects(ins: MachineInstruction, accum_offset: int) -> Effects:
    form = ins.encoding
    if form in ("SOP1", "SOP2", "SOPC", "SOPK", "SOPP"):
        return _scalar(ins)
    if form == "SMEM":
        return _scalar_memory(ins)
    if form == "DS":
        return _data_share(ins, accum_offset)
    if form in ("MUBUF", "GLOBAL", "FLAT", "SCRATCH", "MTBUF"):
        return _vector_memory(ins, accum_offset)
    return _vector(ins, accum_offset)


def is_vector_alu(ins: MachineInstruction) -> bool:
    """True for every instruction of the vector ALU, matrix instructions included."""
    return ins.encoding.startswith("VOP")


def is_matrix(ins: MachineInstruction) -> bool:
    return "mfma" in ins.mnemonic or "smfmac" in ins.mnemonic


def is_dot(ins: MachineInstruction) -> bool:
    return ins.mnemonic.startswith("v_dot")


def _access(operand: Operand, accum_offset: int, role: str) -> RegisterAccess:
    if operand.kind == "s":
        return RegisterAccess("s", operand.index, operand.count, role)
    base = operand.index + (accum_offset if operand.kind == "a" else 0)
    return RegisterAccess("v", base, operand.count, role)


def _scalar(ins: MachineInstruction) -> Effects:
    name = ins.mnemonic
    reads: list[RegisterAccess] = []
    writes: list[RegisterAccess] = []
    for field, operand in ins.operands:
        if not operand.is_register:
            continue
        if field.startswith("ssrc") and name in _MASK_MERGES and _with_exec(ins):
            reads.append(_access(operand, 0, "salu" if operand.index == EXEC else "mask"))
        elif field.startswith("ssrc") or name.startswith(("s_cmpk", "s_setreg")):
            reads.append(_access(operand, 0, "salu"))
        else:
            writes.append(_access(operand, 0, "salu"))
            if name in ("s_addk_i32", "s_mulk_i32", "s_cmovk_i32") or name.startswith("s_bitset"):
                reads.append(_access(operand, 0, "salu"))
    if name in _SCC_READERS:
        reads.append(RegisterAccess("s", SCC, 1, "salu"))
    if name in ("s_cbranch_vccz", "s_cbranch_vccnz"):
        reads.append(RegisterAccess("s", VCC, 2, "salu"))
    if name in ("s_cbranch_execz", "s_cbranch_execnz"):
        reads.append(RegisterAccess("s", EXEC, 2, "salu"))
    if "saveexec" in name or "wrexec" in name:
        reads.append(RegisterAccess("s", EXEC, 2, "salu"))
        writes.append(RegisterAccess("s", EXEC, 2, "salu"))
    if name in ("s_cmov_b32", "s_cmov_b64"):  # what is not moved stays
        reads += [
            _access(op, 0, "salu") for f, op in ins.operands if f == "sdst" and op.kind == "s"
        ]
    if name.startswith(("s_sendmsg", "s_movrel", "s_ttracedata")):
        reads.append(RegisterAccess("s", M0, 1, "m0_use"))
    if name.startswith("s_sendmsg"):
        return Effects(tuple(reads), (), "smem")  # it counts in lgkmcnt, in no order
    if name.startswith(("s_getreg", "s_setreg")):
        number = ins.modifier("simm16") & 63  # which register; the rest is a bit field
        register = RegisterAccess("s", HARDWARE + number, 1, "hardware")
        (reads if name.startswith("s_getreg") else writes).append(register)
    if name in ("s_set_gpr_idx_on", "s_set_gpr_idx_idx"):
        reads.append(RegisterAccess("s", M0, 1, "merge"))
        writes.append(RegisterAccess("s", M0, 1, "salu"))
    if _sets_scc(ins):
        writes.append(RegisterAccess("s", SCC, 1, "salu"))
    return Effects(tuple(reads), tuple(writes))


# Compilers merge lane masks under EXEC onto registers that need not be defined: inactive lanes'
# bits are replaced, or never looked at, later on.
_MASK_MERGES = frozenset({"s_or_b64", "s_and_b64", "s_andn2_b64", "s_orn2_b64"})


def _with_exec(ins: MachineInstruction) -> bool:
    return any(operand.kind == "s" and operand.index == EXEC for _, operand in ins.operands)


def _sets_scc(ins: MachineInstruction) -> bool:
    name, form = ins.mnemonic, ins.encoding
    if form == "SOPC":
        return name.startswith(("s_cmp", "s_bitcmp"))
    if form == "SOP2":
        return not name.startswith(_SCC_SILENT_SOP2)
    if form == "SOP1":
        return not name.startswith(_SCC_SILENT_SOP1)
    if form == "SOPK":
        return name.startswith("s_cmpk") or name == "s_addk_i32"
    return False


def _scalar_memory(ins: MachineInstruction) -> Effects:
    reads, writes = [], []
    for field, operand in ins.operands:
        if not operand.is_register:
            continue
        if field == "sdata" and ("load" in ins.mnemonic or "time" in ins.mnemonic):
            writes.append(_access(operand, 0, "smem"))
        else:
            reads.append(_access(operand, 0, "smem"))
    return Effects(tuple(reads), tuple(writes), "smem")


def _data_share(ins: MachineInstruction, accum: int) -> Effects:
    reads, writes = [], []
    for field, operand in ins.operands:
        if field == "vdst":
            writes.append(_access(operand, accum, "lds"))
        elif field == "addr":
            reads.append(_access(operand, accum, "lds_address"))
        else:
            reads.append(_access(operand, accum, "lds_data"))
    if ins.mnemonic in _ADD_TID:
        reads.append(RegisterAccess("s", M0, 1, "m0_use"))
    return Effects((*reads, _EXEC), tuple(writes), "lds")


def _vector_memory(ins: MachineInstruction, accum: int) -> Effects:
    reads, writes = [], []
    loads = "load" in ins.mnemonic or ("atomic" in ins.mnemonic and bool(ins.modifier("sc0")))
    for field, operand in ins.operands:
        if not operand.is_register:
            continue
        if field in ("vaddr", "addr"):
            reads.append(_access(operand, accum, "vmem_address"))
        elif field in ("srsrc", "soffset", "saddr"):
            reads.append(_access(operand, accum, "vmem_scalar"))
        elif field in ("vdst", "vdata") and loads:
            writes.append(_access(operand, accum, "vmem"))
            if "atomic" in ins.mnemonic and field == "vdata":
                reads.append(_access(operand, accum, "vmem_data"))
        else:
            reads.append(_access(operand, accum, "vmem_data"))
    if is_lds_dma(ins):
        reads.append(RegisterAccess("s", M0, 1, "m0_lds"))
    if ins.mnemonic in CACHE_MAINTENANCE:
        return Effects((), (), "vm")
    return Effects((*reads, _EXEC), tuple(writes), "vm")


def is_lds_dma(ins: MachineInstruction) -> bool:
    """True for loads that write LDS instead of registers."""
    return "_load_lds_" in ins.mnemonic or bool(
        ins.encoding == "MUBUF" and ins.modifier("lds") and "load" in ins.mnemonic
    )


_EXEC = RegisterAccess("s", EXEC, 2, "exec")
_F64_PIPE = RegisterAccess("s", F64_PIPE, 1, "f64_pipe")
_VCC_CARRY = RegisterAccess("s", VCC, 2, "carry")


def _source_role(ins: MachineInstruction, field: str) -> str:
    name = ins.mnemonic
    if is_matrix(ins):
        if field.startswith("scale"):
            return "mfma_scale"
        # The third source of a sparse instruction is its index; it accumulates onto vdst.
        return "mfma_c" if field == "src2" and "smfmac" not in name else "mfma_ab"
    if is_dot(ins) and field == "src2":
        return "dot_c"
    if name in PERMLANE:
        return "permlane"
    if name in LANE_READS:
        return "lane" if field in ("src0", "vsrc0") else "lane_select"
    if name == "v_writelane_b32" and field == "src1":
        return "lane_select"
    if ins.encoding.endswith("_DPP") and field == "vsrc0":
        return "dpp"
    if name in TRANSCENDENTAL:
        return "trans"
    return "valu"


def _vector(ins: MachineInstruction, accum: int) -> Effects:
    name = ins.mnemonic
    if name == "v_nop":
        return Effects((), ())
    reads: list[RegisterAccess] = []
    writes: list[RegisterAccess] = []
    compare = name.startswith("v_cmp")
    for field, operand in ins.operands:
        if not operand.is_register:
            continue
        if field in ("vdst", "sdst"):
            writes.append(_access(operand, accum, _result_role(ins, operand)))
            continue
        role = _source_role(ins, field)
        if operand.kind == "s":
            carry = field == "src2" and (name in _CARRY_IN or name == "v_cndmask_b32")
            if role != "lane_select":
                role = "carry" if carry else "const"
        reads.append(_narrowed(ins, field, _access(operand, accum, role)))
    destination = ins.operand("vdst")
    if name in _SWAPS:
        role = "permlane" if name in PERMLANE else "valu"
        other = ins.operand("vsrc0") or ins.operand("src0")
        if destination is not None and other is not None and other.is_register:
            reads.append(_access(destination, accum, role))
            writes.append(_access(other, accum, role))
    if destination is not None and destination.kind != "s":
        if "smfmac" in name:
            reads.append(_access(destination, accum, "mfma_c"))
        if name in _READ_DESTINATION:
            reads.append(_access(destination, accum, "dot_c" if is_dot(ins) else "valu"))
        elif name in _HALF_WRITES or _keeps_part(ins):
            role = "dpp_old" if ins.encoding.endswith("_DPP") else "merge"
            reads.append(_access(destination, accum, role))
    if compare and not any(field in ("vdst", "sdst") for field, _ in ins.operands):
        writes.append(RegisterAccess("s", VCC, 2, "valu_scalar"))
    if name.startswith("v_cmpx"):
        writes.append(RegisterAccess("s", EXEC, 2, "valu_scalar"))
    if ins.encoding.startswith("VOP2"):
        if name in _CARRY_OUT:
            writes.append(RegisterAccess("s", VCC, 2, "valu_scalar"))
        if name in _CARRY_IN or name == "v_cndmask_b32":
            reads.append(_VCC_CARRY)
    if name.startswith("v_div_fmas"):
        reads.append(RegisterAccess("s", VCC, 2, "div_mask"))
    if is_matrix(ins) and name.endswith("_f64"):
        writes.append(_F64_PIPE)
    if name in _FUSED_F64:
        reads.append(_F64_PIPE)
    if name not in ("v_readlane_b32", "v_writelane_b32"):
        reads.append(_EXEC)
    return Effects(tuple(reads), tuple(writes))


_PACKED_PAIRS = frozenset(f"v_pk_{n}_f32" for n in ("fma", "mul", "add"))
_SOURCE_NUMBER = {"src0": 0, "src1": 1, "src2": 2}


def _narrowed(ins: MachineInstruction, field: str, access: RegisterAccess) -> RegisterAccess:
    """The dword that a packed f32 instruction reads when both halves select the same one."""
    if ins.mnemonic not in _PACKED_PAIRS or access.count != 2 or field not in _SOURCE_NUMBER:
        return access
    number = _SOURCE_NUMBER[field]
    high = ins.modifier("opsel_hi") | ins.modifier("opsel_hi2") << 2
    first, second = ins.modifier("opsel") >> number & 1, high >> number & 1
    if first != second:
        return access
    return RegisterAccess(access.file, access.base + first, 1, access.role)


def _result_role(ins: MachineInstruction, operand: Operand) -> str:
    if operand.kind == "s":
        return "valu_scalar"
    if is_matrix(ins):
        return "mfma"
    if is_dot(ins):
        return "dot"
    if ins.mnemonic in PERMLANE:
        return "permlane"
    if ins.mnemonic in TRANSCENDENTAL:
        return "trans"
    if _moves_result(ins):
        return "half"
    if ins.encoding.endswith("_SDWA") and ins.modifier("dst_sel") != 6:
        return "half"
    return "valu"


def _moves_result(ins: MachineInstruction) -> bool:
    """VOP3 forms whose result is moved within its register: op_sel of the destination (LLVM
    getDstSelForwardingOperand)."""
    if ins.encoding != "VOP3":
        return False
    if ins.mnemonic.startswith(_FP4_RESULT):
        return True
    picked = ins.modifier("opsel") & (12 if ins.mnemonic.startswith(_FP8_BYTE) else 8)
    return bool(picked)


def _keeps_part(ins: MachineInstruction) -> bool:
    """Writes that leave other bits or lanes of the destination as they were."""
    if ins.encoding.endswith("_SDWA"):
        return ins.modifier("dst_sel") != 6 and ins.modifier("dst_unused") == 2
    if ins.encoding.endswith("_DPP"):
        masks = ins.modifier("row_mask") == 15 and ins.modifier("bank_mask") == 15
        return not masks or not ins.modifier("bc")
    return False
