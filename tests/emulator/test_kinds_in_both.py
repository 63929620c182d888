"""Kinds of faults that others reported, each with its repaired form, for the audit and the emulator
alike: what balances counters, lanes that are off, waves that end early."""

import re

import numpy as np
import pytest
from emulating import POINTERS, execute
from gfx950_assembler import assemble

from mlagen.audit.gfx950 import audit_code_object
from mlagen.severity import ERROR, LETTER, UNPROVED, of

MODES = ("latest", "earliest", "random")


def audited(body, *, waves=1, **frame):
    code = assemble(f"{POINTERS}{body}\n  s_endpgm\n", **frame)
    return audit_code_object(code, threads=64 * waves).findings


def judge(body, rule, *, waves=1, **frame):
    """Errors of the audit, and of the emulator in all modes: of these rules, or none."""
    found = of(audited(body, waves=waves, **frame), ERROR)
    assert {finding.rule for finding in found} == ({rule[0]} if rule else set())
    for mode in MODES:
        source = np.arange(1024, dtype=np.uint32)
        out = np.zeros(64 * waves, np.uint32)
        _, result = execute(body, source, out, waves=waves, mode=mode, **frame)
        kinds = {finding.kind for finding in of(result.findings, ERROR)}
        assert bool(kinds) == bool(rule) and kinds <= {*(rule or ())[1:]}, (mode, kinds)


# ---- counters ---------------------------------------------------------------------------------

BALANCED = """
  v_lshlrev_b32 v1, 2, v0
  v_mov_b32 v5, 0
  global_load_dword v4, v1, s[4:5]
  s_cmp_eq_u32 s2, 0
  s_cbranch_scc1 none
  global_load_dword v5, v1, s[4:5] offset:1024
  s_branch join
none:
  {}
join:
  s_waitcnt vmcnt(1)
  v_add_u32 v6, 1, v4
  s_waitcnt vmcnt(0)
  v_add_u32 v6, v6, v5
  global_store_dword v1, v6, s[6:7]
"""


@pytest.mark.parametrize(
    "filler",
    ["buffer_inv", "buffer_wbl2 sc1", "buffer_inv sc0 sc1", "global_store_dword v1, v5, s[6:7]",
     "global_load_ubyte v9, v1, s[4:5]"],
)  # fmt: skip
def test_what_counts_in_vmcnt_balances_a_branch(filler):
    judge(BALANCED.format(filler), None)


@pytest.mark.parametrize("filler", ["s_nop 0", "s_dcache_inv", "s_icache_inv", "s_sleep 1"])
def test_what_counts_elsewhere_or_nowhere_does_not(filler):
    judge(BALANCED.format(filler), ("missing-wait", "missing-wait"))


# ---- lanes ------------------------------------------------------------------------------------

TRANSPOSED = """
  v_lshlrev_b32 v1, 3, v0
  v_mov_b32 v4, v0
  v_mov_b32 v5, v0
  v_mov_b32 v6, 0
  v_mov_b32 v7, 0
  ds_write_b64 v1, v[4:5]
  s_waitcnt lgkmcnt(0)
  {off}
  s_nop 4
  {on}
  {read} v[6:7], v1
  s_waitcnt lgkmcnt(0)
  s_mov_b64 exec, -1
  v_lshlrev_b32 v2, 2, v0
  global_store_dword v2, v6, s[6:7]
"""
OFF = {
    "saveexec": "v_cmp_gt_u32 vcc, 40, v0\n  s_and_saveexec_b64 s[8:9], vcc",
    "cmpx": "v_cmpx_gt_u32 vcc, 40, v0",
    "moved": "s_mov_b64 exec, 0xff",
    "andn2": "s_andn2_b64 exec, exec, 1",
    "one half": "s_mov_b32 exec_hi, 0",
}
ALL = ("partial-exec", "partial-exec")


@pytest.mark.parametrize("read", ["ds_read_b64_tr_b16", "ds_read_b64_tr_b8"])
@pytest.mark.parametrize("off", OFF.values(), ids=OFF)
def test_a_transposing_read_needs_all_lanes(read, off):
    judge(TRANSPOSED.format(off=off, on="", read=read), ALL, lds=512)
    on = "s_mov_b64 exec, -1"
    judge(TRANSPOSED.format(off=off, on=on, read=read), None, lds=512)


