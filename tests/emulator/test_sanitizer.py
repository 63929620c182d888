"""Each class of defect is found, named and located; the repaired kernel is clean."""

from dataclasses import replace

import numpy as np
import pytest
from emulating import POINTERS, execute, kinds, load_rows, store_rows
from gfx950_assembler import assemble

from mlagen.audit.gfx950.check import audit_code_object, audit_kernel
from mlagen.binary import load_code_object
from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
from mlagen.emulator.gfx950.translate import gaps
from mlagen.errors import ConfigError, FindingsError, UnsupportedError

MODES = ("latest", "earliest", "random")
_POISON = 0x7FFF7FFF


def only(result):
    assert len(result.findings) == 1, [str(f) for f in result.findings]
    return result.findings[0]


# ---- waits of one wave ------------------------------------------------------------------------

_TWO_LOADS = """  v_lshlrev_b32 v1, 2, v0
  global_load_dword v2, v1, s[4:5]
  global_load_dword v3, v1, s[4:5] offset:256
  {wait}
  v_add_u32 v4, v2, v2
  s_waitcnt vmcnt(0)
"""


@pytest.mark.parametrize("mode", MODES)
def test_missing_vmcnt_names_load_and_wait(mode):
    data = np.arange(128, dtype=np.uint32)
    body = _TWO_LOADS.format(wait="s_waitcnt vmcnt(2)")
    out, result = execute(body + store_rows(4, 1), data, mode=mode)
    finding = only(result)
    assert (finding.kind, finding.needs, finding.resource) == ("missing-wait", "vmcnt(1)", "v2")
    assert finding.asm == "v_add_u32 v4, v2, v2"
    assert finding.other_asm.startswith("global_load_dword v2")
    assert (finding.wave, finding.other_wave) == (0, 0)
    if mode == "latest":
        assert (out == (2 * _POISON) & 0xFFFFFFFF).all()


@pytest.mark.parametrize("mode", MODES)
def test_enough_vmcnt_is_clean(mode):
    data = np.arange(128, dtype=np.uint32)
    body = _TWO_LOADS.format(wait="s_waitcnt vmcnt(1)")
    out, result = execute(body + store_rows(4, 1), data, mode=mode)
    assert not result.findings
    np.testing.assert_array_equal(out, 2 * data[:64])


def test_stores_count_in_vmcnt():
    body = """  v_lshlrev_b32 v1, 2, v0
  global_load_dword v2, v1, s[4:5]
  global_store_dword v1, v0, s[6:7]
  s_waitcnt vmcnt(1)
  global_store_dword v1, v2, s[6:7]
"""
    data = np.arange(64, dtype=np.uint32) + 5
    out, result = execute(body, data)
    assert not result.findings
    np.testing.assert_array_equal(out, data)


@pytest.mark.parametrize("mode", MODES)
def test_a_full_counter_is_no_wait(mode):
    """16 DS reads after the one in question: lgkmcnt counts to 15, but nothing waited for it."""
    reads = "".join(f"  ds_read_b32 v{10 + i}, v1 offset:{4 * i}\n" for i in range(17))
    write = "".join(f"  ds_write_b32 v1, v0 offset:{4 * i}\n" for i in range(17))
    body = f"""  v_mov_b32 v1, 0
{write}  s_waitcnt lgkmcnt(0)
{reads}  {{wait}}
  v_add_u32 v2, v10, v10
  s_waitcnt lgkmcnt(0)
"""
    data = np.zeros(64, np.uint32)
    _, result = execute(body.format(wait="s_nop 0"), data, lds=256, mode=mode)
    finding = only(result)
    assert (finding.kind, finding.resource) == ("missing-wait", "v10")
    assert finding.needs == "lgkmcnt(14)"  # 16 are newer, but lgkmcnt(15) waits for nothing
    _, result = execute(body.format(wait="s_waitcnt lgkmcnt(14)"), data, lds=256, mode=mode)
    assert not result.findings


