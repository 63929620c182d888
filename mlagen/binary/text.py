"""Instructions as assembly text, near enough to the assembler's own to be assembled again."""

from __future__ import annotations

from mlagen.binary.operand import OperandForm, words
from mlagen.targets.gfx950.limits import GFX950

_DPP_NAMES = {0x130: "wave_shl:1", 0x134: "wave_rol:1", 0x138: "wave_shr:1", 0x13C: "wave_ror:1"}
_DPP_NAMES |= {0x140: "row_mirror", 0x141: "row_half_mirror", 0x142: "row_bcast:15"}
_DPP_NAMES |= {0x143: "row_bcast:31"}
_SDWA_SELECT = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")


def format_instruction(ins: OperandForm) -> str:
    """One line of assembly for an instruction; unknown modifiers are shown as name:value."""
    name = ins.mnemonic
    if ins.encoding.endswith("_DPP"):
        name += "_dpp"
    elif ins.encoding.endswith("_SDWA"):
        name += "_sdwa"
    elif ins.encoding == "VOP3" and ins.mnemonic in _TWO_FORMS:
        name += "_e64"
    parts, tail = _FORMATS.get(ins.encoding, _vector)(ins)
    return " ".join(filter(None, [f"{name} {', '.join(parts)}".strip(), *tail]))


def _operands(ins: OperandForm) -> list[str]:
    return [str(operand) for _, operand in ins.operands]


def _vector(ins: OperandForm) -> tuple[list[str], list[str]]:
    neg, absolute = ins.modifier("neg"), ins.modifier("abs")
    parts: list[str] = []
    position = 0
    compare = ins.encoding.startswith("VOPC")
    if compare and ins.operand("sdst") is None:
        parts.append("vcc")
    for field, operand in ins.operands:
        text = str(operand)
        if "src" in field and "scale" not in field:
            if ins.encoding in ("VOP3",):
                text = _signed(text, neg >> position & 1, absolute >> position & 1)
            elif field in ("vsrc0", "vsrc1"):
                mark = "src0" if field == "vsrc0" else "src1"
                text = _signed(text, ins.modifier(f"{mark}_neg"), ins.modifier(f"{mark}_abs"))
                text = f"sext({text})" if ins.modifier(f"{mark}_sext") else text
            position += 1
        parts.append(text)
        if ins.encoding.startswith("VOP2") and field == "vdst" and ins.mnemonic in _CARRY:
            parts.append("vcc")
    if ins.encoding.startswith("VOP2") and ins.mnemonic in _CARRY_IN:
        parts.append("vcc")
    tail = []
    if ins.mnemonic.startswith("v_bitop3_"):
        return _operands(ins), [f"bitop3:{truth_table(ins):#x}"]
    opsel = ins.modifier("opsel")
    if opsel and ins.encoding == "VOP3":
        bits = [str(opsel >> i & 1) for i in range(position)] + [str(opsel >> 3 & 1)]
        tail.append(f"op_sel:[{','.join(bits)}]")
    if ins.modifier("clmp"):
        tail.append("clamp")
    if omod := ins.modifier("omod"):
        tail.append(("", "mul:2", "mul:4", "div:2")[omod])
    if ins.encoding.endswith("_DPP"):
        tail += _dpp(ins)
    if ins.encoding.endswith("_SDWA"):
        tail += _sdwa(ins)
    return parts, tail


def truth_table(ins: OperandForm) -> int:
    """Truth table of a v_bitop3, kept in the bits of NEG, ABS and OMOD (by assembling probes)."""
    return ins.modifier("neg") | ins.modifier("abs") << 3 | ins.modifier("omod") << 6


def _signed(text: str, neg: int, absolute: int) -> str:
    if absolute:
        text = f"|{text}|"
    return f"-{text}" if neg else text


def _dpp(ins: OperandForm) -> list[str]:
    ctrl = ins.modifier("dpp")
    if ctrl < 0x100:
        text = f"quad_perm:[{','.join(str(ctrl >> 2 * i & 3) for i in range(4))}]"
    elif ctrl < 0x130:
        text = f"{('row_shl', 'row_shr', 'row_ror')[(ctrl >> 4) - 0x10]}:{ctrl & 15}"
    elif 0x150 <= ctrl < 0x160:
        text = f"row_newbcast:{ctrl & 15}"
    else:
        text = _DPP_NAMES.get(ctrl, f"dpp:{ctrl:#x}")
    tail = [text, f"row_mask:{ins.modifier('row_mask'):#x}"]
    tail.append(f"bank_mask:{ins.modifier('bank_mask'):#x}")
    if ins.modifier("bc"):
        tail.append("bound_ctrl:0")
    return tail


