"""Which instructions the audit follows. Of any other it says so: none is taken for harmless unseen.

Followed is an instruction whose registers, counters, memory and ways on the audit knows. Vector ALU
instructions are, all of them: their operands say what they do. Sources: AMD's machine-readable ISA
for the names, the CDNA4 ISA guide and LLVM's SIInsertWaitcnts for what they do.
"""

from __future__ import annotations

from mlagen.binary.effects import CACHE_MAINTENANCE
from mlagen.binary.instruction import INDIRECT, MachineInstruction
from mlagen.binary.operand import words

_MODE = 1  # hardware register that s_setreg may change
_ROUNDING_TO_TRAPS = 27  # its bits from here on index registers and skip vector instructions

_PROGRAM = words(
    "s_nop s_endpgm s_endpgm_saved s_endpgm_ordered_ps_done s_branch s_cbranch_scc0 s_cbranch_scc1 "
    "s_cbranch_vccz s_cbranch_vccnz s_cbranch_execz s_cbranch_execnz s_barrier s_waitcnt s_sendmsg "
    "s_set_gpr_idx_off"
)
# They touch neither registers nor memory, and count nowhere.
_IDLE = words("s_sleep s_wakeup s_setprio s_icache_inv s_incperflevel s_decperflevel s_ttracedata")
_SCALAR = words(
    "s_mov_b32 s_mov_b64 s_cmov_b32 s_cmov_b64 s_not_b32 s_not_b64 s_wqm_b32 s_wqm_b64 s_brev_b32 "
    "s_brev_b64 s_bcnt0_i32_b32 s_bcnt0_i32_b64 s_bcnt1_i32_b32 s_bcnt1_i32_b64 s_ff0_i32_b32 "
    "s_ff0_i32_b64 s_ff1_i32_b32 s_ff1_i32_b64 s_flbit_i32_b32 s_flbit_i32_b64 s_flbit_i32 "
    "s_flbit_i32_i64 s_sext_i32_i8 s_sext_i32_i16 s_bitset0_b32 s_bitset0_b64 s_bitset1_b32 "
    "s_bitset1_b64 s_getpc_b64 s_quadmask_b32 s_quadmask_b64 s_abs_i32 s_bitreplicate_b64_b32 "
    "s_add_u32 s_sub_u32 s_add_i32 s_sub_i32 s_addc_u32 s_subb_u32 s_min_i32 s_min_u32 s_max_i32 "
    "s_max_u32 s_cselect_b32 s_cselect_b64 s_mul_i32 s_bfe_u32 s_bfe_i32 s_bfe_u64 s_bfe_i64 "
    "s_bfm_b32 s_bfm_b64 s_absdiff_i32 s_mul_hi_u32 s_mul_hi_i32 s_lshl1_add_u32 s_lshl2_add_u32 "
    "s_lshl3_add_u32 s_lshl4_add_u32 s_pack_ll_b32_b16 s_pack_lh_b32_b16 s_pack_hh_b32_b16 "
    "s_lshl_b32 s_lshl_b64 s_lshr_b32 s_lshr_b64 s_ashr_i32 s_ashr_i64 s_bitcmp0_b32 s_bitcmp1_b32 "
    "s_bitcmp0_b64 s_bitcmp1_b64 s_movk_i32 s_cmovk_i32 s_addk_i32 s_mulk_i32 s_getreg_b32"
)
_LOGIC = words("and or xor andn2 orn2 nand nor xnor")
_SCALAR += tuple(f"s_{name}_b{bits}" for name in _LOGIC for bits in (32, 64))
_SCALAR += tuple(f"s_{name}_saveexec_b64" for name in (*_LOGIC, "andn1", "orn1"))
_SCALAR += words("s_andn1_wrexec_b64 s_andn2_wrexec_b64 s_cmp_eq_u64 s_cmp_lg_u64")
_SCALAR += tuple(
    f"s_cmp{short}_{relation}_{kind}"
    for short in ("", "k")
    for kind in ("i32", "u32")
    for relation in words("eq lg gt ge lt le")
)
# Told by the audit itself: jumps whose targets are not in the code, and registers that M0 names.
_TOLD = (*INDIRECT, "s_set_gpr_idx_on")
_SCALAR_MEMORY = ("s_load_", "s_buffer_load_", "s_scratch_load_", "s_dcache_", "s_memtime",
                  "s_memrealtime", "s_atc_probe")  # fmt: skip
_VECTOR_MEMORY = tuple(
    f"{unit}_{access}_"
    for unit in ("buffer", "tbuffer", "global", "scratch")
    for access in ("load", "store", "atomic")
)
_FOLLOWED = frozenset((*_PROGRAM, *_IDLE, *_SCALAR, *_TOLD))

_WHY = {
    "s_setkill": "it may end the wave",
    "s_sethalt": "it stops the wave until the host goes on",
    "s_sendmsghalt": "it stops the wave until the host goes on",
    "s_trap": "what the trap handler does is not in the code",
    "s_cbranch_cdbg": "the debugger decides whether it jumps",
    "s_setvskip": "it makes vector instructions do nothing",
    "s_set_gpr_idx": "it changes which registers are named",
    "s_set_valu_coexec_mode": "what it changes is not published",
    "s_movrel": "M0 names its registers",
    "s_setreg": "it changes how instructions execute",
    "s_store": "scalar stores are not ordered against anything here",
    "s_buffer_store": "scalar stores are not ordered against anything here",
    "s_scratch_store": "scalar stores are not ordered against anything here",
    "s_atomic": "scalar atomics are not ordered against anything here",
    "s_buffer_atomic": "scalar atomics are not ordered against anything here",
    "ds_gws": "the order that it makes between workgroups is not followed",
    "flat_": "it counts in vmcnt and lgkmcnt, and reaches LDS or memory by its address; neither "
    "its lgkmcnt nor its LDS is checked",
}


def why_not_followed(ins: MachineInstruction) -> str:
    """Why the audit does not follow an instruction, "" where it does."""
    name = ins.mnemonic
    if name in _FOLLOWED or ins.encoding.startswith("VOP"):
        return ""
    if ins.encoding == "DS" and not name.startswith("ds_gws"):
        return "the memory that all workgroups share is not followed" if ins.modifier("gds") else ""
    if name in CACHE_MAINTENANCE or name.startswith((*_SCALAR_MEMORY, *_VECTOR_MEMORY)):
        return ""
    if name.startswith("s_setreg") and _only_rounding(ins):
        return ""
    return next((why for start, why in _WHY.items() if name.startswith(start)),
                "the audit does not know it")  # fmt: skip


def _only_rounding(ins: MachineInstruction) -> bool:
    """Whether an s_setreg changes rounding, denormals, clamping or traps of floats alone (CDNA4 ISA
    guide, MODE register)."""
    field = ins.modifier("simm16")
    first, bits = field >> 6 & 31, (field >> 11 & 31) + 1
    return field & 63 == _MODE and first + bits <= _ROUNDING_TO_TRAPS