def test_scalar_loads_need_lgkmcnt_zero():
    body = """  s_load_dword s10, s[4:5], 0x0
  s_load_dword s11, s[4:5], 0x4
  s_waitcnt lgkmcnt(1)
  s_add_u32 s12, s10, 1
  s_waitcnt lgkmcnt(0)
"""
    _, result = execute(body)
    finding = only(result)
    assert (finding.kind, finding.needs, finding.resource) == ("missing-wait", "lgkmcnt(0)", "s10")


def test_lds_reads_return_in_order():
    body = """  v_lshlrev_b32 v1, 2, v0
  ds_write_b32 v1, v0
  ds_read_b32 v2, v1
  ds_read_b32 v3, v1
  s_waitcnt lgkmcnt({count})
  v_add_u32 v4, v2, v2
  s_waitcnt lgkmcnt(0)
"""
    _, clean = execute(body.format(count=1), lds=256)
    assert not clean.findings
    _, result = execute(body.format(count=2), lds=256)
    assert (only(result).kind, only(result).needs) == ("missing-wait", "lgkmcnt(1)")


def test_overwriting_a_load_in_flight():
    body = """  v_lshlrev_b32 v1, 2, v0
  global_load_dword v2, v1, s[4:5]
  v_mov_b32 v2, 0
  s_waitcnt vmcnt(0)
"""
    _, result = execute(body)
    finding = only(result)
    assert (finding.kind, finding.resource) == ("overwrite-in-flight", "v2")


def test_storing_a_register_in_flight_is_a_use():
    body = """  v_lshlrev_b32 v1, 2, v0
  global_load_dwordx4 v[4:7], v1, s[4:5]
  global_store_dwordx4 v1, v[4:7], s[6:7]
"""
    _, result = execute(body, np.zeros(256, np.uint32), np.zeros(256, np.uint32))
    assert {f.kind for f in result.findings} == {"missing-wait"}
    assert result.findings[0].needs == "vmcnt(0)"


# ---- races between waves ----------------------------------------------------------------------

# Wave w writes its 256 bytes, every wave reads those of the other wave.
_EXCHANGE = """  v_lshlrev_b32 v1, 2, v0
  v_xor_b32 v2, 0x100, v1
  ds_write_b32 v1, v0
  {wait}
  {barrier}
  ds_read_b32 v3, v2
  s_waitcnt lgkmcnt(0)
  v_lshlrev_b32 v63, 2, v0
  global_store_dword v63, v3, s[6:7]
"""


@pytest.mark.parametrize("mode", MODES)
def test_exchange_through_lds_is_clean(mode):
    body = _EXCHANGE.format(wait="s_waitcnt lgkmcnt(0)", barrier="s_barrier")
    out, result = execute(body, out=np.zeros(128, np.uint32), waves=2, lds=512, mode=mode)
    assert not result.findings
    np.testing.assert_array_equal(out, np.arange(128) ^ 64)


@pytest.mark.parametrize("mode", MODES)
def test_read_after_write_without_barrier(mode):
    body = _EXCHANGE.format(wait="s_waitcnt lgkmcnt(0)", barrier="s_nop 0")
    _, result = execute(body, out=np.zeros(128, np.uint32), waves=2, lds=512, mode=mode)
    found = set(kinds(result))
    assert found & {"race-raw", "race-war"} and found <= {"race-raw", "race-war", "undefined-lds"}
    race = next(f for f in result.findings if f.kind.startswith("race"))
    assert race.needs in ("s_barrier", "lgkmcnt(0)", "lgkmcnt(1)")
    assert {race.wave, race.other_wave} == {0, 1}


@pytest.mark.parametrize("mode", MODES)
def test_barrier_without_the_writers_wait(mode):
    body = _EXCHANGE.format(wait="s_nop 0", barrier="s_barrier")
    _, result = execute(body, out=np.zeros(128, np.uint32), waves=2, lds=512, mode=mode)
    finding = only(result)
    assert finding.kind == "race-raw" and finding.asm.startswith("ds_read_b32")
    assert finding.other_asm.startswith("ds_write_b32") and finding.needs.startswith("lgkmcnt(")
    assert finding.wave != finding.other_wave and finding.resource.startswith("LDS 0x")


