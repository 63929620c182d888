"""Vector, scalar and lane operations against numpy."""

import ml_dtypes
import numpy as np
import pytest
from emulating import execute, kinds, load_rows, store_rows

_RNG = np.random.default_rng(7)
_LANES = np.arange(64)
_SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 0.5]


def _floats(count):
    data = _RNG.standard_normal((count, 64)).astype(np.float32) * 8
    for row in range(count):
        data[row, _RNG.permutation(64)[: len(_SPECIAL)]] = _SPECIAL
    return data


def _run(instruction, data, rows=1, first=5, **frame):
    out = np.zeros((rows, 64), np.uint32)
    body = load_rows(2, len(data)) + f"  {instruction}\n" + store_rows(first, rows)
    execute(body, data.view(np.uint32), out, **frame)
    return out


def _flushed(x):
    """Denormals as zeros: what the transcendental unit makes of them (`test_conversions`)."""
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


def _max(a, b):
    return np.fmax(a, b)


_FLOAT_OPS = {
    "v_add_f32 v5, v2, v3": lambda a, b, c: a + b,
    "v_sub_f32 v5, v2, v3": lambda a, b, c: a - b,
    "v_subrev_f32 v5, v2, v3": lambda a, b, c: b - a,
    "v_mul_f32 v5, v2, v3": lambda a, b, c: a * b,
    "v_mul_f32_e64 v5, -v2, |v3|": lambda a, b, c: -a * abs(b),
    "v_mul_f32_e64 v5, v2, v3 mul:2": lambda a, b, c: a * b * 2,
    "v_add_f32_e64 v5, v2, v3 div:2": lambda a, b, c: (a + b) / 2,
    "v_max_f32 v5, v2, v3": lambda a, b, c: _max(a, b),
    "v_min_f32 v5, v2, v3": lambda a, b, c: np.fmin(a, b),
    "v_max3_f32 v5, v2, v3, v4": lambda a, b, c: _max(_max(a, b), c),
    "v_rcp_f32 v5, v2": lambda a, b, c: _flushed(np.float32(1) / _flushed(a)),
    "v_exp_f32 v5, v2": lambda a, b, c: np.exp2(a.astype(np.float64)),
    "v_log_f32 v5, v2": lambda a, b, c: np.log2(_flushed(a).astype(np.float64)),
    "v_sqrt_f32 v5, v2": lambda a, b, c: np.sqrt(_flushed(a)),
    "v_rndne_f32 v5, v2": lambda a, b, c: np.rint(a),
    "v_floor_f32 v5, v2": lambda a, b, c: np.floor(a),
    "v_cvt_f32_i32 v5, v2": lambda a, b, c: a.view(np.int32).astype(np.float32),
    "v_cvt_f32_u32 v5, v2": lambda a, b, c: a.view(np.uint32).astype(np.float32),
}


@pytest.mark.parametrize("text", _FLOAT_OPS)
@np.errstate(all="ignore")
def test_float_operation(text):
    data = _floats(3)
    found = _run(text, data)[0].view(np.float32)
    expected = _FLOAT_OPS[text](*data).astype(np.float32)
    np.testing.assert_array_equal(found, expected)


@np.errstate(all="ignore")
def test_fma_rounds_once():
    data = _floats(3)
    found = _run("v_fma_f32 v5, v2, v3, v4", data)[0].view(np.float32)
    exact = data[0].astype(np.longdouble) * data[1] + data[2]
    np.testing.assert_array_equal(found, exact.astype(np.float32))
    a = np.float32(1 + 2**-12)
    one = np.full((3, 64), a, np.float32)
    one[2] = -(a * a)
    fused = _run("v_fma_f32 v5, v2, v3, v4", one)[0].view(np.float32)
    assert fused[0] == np.float32(2.0**-24)  # a product rounded first would give 0


def test_clamp_keeps_nan_without_dx10_clamp():
    data = np.tile(np.array([np.nan, -2.0, 0.25, 7.0], np.float32), 16)[None].repeat(2, 0)
    data[1] = 0
    found = _run("v_add_f32_e64 v5, v2, v3 clamp", data)[0].view(np.float32)[:4]
    np.testing.assert_array_equal(found, np.array([np.nan, 0, 0.25, 1], np.float32))


