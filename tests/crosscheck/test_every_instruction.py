"""Each instruction that a template may write, in each of its forms: what the generator's table says
of it, against what LLVM's assembler makes of the text and what the checkers read in that.

`test_two_effect_tables` does the same for whole kernels; here are the instructions of no kernel.
"""

import itertools
import re
from functools import cache

import pytest
from gfx950_assembler import assemble
from test_two_effect_tables import decoded, named

from mlagen.binary import load_code_object
from mlagen.binary.effects import effects
from mlagen.binary.hazards import strictest_pair
from mlagen.emulator.gfx950.engine_operations import OPCODES
from mlagen.errors import TemplateError
from mlagen.targets.gfx950.codegen.dpp import CONTROLS
from mlagen.targets.gfx950.codegen.hazards import HazardTracker
from mlagen.targets.gfx950.codegen.isa import TABLE, Parser
from mlagen.targets.gfx950.codegen.pad import hazard_info
from mlagen.targets.gfx950.codegen.program import Origin

ACCUM = 256
WHERE = Origin("operation", "t.s.j2", 1, 1)
PARSER = Parser({})
_SPECIAL = {  # operands that no rule below gives
    "s_cbranch_scc0": "END", "s_cbranch_scc1": "END", "s_cbranch_vccz": "END",
    "s_cbranch_vccnz": "END", "s_branch": "END", "s_setprio": "1", "s_nop": "3",
    "s_movk_i32": "s10, 5", "s_addk_i32": "s10, 5", "s_mulk_i32": "s10, 5",
    "s_load_dword": "s10, s[4:5], s12", "s_load_dwordx2": "s[10:11], s[4:5], 0x10",
    "s_load_dwordx4": "s[12:15], s[4:5], 0x10", "s_load_dwordx8": "s[16:23], s[4:5], s12",
    "v_readfirstlane_b32": "s10, v2", "v_readlane_b32": "s10, v2, s12",
    "v_writelane_b32": "v2, 5, s12", "v_accvgpr_read_b32": "v2, a3",
    "v_accvgpr_write_b32": "a3, v2", "v_cndmask_b32": "v1, v2, v3, s[10:11]",
    "v_mad_u64_u32": "v[10:11], s[10:11], v2, v3, v[4:5]", "v_mov_b64": "v[2:3], v[4:5]",
    "v_lshl_add_u64": "v[10:11], v[2:3], v4, v[6:7]",
    "v_cvt_scalef32_pk_f32_fp8": "v[10:11], v2, 1.0",
    "v_mfma_f32_32x32x16_bf16": "v[16:31], v[0:3], v[4:7], v[32:47]",
    "v_mfma_f32_32x32x64_f8f6f4": "v[16:31], v[0:7], v[8:15], v[32:47]",
    "v_mfma_f32_16x16x32_bf16": "v[16:19], v[0:3], v[4:7], v[20:23]",
    "v_mfma_f32_16x16x32_fp8_fp8": "v[16:19], v[0:1], v[2:3], v[20:23]",
    "ds_read_b64_tr_b16": "v[2:3], v1", "ds_read_b64_tr_b8": "v[2:3], v1",
    "ds_read_b64_tr_b4": "v[2:3], v1", "ds_read_b96_tr_b6": "v[2:4], v1",
    "ds_bpermute_b32": "v1, v2, v3", "ds_permute_b32": "v1, v2, v3", "ds_swizzle_b32": "v1, v2",
    "ds_read2_b32": "v[2:3], v1", "ds_read2_b64": "v[2:5], v1",
    "ds_write2_b32": "v1, v2, v3", "ds_write2_b64": "v1, v[2:3], v[4:5]",
    "global_load_lds_dword": "v[2:3], off", "global_load_lds_dwordx4": "v[2:3], off",
}  # fmt: skip
_WIDTHS = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4}


def registers(file, first, count):
    return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"