def _sdwa(ins: OperandForm) -> list[str]:
    tail = []
    if ins.operand("vdst") is not None and not ins.mnemonic.startswith("v_cvt_pk_f32_"):
        tail.append(f"dst_sel:{_SDWA_SELECT[ins.modifier('dst_sel') % 7]}")
        unused = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE", "?")[ins.modifier("dst_unused")]
        tail.append(f"dst_unused:{unused}")
    tail.append(f"src0_sel:{_SDWA_SELECT[ins.modifier('src0_sel') % 7]}")
    if ins.operand("vsrc1") is not None:
        tail.append(f"src1_sel:{_SDWA_SELECT[ins.modifier('src1_sel') % 7]}")
    return tail


def _packed(ins: OperandForm) -> tuple[list[str], list[str]]:
    if ins.mnemonic.startswith("v_accvgpr"):
        return _operands(ins), []
    if "mfma" in ins.mnemonic:
        tail = [
            f"{name}:{value}"
            for name, value in ins.modifiers
            if name in ("cbsz", "abid", "blgp") and value
        ]
        if ins.encoding == "VOP3PX2":
            tail = [part for part in tail if not part.startswith("abid")]
            tail = _scale_selects(ins) + tail
        return _operands(ins), tail
    sources = sum(1 for field, _ in ins.operands if "src" in field)
    low, high = ins.modifier("opsel"), ins.modifier("opsel_hi") | ins.modifier("opsel_hi2") << 2
    tail = []
    every = (1 << sources) - 1
    for label, value, plain in (
        ("op_sel", low, 0),
        ("op_sel_hi", high & every, every),
        ("neg_lo", ins.modifier("neg"), 0),
        ("neg_hi", ins.modifier("neg_hi"), 0),
    ):
        if value & every != plain:
            tail.append(f"{label}:[{','.join(str(value >> i & 1) for i in range(sources))}]")
    if ins.modifier("clmp"):
        tail.append("clamp")
    return _operands(ins), tail


def _scale_selects(ins: OperandForm) -> list[str]:
    low, high = ins.modifier("opsel"), ins.modifier("opsel_hi")
    return [
        f"op_sel:[{low & 1},{low >> 1 & 1},0]",
        f"op_sel_hi:[{high & 1},{high >> 1 & 1},0]",
    ]


def _data_share(ins: OperandForm) -> tuple[list[str], list[str]]:
    offset0, offset1 = ins.modifier("offset0"), ins.modifier("offset1")
    if "read2" in ins.mnemonic or "write2" in ins.mnemonic:
        tail = [f"{n}:{v}" for n, v in (("offset0", offset0), ("offset1", offset1)) if v]
    elif ins.mnemonic == "ds_swizzle_b32" or offset0 or offset1:
        tail = [f"offset:{offset0 | offset1 << 8}"]
    else:
        tail = []
    return _operands(ins), tail


def _buffer(ins: OperandForm) -> tuple[list[str], list[str]]:
    shown = dict(ins.operands)
    if "srsrc" not in shown:  # cache maintenance: buffer_inv, buffer_wbl2
        return [], [name for name in ("sc0", "nt", "sc1") if ins.modifier(name)]
    parts = [str(shown["vdata"])] if "vdata" in shown else []
    parts.append(str(shown.get("vaddr", "off")))
    parts += [str(shown["srsrc"]), str(shown["soffset"])]
    tail = [name for name in ("idxen", "offen") if ins.modifier(name)]
    if ins.encoding == "MTBUF":
        tail.insert(0, f"format:{ins.modifier('format')}")
    if ins.modifier("offset"):
        tail.append(f"offset:{ins.modifier('offset')}")
    tail += [name for name in ("sc0", "nt", "sc1", "lds") if ins.modifier(name)]
    return parts, tail


def _global(ins: OperandForm) -> tuple[list[str], list[str]]:
    tail = []
    offset = ins.modifier("offset")
    if offset:
        tail.append(f"offset:{offset - 0x2000 if offset & 0x1000 else offset}")
    tail += [name for name in ("sc0", "nt", "sc1") if ins.modifier(name)]
    return _operands(ins), tail


