"""The tracer names the first NaN or Inf, its operands, their writers, and the outputs reached."""

import math

import ml_dtypes
import numpy as np
import pytest
from emulating import POINTERS, load_rows, store_rows
from gfx950_assembler import assemble

from mlagen.binary import load_code_object
from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
from mlagen.emulator.gfx950 import trace_layout as t
from mlagen.emulator.gfx950.engine_operations import OPCODES
from mlagen.emulator.tracing.float_operands import float_operation, matrix_formats, values

F32 = np.float32


def trace(body, source=None, out=None, *, rows=1, waves=1, grid=1, **frame):
    """(origins, outputs, output array) of `body` run with the pointers loaded."""
    source = np.zeros(64, F32) if source is None else source
    out = np.full(64 * rows, 0.0, F32) if out is None else out
    code = assemble(f"{POINTERS}{body}\n  s_endpgm\n", **frame)
    arguments = [Argument(0, Buffer("source", source, "read")), Argument(8, Buffer("out", out))]
    result = emulate(
        code,
        Launch(grid=(grid, 1, 1), block=(64 * waves, 1, 1), arguments=arguments),
        Settings(trace_nonfinite=True),
    )
    assert not result.findings, [str(f) for f in result.findings]
    return result.nonfinite, result.nonfinite_outputs, out


def culprit(origin):
    assert origin.culprit is not None
    return origin.sources[origin.culprit]


def test_clean_floats_have_no_origin():
    data = np.linspace(-3, 3, 64, dtype=F32)
    body = load_rows(1, 1) + "  v_exp_f32 v2, v1\n  s_nop 1\n  v_mul_f32 v2, v2, v2\n"
    origins, outputs, out = trace(body + store_rows(2, 1), data)
    assert (origins, outputs) == ((), ())
    assert np.isfinite(out).all()


@pytest.mark.parametrize(
    ("make", "value"),
    [
        ("v_rcp_f32 v2, v1", math.inf),
        ("v_log_f32 v2, v1", -math.inf),
        ("v_rsq_f32 v2, v1", math.inf),
        ("v_exp_f32 v2, 0x43480000", math.inf),
        ("v_mul_f32 v2, 0x7f000000, 0x7f000000", math.inf),
    ],
)
def test_made_from_finite_operands(make, value):
    body = load_rows(1, 1) + f"  s_mov_b32 s20, 0x7f000000\n  {make}\n  s_nop 1\n"
    if make.startswith("v_mul"):
        body = body.replace(make, "v_mov_b32 v3, 0x7f000000\n  v_mul_f32 v2, s20, v3")
    origins, outputs, out = trace(body + store_rows(2, 1), np.zeros(64, F32))
    (origin,) = origins
    assert origin.kind == "made"
    assert origin.values == (value,)
    assert (origin.register, origin.count, origin.culprit) == ("v2", 64, None)
    (output,) = outputs
    assert (output.buffer, output.index, output.count) == ("out", (0,), 64)
    assert output.origin == origin
    assert output.store_asm.startswith("global_store_dword v63, v2")
    assert (out == value).all()


def test_the_difference_of_infinite_masks_is_an_origin_and_names_the_mask():
    body = """  v_mov_b32 v1, 0xff800000
  v_mov_b32 v2, 1.0
  v_max_f32 v3, v1, v2
  v_max_f32 v4, v1, v1
  v_sub_f32 v5, v1, v4
"""
    origins, outputs, _ = trace(body + store_rows(5, 1))
    first, second = origins
    assert (first.kind, first.asm, first.values) == (
        "constant",
        "v_max_f32 v4, v1, v1",
        (-math.inf,),
    )
    assert culprit(first).writer_asm == "v_mov_b32 v1, 0xff800000"
    assert second.kind == "nan-from-inf"
    assert second.asm == "v_sub_f32 v5, v1, v4"
    assert [s.values for s in second.sources] == [(-math.inf,), (-math.inf,)]
    assert [s.writer_asm for s in second.sources] == [
        "v_mov_b32 v1, 0xff800000",
        "v_max_f32 v4, v1, v1",
    ]
    assert outputs[0].origin == second