# Wave 1 overwrites what wave 0 reads.
_OVERWRITE = """  v_lshlrev_b32 v1, 2, v0
  v_and_b32 v1, 0xff, v1
  v_readfirstlane_b32 s10, v0
  s_cmp_lt_u32 s10, 64
  s_cbranch_scc0 .Lsecond
  ds_write_b32 v1, v0
  ds_read_b32 v2, v1
  {wait}
  s_barrier
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[6:7]
  s_endpgm
.Lsecond:
  s_barrier
  v_mov_b32 v3, 0
  {overwrite}
"""
_DS_OVERWRITE = "ds_write_b32 v1, v3"
_DMA_OVERWRITE = "s_mov_b32 m0, 0\n  s_nop 0\n  global_load_lds_dword v1, s[4:5]"


@pytest.mark.parametrize("overwrite", [_DS_OVERWRITE, _DMA_OVERWRITE])
@pytest.mark.parametrize("mode", MODES)
def test_write_after_read(overwrite, mode):
    body = _OVERWRITE.format(wait="s_waitcnt lgkmcnt(0)", overwrite=overwrite)
    out, clean = execute(body, waves=2, lds=256, mode=mode)
    assert not clean.findings
    np.testing.assert_array_equal(out, np.arange(64))
    _, result = execute(
        _OVERWRITE.format(wait="s_nop 0", overwrite=overwrite), waves=2, lds=256, mode=mode
    )
    assert set(kinds(result)) == {"race-war", "race-waw"}  # the write was not waited for either
    war = next(f for f in result.findings if f.kind == "race-war")
    assert war.other_asm.startswith("ds_read_b32") and (war.wave, war.other_wave) == (1, 0)


def test_late_reads_show_the_overwrite_in_values():
    body = _OVERWRITE.format(wait="s_nop 0", overwrite=_DMA_OVERWRITE)
    body = body.replace("ds_write_b32 v1, v0\n", "ds_write_b32 v1, v0\n  s_waitcnt lgkmcnt(0)\n", 1)
    body = body.replace("  s_waitcnt lgkmcnt(0)\n  global", "  s_barrier\n  s_waitcnt 0\n  global")
    body += "  s_waitcnt vmcnt(0)\n  s_barrier\n"
    out, result = execute(body, np.full(64, 7, np.uint32), waves=2, lds=256, mode="latest")
    assert "race-war" in kinds(result) and (out == 7).all()
    out, _ = execute(body, np.full(64, 7, np.uint32), waves=2, lds=256, mode="earliest")
    np.testing.assert_array_equal(out, np.arange(64))


def test_waves_of_earliest_are_side_by_side():
    """Eight instructions after the branch, one wave reads what the other one wrote in two."""
    body = """  v_lshrrev_b32 v1, 6, v0
  v_mov_b32 v2, 0
  v_mov_b32 v3, 42
  v_readfirstlane_b32 s8, v1
  s_cmp_eq_u32 s8, 0
  s_cbranch_scc0 writer
"""
    body += (
        "  s_nop 0\n" * 8
        + """  ds_read_b32 v4, v2
  s_waitcnt lgkmcnt(0)
  v_lshlrev_b32 v5, 2, v0
  global_store_dword v5, v4, s[6:7]
  s_endpgm
writer:
  ds_write_b32 v2, v3
  s_waitcnt lgkmcnt(0)
"""
    )
    out, result = execute(body, waves=2, lds=256, mode="earliest")
    assert (out == 42).all()
    assert kinds(result) == ["race-raw"]  # right by luck, and said to be