def test_masks_that_leave_no_lane_or_all_are_whole():
    for off in ("s_or_b64 exec, exec, 1", "v_cmp_gt_u32 vcc, 64, v0\n  s_mov_b64 exec, vcc"):
        judge(TRANSPOSED.format(off=off, on="", read="ds_read_b64_tr_b16"), None, lds=512)


def test_lanes_off_by_an_argument_are_certain_and_by_data_are_a_guess():
    masked = "s_load_dword s12, s[0:1], 0x10\n  s_waitcnt lgkmcnt(0)\n  v_cmp_gt_u32 vcc, s12, v0"
    by_argument = f"{masked}\n  s_and_b64 exec, exec, vcc"
    (told,) = [
        finding
        for finding in audited(
            TRANSPOSED.format(off=by_argument, on="", read="ds_read_b64_tr_b16"), lds=512
        )
        if finding.rule == "partial-exec"
    ]
    assert told.severity == ERROR and "argument dword 0x10 = " in told.message
    by_data = "v_cmp_gt_f32 vcc, 1.0, v4\n  s_and_b64 exec, exec, vcc"
    (told,) = [
        finding
        for finding in audited(
            TRANSPOSED.format(off=by_data, on="", read="ds_read_b64_tr_b16"), lds=512
        )
        if finding.rule == "partial-exec"
    ]
    assert told.severity == UNPROVED and told.guess


EXCHANGED = """
  v_lshlrev_b32 v1, 2, v0
  v_xor_b32 v2, 0x84, v1
  v_mov_b32 v3, v0
  v_mov_b32 v4, v0
  global_load_dword v5, v1, s[4:5]
  s_waitcnt vmcnt(0)
  {off}
  s_nop 4
  {exchange}
  s_waitcnt lgkmcnt(0)
  s_nop 1
  s_mov_b64 exec, -1
  global_store_dword v1, v3, s[6:7]
"""
BY_DATA = "v_and_b32 v6, 1, v5\n  v_cmp_eq_u32 vcc, 1, v6\n  s_and_b64 exec, exec, vcc"


@pytest.mark.parametrize(
    ("exchange", "constant", "data"),
    [
        ("ds_bpermute_b32 v3, v2, v4", ERROR, {UNPROVED}),
        ("ds_swizzle_b32 v3, v4 offset:swizzle(SWAP,1)", ERROR, {UNPROVED}),
        ("v_mov_b32_dpp v3, v4 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", ERROR, {UNPROVED}),
        ("v_add_u32_dpp v3, v4, v4 row_shr:1 row_mask:0xf bank_mask:0xf", ERROR, {UNPROVED}),
        ("v_permlane32_swap_b32 v3, v4", LETTER, set()),
        ("v_permlane16_swap_b32 v3, v4", LETTER, set()),
    ],
)
def test_what_lanes_take_from_lanes_that_are_off(exchange, constant, data):
    """0, or what was there, by the guide: an error where constants turn the lanes off, which nobody
    does to lanes that are taken from. Where data does it may be meant. Of swaps nothing is
    published; the odd lanes that the data leave change places with odd ones."""
    for off, severities in (("s_mov_b64 exec, 0x555555", {constant}), (BY_DATA, data)):
        text = EXCHANGED.format(off=off, exchange=exchange)
        _, result = execute(text, np.arange(1024, dtype=np.uint32), np.zeros(64, np.uint32))
        told = [finding for finding in result.findings if finding.kind == "off-lane"]
        assert {finding.severity for finding in told} == severities
        writer = "s_and_b64 exec" if off is BY_DATA else "s_mov_b64 exec"
        assert all(finding.other_asm.startswith(writer) for finding in told)
        told = [finding for finding in audited(text) if finding.rule == "off-lane"]
        assert {finding.severity for finding in told} == severities
        assert all(bool(finding.guess) == (finding.severity == UNPROVED) for finding in told)
    for off in ("s_mov_b64 exec, -1", "s_mov_b64 exec, 0"):
        text = EXCHANGED.format(off=off, exchange=exchange)
        _, result = execute(text)
        assert not result.findings
        assert not [finding for finding in audited(text) if finding.rule == "off-lane"]