def test_a_register_that_integers_overwrote_is_named_with_its_writer():
    body = (
        load_rows(1, 1)
        + """  v_mov_b32 v18, 1.0
  v_lshlrev_b32 v18, 30, v0
  v_or_b32 v18, 0x7fc00000, v18
  v_sub_f32 v4, v1, v18
  v_mul_f32 v5, v4, v4
"""
    )
    origins, outputs, _ = trace(body + store_rows(5, 1), np.ones(64, F32))
    (origin,) = origins
    assert (origin.kind, origin.asm) == ("integer", "v_sub_f32 v4, v1, v18")
    bad = culprit(origin)
    assert (bad.register, bad.bits) == ("v18", 0x7FC00000)
    assert bad.writer_asm == "v_or_b32 v18, 0x7fc00000, v18"
    assert outputs[0].origin == origin
    assert "v_sub_f32 v4, v1, v18" in outputs[0].message


def test_only_the_active_lanes_count():
    body = """  s_mov_b64 s[10:11], exec
  v_mov_b32 v2, 0
  v_mov_b32 v1, 0
  s_mov_b32 s12, 0x20
  s_mov_b32 s13, 0
  s_mov_b64 exec, s[12:13]
  v_rcp_f32 v2, v1
  s_mov_b64 exec, s[10:11]
  s_nop 4
"""
    origins, outputs, _ = trace(body + store_rows(2, 1))
    (origin,) = origins
    assert (origin.lane, origin.count) == (5, 1)
    assert (outputs[0].index, outputs[0].count) == ((5,), 1)


def test_an_input_that_is_nan_names_buffer_and_element():
    data = np.ones(64, F32)
    data[17] = np.nan
    body = load_rows(1, 1) + "  v_mov_b32 v2, v1\n  v_add_f32 v3, v2, v2\n"
    origins, outputs, _ = trace(body + store_rows(3, 1), data)
    (origin,) = origins
    assert (origin.kind, origin.lane) == ("input", 17)
    assert culprit(origin).provenance == "source[17]"
    assert culprit(origin).writer_asm == "v_mov_b32 v2, v1"
    assert outputs[0].origin == origin


def test_a_copied_nan_reaches_the_output_without_an_origin():
    data = np.ones(64, F32)
    data[3] = np.inf
    origins, outputs, _ = trace(load_rows(1, 1) + store_rows(1, 1), data)
    assert origins == ()
    assert (outputs[0].index, outputs[0].origin) == ((3,), None)
    assert "a copy of source[3]" in outputs[0].message


def test_the_origin_survives_lds_and_lane_exchanges():
    body = (
        load_rows(1, 1)
        + """  v_rcp_f32 v2, v1
  s_nop 1
  v_lshlrev_b32 v10, 2, v0
  ds_write_b32 v10, v2
  s_waitcnt lgkmcnt(0)
  s_barrier
  v_xor_b32 v11, 16, v10
  ds_read_b32 v3, v11
  s_waitcnt lgkmcnt(0)
  ds_bpermute_b32 v4, v11, v3
  s_waitcnt lgkmcnt(0)
  v_mov_b32 v5, 0
  s_nop 1
  v_permlane32_swap_b32 v4, v5
  s_nop 1
  v_mov_b32_dpp v6, v5 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:0
  s_nop 1
  v_add_f32 v7, 1.0, v6
"""
    )
    data = np.ones(64, F32)
    data[40] = 0.0
    origins, outputs, out = trace(body + store_rows(7, 1), data, lds=1024)
    (origin,) = origins
    assert (origin.kind, origin.asm, origin.lane) == ("made", "v_rcp_f32 v2, v1", 40)
    assert np.flatnonzero(np.isinf(out)).tolist() == [9]
    assert outputs[0].origin == origin


def test_the_origin_survives_global_memory_and_scalars():
    body = (
        load_rows(1, 1)
        + """  v_rcp_f32 v2, v1
  s_nop 1
  global_store_dword v63, v2, s[6:7] offset:256
  s_waitcnt vmcnt(0)
  global_load_dword v3, v63, s[6:7] offset:256
  s_waitcnt vmcnt(0)
  v_readlane_b32 s20, v3, 40
  s_nop 1
  v_mul_f32 v4, s20, v0
"""
    )
    data = np.ones(64, F32)
    data[40] = 0.0
    origins, outputs, _ = trace(body + store_rows(4, 1), data, rows=2)
    first = origins[0]
    assert (first.kind, first.asm) == ("made", "v_rcp_f32 v2, v1")
    assert [origin.kind for origin in origins[1:]] == ["nan-from-inf"] * len(origins[1:])
    assert {output.origin for output in outputs} <= set(origins)