def test_denormals_follow_the_descriptor():
    data = np.full((2, 64), 1e-39, np.float32)
    data[1] = 2.0
    kept = _run("v_mul_f32 v5, v2, v3", data, denormals=3)[0].view(np.float32)
    flushed = _run("v_mul_f32 v5, v2, v3", data, denormals=0)[0].view(np.float32)
    assert kept[0] == np.float32(1e-39) * 2 and flushed[0] == 0
    data[0], data[1] = 2e-38, 0.25  # the result is denormal, the operands are not
    assert _run("v_mul_f32 v5, v2, v3", data, denormals=0)[0].view(np.float32)[0] == 0
    data[0] = 1e-39
    reciprocal = _run("v_rcp_f32 v5, v2", data, denormals=0)[0].view(np.float32)
    assert np.isinf(reciprocal[0])


_U = np.uint64
_INT_OPS = {
    "v_add_u32 v5, v2, v3": lambda a, b, c: a + b,
    "v_sub_u32 v5, v2, v3": lambda a, b, c: a - b,
    "v_subrev_u32 v5, v2, v3": lambda a, b, c: b - a,
    "v_add3_u32 v5, v2, v3, v4": lambda a, b, c: a + b + c,
    "v_lshl_add_u32 v5, v2, 7, v4": lambda a, b, c: (a << _U(7)) + c,
    "v_add_lshl_u32 v5, v2, v3, 3": lambda a, b, c: (a + b) << _U(3),
    "v_lshl_or_b32 v5, v2, 9, v4": lambda a, b, c: (a << _U(9)) | c,
    "v_and_or_b32 v5, v2, v3, v4": lambda a, b, c: (a & b) | c,
    "v_or3_b32 v5, v2, v3, v4": lambda a, b, c: a | b | c,
    "v_xad_u32 v5, v2, v3, v4": lambda a, b, c: (a ^ b) + c,
    "v_bitop3_b32 v5, v2, v3, v4 bitop3:0xca": lambda a, b, c: (a & b) | (~a & c),
    "v_bitop3_b32 v5, v2, v3, v4 bitop3:0xf0": lambda a, b, c: a,
    "v_xor_b32 v5, v2, v3": lambda a, b, c: a ^ b,
    "v_not_b32 v5, v2": lambda a, b, c: ~a,
    "v_lshlrev_b32 v5, v2, v3": lambda a, b, c: b << (a & _U(31)),
    "v_lshrrev_b32 v5, v2, v3": lambda a, b, c: b >> (a & _U(31)),
    "v_bfe_u32 v5, v2, 5, 9": lambda a, b, c: (a >> _U(5)) & _U(511),
    "v_bfi_b32 v5, v2, v3, v4": lambda a, b, c: (a & b) | (~a & c),
    "v_alignbit_b32 v5, v2, v3, 20": lambda a, b, c: ((a << _U(32)) | b) >> _U(20),
    "v_mul_lo_u32 v5, v2, v3": lambda a, b, c: a * b,
    "v_mul_hi_u32 v5, v2, v3": lambda a, b, c: (a * b) >> _U(32),
    "v_mul_u32_u24 v5, v2, v3": lambda a, b, c: (a & _U(0xFFFFFF)) * (b & _U(0xFFFFFF)),
    "v_mad_u32_u24 v5, v2, v3, v4": lambda a, b, c: (a & _U(0xFFFFFF)) * (b & _U(0xFFFFFF)) + c,
    "v_max_u32 v5, v2, v3": lambda a, b, c: np.maximum(a, b),
    "v_min_u32 v5, v2, v3": lambda a, b, c: np.minimum(a, b),
    "s_mov_b32 s10, 0x07020c0d\n  v_perm_b32 v5, v2, v3, s10": lambda a, b, c: (
        (a >> _U(24)) << _U(24) | ((b >> _U(16)) & _U(255)) << _U(16) | _U(0xFF)
    ),
    "v_bfrev_b32 v5, v2": lambda a, b, c: np.array(
        [int(f"{int(x):032b}"[::-1], 2) for x in a], np.uint64
    ),
}