@pytest.mark.parametrize(
    ("off", "exchange"),
    [
        ("s_mov_b64 exec, 0xffff", "v_mov_b32_dpp v3, v4 row_ror:3 row_mask:0xf bank_mask:0xf"),
        ("s_mov_b64 exec, 0xffff", "v_mov_b32_dpp v3, v4 row_shr:5 row_mask:0xf bank_mask:0xf"),
        ("v_cmp_gt_u32 vcc, 32, v0\n  s_and_b64 exec, exec, vcc",
         "ds_swizzle_b32 v3, v4 offset:swizzle(SWAP,16)"),
        ("s_mov_b64 exec, 0xff", "ds_bpermute_b32 v3, v6, v4"),
        ("s_mov_b64 exec, 0xff00ff", "v_permlane16_swap_b32 v3, v4"),
    ],
)  # fmt: skip
def test_lanes_that_take_from_lanes_that_are_on_are_no_finding(off, exchange):
    text = EXCHANGED.format(off="v_mov_b32 v6, 12\n  " + off, exchange=exchange)
    _, result = execute(text)
    assert not [finding for finding in result.findings if finding.kind == "off-lane"]
    assert not [finding for finding in audited(text) if finding.rule == "off-lane"]


def test_a_matrix_product_and_a_lane_read_ask_for_no_lane():
    """They go by all lanes whatever EXEC says."""
    for text in (
        "v_readlane_b32 s8, v4, 40",
        "v_mfma_f32_4x4x4_16b_f16 v[8:11], v[0:1], v[4:5], 0",
    ):
        told = audited(EXCHANGED.format(off="s_mov_b64 exec, 0xff", exchange=text), vgprs=32)
        assert not [finding for finding in told if finding.rule in ("off-lane", "partial-exec")]


def test_a_lane_that_was_never_written_is_not_read():
    body = """
  s_mov_b64 exec, 0xff
  v_mov_b32 v2, 7
  {}
  v_readlane_b32 s8, v2, {}
  s_mov_b64 exec, -1
  s_nop 3
  v_mov_b32 v3, s8
  v_lshlrev_b32 v1, 2, v0
  global_store_dword v1, v3, s[6:7]
"""
    for between, lane, expected in (
        ("s_nop 4", 7, []),
        ("s_nop 4", 8, ["undefined-register"]),
        ("v_writelane_b32 v2, 5, 8\n  s_nop 4", 8, []),
    ):
        out, result = execute(body.format(between, lane))
        assert [finding.kind for finding in result.findings] == expected
        if not expected:
            assert (out == (5 if lane == 8 else 7)).all()


# ---- waves that end ---------------------------------------------------------------------------

RACE = ("lds-raw", "race-raw", "race-war", "undefined-lds")
EARLY = """
  v_lshrrev_b32 v3, 6, v0
  v_lshlrev_b32 v1, 2, v0
  v_readfirstlane_b32 s12, v3
  v_xor_b32 v2, 0x100, v1
  v_mov_b32 v5, 0
  {before}
  s_cmp_lt_u32 s12, 2
  s_cbranch_scc1 work
  {leaving}
work:
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  {barrier}
  ds_read_b32 v5, v2
  s_waitcnt lgkmcnt(0)
behind:
  global_store_dword v1, v5, s[6:7]
end:
"""
LEAVING = {  # before, leaving
    "at once": ("", "s_endpgm"),
    "at the common end": ("", "s_branch end"),
    "after a barrier of all": ("ds_write_b32 v1, v0 offset:1024\n  s_waitcnt lgkmcnt(0)\n"
                               "  s_barrier", "s_endpgm"),
    "with work of its own": ("", "global_store_dword v1, v0, s[6:7]\n  s_endpgm"),
    "with LDS in flight": ("", "ds_write_b32 v1, v0 offset:1024\n  s_endpgm"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "leaving"), LEAVING.values(), ids=LEAVING)
def test_a_barrier_waits_for_the_waves_that_are_left(before, leaving):
    body = EARLY.format(before=before, leaving=leaving, barrier="s_barrier")
    judge(body, None, waves=4, lds=2048)
    body = EARLY.format(before=before, leaving=leaving, barrier="")
    judge(body, RACE, waves=4, lds=2048)


LOOP = """
  v_lshrrev_b32 v3, 6, v0
  v_lshlrev_b32 v1, 2, v0
  v_readfirstlane_b32 s12, v3
  s_mov_b32 s13, 0
  v_mov_b32 v5, 0
next:
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  s_barrier
  s_add_u32 s13, s13, 1
  s_cmp_le_u32 s13, s12
  s_cbranch_scc1 next
  {}
"""