_TWO_COPIES = """  v_lshlrev_b32 v1, 2, v0
  v_and_b32 v1, 0xff, v1
  s_mov_b32 m0, 0
  v_readfirstlane_b32 s10, v0
  s_cmp_lt_u32 s10, 64
  s_cbranch_scc0 .Lsecond
  global_load_lds_dword v1, s[4:5]
  {wait}
  s_barrier
  s_endpgm
.Lsecond:
  s_barrier
  global_load_lds_dword v1, s[4:5]
  s_waitcnt vmcnt(0)
"""


@pytest.mark.parametrize("mode", MODES)
def test_two_copies_to_the_same_place(mode):
    _, clean = execute(_TWO_COPIES.format(wait="s_waitcnt vmcnt(0)"), waves=2, lds=256, mode=mode)
    assert not clean.findings
    _, result = execute(_TWO_COPIES.format(wait="s_nop 0"), waves=2, lds=256, mode=mode)
    finding = only(result)
    assert finding.kind == "race-waw" and finding.needs == "vmcnt(0)"
    assert {finding.wave, finding.other_wave} == {0, 1}


_OWN_COPY = """  v_lshlrev_b32 v1, 2, v0
  s_mov_b32 m0, 0
  s_nop 0
  global_load_lds_dword v1, s[4:5]
  global_load_dword v5, v1, s[4:5]
  {wait}
  ds_read_b32 v2, v1
  s_waitcnt vmcnt(0) lgkmcnt(0)
"""


@pytest.mark.parametrize("mode", MODES)
def test_own_load_to_lds_needs_vmcnt_too(mode):
    data = np.arange(64, dtype=np.uint32) + 9
    body = _OWN_COPY.format(wait="s_waitcnt vmcnt(1)") + store_rows(2, 1)
    out, clean = execute(body, data, lds=256, mode=mode)
    assert not clean.findings
    np.testing.assert_array_equal(out, data)
    body = _OWN_COPY.format(wait="s_waitcnt vmcnt(2)") + store_rows(2, 1)
    out, result = execute(body, data, lds=256, mode=mode)
    finding = only(result)
    assert (finding.kind, finding.needs) == ("missing-wait", "vmcnt(1)")
    assert finding.resource.startswith("LDS 0x0")
    if mode == "latest":
        assert (out == _POISON).all()


def test_a_copy_never_waited_for_is_fine_until_somebody_reads():
    body = """  v_lshlrev_b32 v1, 2, v0
  v_and_b32 v1, 0xff, v1
  s_mov_b32 m0, 0
  v_readfirstlane_b32 s10, v0
  s_cmp_lt_u32 s10, 64
  s_cbranch_scc0 .Lsecond
  global_load_lds_dword v1, s[4:5]
  s_endpgm
.Lsecond:
  {reader}
"""
    _, clean = execute(body.format(reader="s_nop 0"), waves=2, lds=256)
    assert not clean.findings
    reader = "ds_read_b32 v2, v1\n  s_waitcnt lgkmcnt(0)"
    _, result = execute(body.format(reader=reader), waves=2, lds=256)
    assert kinds(result) == ["race-raw"]


_PIPELINE = """  v_lshlrev_b32 v1, 2, v0
  v_xor_b32 v2, 0x100, v1
  v_readfirstlane_b32 s10, v1
  s_mov_b32 m0, s10
  v_and_b32 v3, 0xff, v1
  global_load_lds_dword v3, s[4:5]
  global_load_dword v5, v3, s[4:5]
  global_load_dword v6, v3, s[4:5]
  s_waitcnt vmcnt({count})
  s_barrier
  global_load_dword v7, v3, s[4:5]
  global_load_dword v8, v3, s[4:5]
  ds_read_b32 v4, v2
  s_waitcnt vmcnt(0) lgkmcnt(0)
"""


@pytest.mark.parametrize("mode", MODES)
def test_the_wait_that_a_race_needs_is_the_one_before_the_barrier(mode):
    data = np.arange(64, dtype=np.uint32)
    _, clean = execute(_PIPELINE.format(count=2), data, waves=2, lds=512, mode=mode)
    assert not clean.findings
    _, result = execute(_PIPELINE.format(count=3), data, waves=2, lds=512, mode=mode)
    assert [(f.kind, f.needs) for f in result.findings] == [("race-raw", "vmcnt(2)")]


