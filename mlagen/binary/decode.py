"""Machine code to `MachineInstruction` values: the one place that knows tinygrad's CDNA tables.

The bit layouts and operand sizes are AMD's machine-readable ISA as shipped in
`tinygrad.renderer.amd` (pinned exactly). No tinygrad type leaves this module. Where the tables
differ from what the assembler does (the GLOBAL "no scalar base" code, widths of LDS loads) this
module decides, and the tests compare it with the assembler.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from mlagen.binary.global_sync import FORM as SYNC
from mlagen.binary.global_sync import global_sync, is_global_sync
from mlagen.binary.instruction import MachineInstruction
from mlagen.binary.operand import Operand, words
from mlagen.binary.typed_buffers import FORM as TYPED
from mlagen.binary.typed_buffers import is_typed_buffer, typed_buffer
from mlagen.errors import BinaryError, MissingError
from mlagen.extras import install

_GLOBAL_NO_SADDR = 0x7F  # "off" in the SADDR field (CDNA4 ISA guide, FLAT/GLOBAL format)
_SCALE_PREFIX = b"\xac\xd3"  # upper half of the first dword (LLVM VOP3PX2 encoding)
_RENAMED = {  # table name -> the assembler's name
    "v_accvgpr_read": "v_accvgpr_read_b32",
    "v_accvgpr_write": "v_accvgpr_write_b32",
}
_VECTOR_FIELDS = {"vdst", "vdata", "vaddr", "addr", "data", "data0", "data1", "vsrc0", "vsrc1"}
_SCALAR_FIELDS = {"sdst", "sdata", "saddr"}
_ORDER = {
    name: rank
    for rank, name in enumerate(
        words(
            "vdst sdst sdata vdata vaddr addr sbase srsrc data data0 data1 vsrc0 src0 ssrc0 vsrc1 "
            "src1 ssrc1 src2 saddr soffset scale_src0 scale_src1 simm32"
        )
    )
}
_SCALAR_RESULTS = {"v_readfirstlane_b32", "v_readlane_b32"}  # VDST names an SGPR
_HIDDEN = {"encoding", "op", "seg", "literal", "x2encoding", "sd", "s0", "s1"}
_OWN_CONSTANT = {  # instructions with a literal that no source names: places it is from the end
    "v_fmamk_f32": 1,
    "v_fmaak_f32": 0,
    "v_madmk_f16": 1,
    "v_madak_f16": 0,
    "s_setreg_imm32_b32": 0,
}
_SDWA_SCALAR = {"vsrc0": "s0", "vsrc1": "s1"}  # the source is an SGPR when this bit is set
_WITH_ACCUMULATORS = {"DS", "MUBUF", TYPED, "GLOBAL", "FLAT", "SCRATCH", "VOP3P", "VOP3PX2"}
_ENCODING_NAMES = {
    "VOP1_DPP16": "VOP1_DPP",
    "VOP2_DPP16": "VOP2_DPP",
    "VOPC_SDWA_SDST": "VOPC_SDWA",
    "VOP2_SDWA_SDST": "VOP2_SDWA",
    "VOP3_SDST": "VOP3",
    "VOP3SD": "VOP3",
    "VOP3P_MFMA": "VOP3P",
}


def decode_at(code: bytes, offset: int) -> MachineInstruction:
    """Decode the instruction at `offset` of a kernel's bytes; BinaryError names what it met."""
    # The tables recognise the 16-byte scaled matrix instructions by their second half alone, which
    # fits any 8-byte instruction before an unscaled one; their prefix decides here.
    scaled = code[offset + 2 : offset + 4] == _SCALE_PREFIX
    window = code[offset : offset + (16 if scaled else 8)]
    # The first dword tells an instruction's size, so one of four bytes is known by it alone.
    decoded = _SHORT.get(window[:4]) or _decode_window(window)
    mnemonic, encoding, size, operands, modifiers = decoded
    return MachineInstruction(mnemonic, encoding, operands, modifiers, offset, size)


_Decoded = tuple[str, str, int, tuple[tuple[str, Operand], ...], tuple[tuple[str, int], ...]]
_KEPT = 65536
_SHORT: dict[bytes, _Decoded] = {}


@lru_cache(maxsize=_KEPT)
def _decode_window(window: bytes) -> _Decoded:
    decoded = _decoded(window)
    if decoded[2] == 4:
        if len(_SHORT) >= _KEPT:
            _SHORT.clear()
        # What came with another dword behind is the same one.
        decoded = _SHORT.setdefault(window[:4], decoded)
    return decoded