def test_packed_conversions_are_judged_by_element():
    body = """  v_mov_b32 v1, 0xff800000
  v_mov_b32 v2, 0x7f7fffff
  v_cvt_pk_bf16_f32 v3, v1, v2
"""
    out = np.zeros(128, ml_dtypes.bfloat16)
    origins, outputs, _ = trace(body + store_rows(3, 1), out=out)
    assert [origin.kind for origin in origins] == ["constant", "made"]
    assert origins[1].bits == 0x7F800000  # the upper half alone
    assert len(origins[1].sources) == 1 and origins[1].sources[0].register == "v2"
    assert sum(output.count for output in outputs) == 128


def test_fp8_overflow_is_made_by_the_conversion():
    body = "  v_mov_b32 v1, 0x44000000\n  v_mov_b32 v2, 0\n  v_cvt_pk_fp8_f32 v2, v1, v1\n"
    out = np.zeros(256, ml_dtypes.float8_e4m3fn)
    origins, outputs, _ = trace(body + store_rows(2, 1), out=out)
    assert {origin.kind for origin in origins} == {"made"}
    assert origins[0].asm.startswith("v_cvt_pk_fp8_f32")
    assert outputs[0].count == 128


_MFMA = """  s_nop 1
  v_mfma_f32_32x32x16_bf16 v[16:31], v[4:7], v[8:11], {c}
  s_nop 15
  s_nop 7
"""


def matrix_sources(a=1.0, b=1.0):
    """Rows v4..v11: A then B, bf16 pairs."""
    data = np.full((8, 64, 2), a, ml_dtypes.bfloat16)
    data[4:] = b
    return data


def test_a_matrix_overflow_is_made_there():
    data = matrix_sources(3e38, 3e38)
    body = load_rows(4, 8) + _MFMA.format(c=0)
    origins, outputs, _ = trace(body + store_rows(16, 16), data.view(np.uint32), rows=16)
    (origin,) = origins
    assert (origin.kind, origin.count) == ("made", 1024)
    assert origin.asm.startswith("v_mfma_f32_32x32x16_bf16")
    assert sum(output.count for output in outputs) == 1024


def test_zero_times_infinity_names_the_operand_and_its_row():
    data = matrix_sources(0.0, 1.0)
    data[6, 37, 1] = np.inf  # of B: register v10, lane 37, column 5
    body = load_rows(4, 8) + _MFMA.format(c=0)
    origins, _, out = trace(body + store_rows(16, 16), data.view(np.uint32), rows=16)
    (origin,) = origins
    assert (origin.kind, origin.count) == ("nan-from-inf", 32)
    bad = culprit(origin)
    assert (bad.register, bad.lane) == ("v10", 37)
    assert bad.provenance == "source[2, 37, 1]" or bad.provenance.startswith("source[")
    assert set(np.flatnonzero(np.isnan(out)) % 32) == {5}


def test_an_accumulator_keeps_its_origin():
    data = matrix_sources(3e38, 3e38)
    again = _MFMA.format(c="v[16:31]")
    body = load_rows(4, 8) + _MFMA.format(c=0) + again
    origins, outputs, _ = trace(body + store_rows(16, 16), data.view(np.uint32), rows=16)
    (origin,) = origins
    assert outputs[0].origin == origin


def test_an_address_that_was_overwritten_is_named():
    """What a load through a wrong address brings is told by who wrote the address."""
    source = np.ones(64, F32)
    body = (
        load_rows(1, 1)
        + """  v_lshlrev_b32 v20, 2, v0
  ds_write_b32 v20, v1
  v_mov_b32 v5, 0x7fc00000
  ds_write_b32 v20, v5 offset:256
  s_waitcnt lgkmcnt(0)
  v_add_u32 v20, 0x100, v20
  ds_read_b32 v2, v20
  s_waitcnt lgkmcnt(0)
  v_mul_f32 v3, v2, v2
"""
    )
    origins, _, _ = trace(body + store_rows(3, 1), source, lds=1024)
    (origin,) = origins
    bad = culprit(origin)
    assert bad.writer_asm == "ds_read_b32 v2, v20"
    assert bad.address_asm == "v_add_u32 v20, 0x100, v20"
    assert bad.provenance.startswith("v_mov_b32 v5, 0x7fc00000")
    assert "its address by v_add_u32" in origin.message