def test_waves_leave_a_loop_with_a_barrier_and_end():
    judge(LOOP.format("s_nop 0"), None, waves=2, lds=512)


def test_a_wave_that_goes_around_a_barrier_and_on_is_told():
    """Wave 1 passes the barrier once more: those behind it meet others than was written."""
    body = LOOP.format("s_barrier\n  ds_read_b32 v5, v1\n  s_waitcnt lgkmcnt(0)")
    judge(body, ("barrier-unequal", "barrier-unequal"), waves=2, lds=512)


STAGGER = """
  v_lshlrev_b32 v1, 2, v0
  v_xor_b32 v2, 0x100, v1
  v_lshrrev_b32 v3, 6, v0
  v_mov_b32 v5, 0
  v_readfirstlane_b32 s12, v3
  s_cmp_eq_u32 s12, 0
  s_cbranch_scc1 lower
  s_barrier
lower:
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  s_barrier
  s_cmp_lg_u32 s12, 0
  s_cbranch_scc1 upper
  {}
upper:
  {}
  global_store_dword v1, v5, s[6:7]
"""


def test_the_lower_waves_need_no_last_barrier_before_they_end():
    """The upper waves' last barrier waits for the ends of the lower ones instead; unless those do
    something in LDS behind it, which then is in no order with what the upper waves do."""
    judge(STAGGER.format("s_barrier", ""), None, waves=2, lds=512)
    judge(STAGGER.format("s_nop 0", ""), None, waves=2, lds=512)
    read = "ds_read_b32 v5, v2\n  s_waitcnt lgkmcnt(0)"
    judge(STAGGER.format("s_barrier", read), None, waves=2, lds=512)
    told = ("barrier-unequal", "race-raw", "race-war", "undefined-lds")
    found = of(audited(STAGGER.format("s_nop 0", read), waves=2, lds=512), ERROR)
    assert {"barrier-unequal", "lds-raw"} <= {finding.rule for finding in found}
    for mode in MODES:
        text, source = STAGGER.format("s_nop 0", read), np.arange(1024, dtype=np.uint32)
        _, result = execute(text, source, np.zeros(128, np.uint32), waves=2, lds=512, mode=mode)
        kinds = {finding.kind for finding in of(result.findings, ERROR)}
        assert "barrier-unequal" in kinds and kinds <= {*told}


def test_what_a_wave_leaves_in_flight_is_done_before_the_barrier_of_others():
    """s_endpgm waits: the other wave reads what the ended one wrote, behind a barrier."""
    body = """
  v_lshrrev_b32 v3, 6, v0
  v_lshlrev_b32 v1, 2, v0
  v_readfirstlane_b32 s12, v3
  v_and_b32 v4, 0xff, v1
  s_cmp_lg_u32 s12, 0
  s_cbranch_scc1 reads
  ds_write_b32 v1, v0
  s_endpgm
reads:
  {}
  ds_read_b32 v5, v4
  s_waitcnt lgkmcnt(0)
"""
    judge(body.format("s_barrier"), None, waves=2, lds=256)
    judge(body.format("s_nop 0"), RACE, waves=2, lds=256)


def test_a_load_to_lds_over_a_read_before_the_barrier_is_by_the_letter_if_it_comes_late():
    """Nothing orders them: behind the barrier the read may still be on its way. It would have to
    take longer than 120 cycles of matrix instructions, where there are so many on every way."""
    body = """
  v_lshlrev_b32 v1, 2, v0
  v_and_b32 v2, 0xff, v1
  v_xor_b32 v3, 0x100, v1
  v_lshrrev_b32 v4, 6, v0
  s_mov_b32 s8, s4
  s_and_b32 s9, s5, 0xffff
  s_mov_b32 s10, 0x1000
  s_mov_b32 s11, 0x27000
  v_readfirstlane_b32 s12, v4
  s_lshl_b32 m0, s12, 8
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v5, v3
  {}
  buffer_load_dword v2, s[8:11], 0 offen lds
  s_waitcnt vmcnt(0) lgkmcnt(0)
  global_store_dword v1, v5, s[6:7]
"""
    product = "\n  v_mfma_f32_32x32x16_bf16 v[16:31], v[8:11], v[12:15], 0"
    skipped = "\n  s_cmp_eq_u32 s2, 0\n  s_cbranch_scc1 over"
    ahead = "".join(f"  v_mov_b32 v{i}, 0\n" for i in range(8, 16))
    for between, severity in (
        ("s_barrier", ERROR),
        ("s_nop 0", ERROR),
        ("s_barrier" + product * 3, ERROR),
        ("s_barrier" + product * 4, LETTER),
        ("s_barrier" + skipped + product * 4 + "\nover:", ERROR),
    ):
        text = ahead + body.format(between)
        (told,) = (f for f in audited(text, waves=2, lds=512) if f.rule.startswith("lds-"))
        assert told.severity == severity
        out = np.zeros(128, np.uint32)
        _, result = execute(text, np.arange(1024, dtype=np.uint32), out, waves=2, lds=512)
        assert {f.severity for f in result.findings if f.kind == "race-war"} == {severity}