# What tinygrad's decoder does not know: its form, how it begins, its name, fields and widths.
_LEFT_OUT = (
    (TYPED, is_typed_buffer, typed_buffer),
    (SYNC, is_global_sync, global_sync),
)


def _decoded(window: bytes) -> _Decoded:
    for form, is_one, read in _LEFT_OUT:
        if is_one(int.from_bytes(window[:4], "little")):
            if len(window) < 8:
                raise BinaryError("the code ends inside an instruction")
            name, fields, widths = read(int.from_bytes(window[:8], "little"))
            return _plain(name, form, 8, fields, widths, set(widths))
    try:
        from tinygrad.renderer.amd import decode_inst
    except ImportError:
        raise MissingError(
            "the instruction decoder is not installed",
            hint=install("emulator"),
        ) from None
    try:
        raw: Any = decode_inst(window, "cdna")
        size = raw.size()
        name = raw.op_name.lower()
        widths = dict(raw.op_regs)
        known = set(raw.operands)
    except (ValueError, AssertionError, KeyError, AttributeError, RuntimeError) as why:
        word = int.from_bytes(window[:4], "little")
        raise BinaryError(
            f"no gfx950 instruction starts with the word {word:#010x}: {why}"
        ) from None
    if size > len(window):
        raise BinaryError("the code ends inside an instruction")
    fields = {
        field: (raw._raw >> spec.lo) & spec.mask
        for field, spec in raw._fields  # private: the public view returns tinygrad types
    }
    return _plain(name, type(raw).__name__, size, fields, widths, known)


def _plain(
    name: str,
    form: str,
    size: int,
    fields: dict[str, int],
    widths: dict[str, int],
    known: set[str],
) -> _Decoded:
    """Turn raw field values into operands and modifiers."""
    mnemonic = name.removesuffix("_e32").removesuffix("_e64")
    mnemonic = _RENAMED.get(mnemonic, mnemonic)
    encoding = form.removesuffix("_LIT")
    encoding = _ENCODING_NAMES.get(encoding, encoding)
    literal = fields.get("literal")
    if "_SDWA" in form or "_DPP" in form:
        fields = {field: value for field, value in fields.items() if field != "src0"}
        if "src0" in widths:
            widths = {**widths, "vsrc0": widths["src0"]}
            known = known | {"vsrc0"}
    if encoding == "VOPC_SDWA":
        # SD set: the mask goes to SDST instead of VCC (CDNA4 ISA guide, SDWAB format).
        if fields.get("sd"):
            known, widths = known | {"sdst"}, {**widths, "sdst": 2}
        else:
            fields = {field: value for field, value in fields.items() if field != "sdst"}
    if encoding == "SMEM" and not fields["soffset_en"] and not fields["imm"]:
        # The older form: OFFSET holds the number of the SGPR (CDNA4 ISA guide, SMEM format).
        fields = {**fields, "soffset": fields["offset"] & 0x7F, "offset": 0}
    widths = _corrected_widths(encoding, fields, widths)
    operands: list[tuple[str, Operand]] = []
    modifiers: list[tuple[str, int]] = []
    for field, value in fields.items():
        if field in _HIDDEN:
            continue
        if field in _ORDER:
            if not _is_used(encoding, mnemonic, field, fields, known):
                if mnemonic == "s_set_gpr_idx_on" and value:
                    modifiers.append((field, value))  # four bits: which operands are indexed
                continue
            width = widths.get(field, 1)
            if field == "vdst" and mnemonic in _SCALAR_RESULTS:
                operand = Operand("s", value, 1)
            elif encoding == "SCRATCH" and field == "addr" and not fields["sve"]:
                operand = Operand("off", 0)
            elif fields.get(_SDWA_SCALAR.get(field, ""), 0):
                operand = _operand(encoding, form, "src0", value, width, None)
            else:
                operand = _operand(encoding, form, field, value, width, literal)
            operands.append((field, operand))
        elif value:
            modifiers.append((field, value))
    operands.sort(key=lambda item: _ORDER[item[0]])
    if literal is not None and mnemonic in _OWN_CONSTANT:
        place = len(operands) - _OWN_CONSTANT[mnemonic]
        operands.insert(place, ("simm32", Operand("literal", literal)))
    if encoding in _WITH_ACCUMULATORS or "accvgpr" in mnemonic:
        # The accumulator bits are part of the operands' kind from here on.
        modifiers = [item for item in modifiers if item[0] not in ("acc", "acc_cd")]
        operands = _accumulators(encoding, mnemonic, fields, operands)
    return mnemonic, encoding, size, tuple(operands), tuple(modifiers)


