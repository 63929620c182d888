"""Mutants of values: instructions that compute something else, as a wrong template would have it.

One instruction, one constant, one operand, or one printed copy of an operation: the others of the
unrolled loop stay right. Waits, barriers, wait states and priorities are left alone, so that what
is asked is whether the *result* is looked at closely enough.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlagen.mutation.gfx950.listing import InstructionLine, Listing
from mlagen.mutation.gfx950.mutant import Mutant, mutant, replaced

Extent = tuple[str, str, int, int]  # file, name of a block, first register of it, how many

_LEFT_ALONE = ("s_nop", "s_waitcnt", "s_barrier", "s_setprio", "s_endpgm", "s_branch")
_REGISTER = re.compile(r"([vas])\[(\w+)(?:\+(\d+))?(?::\w+(?:\+(\d+))?)?\]")
_OFFSET = re.compile(r" offset:(\d+)")
_SELECT = re.compile(r" (op_sel(?:_hi)?):\[([01,]+)\]")
_NEGATE = re.compile(r" (neg_lo|neg_hi):\[([01,]+)\]")
_TEMPLATE = re.compile(r" \S+\.j2:\d+$")  # after an operation's name
_STEP = 16  # bytes: what one lane reads, fetches or stores at once
_AHEAD, _CHOICES = 200, 8  # instructions looked at for registers that are alive, and those taken
_MOST_OFFSET = {"ds_": 65535, "buffer_": 4095}  # CDNA4 ISA guide, DS and MUBUF formats

# Instructions of the same operands that are confused with each other.
_NEIGHBOURS = {
    "v_max_f32": "v_min_f32", "v_max3_f32": "v_min3_f32", "v_min_i32": "v_max_i32",
    "v_min_u32": "v_max_u32", "s_min_i32": "s_max_i32", "s_max_i32": "s_min_i32",
    "s_min_u32": "s_max_u32", "v_add_f32": "v_sub_f32", "v_sub_f32": "v_add_f32",
    "v_mul_f32": "v_add_f32", "v_pk_add_f32": "v_pk_mul_f32", "v_pk_mul_f32": "v_pk_add_f32",
    "v_exp_f32": "v_log_f32", "v_log_f32": "v_exp_f32", "v_rcp_f32": "v_rsq_f32",
    "v_add_u32": "v_sub_u32", "v_sub_u32": "v_add_u32", "v_subrev_u32": "v_sub_u32",
    "v_and_b32": "v_or_b32", "v_or_b32": "v_and_b32", "v_xor_b32": "v_and_b32",
    "v_lshlrev_b32": "v_lshrrev_b32", "v_lshrrev_b32": "v_lshlrev_b32",
    "s_add_u32": "s_sub_u32", "s_sub_u32": "s_add_u32", "s_addc_u32": "s_subb_u32",
    "s_mul_i32": "s_add_i32", "s_mul_hi_u32": "s_mul_i32", "s_and_b32": "s_or_b32",
    "s_lshl_b32": "s_lshr_b32", "s_lshr_b32": "s_lshl_b32", "s_lshl_b64": "s_lshr_b64",
    "s_cselect_b64": "s_and_b64", "v_cmp_gt_i32": "v_cmp_lt_i32", "v_cmp_lt_i32": "v_cmp_gt_i32",
    "v_cmp_gt_u32": "v_cmp_lt_u32", "v_cmp_lt_f32": "v_cmp_gt_f32", "v_cmp_eq_f32": "v_cmp_lg_f32",
    "s_cmp_eq_u32": "s_cmp_lg_u32", "s_cmp_lg_u32": "s_cmp_eq_u32", "s_cmp_le_u32": "s_cmp_lt_u32",
    "s_cmp_ge_u32": "s_cmp_gt_u32", "s_cmp_lt_u32": "s_cmp_le_u32", "s_cmp_eq_u64": "s_cmp_lg_u64",
    "s_cmp_lg_u64": "s_cmp_eq_u64", "v_mul_lo_u32": "v_mul_hi_u32",
    "v_cvt_pk_fp8_f32": "v_cvt_pk_bf8_f32", "ds_read_b64_tr_b16": "ds_read_b64_tr_b8",
    "ds_read_b64_tr_b8": "ds_read_b64_tr_b16",
}  # fmt: skip
_BITWISE = ("v_and", "v_or", "v_xor", "s_and", "s_or")
_LANES = {"v_permlane32_swap_b32": "v_permlane16_swap_b32"}


def value_mutants(listing: Listing) -> Iterator[Mutant]:
    """Every instruction that computes, moves or chooses, in each way that its form has; then each
    printed copy of each operation, and of what a branch guards."""
    order = list(listing.lines.values())
    used = [_registers(line) for line in order]
    for at, line in enumerate(order):
        if line.mnemonic in _LEFT_ALONE:
            continue
        for operator, what, code in _changes(order, used, at):
            yield _mutant(listing, operator, what, line, code)
        if not line.mnemonic.startswith("s_cbranch"):
            yield _mutant(listing, "dropped", line.code, line, "s_nop 0")
    yield from _operations(listing, order)
    yield from _branches(listing, order)


def _mutant(listing: Listing, operator: str, what: str, line: InstructionLine, code: str) -> Mutant:
    return replaced(listing, "values", operator, what, line, code, touches=line.operation)


def _changes(
    order: Sequence[InstructionLine], used: Sequence[_Registers], at: int
) -> Iterator[tuple[str, str, str]]:
    """(operator, what, code) of each way to change one instruction."""
    line = order[at]
    code, mnemonic = line.code, line.mnemonic
    if mnemonic.startswith("s_cbranch"):
        return
    given, tail = split(code)
    # What is stored has no destination; of all others the first operand is one.
    first_source = 0 if _has_no_destination(line) else 1
    for index in range(first_source, len(given)):
        old = given[index]
        for value in _other_constants(old, bits=mnemonic.startswith(_BITWISE)):
            yield "constant", f"{old} -> {value}", join(mnemonic, given, index, value, tail)
        if other := _other_register(order, used, at, old):
            yield "register", f"{old} -> {other}", join(mnemonic, given, index, other, tail)
    if found := _OFFSET.search(tail):
        offset = int(found[1])
        most = next((n for name, n in _MOST_OFFSET.items() if mnemonic.startswith(name)), 0)
        moved = offset + _STEP if offset + _STEP <= most else offset - _STEP
        if moved >= 0:
            changed = tail.replace(found[0], f" offset:{moved}")
            yield "offset", f"{offset} -> {moved}", join(mnemonic, given, 0, given[0], changed)
    for operator, pattern in (("lane", _SELECT), ("sign", _NEGATE)):
        for found in pattern.finditer(tail):
            bits = found[2].split(",")
            for index in range(len(bits)):
                flipped = [*bits[:index], str(1 - int(bits[index])), *bits[index + 1 :]]
                text = f" {found[1]}:[{','.join(flipped)}]"
                changed = tail[: found.start()] + text + tail[found.end() :]
                what = f"{found[0].strip()} ->{text}"
                yield operator, what, f"{mnemonic} {', '.join(given)}{changed}"
    for operator, table in (("opcode", _NEIGHBOURS), ("lane", _LANES)):
        if other := table.get(mnemonic, ""):
            yield operator, f"{mnemonic} -> {other}", code.replace(mnemonic, other, 1)


def split(code: str) -> tuple[list[str], str]:
    """The operands of an instruction, and the modifiers after them (with their space)."""
    rest = code.partition(" ")[2]
    given = [part.strip() for part in re.split(r",\s*(?![^\[]*\])", rest)]
    last, space, tail = given[-1].partition(" ")
    return [*given[:-1], last], space + tail


def join(mnemonic: str, given: Sequence[str], index: int, operand: str, tail: str) -> str:
    """The instruction with one operand replaced."""
    changed = [*given[:index], operand, *given[index + 1 :]]
    return f"{mnemonic} {', '.join(changed)}{tail}"


def _has_no_destination(line: InstructionLine) -> bool:
    lds = line.code.endswith(" lds") or "load_lds" in line.mnemonic
    return lds or line.mnemonic.startswith(("buffer_store", "global_store", "s_cmp"))


def _other_constants(text: str, *, bits: bool) -> Iterator[str]:
    """One up, and the highest bit flipped; of a float's bits, twice or half the value. Of masks of
    bits, the lowest and the highest that are set."""
    try:
        value = int(text, 0)
    except ValueError:
        return
    if text.startswith("0x") and len(text) == 10:  # the bits of a float
        single = struct.unpack("<f", struct.pack("<I", value))[0]
        if value in (0xFF800000, 0x7F800000):
            yield hex(value ^ 0x80000000)
        elif abs(single) > 1e-30:
            yield hex(value ^ 0x00800000)
            return
    lowest = value & -value
    yield str(value ^ lowest if bits and value > 0 else value + 1)
    if value > 1 and (not bits or value != lowest):
        yield str(value ^ 1 << value.bit_length() - 1)


@dataclass(frozen=True, slots=True)
class _Registers:
    """What an instruction writes and reads: operands as they are written, with their extents."""

    writes: Extent | None
    reads: tuple[tuple[str, Extent], ...]


def _registers(line: InstructionLine) -> _Registers:
    given, _ = split(line.code) if " " in line.code else ([], "")
    found = [(operand, extent) for operand in given if (extent := _extent(operand))]
    if _has_no_destination(line) or not found or found[0][0] != given[0]:
        return _Registers(None, tuple(found))
    return _Registers(found[0][1], tuple(found[1:]))


def _other_register(
    order: Sequence[InstructionLine], used: Sequence[_Registers], at: int, operand: str
) -> str:
    """Another register of the same file and width that is alive there: later code reads it
    before anything writes it. "": there is none."""
    wanted = _extent(operand)
    if wanted is None:
        return ""
    written: set[tuple[str, str, int]] = set()
    found: dict[str, None] = {}
    for line, registers in zip(order[at + 1 : at + _AHEAD], used[at + 1 :], strict=False):
        if line.section != order[at].section or line.role != order[at].role:
            break
        for source, extent in registers.reads:
            alike = (extent[0], extent[3]) == (wanted[0], wanted[3])
            if alike and source != operand and not written & _units(extent):
                found[source] = None
        if registers.writes:
            written |= _units(registers.writes)
        if len(found) >= _CHOICES:
            break
    return random.Random(f"{at} {operand}").choice(list(found)) if found else ""


def _extent(operand: str) -> Extent | None:
    """File, name, first index and count of a register operand."""
    match = _REGISTER.fullmatch(operand)
    if match is None:
        return None
    first = int(match[3] or 0)
    ranged = ":" in operand
    last = int(match[4] or 0) if ranged else first
    return match[1], match[2], first, last - first + 1


def _units(extent: Extent) -> set[tuple[str, str, int]]:
    file, name, first, count = extent
    return {(file, name, index) for index in range(first, first + count)}


def _operations(listing: Listing, order: Sequence[InstructionLine]) -> Iterator[Mutant]:
    """Each printed copy of an operation left out: what synchronises and branches stays."""
    copies: dict[tuple[int, str], list[InstructionLine]] = {}
    for line in order:
        kept = line.mnemonic in _LEFT_ALONE or line.mnemonic.startswith("s_cbranch")
        if line.block >= 0 and not kept and "(" in line.operation:
            named = _TEMPLATE.sub("", line.operation)
            copies.setdefault((line.block, named), []).append(line)
    for (_, operation), lines in copies.items():
        edits: dict[int, tuple[str, ...]] = {line.number: ("  s_nop 0",) for line in lines}
        yield mutant(listing, "values", "operation dropped", operation, lines[0].number, edits,
                     touches=operation)  # fmt: skip


def _branches(listing: Listing, order: Sequence[InstructionLine]) -> Iterator[Mutant]:
    """Guarded code never entered, in one copy; a branch that goes the other way."""
    for line in order:
        if not line.mnemonic.startswith("s_cbranch_scc"):
            continue
        target = line.code.split()[1]
        label = listing.labels[target]
        later = [other for other in order if other.number > label]
        if later and later[0].section == line.section and label > line.number:
            yield _mutant(listing, "guarded code skipped", target, line, f"s_branch {target}")
        turned = "s_cbranch_scc0" if line.mnemonic.endswith("1") else "s_cbranch_scc1"
        what = f"{line.mnemonic} -> {turned}"
        yield _mutant(listing, "branch reversed", what, line, f"{turned} {target}")