# ---- what is told -----------------------------------------------------------------------------

HANDED = """
  v_lshlrev_b32 v1, 2, v0
  v_xor_b32 v2, 0x100, v1
  ds_write_b32 v1, v0
  {}
  {}
  ds_read_b32 v5, v2
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v5, s[6:7]
"""


@pytest.mark.parametrize("wait", ["s_waitcnt lgkmcnt(0)", "s_waitcnt vmcnt(0) lgkmcnt(0)"])
def test_no_advice_against_the_wait_behind_which_a_barrier_is_missing(wait):
    """The repaired kernel needs both."""
    found = audited(HANDED.format(wait, ""), waves=2, lds=1024)
    (error,) = of(found, ERROR)
    (at,) = {int(word, 16) for word in re.findall(r"wait of wave \d at (0x\w+)", error.needs)}
    assert error.needs.startswith("s_barrier behind the wait")
    advice = [one for one in found if one.rule == "stricter-wait" and one.pc == at]
    assert all("lgkmcnt" not in one.needs for one in advice)
    assert not of(audited(HANDED.format(wait, "s_barrier"), waves=2, lds=1024), ERROR)
    (error,) = of(audited(HANDED.format("", "s_barrier"), waves=2, lds=1024), ERROR)
    assert "lgkmcnt" in error.needs


# ---- wait states ------------------------------------------------------------------------------


def test_what_the_busy_matrix_pipe_holds_back_is_by_the_letter_in_both():
    """8 passes each: the third waits 16, so that what follows it is late enough for the first."""
    product = "v_mfma_f32_32x32x16_bf16 v[{}], v[0:3], v[4:7], 0"
    first, second, third = (product.format(d) for d in ("16:31", "32:47", "48:63"))
    other = "v_mfma_f32_32x32x8bf16_1k v[16:31], v[0:1], v[4:5], v[16:31]"
    zeros = "\n".join(f"  v_mov_b32 v{i}, 0" for i in (*range(8), *range(32, 36)))
    for between, use, severity in (
        ([second, third], "v_add_f32 v8, v16, v16", LETTER),
        ([second], "v_add_f32 v8, v16, v16", ERROR),
        ([], other, LETTER),  # the accumulator, whole
        ([], "v_mfma_f32_32x32x16_bf16 v[64:79], v[0:3], v[4:7], v[20:35]", ERROR),
    ):
        body = "\n  ".join([zeros, "s_nop 4", "v_mov_b32 v32, 0", "s_nop 4", first, *between, use])
        body += "\n  s_nop 15\n  s_nop 15\n"
        body = body.replace(
            "v_mov_b32 v32, 0", "\n".join(f"v_mov_b32 v{i}, 0" for i in range(32, 36))
        )
        told = [f for f in audited(body, vgprs=96) if f.rule == "wait-states"]
        assert {f.severity for f in told} == {severity}, (use, told)
        _, result = execute(body, vgprs=96)
        told = [f for f in result.findings if f.kind == "wait-states"]
        assert {f.severity for f in told} == {severity}, (use, told)