def test_undefined_registers_and_lds_are_named():
    code = assemble(
        POINTERS
        + """  v_lshlrev_b32 v63, 2, v0
  ds_read_b32 v2, v63
  s_waitcnt lgkmcnt(0)
  v_mul_f32 v3, v2, v2
  v_add_f32 v4, v9, v9
  s_endpgm
""",
        lds=1024,
    )
    arguments = [Argument(0, Buffer("source", np.zeros(4), "read")), Argument(8, np.int64(0))]
    result = emulate(
        code,
        Launch(grid=(1, 1, 1), block=(64, 1, 1), arguments=arguments),
        Settings(trace_nonfinite=True, sanitize=False),
    )
    lds, register = result.nonfinite
    assert (lds.kind, register.kind) == ("undefined", "undefined")
    assert culprit(lds).provenance == "LDS that was never written"
    assert (culprit(register).register, culprit(register).provenance) == ("v9", "never written")


def test_workgroups_and_modes_agree():
    body = """  v_cvt_f32_u32 v1, s2
  v_rcp_f32 v2, v1
  s_lshl_b32 s9, s2, 8
  s_nop 1
  v_lshlrev_b32 v63, 2, v0
  v_add_u32 v63, s9, v63
  global_store_dword v63, v2, s[6:7]
"""
    found = []
    for mode in ("latest", "earliest", "random"):
        out = np.zeros((3, 64), F32)
        result = emulate(
            assemble(f"{POINTERS}{body}  s_endpgm\n"),
            Launch(
                grid=(3, 1, 1),
                block=(64, 1, 1),
                arguments=[
                    Argument(0, Buffer("source", np.zeros(4), "read")),
                    Argument(8, Buffer("out", out)),
                ],
            ),
            Settings(mode=mode, trace_nonfinite=True),
        )
        (origin,) = result.nonfinite
        (output,) = result.nonfinite_outputs
        assert output.workgroup == origin.workgroup == (0, 0, 0)
        assert output.index == (0, 0)
        found.append((origin.pc, origin.count))
    assert found == [found[0]] * 3 and found[0][1] == 64


def test_tracing_changes_no_result():
    data = np.linspace(-3, 3, 64, dtype=F32)
    body = load_rows(1, 1) + "  v_exp_f32 v2, v1\n  s_nop 1\n" + store_rows(2, 1)
    code = assemble(f"{POINTERS}{body}\n  s_endpgm\n")
    outs = []
    for traced in (False, True):
        out = np.zeros(64, F32)
        result = emulate(
            code,
            Launch(
                grid=(1, 1, 1),
                block=(64, 1, 1),
                arguments=[
                    Argument(0, Buffer("source", data, "read")),
                    Argument(8, Buffer("out", out)),
                ],
            ),
            Settings(trace_nonfinite=traced),
        )
        outs.append((out.tobytes(), result.wave_instructions))
        assert result.nonfinite == ()
    assert outs[0] == outs[1]


def one_zero(lane=40):
    data = np.ones(64, F32)
    data[lane] = 0.0
    return data


def test_a_transposing_read_keeps_the_origin():
    body = (
        load_rows(1, 1)
        + """  v_rcp_f32 v2, v1
  v_lshlrev_b32 v10, 2, v0
  v_lshlrev_b32 v11, 3, v0
  v_mov_b32 v3, 0
  ds_write_b32 v10, v2
  ds_write_b32 v10, v3 offset:256
  s_waitcnt lgkmcnt(0)
  ds_read_b64_tr_b16 v[12:13], v11
  s_waitcnt lgkmcnt(0)
  v_and_b32 v14, 0xffff0000, v12
  v_add_f32 v14, v14, v14
  v_and_b32 v15, 0xffff0000, v13
  v_add_f32 v15, v15, v15
  v_lshlrev_b32 v16, 16, v12
  v_add_f32 v16, v16, v16
  v_lshlrev_b32 v17, 16, v13
  v_add_f32 v17, v17, v17
"""
    )
    origins, outputs, out = trace(body + store_rows(14, 4), one_zero(), rows=4, lds=1024)
    (origin,) = origins
    assert (origin.kind, origin.asm, origin.lane) == ("made", "v_rcp_f32 v2, v1", 40)
    assert np.isinf(out).sum() == 1
    assert outputs[0].origin == origin


