"""The generator's instruction table for gfx950: what each instruction reads, writes and counts on.

Source: CDNA4 ISA guide (operand roles, SCC and VCC effects, counters); MFMA passes from AMD's
CDNA4 matrix-core figures. A rendered line that is not in this table is refused, so a template
cannot emit what the proof and the padding do not understand.

A form lists operands left to right: w written, r read, b both, i immediate; `>` separates implicit
effects: scc, vcc, m0, exec with = for written, nothing for read.

A mnemonic may be written with the assembler's suffix of its encoding (_e32, _e64, _dpp). The forms
of SDWA, which address bytes of a register, are in no table here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from mlagen.errors import TemplateError
from mlagen.targets.gfx950.codegen import dpp
from mlagen.targets.gfx950.codegen.program import Origin, Pipe, ProgramInstruction

AGPR, SGPR = 256, 1000  # register ids of a0 and of s0; v0 is 0
_FIRST = {"v": 0, "a": AGPR, "s": SGPR}
VCC, M0, EXEC, SCC = (SGPR + 106, SGPR + 107), (SGPR + 124,), (SGPR + 126, SGPR + 127), (1300,)
_SPECIAL = {
    "vcc": VCC,
    "m0": M0,
    "exec": EXEC,
    "scc": SCC,
    "vcc_lo": VCC[:1],
    "vcc_hi": VCC[1:],
    "off": (),
}


@dataclass(frozen=True, slots=True)
class Spec:
    """Effects of one mnemonic."""

    pipe: Pipe
    form: str
    counter: str = ""
    passes: int = 0
    dpp: bool = False  # it has a DPP form: VOP1 and VOP2, no compares (LLVM's assembler)


def _table() -> dict[str, Spec]:
    table: dict[str, Spec] = {}

    def add(
        pipe: Pipe, form: str, names: str, counter: str = "", passes: int = 0, dpp: bool = False
    ) -> None:
        for name in names.split():
            table[name] = Spec(pipe, form, counter, passes, dpp)

    add("scalar", "w r", "s_mov_b32 s_mov_b64 s_brev_b32 s_ff1_i32_b32 s_ff1_i32_b64")
    add("scalar", "w r", "s_flbit_i32_b32 s_sext_i32_i8 s_sext_i32_i16")
    add("scalar", "w r > scc=", "s_not_b32 s_not_b64 s_abs_i32 s_bcnt1_i32_b32 s_bcnt1_i32_b64")
    add("scalar", "w i", "s_movk_i32")
    add("scalar", "b i > scc=", "s_addk_i32")
    add("scalar", "b i", "s_mulk_i32")
    add(
        "scalar",
        "w r r > scc=",
        "s_add_u32 s_sub_u32 s_add_i32 s_sub_i32 s_and_b32 s_or_b32 s_xor_b32 s_andn2_b32 "
        "s_orn2_b32 s_nand_b32 s_nor_b32 s_xnor_b32 s_lshl_b32 s_lshr_b32 s_ashr_i32 s_lshl_b64 "
        "s_lshr_b64 s_ashr_i64 s_min_u32 s_min_i32 s_max_u32 s_max_i32 s_and_b64 s_or_b64 "
        "s_xor_b64 s_andn2_b64 s_orn2_b64 s_bfe_u32 s_bfe_i32 s_lshl1_add_u32 s_lshl2_add_u32 "
        "s_lshl3_add_u32 s_lshl4_add_u32",
    )
    add("scalar", "w r r > scc scc=", "s_addc_u32 s_subb_u32")
    add("scalar", "w r r", "s_mul_i32 s_mul_hi_u32 s_mul_hi_i32 s_bfm_b32 s_bfm_b64")
    add("scalar", "w r r", "s_pack_ll_b32_b16 s_pack_lh_b32_b16 s_pack_hh_b32_b16")
    add("scalar", "w r r > scc", "s_cselect_b32 s_cselect_b64")
    add(
        "scalar",
        "r r > scc=",
        "s_cmp_eq_u32 s_cmp_lg_u32 s_cmp_lt_u32 s_cmp_le_u32 s_cmp_gt_u32 "
        "s_cmp_ge_u32 s_cmp_eq_u64 s_cmp_lg_u64 s_cmp_eq_i32 s_cmp_lg_i32 s_cmp_lt_i32 "
        "s_cmp_le_i32 s_cmp_gt_i32 s_cmp_ge_i32 s_bitcmp0_b32 s_bitcmp1_b32",
    )
    add("branch", "i > scc", "s_cbranch_scc0 s_cbranch_scc1")
    add("branch", "i > vcc", "s_cbranch_vccz s_cbranch_vccnz")
    add("branch", "i", "s_branch")
    add("branch", "", "s_endpgm")
    add("scalar", "i", "s_setprio s_nop")
    add("barrier", "", "s_barrier")
    # The offset of a scalar load is a constant or a scalar register.
    add("smem", "w r r", "s_load_dword s_load_dwordx2 s_load_dwordx4 s_load_dwordx8", "lgkm")
    add(
        "vector",
        "w r",
        "v_mov_b32 v_not_b32 v_bfrev_b32 v_ffbh_u32 v_ffbl_b32 v_trunc_f32 v_ceil_f32 v_rndne_f32 "
        "v_floor_f32 v_fract_f32 v_cvt_f32_i32 v_cvt_f32_u32 v_cvt_i32_f32 v_cvt_u32_f32 "
        "v_cvt_f32_ubyte0 v_cvt_f32_ubyte1 v_cvt_f32_ubyte2 v_cvt_f32_ubyte3 v_cvt_f16_f32 "
        "v_cvt_f32_f16 v_cvt_f32_bf16 v_cvt_f32_fp8 v_cvt_f32_bf8",
        dpp=True,
    )
    add("vector", "w r", "v_readfirstlane_b32 v_mov_b64")
    add("vector", "w r r", "v_readlane_b32")  # the last says which lane
    add("vector", "b r r", "v_writelane_b32")
    # From and to the accumulation registers, which no other vector instruction takes.
    add("vector", "w r", "v_accvgpr_read_b32 v_accvgpr_write_b32")
    add(
        "vector",
        "w r r",
        "v_add_f32 v_sub_f32 v_subrev_f32 v_mul_f32 v_max_f32 v_min_f32 v_add_u32 v_sub_u32 "
        "v_subrev_u32 v_and_b32 v_or_b32 v_xor_b32 v_xnor_b32 v_lshlrev_b32 v_lshrrev_b32 "
        "v_ashrrev_i32 v_mul_i32_i24 v_mul_u32_u24 v_min_u32 v_max_u32 v_min_i32 v_max_i32",
        dpp=True,
    )
    add("vector", "b r r", "v_fmac_f32", dpp=True)
    add(
        "vector",
        "w r r",
        "v_mul_lo_u32 v_mul_hi_u32 v_mul_hi_i32 v_ldexp_f32 v_bfm_b32 v_bcnt_u32_b32 "
        "v_mbcnt_lo_u32_b32 v_mbcnt_hi_u32_b32 v_cvt_pk_bf16_f32 v_cvt_pk_f16_f32 "
        "v_cvt_pkrtz_f16_f32 v_pk_add_f32 v_pk_mul_f32 v_lshlrev_b64 v_lshrrev_b64 v_ashrrev_i64",
    )
    add(
        "vector",
        "w r r r",
        "v_max3_f32 v_min3_f32 v_med3_f32 v_min3_i32 v_max3_i32 v_med3_i32 v_min3_u32 v_max3_u32 "
        "v_med3_u32 v_fma_f32 v_pk_fma_f32 v_add3_u32 v_lshl_add_u32 v_add_lshl_u32 v_lshl_or_b32 "
        "v_and_or_b32 v_or3_b32 v_xad_u32 v_bfe_u32 v_bfe_i32 v_bfi_b32 v_perm_b32 v_alignbit_b32 "
        "v_alignbyte_b32 v_mad_i32_i24 v_mad_u32_u24 v_lshl_add_u64",
    )
    add("vector", "w r r r", "v_cndmask_b32", dpp=True)  # the last is a lane mask
    # Lane masks of carries: the second is written, the last of five is read.
    add("vector", "w w r r", "v_add_co_u32 v_sub_co_u32 v_subrev_co_u32", dpp=True)
    add("vector", "w w r r r", "v_addc_co_u32 v_subb_co_u32 v_subbrev_co_u32", dpp=True)
    add(
        "vector",
        "w r r",
        " ".join(
            f"v_cmp_{op}_{kind}"
            for kind in ("f32", "i32", "u32")
            for op in ("lt", "le", "gt", "ge", "eq", "lg" if kind == "f32" else "ne")
        ),
    )
    add("vector", "w r r", "v_cmp_o_f32 v_cmp_u_f32 v_cmp_neq_f32 v_cmp_class_f32")
    add("vector", "w w r r r", "v_mad_u64_u32")  # the second is the carry's lane mask
    # Four e4m3 numbers have two halves: op_sel picks one, which becomes two bf16.
    add("vector", "w r r", "v_cvt_scalef32_pk_bf16_fp8")
    add("vector", "w r r", "v_cvt_scalef32_pk_f32_fp8")  # the same, two fp32
    # Writes one half of its register, which op_sel picks, and keeps the other.
    add("vector", "b r r", "v_cvt_pk_fp8_f32 v_cvt_pk_bf8_f32")
    add("vector", "b b", "v_permlane32_swap_b32 v_permlane16_swap_b32 v_swap_b32")
    add(
        "transcendental",
        "w r",
        "v_exp_f32 v_log_f32 v_rcp_f32 v_rsq_f32 v_sqrt_f32 v_sin_f32 v_cos_f32",
        dpp=True,
    )
    add("matrix", "w r r r", "v_mfma_f32_32x32x16_bf16", passes=8)
    add("matrix", "w r r r", "v_mfma_f32_16x16x32_bf16 v_mfma_f32_16x16x32_fp8_fp8", passes=4)
    # 16 passes where an operand has 8-bit elements, which these have: cbsz and blgp are 0 (e4m3).
    add("matrix", "w r r r", "v_mfma_f32_32x32x64_f8f6f4", passes=16)
    add(
        "lds",
        "w r",
        "ds_read_u8 ds_read_u16 ds_read_i8 ds_read_i16 ds_read_b32 ds_read_b64 ds_read_b128 "
        "ds_read2_b32 ds_read2_b64 ds_read_b64_tr_b16 ds_read_b64_tr_b8",
        "lgkm",
    )
    add("lds", "r r", "ds_write_b8 ds_write_b16 ds_write_b32 ds_write_b64 ds_write_b128", "lgkm")
    add("lds", "r r r", "ds_write2_b32 ds_write2_b64", "lgkm")
    # A lane's number from another lane, by way of the LDS unit; no LDS is touched.
    add("lds", "w r r", "ds_bpermute_b32 ds_permute_b32", "lgkm")
    add("lds", "w r", "ds_swizzle_b32", "lgkm")
    # Lane's offset and scalar base, or lane's address and "off".
    sizes = ("ubyte", "sbyte", "ushort", "sshort", "dword", "dwordx2", "dwordx3", "dwordx4")
    stored = ("byte", "short", "dword", "dwordx2", "dwordx3", "dwordx4")
    add("vmem", "w r r", " ".join(f"global_load_{size}" for size in sizes), "vm")
    add("vmem", "r r r", " ".join(f"global_store_{size}" for size in stored), "vm")
    add(
        "vmem", "r i > m0", "global_load_lds_dword global_load_lds_dwordx4", "vm"
    )  # lane's address, "off"
    add("vmem", "w r r r", " ".join(f"buffer_load_{size}" for size in sizes), "vm")
    add("vmem", "r r r r", " ".join(f"buffer_store_{size}" for size in stored), "vm")
    return table


TABLE: Mapping[str, Spec] = _table()
# `buffer_load ... lds` has no register destination: address, resource, scalar offset.
_LDS_DMA = Spec("vmem", "r r r > m0", "vm")

_RANGE = re.compile(r"^([vas])\[([^\]:]+)(?::([^\]]+))?\]$")
_PLAIN = re.compile(r"^([vas])(\d+)$")
_COMMENT = re.compile(r"\s*;\s*")
_LABEL = re.compile(r"^([.\w]+):$")
_SDWA = ("dst_sel:", "dst_unused:", "src0_sel:", "src1_sel:")
_BLANK_IN_LIST = re.compile(r"\s+(?=[^\[]*\])")
_ENCODINGS = ("e32", "e64", "dpp", "sdwa")


class OutsideError(ValueError):
    """An operand touches registers outside of a declared block."""


class Parser:
    """Reads rendered lines into instructions, resolving register symbols to physical numbers.

    `blocks`: the declared ones, by symbol: their file and how many registers they have. With them
    an operand must lie in one. `schedule`: its file, for messages.
    """

    def __init__(
        self,
        symbols: Mapping[str, int],
        blocks: Mapping[str, tuple[str, int]] | None = None,
        schedule: str = "",
    ) -> None:
        self.symbols, self.blocks, self.schedule = symbols, blocks, schedule
        self._operand = lru_cache(maxsize=4096)(self._parse_operand)

    def line(self, text: str, origin: Origin) -> ProgramInstruction | None:
        """The instruction of one rendered line; None for a blank or comment line."""
        code = _COMMENT.split(text.strip(), maxsplit=1)[0]
        if not code:
            return None
        label = _LABEL.match(code)
        if label:
            return ProgramInstruction(code, ":", "label", origin=origin, target=label.group(1))
        written, _, rest = code.partition(" ")
        mnemonic, suffix = encoding_of(written)
        where = f"{origin.template}:{origin.template_line}"
        spec = TABLE.get(mnemonic)
        if spec is None:
            raise TemplateError(
                f"{where}: {written!r} is no instruction of the gfx950 table, in: {code}",
                hint="add it with its effects to mlagen/targets/gfx950/codegen/isa.py",
            )
        parts, modifiers = split_operands(rest)
        if suffix == "sdwa" or any(word.startswith(_SDWA) for word in modifiers):
            raise TemplateError(
                f"{where}: SDWA is not in the gfx950 table, in: {code}",
                hint="v_bfe_u32, v_perm_b32 and v_lshl_or_b32 move bytes and halfwords",
            )
        crossing = dpp.of(modifiers, f"{where}, {code}")
        if (crossing is not None or suffix == "dpp") and not spec.dpp:
            raise TemplateError(f"{where}: {mnemonic} has no DPP form, in: {code}", hint=dpp.HINT)
        if suffix and (crossing is not None) != (suffix == "dpp"):
            raise TemplateError(
                f"{where}: encoding _{suffix} does not go with its modifiers, in: {code}",
                hint=dpp.HINT,
            )
        if spec.pipe == "vmem" and "lds" in modifiers:
            spec = _LDS_DMA
        explicit, _, implicit = spec.form.partition(">")
        roles = explicit.split()
        if len(parts) != len(roles):
            raise TemplateError(
                f"{origin.template}:{origin.template_line}: {mnemonic} takes {len(roles)} "
                f"operands, {len(parts)} given, in: {code}"
            )
        reads: list[int] = []
        writes: list[int] = []
        operands: list[tuple[int, ...]] = []
        low_only = _low_only(mnemonic, modifiers)
        for number, (role, part) in enumerate(zip(roles, parts, strict=True)):
            registers = (
                () if role == "i" else self._registers(part, number in low_only, code, origin)
            )
            operands.append(registers)
            if role in "rb":
                reads += registers
            if role in "wb":
                writes += registers
        if crossing is not None and crossing.keeps:
            reads += (register for register in operands[0] if register < SGPR)
        for effect in implicit.split():
            name = effect.rstrip("=")
            (writes if effect.endswith("=") else reads).extend(_SPECIAL[name])
        return ProgramInstruction(
            text=" ".join((written, ", ".join(parts), *modifiers)).strip(),
            mnemonic=mnemonic,
            pipe=spec.pipe,
            reads=tuple(reads),
            writes=tuple(writes),
            operands=tuple(operands),
            counter=spec.counter,  # type: ignore[arg-type]
            origin=origin,
            target=parts[0] if spec.pipe == "branch" and parts else "",
            passes=spec.passes,
        )

    def _registers(self, part: str, low_only: bool, code: str, origin: Origin) -> tuple[int, ...]:
        try:
            return self._operand(part, low_only)
        except OutsideError as error:
            raise TemplateError(
                f"{origin.template}:{origin.template_line}: {part} {error}, in: {code} "
                f"({self.schedule}:{origin.schedule_line}, {origin.operation})",
                hint="a template names registers by the blocks that the schedule declares: "
                + ", ".join(f"{name} {count}" for name, (_, count) in (self.blocks or {}).items()),
            ) from error
        except (KeyError, ValueError) as error:
            raise TemplateError(
                f"{origin.template}:{origin.template_line}: operand {part!r} is neither a "
                f"register, a known symbol nor a number, in: {code}"
            ) from error

    def _parse_operand(self, part: str, low_only: bool) -> tuple[int, ...]:
        bare = part.lstrip("-").strip("|")
        if bare in _SPECIAL:
            return _SPECIAL[bare]
        plain = _PLAIN.match(bare)
        if plain:
            if self.blocks is not None:
                raise OutsideError("belongs to no declared block")
            return (int(plain.group(2)) + _FIRST[plain.group(1)],)
        match = _RANGE.match(bare)
        if match:
            file, first, last = match.groups()
            low = self._index(first)
            high = low if last is None else self._index(last)
            if self.blocks is not None:
                self._inside(file, f"{first}+{last or first}", low, low if low_only else high)
            base = _FIRST[file]
            return tuple(range(base + low, base + high + 1))
        float(int(bare, 0)) if bare.lower().startswith("0x") else float(bare)
        return ()

    def _inside(self, file: str, terms: str, low: int, high: int) -> None:
        """OutsideError unless the registers are some of the one block that the operand names."""
        assert self.blocks is not None
        names = {term for term in terms.split("+") if not term.isdigit()}
        if len(names) != 1:
            named = " and ".join(sorted(names))
            raise OutsideError(
                f"runs from block to block ({named})" if names else "belongs to no declared block"
            )
        (name,) = names
        held, count = self.blocks[name]
        first = self.symbols[name]
        if held != file:
            raise OutsideError(f"names a block of {held} registers")
        if not first <= low <= high < first + count:
            raise OutsideError(f"reaches outside of block {name}, which has {count} registers")

    def _index(self, expression: str) -> int:
        total = 0
        for term in expression.split("+"):
            total += int(term) if term.isdigit() else self.symbols[term]
        return total


def encoding_of(written: str) -> tuple[str, str]:
    """A mnemonic without the suffix of its encoding, and that suffix; "" where it has none."""
    stem, _, suffix = written.rpartition("_")
    return (stem, suffix) if suffix in _ENCODINGS else (written, "")


_PACKED_F32 = frozenset({"v_pk_add_f32", "v_pk_mul_f32", "v_pk_fma_f32"})
_SELECT = re.compile(r"^(op_sel|op_sel_hi):\[([01,]+)\]$")


def _low_only(mnemonic: str, modifiers: list[str]) -> frozenset[int]:
    """Numbers of the operands of which only the lower register is read: sources of packed f32 both
    of whose halves take it (CDNA4 ISA, VOP3P: OPSEL, OPSEL_HI)."""
    if mnemonic not in _PACKED_F32:
        return frozenset()
    picked = {match[1]: match[2].split(",") for x in modifiers if (match := _SELECT.match(x))}
    low, high = picked.get("op_sel", ["0"] * 3), picked.get("op_sel_hi", ["1"] * 3)
    halves = enumerate(zip(low, high, strict=False), 1)
    return frozenset(number for number, half in halves if half == ("0", "0"))


def split_operands(rest: str) -> tuple[list[str], list[str]]:
    """("v1", "v2"), ("offen", "offset:16") of "v1, v2 offen offset:16"."""
    parts: list[str] = []
    depth, start = 0, 0
    for index, character in enumerate(rest):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(rest[start:index].strip())
            start = index + 1
    tail = _BLANK_IN_LIST.sub("", rest[start:]).split()
    if not tail:
        return parts, []
    return [*parts, tail[0]], tail[1:]