@pytest.mark.parametrize("product, passes", [("16x16x32_bf16", 4), ("32x32x16_bf16", 8)])
def test_four_vector_instructions_behind_a_product_are_by_the_letter_and_other_states_are_not(
    product, passes
):
    """AITER's block-scale kernels end each tile so; what s_nop makes, or a jump, they have not."""
    ahead = "\n".join(f"  v_mov_b32 v{i}, 0" for i in (*range(8), *range(40, 44)))
    first = f"v_mfma_f32_{product} v[{'16:19' if passes == 4 else '16:31'}], v[0:3], v[4:7], 0"
    vectors = [f"v_fma_f32 v{40 + i}, v0, v1, v{40 + i}" for i in range(4)]
    for between, severity in (
        (vectors, LETTER),
        ([*vectors, "s_nop 0"], LETTER),
        ([*vectors[:3], "s_nop 0"], ERROR),
        (["s_nop 3"], ERROR),
        (["s_add_u32 s8, s8, 1"] * 4, ERROR),
        ([*vectors, "s_branch over", "over:"], ERROR),
    ):
        use = "v_fma_f32 v8, v16, v1, v0"
        body = "\n  ".join([ahead, "s_mov_b32 s8, 0", "s_nop 4", first, *between, use])
        body += "\n  s_nop 15\n  s_nop 15\n"
        told = [f for f in audited(body, vgprs=96) if f.rule == "wait-states"]
        assert {f.severity for f in told} == {severity}, (between, told)
        _, result = execute(body, vgprs=96)
        told = [f for f in result.findings if f.kind == "wait-states"]
        assert {f.severity for f in told} == {severity}, (between, told)


# ---- stores -----------------------------------------------------------------------------------


def test_stores_that_never_land_are_told():
    """A buffer drops what its range check finds outside; a store of which some lane lands is not
    told, nor one whose lanes are off."""
    body = """
  v_lshlrev_b32 v1, 2, v0
  s_mov_b32 s8, s6
  s_and_b32 s9, s7, 0xffff
  s_mov_b32 s10, {}
  s_mov_b32 s11, 0x27000
  buffer_store_dword v1, v1, s[8:11], 0 offen
  s_mov_b64 exec, 0
  s_nop 1
  buffer_store_dword v1, v1, s[8:11], 0 offen
"""
    for records, expected in ((256, 0), (4, 0), (0, 1)):
        _, result = execute(body.format(records))
        assert len(result.unlanded) == expected and not result.findings
        if expected:
            (store,) = result.unlanded
            assert store.asm.startswith("buffer_store_dword v1") and store.count == 1


# ---- wait states ------------------------------------------------------------------------------

PACK = "  v_cvt_scalef32_pk_fp4_f32 v4, v8, v9, v10{}\n"
BESIDE = " op_sel:[0,0,1,0]"
PRODUCT = "  v_mfma_i32_16x16x32_i8 v[36:39], v[20:21], v[22:23], v[24:27]\n"
VECTORS = "".join(f"  v_cvt_f32_i32 v{i}, v{i}\n" for i in range(40, 46))
INPUTS = "".join(
    f"  v_mov_b32 v{i}, 1.0\n" for i in (4, 8, 9, 10, 12, *range(20, 28), *range(36, 46))
)


@pytest.mark.parametrize(
    ("code", "severity"),
    [
        (PACK.format("") + PACK.format(BESIDE), LETTER),
        (PACK.format("") + "  s_nop 0\n" + PACK.format(BESIDE), None),
        (PACK.format("") + PACK.format(""), ERROR),  # the same byte
        (PACK.format("") + PACK.format(BESIDE).replace("v8", "v4"), ERROR),
        (PACK.format("") + "  v_mov_b32 v12, v4\n", ERROR),
        (PRODUCT + VECTORS + "  v_cvt_f32_i32 v36, v36\n", LETTER),
        (PRODUCT + VECTORS + "  v_mov_b32 v36, v9\n", ERROR),
        (PRODUCT + "  s_nop 5\n  v_cvt_f32_i32 v36, v36\n", ERROR),
        (PRODUCT + VECTORS + "  s_nop 1\n  v_cvt_f32_i32 v36, v36\n", None),
    ],
)  # fmt: skip
def test_wait_states_that_shipped_kernels_do_without(code, severity):
    """The audit and the emulator weigh them alike; conversions to fp4 the emulator refuses."""
    body = INPUTS + "  s_nop 7\n" + code + "  s_nop 15\n  s_nop 7\n"
    told = [f.severity for f in audited(body) if f.rule == "wait-states"]
    assert told == ([severity] if severity else [])
    if "fp4" in code:
        return
    _, result = execute(body, np.zeros(64, np.uint32), np.zeros(64, np.uint32))
    seen = [f.severity for f in result.findings if f.kind == "wait-states"]
    assert seen == told