def memory(mnemonic):
    """Operands of an access to global memory or LDS."""
    unit, kind, size = mnemonic.split("_")
    if unit == "ds":
        data = registers("v", 4, max(int(re.sub(r"\D", "", size)) // 32, 1))
        return f"{data}, v1" if kind == "read" else f"v1, {data}"
    data = registers("v", 4, _WIDTHS.get(size, 1))
    if unit == "buffer":
        return f"{data}, v1, s[8:11], s12 offen"
    return f"{data}, v1, s[8:9]" if kind == "load" else f"v1, {data}, s[8:9]"


def operands(mnemonic):
    if mnemonic in _SPECIAL:
        return _SPECIAL[mnemonic]
    unit = mnemonic.partition("_")[0]
    if unit in ("global", "buffer", "ds"):
        return memory(mnemonic)
    roles = TABLE[mnemonic].form.partition(">")[0].split()
    wide = bool(re.search(r"_[biu]64$", mnemonic)) or mnemonic.startswith("v_pk_")
    if unit == "s":
        narrow = {"s_lshl_b64": (2,), "s_lshr_b64": (2,), "s_ashr_i64": (2,), "s_bfm_b64": (1, 2),
                  "s_ff1_i32_b64": (0,), "s_bcnt1_i32_b64": (0,)}.get(mnemonic, ())  # fmt: skip
        return ", ".join(
            registers("s", 10 + 4 * at, 2 if wide and at not in narrow else 1)
            for at in range(len(roles))
        )
    if mnemonic.startswith("v_cmp"):
        return "s[10:11], v2, v3"
    if "_co_u32" in mnemonic:
        return ", ".join(["v1", "s[10:11]", "v2", "v3", "s[12:13]"][: len(roles)])
    shift = mnemonic in ("v_lshlrev_b64", "v_lshrrev_b64", "v_ashrrev_i64")
    return ", ".join(
        registers("v", 10 + 4 * at, 2 if wide and not (shift and at == 1) else 1)
        for at in range(len(roles))
    )


def plain():
    """All instructions; the branch that is always taken is last: nothing behind it is reached."""
    names = sorted((n for n in TABLE if n != "s_endpgm"), key=lambda n: n == "s_branch")
    return [f"{name} {operands(name)}".strip() for name in names]


def short(mnemonic):
    """The operands of an instruction's form of 32 bits, which DPP takes: masks are VCC."""
    return re.sub(r"s\[1[02]:1[13]\]", "vcc", operands(mnemonic))


def crossing():
    """All instructions that have a DPP form, with one control; and one with all controls."""
    texts = [
        f"{mnemonic}{suffix} {short(mnemonic)} row_shr:1{masks}"
        for mnemonic, spec in TABLE.items()
        if spec.dpp
        for suffix, masks in (("", ""), ("_dpp", " row_mask:0xf bank_mask:0xf bound_ctrl:0"))
    ]
    for name, legal in CONTROLS.items():
        for number in legal or [None]:
            value = f":[{number},0,3,2]" if name == "quad_perm" else f":{number}"
            control = name if number is None else name + value
            texts += [f"v_add_f32 v10, v14, v18 {control} bank_mask:0x{n}" for n in "a5"]
    return texts


def forms():
    """One text for each other suffix and spelling."""
    return [
        "v_add_f32_e32 v1, v2, v3", "v_add_f32_e64 v1, -v2, |v3| mul:2",
        "v_mov_b32 v1, v2 quad_perm:[0, 1,2 , 3]", "v_cmp_gt_f32 vcc, v2, v3",
        "v_cndmask_b32_e32 v1, v2, v3, vcc", "v_readlane_b32 s10, v2, 5",
        "v_add_f32 v1, v2, v3 row_ror:4 row_mask:0x7", "v_exp_f32_dpp v1, v2 row_mirror",
        "buffer_store_dwordx4 v[4:7], v1, s[8:11], 0 offen", "v_rsq_f32 v1, s4",
        "global_store_dwordx3 v[2:3], v[4:6], off", "s_cmp_ge_i32 s1, -7", "v_sin_f32 v1, -v2",
    ]  # fmt: skip


@cache
def read_back(texts):
    body = "\n".join(f"  {text}" for text in texts)
    code = assemble(f"{body}\nEND:\n  s_endpgm\n", vgprs=256 + 16, accum=ACCUM)
    (kernel,) = load_code_object(code).kernels.values()
    return kernel.instructions[: len(texts)]


def parsed(text):
    return PARSER.line(text, WHERE)


@pytest.mark.parametrize("texts", [plain, crossing, forms])
def test_both_tables_and_the_assembler_agree(texts):
    texts = tuple(texts())
    wrong = []
    for text, theirs in zip(texts, read_back(texts), strict=True):
        ours, effect = parsed(text), effects(theirs, ACCUM)
        counter = {"lds": "lgkm", "smem": "lgkm"}.get(effect.counter, effect.counter)
        found = (theirs.mnemonic, named(ours.reads, ACCUM), named(ours.writes, ACCUM), ours.counter)
        right = (ours.mnemonic, decoded(effect.reads), decoded(effect.writes), counter)
        if found != right:
            wrong.append(f"{text}\n  generator {found}\n  checkers  {right}")
    assert not wrong, "\n".join(wrong)


def test_the_emulator_runs_all_of_them():
    beyond = [m for m in TABLE if m not in OPCODES]
    assert not beyond


def test_only_what_has_a_dpp_form_is_said_to_have_one():
    """The assembler refuses the others, each."""
    others = [m for m, s in TABLE.items() if not s.dpp and s.pipe in ("vector", "transcendental")]
    for mnemonic in others:
        with pytest.raises(TemplateError, match="no DPP form"):
            parsed(f"{mnemonic} {operands(mnemonic)} row_shr:1")
    lines = [f"  {m} {operands(m)} row_shr:1" for m in others]
    with pytest.raises(AssertionError) as refused:
        assemble("\n".join(lines))
    assert str(refused.value).count("error:") >= len(lines)


def pairs():
    """Producer and consumer pairs around what is new to templates: DPP, lanes, stores, halves."""
    makers = ["v_mov_b32 v14, v2", "v_exp_f32 v14, v2", "v_mov_b32 v14, v2 row_shr:1",
              "v_cvt_pk_bf8_f32 v14, v2, v3 op_sel:[0,0,1]", "v_readlane_b32 s12, v2, s3",
              "v_cmp_lt_f32 vcc, v2, v3", "v_permlane32_swap_b32 v14, v2",
              "global_store_dwordx4 v1, v[12:15], s[8:9]", "v_rsq_f32 v14, v2",
              "v_mfma_f32_16x16x32_bf16 v[12:15], v[0:3], v[4:7], v[20:23]"]  # fmt: skip
    takers = ["v_add_f32 v10, v14, v18 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0",
              "v_add_f32 v14, v10, v18 quad_perm:[1,0,3,2]", "v_rcp_f32_dpp v10, v14 row_mirror",
              "v_readlane_b32 s10, v14, s12", "v_writelane_b32 v14, 5, s12",
              "v_cndmask_b32 v10, v14, v18, vcc", "v_med3_f32 v14, v1, v2, v3",
              "v_perm_b32 v10, v14, v18, v22", "global_store_dwordx2 v1, v[14:15], s[12:13]",
              "v_cvt_pk_bf8_f32 v14, v2, v3", "v_swap_b32 v14, v2",
              "v_mul_f32 v10, s12, v3"]  # fmt: skip
    return list(itertools.product(makers, takers))


def test_no_pair_gets_fewer_wait_states_than_the_checkers_ask():
    """And where it gets more, the generator's table says why (`stricter`), or it is the mask."""
    texts = tuple(text for pair in pairs() for text in pair)
    read = read_back(texts)
    fewer, more = [], 0
    for at, (first, second) in enumerate(pairs()):
        asked, _, _ = strictest_pair(read[2 * at], read[2 * at + 1], ACCUM)
        tracker = HazardTracker()
        tracker.advance(hazard_info(parsed(first)))
        given = tracker.required(hazard_info(parsed(second)))
        more += given > asked
        if given < asked:
            fewer.append(f"{first} | {second}: {given} of {asked}")
    assert not fewer, "\n".join(fewer)
    assert more < len(pairs()) // 6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("v_mov_b32 v1, v2 row_shr:16", "row_shr:16"),
        ("v_mov_b32 v1, v2 row_shr", "row_shr"),
        ("v_mov_b32 v1, v2 row_bcast:16", "row_bcast:16"),
        ("v_mov_b32 v1, v2 quad_perm:[0,1,2]", "quad_perm"),
        ("v_mov_b32 v1, v2 quad_perm:[0,1,2,4]", "quad_perm"),
        ("v_mov_b32 v1, v2 row_mirror row_shr:1", "two DPP controls"),
        ("v_mov_b32 v1, v2 row_mirror:1", "takes no number"),
        ("v_mov_b32 v1, v2 row_shr:1 row_mask:0x1f", "row_mask:0x1f"),
        ("v_mov_b32_dpp v1, v2", "encoding _dpp"),
        ("v_mov_b32_e64 v1, v2 row_shr:1", "encoding _e64"),
        ("v_add_f32_sdwa v1, v2, v3 dst_sel:WORD_1", "SDWA"),
        ("v_add_f32 v1, v2, v3 src0_sel:BYTE_0", "SDWA"),
        ("v_fma_f32_dpp v1, v2, v3, v4 row_shr:1", "no DPP form"),
        ("v_tan_f32 v1, v2", "no instruction"),
    ],
)
def test_what_is_no_form_is_refused(text, said):
    with pytest.raises(TemplateError, match=re.escape(said)) as caught:
        parsed(text)
    assert "t.s.j2:1" in caught.value.message