# Wave 1 lags wave 0 by one barrier: barriers meet at different program counters.
_STAGGERED = """  v_lshlrev_b32 v1, 2, v0
  v_and_b32 v1, 0xff, v1
  v_readfirstlane_b32 s10, v0
  s_cmp_lt_u32 s10, 64
  s_cbranch_scc0 .Lsecond
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  s_barrier
  s_nop 0
  s_barrier
  s_endpgm
.Lsecond:
  s_barrier
  ds_read_b32 v2, v1
  s_waitcnt lgkmcnt(0)
  v_mov_b32 v3, v1
  {last}
  global_store_dword v3, v2, s[6:7]
"""


@pytest.mark.parametrize("mode", MODES)
def test_barriers_count_and_never_compare_places(mode):
    out, result = execute(_STAGGERED.format(last="s_barrier"), waves=2, lds=256, mode=mode)
    assert not result.findings
    np.testing.assert_array_equal(out, np.arange(64))


def test_unequal_barrier_totals():
    _, result = execute(_STAGGERED.format(last="s_nop 0"), waves=2, lds=256)
    finding = only(result)
    assert finding.kind == "barrier-unequal"
    assert finding.message == "wave 1 passed 1 barriers, wave 0 passed 2"


# ---- wait states ------------------------------------------------------------------------------

_MFMA = "  v_mfma_f32_16x16x32_bf16 v[10:13], v[2:5], v[6:9], 0\n"


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        (_MFMA + "  s_nop 6\n  v_mov_b32 v20, v12\n", "s_nop 0"),
        (_MFMA + "  v_mov_b32 v20, v12\n", "s_nop 7"),
        (_MFMA + "  s_nop 3\n  v_mov_b32 v11, 0\n", "s_nop 3"),
        ("  v_mov_b32 v6, 0\n" + _MFMA, "s_nop 1"),
        ("  v_exp_f32 v20, v2\n  v_add_f32 v21, v20, v20\n", "s_nop 0"),
        ("  v_mov_b32 v20, v2\n  s_nop 0\n  v_permlane32_swap_b32 v20, v3\n", "s_nop 0"),
        ("  v_readfirstlane_b32 s10, v2\n  buffer_load_dword v9, off, s[12:15], s10\n", "s_nop 4"),
        ("  v_mov_b32 v20, v2\n  v_mov_b32_dpp v21, v20 row_newbcast:1 row_mask:0xf bank_mask:0xf "
         "bound_ctrl:0\n", "s_nop 1"),
    ],
)  # fmt: skip
def test_wait_states(text, needs):
    prepare = load_rows(2, 8) + "  s_mov_b64 s[12:13], s[4:5]\n  s_mov_b32 s14, 256\n"
    prepare += "  s_mov_b32 s15, 0x20000\n  s_nop 4\n"
    _, result = execute(prepare + text, np.zeros((8, 64), np.uint32))
    finding = only(result)
    assert (finding.kind, finding.needs) == ("wait-states", needs)
    padding = "  " + needs + "\n"
    last = text.rstrip("\n").rfind("\n") + 1
    _, clean = execute(prepare + text[:last] + padding + text[last:], np.zeros((8, 64), np.uint32))
    assert not clean.findings


def test_same_accumulator_needs_no_wait_states():
    text = _MFMA.replace(", 0\n", ", v[10:13]\n")
    body = load_rows(2, 12) + "  s_nop 1\n" + text * 3 + store_rows(10, 1)
    _, result = execute(body, np.zeros((12, 64), np.uint32))
    assert not result.findings


# ---- undefined values, bounds, alignment ------------------------------------------------------


def test_undefined_registers():
    _, result = execute("  v_add_u32 v2, v1, v0\n  s_add_u32 s10, s40, 1\n")
    assert [(f.kind, f.resource) for f in result.findings] == [
        ("undefined-register", "v1"),
        ("undefined-register", "s40"),
    ]