def _scalar_memory(ins: OperandForm) -> tuple[list[str], list[str]]:
    parts = [str(operand) for field, operand in ins.operands if field != "soffset"]
    soffset = ins.operand("soffset")
    offset = ins.modifier("offset")
    offset -= 0x200000 if offset & 0x100000 else 0
    if soffset is not None:
        tail = [f"offset:{offset:#x}"] if ins.modifier("imm") and offset else []
        return [*parts, str(soffset)], tail
    return [*parts, f"{offset:#x}"], []


def _program(ins: OperandForm) -> tuple[list[str], list[str]]:
    value = ins.modifier("simm16")
    if ins.mnemonic == "s_waitcnt":
        return [], [waitcnt_text(value)]
    if ins.mnemonic in ("s_barrier", "s_endpgm", "s_set_gpr_idx_off"):
        return [], []
    return [str(value)], []


def _scalar_immediate(ins: OperandForm) -> tuple[list[str], list[str]]:
    return [*_operands(ins), f"{ins.modifier('simm16'):#x}"], []


def _scalar_compare(ins: OperandForm) -> tuple[list[str], list[str]]:
    if ins.mnemonic == "s_set_gpr_idx_on":
        return [str(ins.operands[0][1]), f"{ins.modifier('ssrc1'):#x}"], []
    return _operands(ins), []


def waitcnt_text(value: int) -> str:
    """`vmcnt(4) lgkmcnt(0)` for an s_waitcnt immediate; fields at their maximum are left out,
    unless all are: it waits for nothing."""
    vm, exp, lgkm = waitcnt_fields(value)
    shown = []
    if vm < GFX950.vmcnt_max:
        shown.append(f"vmcnt({vm})")
    if exp < 7:
        shown.append(f"expcnt({exp})")
    if lgkm < GFX950.lgkmcnt_max:
        shown.append(f"lgkmcnt({lgkm})")
    return " ".join(shown) or f"vmcnt({vm}) expcnt({exp}) lgkmcnt({lgkm})"


def waitcnt_fields(value: int) -> tuple[int, int, int]:
    """(vmcnt, expcnt, lgkmcnt) of an s_waitcnt immediate (CDNA4 ISA guide, S_WAITCNT)."""
    return (value & 0xF) | (value >> 14 & 3) << 4, value >> 4 & 7, value >> 8 & 0xF


_CARRY = {"v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32"}
_CARRY |= {"v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32"}
_CARRY_IN = {"v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32", "v_cndmask_b32"}
_TWO_FORMS = {
    "v_" + stem
    for stem in words(
        "cndmask_b32 add_f32 sub_f32 subrev_f32 mul_f32 mul_i32_i24 mul_hi_i32_i24 "
        "mul_u32_u24 mul_hi_u32_u24 min_f32 max_f32 min_i32 max_i32 min_u32 max_u32 "
        "lshrrev_b32 ashrrev_i32 lshlrev_b32 and_b32 or_b32 xor_b32 add_u32 sub_u32 "
        "subrev_u32 add_co_u32 sub_co_u32 subrev_co_u32 addc_co_u32 subb_co_u32 "
        "subbrev_co_u32 fmac_f32 pk_fmac_f16 mov_b32 mov_b64 cvt_f32_i32 cvt_f32_u32 "
        "cvt_u32_f32 cvt_i32_f32 cvt_f16_f32 cvt_f32_f16 fract_f32 trunc_f32 ceil_f32 "
        "rndne_f32 floor_f32 exp_f32 log_f32 rcp_f32 rcp_iflag_f32 rsq_f32 sqrt_f32 sin_f32 "
        "cos_f32 not_b32 bfrev_b32 ffbh_u32 ffbl_b32 permlane16_swap_b32 permlane32_swap_b32 "
        "cvt_pk_f32_fp8 cvt_pk_f32_bf8 cvt_f32_fp8 cvt_f32_bf8 nop xnor_b32"
    )
}
_TWO_FORMS |= {
    f"v_cmp{x}_{relation}_{kind}"
    for x in ("", "x")
    for relation in words("f lt eq le gt ne lg ge t o u nge nlg ngt nle neq nlt tru class")
    for kind in words("f32 i32 u32 i64 u64 f16 f64 i16 u16")
}
_FORMATS = {
    "VOP3P": _packed,
    "VOP3PX2": _packed,
    "DS": _data_share,
    "MUBUF": _buffer,
    "MTBUF": _buffer,
    "GLOBAL": _global,
    "FLAT": _global,
    "SCRATCH": _global,
    "SMEM": _scalar_memory,
    "SOPP": _program,
    "SOPK": _scalar_immediate,
    "SOPC": _scalar_compare,
}