@pytest.mark.parametrize("text", _INT_OPS)
def test_integer_operation(text):
    data = _RNG.integers(0, 1 << 32, (3, 64), dtype=np.uint32)
    found = _run(text, data)[0]
    expected = (_INT_OPS[text](*data.astype(np.uint64)) & _U(0xFFFFFFFF)).astype(np.uint32)
    np.testing.assert_array_equal(found, expected)


def test_signed_operations():
    data = _RNG.integers(0, 1 << 32, (3, 64), dtype=np.uint32)
    a, b = data[0].view(np.int32), data[1].view(np.int32)
    low = lambda x: ((x.astype(np.int64) & 0xFFFFFF) ^ 0x800000) - 0x800000  # noqa: E731
    expect = {
        "v_ashrrev_i32 v5, 7, v2": a >> 7,
        "v_max_i32 v5, v2, v3": np.maximum(a, b),
        "v_mul_i32_i24 v5, v2, v3": low(a) * low(b),
        "v_mul_hi_i32 v5, v2, v3": (a.astype(np.int64) * b) >> 32,
        "v_bfe_i32 v5, v2, 4, 6": (a << 22) >> 26,
    }
    for text, value in expect.items():
        found = _run(text, data)[0]
        np.testing.assert_array_equal(found, value.astype(np.int64).astype(np.uint32), text)


@np.errstate(all="ignore")
def test_float_to_integer_saturates():
    data = np.tile(np.array([3e9, -1.5, 5e9, np.nan, 2.9, -3e9, 7, -0.5], np.float32), 8)[None]
    unsigned = _run("v_cvt_u32_f32 v5, v2", data)[0][:8]
    np.testing.assert_array_equal(unsigned, [3000000000, 0, 0xFFFFFFFF, 0, 2, 0, 7, 0])
    signed = _run("v_cvt_i32_f32 v5, v2", data)[0][:8].view(np.int32)
    np.testing.assert_array_equal(signed, [0x7FFFFFFF, -1, 0x7FFFFFFF, 0, 2, -(1 << 31), 7, 0])


