"""The object against the text: instruction by instruction, immediates included.

An assembler may take a number and encode another one: LLVM cuts the offset of a buffer access to
its 12 bits without a word. What was proved is the text, so each build reads the words of its object
with `encoding` and holds them against what is printed: mnemonic, registers, constants, every
modifier and immediate, and where branches go.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

from mlagen.errors import TemplateError
from mlagen.targets.gfx950.codegen.encoding import (
    OFF,
    TWO_RESULTS,
    EncodedInstruction,
    Register,
    UnknownError,
    float_bits,
    read,
    size_of,
)
from mlagen.targets.gfx950.codegen.isa import split_operands
from mlagen.targets.gfx950.codegen.program import ProgramInstruction
from mlagen.targets.gfx950.limits import GFX950

_LIST = re.compile(r"^(\w+):\[([\d,]+)\]$")
_COUNT = re.compile(r"(vmcnt|expcnt|lgkmcnt)\((\w+)\)")
_FLAGS = frozenset({"offen", "idxen", "lds", "sc0", "sc1", "nt", "glc", "gds", "clamp"})
_NUMBERS = frozenset({"offset", "offset0", "offset1", "cbsz", "abid", "blgp"})
# DPP_CTRL by the control's name; what follows the name is added (CDNA4 ISA, DPP).
_CROSSINGS = {
    "row_shl": 0x100, "row_shr": 0x110, "row_ror": 0x120, "wave_shl": 0x12F, "wave_rol": 0x133,
    "wave_shr": 0x137, "wave_ror": 0x13B, "row_mirror": 0x140, "row_half_mirror": 0x141,
    "row_newbcast": 0x150,
}  # fmt: skip
_BROADCASTS = {15: 0x142, 31: 0x143}
_OMOD = {"mul:2": 1, "mul:4": 2, "div:2": 3}
# What the hardware reads of SIMM16 (CDNA4 ISA, SOPP); the assembler takes any 16 bits.
_MOST = {"s_nop": 15, "s_setprio": 3}
# Offsets that fit, by what mnemonics begin with; the ISA guide's formats MUBUF, DS, FLAT and SMEM.
_OFFSETS = {
    "buffer_": "0 to 4095", "ds_": "0 to 65535 (0 to 255 where there are two)",
    "global_": "-4096 to 4095", "scratch_": "-4096 to 4095", "flat_": "0 to 4095",
    "s_": "-1048576 to 1048575",
}  # fmt: skip
CUT = "a number that does not fit its field was cut"
_SHORT_CONSTANT = frozenset({"s_movk_i32", "s_addk_i32", "s_mulk_i32"})


class _Unreadable(Exception):
    """Text that this module does not understand."""


def check_object(code: bytes, printed: Iterable[ProgramInstruction], schedule: str) -> None:
    """TemplateError for the first instruction that the code object has otherwise than it is
    printed, at the lines that made it. `printed`: the whole program, labels included."""
    text = code_of(code)
    places: dict[str, int] = {}
    branches: list[tuple[ProgramInstruction, int, int]] = []
    seen: dict[tuple[str, bytes], int] = {}
    at = 0
    for x in printed:
        if x.pipe == "label":
            places[x.target] = at
            continue
        if at >= len(text):
            raise _differs(x, "the object ends before it", schedule)
        size = size_of(text, at)
        raw = text[at : at + size]
        key = (x.text, raw)
        immediate = seen.get(key)
        if immediate is None:
            immediate = seen[key] = _compared(x, raw, schedule)
        if x.target:
            branches.append((x, at, immediate))
        at += size
    if at != len(text):
        last = f"{len(text) - at} bytes more than the text"
        raise TemplateError(f"the object has {last}: the assembler added instructions")
    for x, pc, distance in branches:
        signed = distance - 0x10000 if distance & 0x8000 else distance
        goes = pc + 4 + 4 * signed
        if places.get(x.target) != goes:
            raise _differs(x, f"it goes to byte {goes:#x}, not to {x.target}", schedule)


def code_of(code: bytes) -> bytes:
    """The instructions of a code object with one kernel, as our linker lays them out: the bytes of
    its only function."""
    return bytes_of(code, 2, "function: the kernel's symbol is missing")  # STT_FUNC


def bytes_of(code: bytes, kind_of_symbol: int, what: str) -> bytes:
    """The bytes of the only symbol of that kind (ELF-64 object file format); TemplateError where
    there is no `what`."""
    (sections,) = struct.unpack_from("<Q", code, 40)
    entry, count = struct.unpack_from("<HH", code, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", code, sections + entry * n) for n in range(count)]
    for _, kind, _, _, start, size, _, _, _, _ in headers:
        if kind != 11:  # SHT_DYNSYM
            continue
        for place in range(start, start + size, 24):
            _, info, _, index, address, length = struct.unpack_from("<IBBHQQ", code, place)
            if info & 15 == kind_of_symbol and index < count:
                begin = headers[index][4] + address - headers[index][3]
                return code[begin : begin + length]
    raise TemplateError(f"the object has no {what}")


def _compared(x: ProgramInstruction, raw: bytes, schedule: str) -> int:
    """The immediate of the encoded instruction, which agrees with the text."""
    try:
        found = read(raw)
    except UnknownError:
        raise _differs(x, f"the object has {raw.hex()} there, no known form", schedule) from None
    try:
        wanted = expected(x)
    except _Unreadable as why:
        raise _differs(x, f"its {why} cannot be compared with the object", schedule) from None
    most = _MOST.get(x.mnemonic)
    if most is not None and wanted.immediate > most:
        hint = f"{x.mnemonic} takes 0 to {most}"
        raise _differs(x, f"the hardware reads at most {most} of it", schedule, hint)
    if found.mnemonic != wanted.mnemonic:
        raise _differs(x, f"the object has {found.mnemonic}", schedule)
    for number, (a, b) in enumerate(zip(wanted.operands, found.operands, strict=False), 1):
        if a != b:
            raise _differs(x, f"operand {number} is {_shown(b)} in the object", schedule)
    if len(wanted.operands) != len(found.operands):
        raise _differs(x, f"the object has {len(found.operands)} operands", schedule)
    for name in sorted({*wanted.modifiers, *found.modifiers}):
        value = found.modifiers.get(name, 0)
        if wanted.modifiers.get(name, 0) != value:
            hint = _offsets_of(x) if name.startswith("offset") else ""
            raise _differs(x, f"{name} is {value} in the object", schedule, hint)
    if not x.target and wanted.immediate != found.immediate:
        raise _differs(x, f"its immediate is {found.immediate:#x} in the object", schedule, CUT)
    return found.immediate


def _offsets_of(x: ProgramInstruction) -> str:
    """The hint where an offset of the instruction was cut."""
    for start, fits in _OFFSETS.items():
        if x.mnemonic.startswith(start):
            return f"an offset that does not fit its field was cut: {x.mnemonic} takes {fits}"
    return CUT


def _differs(x: ProgramInstruction, what: str, schedule: str, hint: str = "") -> TemplateError:
    origin = x.origin
    where, asked = "", f"{schedule}:1"
    if origin is not None:
        where = f"{origin.template}:{origin.template_line}: " if origin.template else ""
        asked = f"{schedule}:{origin.schedule_line}, {origin.operation}"
    return TemplateError(
        f"{where}the object is not the text: {x.text}: {what} ({asked})",
        hint=hint,
    )


def _shown(operand: Register) -> str:
    kind, value = operand
    if kind == "off":
        return "off"
    if kind == "c":
        return f"{value:#x}"
    file, base = next((f, b) for f, b in (("s", 1000), ("a", 256), ("v", 0)) if value >= b)
    return f"{file}{value - base}"


# ---- the text ------------------------------------------------------------------------------------


def expected(x: ProgramInstruction) -> EncodedInstruction:
    """What the printed instruction must be encoded as."""
    _, _, rest = x.text.partition(" ")
    if x.pipe == "wait":
        return EncodedInstruction(x.mnemonic, (), {}, _wait(rest))
    parts, tail = split_operands(rest)
    if x.pipe == "branch":
        return EncodedInstruction(x.mnemonic, (), {})
    if x.mnemonic in _MOST:
        return EncodedInstruction(x.mnemonic, (), {}, int(parts[0], 0))
    if x.mnemonic in _SHORT_CONSTANT:
        value = _constant(parts[1])
        if 0x8000 <= value < 0x10000:
            raise _Unreadable(f"number {parts[1]}, which its 16 bits make negative,")
        if 0x10000 <= value < 0xFFFF8000:
            raise _Unreadable(f"number {parts[1]}, which has more than 16 bits,")
        return EncodedInstruction(x.mnemonic, (("r", x.operands[0][0]),), {}, value & 0xFFFF)
    modifiers: dict[str, int] = {}
    operands: list[Register] = []
    first_source = len(parts) - _count_sources(x)
    for number, (part, registers) in enumerate(zip(parts, x.operands, strict=True)):
        if part == "off":
            operands.append(OFF)
            continue
        bare = part
        if registers:
            if bare.startswith("-"):
                modifiers["neg"] = modifiers.get("neg", 0) | 1 << number - first_source
                bare = bare[1:]
            if bare.startswith("|"):
                modifiers["abs"] = modifiers.get("abs", 0) | 1 << number - first_source
            operands.append(("r", registers[0]))
        else:
            operands.append(("c", _constant(part)))
    for word in tail:
        _modifier(word, x, len(parts) - first_source, modifiers)
    return EncodedInstruction(
        x.mnemonic, tuple(operands), {k: v for k, v in modifiers.items() if v}
    )


def _count_sources(x: ProgramInstruction) -> int:
    """Operands of a vector instruction that are no results."""
    results = 2 if x.mnemonic in TWO_RESULTS else 1
    return len(x.operands) - results


def _wait(rest: str) -> int:
    counts = {"vmcnt": GFX950.vmcnt_max, "expcnt": 7, "lgkmcnt": GFX950.lgkmcnt_max}
    full = dict(counts)
    for name, value in _COUNT.findall(rest):
        counts[name] = int(value, 0)
    if any(counts[name] > full[name] for name in full):
        raise _Unreadable("count")
    vm = counts["vmcnt"]
    return vm & 15 | counts["expcnt"] << 4 | counts["lgkmcnt"] << 8 | vm >> 4 << 14


def _constant(part: str) -> int:
    """32 bits of a number as the assembler reads it: an integer, or an fp32 number."""
    try:
        value = int(part, 0)
    except ValueError:
        try:
            return float_bits(float(part))
        except (OverflowError, ValueError):
            raise _Unreadable(f"number {part}") from None
    if not -(1 << 31) <= value < 1 << 32:
        raise _Unreadable(f"number {part}, which has more than 32 bits,")
    return value & 0xFFFFFFFF


def _modifier(word: str, x: ProgramInstruction, sources: int, modifiers: dict[str, int]) -> None:
    name, _, value = word.partition(":")
    if word in _FLAGS:
        modifiers[word] = 1
    elif word in _OMOD:
        modifiers["omod"] = _OMOD[word]
    elif name in _NUMBERS and value:
        modifiers[name] = int(value, 0)
    elif name in ("row_mask", "bank_mask"):
        modifiers["rows" if name == "row_mask" else "banks"] = 15 ^ int(value, 0)
    elif name == "bound_ctrl":
        modifiers["bc"] = 1  # the assembler sets the bit for 0 and for 1
    elif name in _CROSSINGS or name in ("row_bcast", "quad_perm"):
        modifiers["dpp"] = 1
        modifiers["ctrl"] = _crossing(name, value)
    elif listed := _LIST.match(word):
        bits = [int(bit) for bit in listed[2].split(",")]
        packed = x.mnemonic.startswith("v_pk_")
        if name == "op_sel" and not packed and len(bits) == sources + 1:
            bits = [*bits[:-1], *[0] * (3 - sources), bits[-1]]  # the last is the result's
        number = sum(bit << at for at, bit in enumerate(bits))
        modifiers[name] = number ^ ((1 << sources) - 1) if name == "op_sel_hi" else number
    else:
        raise _Unreadable(f"modifier {word!r}")


def _crossing(name: str, value: str) -> int:
    """DPP_CTRL."""
    if name == "quad_perm":
        lanes = [int(lane, 0) for lane in value.strip("[]").split(",")]
        return sum(lane << 2 * at for at, lane in enumerate(lanes))
    if name == "row_bcast":
        return _BROADCASTS[int(value, 0)]
    return _CROSSINGS[name] + (int(value, 0) if value else 0)