def test_a_load_to_lds_names_the_buffer():
    data = np.ones(64, F32)
    data[9] = np.nan
    body = """  s_mov_b32 m0, 256
  v_lshlrev_b32 v63, 2, v0
  s_nop 1
  global_load_lds_dword v63, s[4:5]
  s_waitcnt vmcnt(0)
  ds_read_b32 v2, v63 offset:256
  s_waitcnt lgkmcnt(0)
  v_add_f32 v3, v2, v2
"""
    origins, _, _ = trace(body + store_rows(3, 1), data, lds=1024)
    (origin,) = origins
    assert (origin.kind, origin.lane) == ("input", 9)
    assert culprit(origin).provenance == "source[9]"


def test_a_scalar_load_is_an_input():
    data = np.full(64, np.inf, F32)
    body = """  s_load_dword s20, s[4:5], 0x0
  s_waitcnt lgkmcnt(0)
  v_mov_b32 v1, 1.0
  v_mul_f32 v2, s20, v1
"""
    origins, _, _ = trace(body + store_rows(2, 1), data)
    (origin,) = origins
    assert origin.kind == "input"
    assert (culprit(origin).register, culprit(origin).values) == ("s20", (math.inf,))
    assert culprit(origin).writer_asm.startswith("s_load_dword s20")


def test_indexed_registers_swaps_and_lane_writes_keep_the_origin():
    body = (
        load_rows(1, 1)
        + """  v_rcp_f32 v2, v1
  v_mov_b32 v4, 0
  s_mov_b32 s20, 1
  s_set_gpr_idx_on s20, gpr_idx(SRC0)
  v_mov_b32 v3, v1
  s_set_gpr_idx_off
  v_swap_b32 v3, v4
  s_nop 1
  v_readlane_b32 s21, v4, 40
  v_mov_b32 v5, 0
  s_nop 3
  v_writelane_b32 v5, s21, 7
  v_add_f32 v6, 1.0, v5
"""
    )
    origins, outputs, out = trace(body + store_rows(6, 1), one_zero())
    (origin,) = origins
    assert origin.asm == "v_rcp_f32 v2, v1"
    assert np.flatnonzero(np.isinf(out)).tolist() == [7]
    assert outputs[0].origin == origin


def test_one_byte_of_fp8_concerns_one_result():
    data = np.zeros((64, 4), ml_dtypes.float8_e4m3fn)
    data[:, 1] = np.nan
    body = load_rows(1, 1) + "  v_cvt_pk_f32_fp8 v[2:3], v1\n"
    origins, _, out = trace(body + store_rows(2, 2), data.view(np.uint32), rows=2)
    (origin,) = origins
    assert (origin.kind, origin.register, origin.count) == ("input", "v3", 64)
    assert np.isnan(out).tolist() == [False] * 64 + [True] * 64


@pytest.mark.parametrize("mode", ["latest", "earliest"])
def test_a_load_in_flight_is_told_apart(mode):
    body = """  v_lshlrev_b32 v63, 2, v0
  global_load_dword v1, v63, s[4:5]
  v_add_f32 v2, v1, v1
  s_waitcnt vmcnt(0)
"""
    result = emulate(
        assemble(f"{POINTERS}{body}{store_rows(2, 1)}  s_endpgm\n"),
        Launch(
            grid=(1, 1, 1),
            block=(64, 1, 1),
            arguments=[
                Argument(0, Buffer("source", np.ones(64, F32), "read")),
                Argument(8, Buffer("out", np.zeros(64, F32))),
            ],
        ),
        Settings(mode=mode, trace_nonfinite=True),
    )
    assert [finding.kind for finding in result.findings] == ["missing-wait"]
    if mode == "earliest":  # the value was there in time
        assert result.nonfinite == ()
        return
    (origin,) = result.nonfinite
    assert origin.kind == "undefined"
    assert culprit(origin).provenance == "a load that is still in flight"