def test_registers_of_disabled_lanes_stay_undefined():
    body = (
        "  s_mov_b32 exec_hi, 0\n  v_mov_b32 v2, 1\n  v_mov_b32 v3, v2\n  s_mov_b32 exec_hi, -1\n"
    )
    _, result = execute(body + "  v_mov_b32 v4, v2\n")
    assert [(f.kind, f.asm) for f in result.findings] == [
        ("undefined-register", "v_mov_b32 v4, v2")
    ]


def test_undefined_lds():
    body = "  v_lshlrev_b32 v1, 2, v0\n  ds_read_b32 v2, v1 offset:16\n  s_waitcnt lgkmcnt(0)\n"
    _, result = execute(body, lds=512)
    finding = only(result)
    assert (finding.kind, finding.resource, finding.count) == (
        "undefined-lds",
        "LDS 0x10..0x13",
        64,
    )


@pytest.mark.parametrize(
    ("text", "kind", "resource"),
    [
        ("ds_write_b32 v1, v0 offset:4", "lds-bounds", "LDS 0x100..0x103"),
        ("ds_write_b64 v1, v[2:3]", "lds-alignment", "LDS 0x4..0x7"),
        ("s_movk_i32 m0, 0x80\n  s_nop 0\n  global_load_lds_dword v1, s[4:5]", "lds-bounds",
         "LDS 0x100..0x103"),
    ],
)  # fmt: skip
def test_lds_bounds_and_alignment(text, kind, resource):
    body = "  v_lshlrev_b32 v1, 2, v0\n  v_mov_b32 v2, 0\n  v_mov_b32 v3, 0\n"
    _, result = execute(f"{body}  {text}\n", lds=256)
    assert (kind, resource) in [(f.kind, f.resource) for f in result.findings]


def test_global_bounds_name_the_argument():
    body = "  v_lshlrev_b32 v1, 2, v0\n  global_load_dword v2, v1, s[4:5] offset:8\n"
    _, result = execute(body + "  s_waitcnt vmcnt(0)\n")
    finding = only(result)
    assert (finding.kind, finding.resource, finding.count) == ("global-bounds", "buffer source", 2)
    assert "buffer source + 0x100 (size 0x100)" in finding.message
    body = "  v_lshlrev_b32 v1, 2, v0\n  global_store_dword v1, v0, s[4:5]\n"
    _, result = execute(body)
    assert only(result).kind == "global-bounds"  # the buffer is read-only
    assert "stores to buffer source" in only(result).message


def test_a_far_offset_never_reaches_another_buffer():
    body = "  s_add_u32 s5, s5, 1\n  v_lshlrev_b32 v1, 2, v0\n"
    body += "  global_load_dword v2, v1, s[4:5]\n  s_waitcnt vmcnt(0)\n"
    _, result = execute(body + store_rows(2, 1))
    assert kinds(result) == ["global-bounds"]


# ---- the run as a whole -----------------------------------------------------------------------