def test_bf16_pack_rounds_to_nearest_even():
    data = _RNG.integers(0, 1 << 32, (2, 64), dtype=np.uint32)
    data[0, :4] = [0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF]
    finite = data.view(np.float32)
    data[~np.isfinite(finite)] = 0x3F800000
    found = _run("v_cvt_pk_bf16_f32 v5, v2, v3", data)[0]
    low = data[0].view(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
    high = data[1].view(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(found, low | high.astype(np.uint32) << 16)


def test_fp8_pack_rounds_and_keeps_the_other_half():
    values = np.concatenate([_RNG.standard_normal(48) * 60, [448, 464, 465, 1e9, -1e9, np.nan]])
    values = np.concatenate([values, _RNG.standard_normal(10) * 0.003]).astype(np.float32)
    data = np.stack([values, values[::-1]])
    text = "v_mov_b32 v5, 0x12345678\n  v_cvt_pk_fp8_f32 v5, v2, v3 op_sel:[0,0,1]"
    found = _run(text, data)[0]
    codes = data.astype(ml_dtypes.float8_e4m3fn).view(np.uint8).astype(np.uint32)
    nan = np.isnan(data) | (abs(data) > 464)
    codes[nan] = 0x7F | (np.signbit(data[nan]).astype(np.uint32) << 7)
    np.testing.assert_array_equal(found & 0xFFFF, np.full(64, 0x5678))
    np.testing.assert_array_equal(found >> 16, codes[0] | codes[1] << 8)


@np.errstate(all="ignore")
def test_packed_f32_selects_halves():
    data = _floats(6)
    pair = lambda i: data[2 * i : 2 * i + 2]  # noqa: E731
    a, b, c = pair(0), pair(1), pair(2)
    found = _run("v_pk_mul_f32 v[8:9], v[2:3], v[4:5]", data, 2, 8).view(np.float32)
    np.testing.assert_array_equal(found, a * b)
    text = "v_pk_add_f32 v[8:9], v[2:3], v[4:5] op_sel:[0,1] op_sel_hi:[1,0] neg_hi:[1,0]"
    found = _run(text, data, 2, 8).view(np.float32)
    np.testing.assert_array_equal(found, np.stack([a[0] + b[1], -a[1] + b[0]]))
    text = "v_pk_fma_f32 v[8:9], v[2:3], v[4:5], v[6:7] op_sel_hi:[0,1,1]"
    found = _run(text, data, 2, 8).view(np.float32)
    exact = np.stack([a[0], a[0]]).astype(np.longdouble) * b + c
    np.testing.assert_array_equal(found, exact.astype(np.float32))


_RELATIONS = {
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_UNORDERED = {
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nlt": lambda a, b: ~(a < b),
    "neq": lambda a, b: ~(a == b),
    "nge": lambda a, b: ~(a >= b),
    "lg": lambda a, b: (a < b) | (a > b),
}


@pytest.mark.parametrize("kind", ["f32", "i32", "u32"])
@np.errstate(all="ignore")
def test_compare_and_select(kind):
    data = _floats(2)
    data[1, ::5] = data[0, ::5]
    view = {"f32": np.float32, "i32": np.int32, "u32": np.uint32}[kind]
    a, b = data[0].view(view), data[1].view(view)
    relations = _RELATIONS | (_UNORDERED if kind == "f32" else {})
    for name, relation in relations.items():
        text = f"v_cmp_{name}_{kind}_e64 s[10:11], v2, v3\n  s_nop 1\n"
        text += "  v_cndmask_b32_e64 v5, 0, -1, s[10:11]"
        found = _run(text, data)[0]
        np.testing.assert_array_equal(found == 0xFFFFFFFF, relation(a, b), name)


def test_64_bit_compare_carry_and_shift():
    data = _RNG.integers(0, 1 << 32, (4, 64), dtype=np.uint32)
    data[1, :8] = data[3, :8]
    x = data[0].astype(np.uint64) | data[1].astype(np.uint64) << _U(32)
    y = data[2].astype(np.uint64) | data[3].astype(np.uint64) << _U(32)
    text = "v_cmp_lt_u64_e64 s[10:11], v[2:3], v[4:5]\n  s_nop 1\n"
    found = _run(text + "  v_cndmask_b32_e64 v6, 0, 1, s[10:11]", data, 1, 6)[0]
    np.testing.assert_array_equal(found, x < y)
    text = "v_add_co_u32 v6, vcc, v2, v4\n  s_nop 1\n  v_addc_co_u32 v7, vcc, v3, v5, vcc"
    found = _run(text, data, 2, 6)
    total = x + y
    np.testing.assert_array_equal(found[0] | found[1].astype(np.uint64) << _U(32), total)
    text = "v_sub_co_u32 v6, vcc, v2, v4\n  s_nop 1\n  v_subb_co_u32 v7, vcc, v3, v5, vcc"
    found = _run(text, data, 2, 6)
    np.testing.assert_array_equal(found[0] | found[1].astype(np.uint64) << _U(32), x - y)
    found = _run("v_lshlrev_b64 v[6:7], 13, v[2:3]", data, 2, 6)
    np.testing.assert_array_equal(found[0] | found[1].astype(np.uint64) << _U(32), x << _U(13))
    found = _run("v_lshl_add_u64 v[6:7], v[2:3], 3, v[4:5]", data, 2, 6)
    np.testing.assert_array_equal(found[0] | found[1].astype(np.uint64) << _U(32), (x << _U(3)) + y)


def test_permlane_swaps():
    data = _RNG.integers(0, 1 << 32, (2, 64), dtype=np.uint32)
    found = _run("s_nop 1\n  v_permlane32_swap_b32 v2, v3", data, 2, 2)
    a, b = data.copy()
    a[32:], b[:32] = data[1, :32], data[0, 32:]
    np.testing.assert_array_equal(found, np.stack([a, b]))
    found = _run("s_nop 1\n  v_permlane16_swap_b32 v2, v3", data, 2, 2)
    a, b = data.copy()
    for low in (0, 32):
        a[low + 16 : low + 32] = data[1, low : low + 16]
        b[low : low + 16] = data[0, low + 16 : low + 32]
    np.testing.assert_array_equal(found, np.stack([a, b]))


_DPP = {
    "quad_perm:[2,3,0,1]": (_LANES & ~3) | np.array([2, 3, 0, 1])[_LANES & 3],
    "row_shr:3": np.where(_LANES % 16 >= 3, _LANES - 3, -1),
    "row_shl:5": np.where(_LANES % 16 < 11, _LANES + 5, -1),
    "row_ror:4": (_LANES & ~15) | ((_LANES - 4) & 15),
    "row_newbcast:9": (_LANES & ~15) + 9,
    "row_mirror": (_LANES & ~15) | (15 - (_LANES & 15)),
    "row_half_mirror": (_LANES & ~7) | (7 - (_LANES & 7)),
    "row_bcast:15": np.where(_LANES >= 16, (_LANES & ~15) - 1, -1),
    "row_bcast:31": np.where(_LANES >= 32, 31, -1),
    "wave_shl:1": np.where(_LANES < 63, _LANES + 1, -1),
    "wave_shr:1": _LANES - 1,
    "wave_rol:1": (_LANES + 1) % 64,
    "wave_ror:1": (_LANES - 1) % 64,
}


@pytest.mark.parametrize("control", _DPP)
@pytest.mark.parametrize("bound", ["", " bound_ctrl:0"])
def test_dpp(control, bound):
    data = _RNG.integers(0, 1 << 32, (1, 64), dtype=np.uint32)
    text = f"v_mov_b32 v5, 77\n  s_nop 1\n  v_mov_b32_dpp v5, v2 {control} row_mask:0xf "
    found = _run(text + "bank_mask:0xf" + bound, data)[0]
    source = _DPP[control]
    outside = 0 if bound else 77
    np.testing.assert_array_equal(found, np.where(source >= 0, data[0, source], outside))


def test_lane_reads_and_writes():
    data = _RNG.integers(0, 1 << 32, (1, 64), dtype=np.uint32)
    text = "s_movk_i32 s10, 37\n  v_readlane_b32 s11, v2, s10\n  v_readfirstlane_b32 s12, v2\n"
    text += "  s_nop 4\n  v_mov_b32 v5, s11\n  v_mov_b32 v6, s12\n  v_writelane_b32 v6, s11, 3"
    found = _run(text, data, 2, 5)
    assert (found[0] == data[0, 37]).all()
    assert found[1, 3] == data[0, 37] and (np.delete(found[1], 3) == data[0, 0]).all()


def test_exec_masks_vector_results():
    text = "s_mov_b64 s[10:11], exec\n  s_mov_b32 exec_lo, 0xff\n  s_mov_b32 exec_hi, 0\n"
    text += "  v_mov_b32 v2, 9\n  s_mov_b64 exec, s[10:11]"
    data = np.ones((1, 64), np.uint32)
    np.testing.assert_array_equal(_run(text, data, 1, 2)[0], np.where(_LANES < 8, 9, 1))


def test_indexed_registers():
    data = _RNG.integers(0, 1 << 32, (3, 64), dtype=np.uint32)
    text = "s_mov_b32 s10, 2\n  s_set_gpr_idx_on s10, 0x1\n  v_mov_b32 v5, v2\n"
    text += "  s_set_gpr_idx_off"
    np.testing.assert_array_equal(_run(text, data)[0], data[2])
    text = "v_mov_b32 v7, 0\n  s_mov_b32 s10, 2\n  s_set_gpr_idx_on s10, 0x8\n"
    text += "  v_mov_b32 v5, v3\n  s_set_gpr_idx_off"
    np.testing.assert_array_equal(_run(text, data, 1, 7)[0], data[1])


_SCALAR = {
    "s_add_u32 s12, s10, s11\n  s_addc_u32 s13, 0, 0": (0x5, 1),
    "s_sub_u32 s12, s11, s10\n  s_subb_u32 s13, 0, 0": (0x1B, 0xFFFFFFFF),
    "s_mul_i32 s12, s10, s11\n  s_mul_hi_u32 s13, s10, s11": (0xFFFFFFF5 * 0x10 & 0xFFFFFFFF, 0xF),
    "s_lshl_b32 s12, s11, 30\n  s_ashr_i32 s13, s10, 2": (0x0, 0xFFFFFFFD),
    "s_bfm_b32 s12, 5, 3\n  s_ff1_i32_b32 s13, s11": (0xF8, 4),
    "s_cmp_lt_i32 s10, s11\n  s_cselect_b32 s12, 1, 2\n  s_cmp_lt_u32 s10, s11\n"
    "  s_cselect_b32 s13, 1, 2": (1, 2),
    "s_min_u32 s12, s10, s11\n  s_max_i32 s13, s10, s11": (0x10, 0x10),
    "s_and_b32 s12, s10, s11\n  s_bcnt1_i32_b32 s13, s10": (0x10, 30),
}


@pytest.mark.parametrize("text", _SCALAR)
def test_scalar_operations(text):
    prepared = "s_mov_b32 s10, 0xfffffff5\n  s_movk_i32 s11, 0x10\n"
    expected = _SCALAR[text]
    body = f"{prepared}  {text}\n  v_mov_b32 v5, s12\n  v_mov_b32 v6, s13"
    found = _run(body, np.zeros((1, 64), np.uint32), 2, 5)
    assert (int(found[0, 0]), int(found[1, 0])) == expected


def test_a_loop_and_its_counts():
    body = "  s_mov_b32 s10, 0\n.Lloop:\n  s_add_u32 s10, s10, 1\n  s_cmp_lt_u32 s10, 10\n"
    body += "  s_cbranch_scc1 .Lloop\n  v_mov_b32 v5, s10\n" + store_rows(5, 1)
    out, result = execute(body)
    assert (out == 10).all() and not kinds(result)
    assert result.counts["s_cmp_lt_u32"] == 10 and result.counts["s_endpgm"] == 1
    assert result.wave_instructions == sum(result.counts.values())


@np.errstate(all="ignore")
def test_sin_and_cos_are_of_turns_and_end_at_256():
    """The ISA guide: the input is in turns, of -256 to 256; beyond it sin is 0 and cos 1."""
    data = np.zeros((1, 64), np.float32)
    data[0] = (_RNG.uniform(-1, 1, 64) * 2.0 ** _RNG.integers(-20, 9, 64)).astype(np.float32)
    turns = np.longdouble(2) * np.arctan2(np.longdouble(0), np.longdouble(-1))
    for name, function in (("sin", np.sin), ("cos", np.cos)):
        found = _run(f"v_{name}_f32 v5, v2", data)[0].view(np.float32)
        right = function(np.remainder(data[0].astype(np.longdouble), 1) * turns)
        np.testing.assert_allclose(found, right.astype(np.float32), rtol=2.0**-23, atol=1e-18)
    edges = np.array([0.0, 0.25, 0.5, 0.75, 1.0, -0.25, 256.0, -255.75, 256.5, -300.0, 1e-40,
                      np.inf, -np.inf, np.nan], np.float32)  # fmt: skip
    data[0] = np.resize(edges, 64)
    sine = _run("v_sin_f32 v5, v2", data)[0].view(np.float32)[: len(edges)]
    cosine = _run("v_cos_f32 v5, v2", data)[0].view(np.float32)[: len(edges)]
    nan = np.nan
    np.testing.assert_array_equal(sine, [0, 1, 0, -1, 0, -1, 0, 1, 0, 0, 0, nan, nan, nan])
    np.testing.assert_array_equal(cosine, [1, 0, -1, 0, 1, 0, 1, 0, 1, 1, 1, nan, nan, nan])


def _bits(x, low, count):
    return (x >> _U(low)) & _U((1 << count) - 1)


_LANE_NUMBER = _LANES.astype(np.uint64)
_WRITERS_OPS = {
    "v_cvt_f32_ubyte2 v5, v2": lambda a, b: _bits(a, 16, 8).astype(np.float32).view(np.uint32),
    "v_ffbh_u32 v5, v2": lambda a, b: [32 - int(x).bit_length() if x else -1 for x in a],
    "v_ffbl_b32 v5, v2": lambda a, b: [(int(x) & -int(x)).bit_length() - 1 for x in a],
    "v_bcnt_u32_b32 v5, v2, v3": lambda a, b: [
        int(x).bit_count() + int(y) for x, y in zip(a, b, strict=True)
    ],
    "v_mbcnt_lo_u32_b32 v5, v2, v3": lambda a, b: [
        (int(x) & ((1 << min(n, 32)) - 1)).bit_count() + int(y)
        for n, (x, y) in enumerate(zip(a, b, strict=True))
    ],
    "v_mbcnt_hi_u32_b32 v5, v2, v3": lambda a, b: [
        (int(x) & ((1 << max(n - 32, 0)) - 1)).bit_count() + int(y)
        for n, (x, y) in enumerate(zip(a, b, strict=True))
    ],
    "v_alignbyte_b32 v5, v2, v3, 3": lambda a, b: ((a << _U(32)) | b) >> _U(24),
    "v_bfe_i32 v5, v2, 4, 8": lambda a, b: [((int(x) >> 4 & 255) ^ 128) - 128 for x in a],
    "v_med3_i32 v5, v2, v3, 0": lambda a, b: [
        sorted((np.int32(np.uint32(x)), np.int32(np.uint32(y)), np.int32(0)))[1]
        for x, y in zip(a, b, strict=True)
    ],
    "ds_swizzle_b32 v5, v2 offset:swizzle(QUAD_PERM,1,0,3,2)\n  s_waitcnt lgkmcnt(0)": (
        lambda a, b: a[_LANES ^ 1]
    ),
    "ds_swizzle_b32 v5, v2 offset:swizzle(SWAP,16)\n  s_waitcnt lgkmcnt(0)": (
        lambda a, b: a[_LANES ^ 16]
    ),
    "v_mbcnt_lo_u32_b32 v4, -1, 0\n  v_mbcnt_hi_u32_b32 v4, -1, v4\n  v_xor_b32 v4, 63, v4\n"
    "  v_lshlrev_b32 v4, 2, v4\n  ds_permute_b32 v5, v4, v2\n  s_waitcnt lgkmcnt(0)": (
        lambda a, b: a[63 - _LANES]
    ),
    "v_mov_b32 v5, v3\n  v_swap_b32 v5, v2": lambda a, b: a,
}


@pytest.mark.parametrize("text", _WRITERS_OPS)
def test_what_norms_and_rotations_are_written_in(text):
    data = _RNG.integers(0, 1 << 32, (2, 64), dtype=np.uint32)
    data[0, :3] = [0, 1, 0x80000000]
    data[1] >>= np.uint32(1) if "med3" in text else np.uint32(0)
    found = _run(text, data)[0]
    right = _WRITERS_OPS[text](*data.astype(np.uint64))
    np.testing.assert_array_equal(found, np.array([int(x) & 0xFFFFFFFF for x in right], np.uint32))


@np.errstate(all="ignore")
def test_med3_fmac_fract_and_class_of_floats():
    data = _floats(3)
    a, b, c = data
    found = _run("v_med3_f32 v5, v2, v3, v4", data)[0].view(np.float32)
    least = np.fmin(np.fmin(a, b), c)  # with a NaN among them the guide asks for min3
    middle = np.sort(data, axis=0)[1]
    right = np.where(np.isnan(data).any(axis=0), least, middle)
    np.testing.assert_array_equal(found, right)
    found = _run("v_mov_b32 v5, v4\n  v_fmac_f32 v5, v2, v3", data)[0].view(np.float32)
    exact = a.astype(np.longdouble) * b + c
    np.testing.assert_array_equal(found, exact.astype(np.float32))
    found = _run("v_fract_f32 v5, v2", data)[0].view(np.float32)
    right = np.minimum(a - np.floor(a), np.float32(1 - 2.0**-24))
    np.testing.assert_array_equal(found, right)
    text = "v_cmp_class_f32 vcc, v2, v3\n  s_nop 4\n  v_cndmask_b32 v5, 0, 1, vcc"
    chosen = np.stack([a, np.full(64, 0x3, np.uint32).view(np.float32)])
    np.testing.assert_array_equal(_run(text, chosen)[0], np.isnan(a))