def _corrected_widths(
    encoding: str, fields: dict[str, int], widths: dict[str, int]
) -> dict[str, int]:
    widths = dict(widths)
    if encoding == "GLOBAL":
        widths["addr"] = 2 if fields["saddr"] == _GLOBAL_NO_SADDR else 1
    if encoding == "FLAT":
        widths["addr"] = 2
    if encoding == "SCRATCH":
        widths["addr"] = 1  # an offset
    if encoding in ("MUBUF", TYPED):
        widths["vaddr"] = max(1, fields["offen"] + fields["idxen"])
    return widths


def _is_used(
    encoding: str, mnemonic: str, field: str, fields: dict[str, int], known: set[str]
) -> bool:
    """Whether a format's operand field means something for this instruction."""
    if encoding in ("MUBUF", TYPED):
        if field == "vaddr":
            return bool(fields["offen"] or fields["idxen"])
        if field == "vdata":
            return not fields.get("lds") and field in known
        return field in known
    if encoding in ("GLOBAL", "FLAT", "SCRATCH"):
        if "_load_lds_" in mnemonic and field == "vdst":
            return False
        if "atomic" in mnemonic and field == "vdst":
            return bool(fields["sc0"])
        if field == "saddr":
            return encoding != "FLAT"
        return field in known
    if encoding == "SMEM":
        if field == "soffset":
            return bool(fields["soffset_en"]) or not fields["imm"]
        return field in known
    if encoding == "SOPC" and mnemonic == "s_set_gpr_idx_on":
        return field == "ssrc0"
    if field in ("scale_src0", "scale_src1"):
        return True
    return field in known


def _operand(
    encoding: str, form: str, field: str, value: int, width: int, literal: int | None
) -> Operand:
    if field in ("sbase", "srsrc"):
        return Operand("s", value << (1 if field == "sbase" else 2), width)
    if encoding == "SMEM" and field == "soffset":
        return Operand("s", value, 1)
    if field == "saddr":
        count = 1 if encoding == "SCRATCH" else 2
        return Operand("off", 0) if value == _GLOBAL_NO_SADDR else Operand("s", value, count)
    if field == "vdst" and form == "VOP3_SDST":
        return Operand("s", value, width)
    if field in _VECTOR_FIELDS:
        if field == "vsrc1" or field == "vsrc0" or value < 256:
            return Operand("v", value & 0xFF, width)
        return Operand("v", value - 256, width)
    if field in _SCALAR_FIELDS:
        return Operand("s", value, width)
    # A source: register, constant or literal (CDNA4 ISA guide, operand codes).
    if value >= 256:
        return Operand("v", value - 256, width)
    if value < 128:
        return Operand("s", value, width)
    if value == 255:
        if literal is None:
            raise BinaryError(f"a {encoding} instruction names a literal it does not carry")
        return Operand("literal", literal, width)
    if 128 <= value <= 208 or 240 <= value <= 248:
        return Operand("inline", value, width)
    if value == 253:
        return Operand("s", 128, 1)
    raise BinaryError(f"operand code {value} of a {encoding} instruction is not modelled")


def _accumulators(
    encoding: str, mnemonic: str, fields: dict[str, int], operands: list[tuple[str, Operand]]
) -> list[tuple[str, Operand]]:
    """Mark the operands that the ACC bits turn into accumulation registers (CDNA4 ISA guide)."""
    acc = fields.get("acc", 0)
    acc_cd = fields.get("acc_cd", 0)
    moves = mnemonic.startswith("v_accvgpr")
    if encoding == "VOP3P" and "acc_cd" not in fields and not moves:
        return operands
    result = []
    for field, operand in operands:
        is_acc = False
        if operand.kind == "v":
            if encoding in ("VOP3P", "VOP3PX2") or moves:
                if mnemonic == "v_accvgpr_mov_b32":
                    is_acc = True
                elif mnemonic == "v_accvgpr_read_b32":
                    is_acc = field == "src0"
                elif mnemonic == "v_accvgpr_write_b32":
                    is_acc = field == "vdst"
                elif field == "src0":
                    is_acc = bool(acc & 1)
                elif field == "src1":
                    is_acc = bool(acc & 2)
                elif field in ("vdst", "src2"):
                    is_acc = bool(acc_cd)
            else:
                is_acc = bool(acc) and field in ("vdst", "vdata", "data", "data0", "data1")
        result.append((field, Operand("a", operand.index, operand.count) if is_acc else operand))
    return result