def test_random_mode_is_reproducible_and_legal():
    body = _EXCHANGE.format(wait="s_waitcnt lgkmcnt(0)", barrier="s_barrier")
    for seed in range(20):
        out, result = execute(
            body, out=np.zeros(256, np.uint32), waves=4, lds=1024, mode="random", seed=seed
        )
        assert not result.findings
        np.testing.assert_array_equal(out, np.arange(256) ^ 64)
    racy = _EXCHANGE.format(wait="s_nop 0", barrier="s_nop 0")
    runs = [
        execute(racy, out=np.zeros(128, np.uint32), waves=2, lds=512, mode="random", seed=s)[0]
        for s in (3, 3, 4, 5, 6, 7)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert any((runs[0] != other).any() for other in runs[2:])


def test_without_the_sanitizer_values_are_the_same():
    body = _EXCHANGE.format(wait="s_waitcnt lgkmcnt(0)", barrier="s_barrier")
    out, result = execute(body, out=np.zeros(128, np.uint32), waves=2, lds=512, sanitize=False)
    np.testing.assert_array_equal(out, np.arange(128) ^ 64)
    assert not result.findings and result.counts["s_barrier"] == 2


_PER_GROUP = (
    POINTERS
    + """  v_lshlrev_b32 v1, 2, v0
  s_lshl_b32 s10, s2, 8
  s_add_u32 s6, s6, s10
  s_addc_u32 s7, s7, 0
  v_mov_b32 v2, s2
  global_store_dword v1, v2, s[6:7]
  s_endpgm
"""
)


@pytest.mark.parametrize("threads", [1, 3])
def test_workgroups(threads):
    code = assemble(_PER_GROUP)
    steps = []
    out = np.full((6, 64), 99, np.uint32)
    arguments = [Argument(0, Buffer("in", np.zeros(1, np.uint32), "read"))]
    arguments.append(Argument(8, Buffer("out", out, "write")))
    result = emulate(
        code,
        Launch(grid=(6, 1, 1), block=(64, 1, 1), arguments=arguments),
        Settings(workgroups=[(0, 0, 0), (2, 0, 0), (5, 0, 0)], threads=threads),
        progress=lambda done, total: steps.append((done, total)),
    )
    np.testing.assert_array_equal(out[:, 0], [0, 99, 2, 99, 99, 5])
    assert steps == [(1, 3), (2, 3), (3, 3)] and result.counts["s_endpgm"] == 3


def test_findings_of_workgroups_are_merged():
    body = "  v_mov_b32 v2, v9\n"
    _, result = execute(body, grid=5)
    finding = only(result)
    assert finding.count == 5 and finding.workgroup == (0, 0, 0)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("v_frexp_mant_f32 v1, v0", "v_frexp_mant_f32 (at 0x"),
        ("v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[16:19], v[24:31], v[0:15] cbsz:4", "cbsz:4"),
        ("v_add_f32_sdwa v1, -v0, v0 src0_sel:WORD_1", "SDWA"),
        ("s_setpc_b64 s[4:5]", "s_setpc_b64"),
        ("v_mfma_f32_16x16x32_bf16 v[0:3], v[16:19], v[24:27], v[2:5]", "partly overlaps"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(body, named):
    with pytest.raises(UnsupportedError) as caught:
        execute(f"  {body}\n")
    assert named in caught.value.message


@pytest.mark.parametrize(
    ("body", "named", "frame"),
    [
        ("v_mov_b32 v80, v0", "v80, but the kernel allocates 64 vector registers", {}),
        ("v_mov_b32 v0, v64", "v64, but the kernel allocates 64 vector registers", {}),
        ("v_pk_add_f32 v[62:63], v[64:65], v[0:1]", "v[64:65], but the kernel", {}),
        ("v_accvgpr_read_b32 v0, a0\n  v_mov_b32 v40, v0",
         "v40, but the kernel allocates 32 vector", {"accum": 32}),
        ("v_accvgpr_read_b32 v0, a0\n  buffer_store_dwordx4 v[30:33], off, s[4:7], 0",
         "v[30:33], but the kernel allocates 32 vector", {"accum": 32}),
        ("v_mov_b32 v64, v0", "v64, but the kernel allocates 64 vector", {"vgprs": 57}),
        ("v_accvgpr_read_b32 v0, a8", "a8, but the kernel allocates 8 accumulation",
         {"vgprs": 57, "accum": 56}),
        ("v_accvgpr_read_b32 v0, a40", "a40, but the kernel allocates 32 accumulation",
         {"accum": 32}),
    ],
)  # fmt: skip
def test_registers_that_the_kernel_does_not_have_are_its_fault(body, named, frame):
    """Told by the emulator, as a fault of the kernel, and by the audit; in any register file."""
    with pytest.raises(FindingsError) as caught:
        execute(f"  {body}\n", **frame)
    assert named in caught.value.message and "the kernel is at fault" in (caught.value.hint or "")
    code = assemble(f"  {body}\n  s_endpgm\n", **frame)
    told = audit_code_object(code).errors
    assert [finding.rule for finding in told] == ["register-bounds"]
    assert named.split(",")[0] in told[0].message


def test_scalar_registers_that_the_kernel_does_not_have_are_its_fault():
    (kernel,) = load_code_object(assemble("  s_mov_b32 s50, s49\n  s_endpgm\n")).kernels.values()
    for held, told in ((48, ["s49"]), (64, [])):
        less = replace(kernel, descriptor=replace(kernel.descriptor, sgprs=held))
        found = [f.resource for f in audit_kernel(less).errors if f.rule == "register-bounds"]
        assert found == told
        assert [gap.why.split(",")[0] for gap in gaps(less)] == told


@pytest.mark.parametrize(
    ("body", "frame"),
    [
        ("v_mov_b32 v63, v0", {}),
        ("v_pk_mul_f32 v[62:63], v[62:63], v[62:63]", {}),
        # 57 registers are 64 for the hardware, of any kind; a0 is v60 if there is one.
        ("v_mov_b32 v63, v0", {"vgprs": 57, "accum": 60}),
        ("v_mov_b32 v40, v0", {"accum": 32}),
        ("v_accvgpr_write_b32 a7, v0", {"vgprs": 57, "accum": 56}),
        ("s_mov_b64 vcc, 0", {}),
        ("s_mov_b32 m0, 0", {}),
    ],
)
def test_registers_that_it_has_are_taken(body, frame):
    code = assemble(f"  {body}\n  s_endpgm\n", **frame)
    assert not [f for f in audit_code_object(code).findings if f.rule == "register-bounds"]
    assert not list(gaps(load_code_object(code).kernel()))


def test_modes_that_are_not_modelled_are_refused():
    for extra, named in (
        (".amdhsa_float_round_mode_32 1", "rounding"),
        (".amdhsa_user_sgpr_dispatch_ptr 1", "dispatch_ptr"),
        (".amdhsa_enable_private_segment 1", "scratch"),
    ):
        with pytest.raises(UnsupportedError, match=named):
            execute("  s_nop 0\n", extra=extra)


def test_a_kernel_that_never_ends():
    code = assemble("  s_mov_b32 s10, 0\n.Lagain:\n  s_branch .Lagain\n  s_endpgm\n")
    with pytest.raises(UnsupportedError, match="has not ended after"):
        emulate(
            code,
            Launch(grid=(1, 1, 1), block=(64, 1, 1), arguments=[]),
            Settings(max_instructions=1000),
        )


def test_a_loop_on_a_poisoned_count_is_stopped():
    body = """  s_load_dword s10, s[4:5], 0x0
.Lagain:
  s_sub_u32 s10, s10, 1
  s_cmp_lg_u32 s10, 0
  s_cbranch_scc1 .Lagain
"""
    _, result = execute(body, np.ones(64, np.uint32))
    assert kinds(result).count("not-ended") == 1
    assert "missing-wait" in kinds(result)


def test_launch_errors():
    code = assemble("  s_endpgm\n", kernarg=16)

    def run(arguments, block=(64, 1, 1), **options):
        emulate(code, Launch((1, 1, 1), block, arguments), Settings(**options))

    with pytest.raises(ConfigError, match="ends at byte 24"):
        run(arguments=[Argument(16, np.uint64(0))])
    with pytest.raises(ConfigError, match="at most 1024"):
        run(arguments=[], block=(2048, 1, 1))
    with pytest.raises(ConfigError, match="outside the grid"):
        run(arguments=[], workgroups=[(1, 0, 0)])
    with pytest.raises(ConfigError, match="mode is 'sometimes'"):
        run(arguments=[], mode="sometimes")
    with pytest.raises(ConfigError, match="not C-contiguous"):
        run(arguments=[Argument(0, Buffer("x", np.zeros((4, 4))[:, ::2]))])