# ---- formats ----------------------------------------------------------------------------------


def instruction(text):
    kernel = load_code_object(assemble(f"  {text}\n  s_endpgm\n")).kernel()
    return kernel.instructions[0]


@pytest.mark.parametrize(
    ("text", "result", "sources", "parts"),
    [
        ("v_add_f32 v1, v2, v3", t.F32, (t.F32,) * 3, 1),
        ("v_ldexp_f32 v1, v2, v3", t.F32, (t.F32, t.BITS, t.F32), 1),
        ("v_pk_mul_f32 v[2:3], v[4:5], v[6:7]", t.F32, (t.F32,) * 3, 2),
        ("v_cvt_pk_bf16_f32 v1, v2, v3", t.BF16, (t.F32, t.F32, t.BITS), 2),
        ("v_cvt_pk_bf8_f32 v1, v2, v3", t.E5M2, (t.F32, t.F32, t.BITS), 2),
        ("v_cvt_pk_f32_fp8 v[2:3], v4", t.F32, (t.E4M3, t.E4M3, t.BITS), 2),
        ("v_cvt_f32_u32 v1, v2", t.F32, (t.BITS, t.BITS, t.BITS), 1),
        ("v_pk_add_f16 v1, v2, v3", t.F16, (t.F16,) * 3, 2),
        ("v_cvt_f16_f32 v1, v2", t.F16, (t.F32, t.F32, t.BITS), 1),
    ],
)
def test_formats_by_mnemonic(text, result, sources, parts):
    found = float_operation(instruction(text))
    assert found is not None
    assert (found.result, found.sources, len(found.parts)) == (result, sources, parts)


@pytest.mark.parametrize(
    "text",
    [
        "v_add_u32 v1, v2, v3",
        "v_cmp_lt_f32 vcc, v1, v2",
        "v_cvt_u32_f32 v1, v2",
        "v_mov_b32 v1, v2",
    ],
)
def test_what_makes_no_float(text):
    assert float_operation(instruction(text)) is None


def test_the_half_and_the_bytes_of_a_conversion():
    low = float_operation(instruction("v_cvt_pk_fp8_f32 v1, v2, v3"))
    high = float_operation(instruction("v_cvt_pk_fp8_f32 v1, v2, v3 op_sel:[0,0,1]"))
    assert [part.result[1] for part in low.parts] == [0xFF, 0xFF00]
    assert [part.result[1] for part in high.parts] == [0xFF0000, 0xFF000000]
    assert [tuple(mask != 0 for _, mask in part.sources) for part in low.parts] == [
        (True, False, False),
        (False, True, False),
    ]


def test_matrix_formats():
    shape = "v_mfma_f32_16x16x32"
    assert matrix_formats(instruction(f"{shape}_fp8_bf8 v[0:3], v[4:5], v[6:7], 0")) == (
        t.E4M3,
        t.E5M2,
    )
    assert matrix_formats(instruction(f"{shape}_bf16 v[0:3], v[4:7], v[8:11], 0")) == (
        t.BF16,
        t.BF16,
    )


def test_values_of_a_dword():
    assert values(t.F32, 0x3F800000) == (1.0,)
    assert values(t.BF16, 0x7F803F80) == (1.0, math.inf)
    assert math.isnan(values(t.E4M3, 0x7F)[0])
    assert values(t.BITS, 7) == ()


def test_every_float_instruction_of_the_engine_has_a_format():
    """An instruction whose name says f32 first but that the table overlooks would hide origins."""

    class Named:
        encoding, operands = "VOP3", ()

        def __init__(self, mnemonic):
            self.mnemonic = mnemonic

        def modifier(self, name, default=0):
            return default

    overlooked = [
        name
        for name in OPCODES
        if name.startswith("v_")
        and name.endswith(("_f32", "_fp8", "_bf8"))
        and not name.startswith(("v_cmp", "v_cvt_u32", "v_cvt_i32", "v_mfma"))
        and float_operation(Named(name)) is None
    ]
    assert overlooked == []
