"""Conversions to and from 16 and 8 bits, and what the transcendental unit does with denormals."""

import ml_dtypes
import numpy as np
import pytest
from emulating import execute, kinds, load_rows, store_rows

_RNG = np.random.default_rng(29)
_OVFL = ".amdhsa_fp16_overflow 1"
_E4M3, _E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)


def _run(instruction, data, rows=1, first=5, **frame):
    out = np.zeros((rows, 64), np.uint32)
    body = load_rows(2, len(data)) + f"  {instruction}\n" + store_rows(first, rows)
    _, result = execute(body, data.view(np.uint32), out, **frame)
    assert kinds(result) == []
    return out


def _near_f16():
    """f32 numbers at, just below and just above f16 numbers and the middle between two."""
    codes = _RNG.integers(0, 0x7C00, 32, dtype=np.uint16)
    codes[:8] = [0, 1, 2, 0x3FF, 0x400, 0x7BFF, 0x7BFE, 0x3C00]
    low = codes.view(np.float16).astype(np.float32)
    high = (codes + np.uint16(1)).view(np.float16).astype(np.float32)
    high[np.isinf(high)] = 65536.0
    points = np.concatenate([low, (low + high) / 2])
    nudge = _RNG.integers(-1, 2, 64)
    points = np.where(nudge == 0, points, np.nextafter(points, np.where(nudge > 0, np.inf, 0)))
    return (points * _RNG.choice([-1, 1], 64)).astype(np.float32)


_SPECIAL = np.array([np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 65519.99, 65520, 1e-8])


def _pair():
    data = np.stack([_near_f16(), _near_f16()])
    for row in data:
        row[_RNG.permutation(64)[: len(_SPECIAL)]] = _SPECIAL
    return data


def _towards_zero(values):
    """f16 by way of the nearest one: a step back where that is further out."""
    with np.errstate(over="ignore"):
        near = values.astype(np.float16)
        back = np.nextafter(near, np.float16(0))
    further = np.isfinite(values) & (np.abs(near.astype(np.float64)) > np.abs(values))
    return np.where(further, back, near)


def _same_f16(found, expected):
    """Halves of `found` against two rows of f16, any NaN for a NaN."""
    for shift, row in zip((0, 16), expected, strict=True):
        got = (found >> shift).astype(np.uint16)
        nan = np.isnan(row)
        np.testing.assert_array_equal(np.isnan(got.view(np.float16)), nan)
        np.testing.assert_array_equal(got[~nan], row.view(np.uint16)[~nan])


def test_pairs_of_f16_rounded_towards_zero():
    for _ in range(8):
        data = _pair()
        (found,) = _run("v_cvt_pkrtz_f16_f32 v5, v2, v3", data)
        _same_f16(found, [_towards_zero(row) for row in data])


@pytest.mark.parametrize("clamp", [False, True])
def test_pairs_of_f16_rounded_to_nearest(clamp):
    for _ in range(4):
        data = _pair()
        frame = {"extra": _OVFL} if clamp else {}
        (found,) = _run("v_cvt_pk_f16_f32 v5, v2, v3", data, **frame)
        with np.errstate(over="ignore"):
            rows = [row.astype(np.float16) for row in data]
        if clamp:
            largest = np.float16(65504)
            rows = [np.where(np.isinf(r) & np.isfinite(x), np.copysign(largest, r), r)
                    for r, x in zip(rows, data, strict=True)]  # fmt: skip
        _same_f16(found, rows)


def test_signs_of_the_sources():
    data = np.stack([np.linspace(-4, 4, 64), np.linspace(9, 1, 64)]).astype(np.float32)
    (found,) = _run("v_cvt_pk_f16_f32 v5, |v2|, -v3", data)
    _same_f16(found, [np.abs(data[0]).astype(np.float16), -data[1].astype(np.float16)])


def test_bf16_to_f32_moves_the_bits():
    words = _RNG.integers(0, 1 << 32, (1, 64), dtype=np.uint32)
    words[0, :4] = [0x7F80, 0xFF81, 0x0001, 0x8000]
    for denormals in (0, 3):
        (found,) = _run("v_cvt_f32_bf16 v5, v2", words, denormals=denormals)
        np.testing.assert_array_equal(found, words[0] << 16)
    (found,) = _run("v_cvt_f32_bf16_sdwa v5, v2 src0_sel:WORD_1", words)
    np.testing.assert_array_equal(found, words[0] & 0xFFFF0000)


def _equal(found, expected):
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found.view(np.float32)), nan)
    np.testing.assert_array_equal(found[~nan], expected.view(np.uint32)[~nan])


@pytest.mark.parametrize(("name", "dtype"), [("fp8", _E4M3), ("bf8", _E5M2)])
def test_one_byte_to_f32(name, dtype):
    words = np.arange(256, dtype=np.uint8).view(np.uint32)[None]
    for byte in range(4):
        select = f"_sdwa v5, v2 src0_sel:BYTE_{byte}" if byte else " v5, v2"
        (found,) = _run(f"v_cvt_f32_{name}{select}", words)
        codes = (words[0] >> (8 * byte)).astype(np.uint8)
        _equal(found, codes.view(dtype).astype(np.float32))


def _scales():
    """f32 numbers of all exponents, mantissa and sign at random: they do not matter."""
    fields = _RNG.integers(100, 150, 64).astype(np.uint32)
    fields[:6] = [0, 1, 127, 128, 254, 255]
    fields[6:16] = _RNG.integers(0, 256, 10)
    return _RNG.permutation(fields) << 23 | _RNG.integers(0, 1 << 23, 64, dtype=np.uint32)


def _power(scales):
    fields = (scales >> 23 & 0xFF).astype(np.int64)
    return np.where(fields == 255, np.nan, np.ldexp(1.0, fields - 127))


@pytest.mark.parametrize(("name", "dtype"), [("fp8", _E4M3), ("bf8", _E5M2)])
@pytest.mark.parametrize("half", [0, 1])
def test_scaled_pairs_to_f32(name, dtype, half):
    for _ in range(4):
        data = np.stack([_RNG.integers(0, 1 << 32, 64, dtype=np.uint32), _scales()])
        text = f"v_cvt_scalef32_pk_f32_{name} v[8:9], v2, v3" + " op_sel:[1,0,0]" * half
        found = _run(text, data, 2, 8)
        codes = data[0].view(np.uint8).reshape(64, 4)[:, 2 * half : 2 * half + 2]
        with np.errstate(over="ignore", invalid="ignore"):
            exact = codes.view(dtype).astype(np.float64).T * _power(data[1])
            _equal(found, exact.astype(np.float32))


def _narrowed(values, dtype, clamp):
    """Codes of float64 values, overflow and infinity as `clamp` says; NaN is any code of one."""
    largest = float(ml_dtypes.finfo(dtype).max)
    # ml_dtypes rounds once from float64; what is beyond by half a step becomes NaN or inf.
    with np.errstate(over="ignore", invalid="ignore"):
        codes = values.astype(dtype)
    made = codes.astype(np.float64)
    beyond = ~np.isfinite(made) & ~np.isnan(values)
    if clamp:
        codes = np.where(beyond, np.copysign(largest, values).astype(dtype), codes)
    return codes.view(np.uint8), np.isnan(codes.astype(np.float64))


@pytest.mark.parametrize(("name", "dtype"), [("fp8", _E4M3), ("bf8", _E5M2)])
@pytest.mark.parametrize("clamp", [False, True])
def test_scaled_pairs_to_8_bits(name, dtype, clamp):
    nan_of = 0x7F
    for half in (0, 1):
        scales = _scales()
        scales[:8] = (127 << 23) + 12345
        # Around the whole range of the format once they are divided by the scale.
        wanted = _RNG.choice([-1, 1], (2, 64)) * 2.0 ** _RNG.uniform(-20, 18, (2, 64))
        with np.errstate(over="ignore", invalid="ignore"):
            data = (wanted * np.nan_to_num(_power(scales), nan=1.0)).astype(np.float32)
        data[0, :8] = [448, 464, 465, 57344, 61440, 61439, np.inf, np.nan]
        text = f"v_mov_b32 v5, 0x12345678\n  v_cvt_scalef32_pk_{name}_f32 v5, v2, v3, v4"
        text += " op_sel:[0,0,0,1]" * half
        frame = {"extra": _OVFL} if clamp else {}
        (found,) = _run(text, np.concatenate([data.view(np.uint32), scales[None]]), **frame)
        kept, made = (found >> 16, found & 0xFFFF) if half == 0 else (found & 0xFFFF, found >> 16)
        assert (kept == (0x1234 if half == 0 else 0x5678)).all()
        for byte in range(2):
            with np.errstate(over="ignore", invalid="ignore"):
                values = data[byte].astype(np.float64) / _power(scales)
            codes, nan = _narrowed(values, dtype, clamp)
            got = (made >> (8 * byte)) & 0xFF
            assert (got[nan] & 0x7F == nan_of).all()
            np.testing.assert_array_equal(got[~nan], codes[~nan])


def test_a_scale_of_all_ones_is_nan_for_bf16_too():
    data = np.stack([np.full(64, 0x38, np.uint32), np.full(64, 0x7F800000, np.uint32)])
    (found,) = _run("v_cvt_scalef32_pk_bf16_fp8 v5, v2, v3", data)
    assert (found & 0x7FFF > 0x7F80).all() and ((found >> 16) & 0x7FFF > 0x7F80).all()


_TINY = np.array([1e-40, -1e-40, 2.0**-126, -(2.0**-126), 2.0**126, 2.0**127, 3e38, -3e38, 0.0])


@pytest.mark.parametrize("denormals", [0, 3])
@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("v_exp_f32", np.exp2),
        ("v_log_f32", np.log2),
        ("v_rcp_f32", lambda x: 1.0 / x),
        ("v_rsq_f32", lambda x: 1.0 / np.sqrt(x)),
        ("v_sqrt_f32", np.sqrt),
    ],
)
def test_the_transcendental_unit_flushes_denormals_in_every_mode(name, formula, denormals):
    """Denormal sources are zeros, denormal results too; a signed zero keeps its sign."""
    data = np.ones((1, 64), np.float32)
    data[0, : len(_TINY)] = _TINY
    data[0, 10:14] = [-126.5, -149.0, -126.0, -130.0]
    smallest = 2.0**-126
    (found,) = _run(f"{name} v5, v2", data, denormals=denormals)
    source = np.where(np.abs(data[0]) < smallest, np.copysign(0.0, data[0]), data[0].astype(float))
    with np.errstate(all="ignore"):
        exact = formula(source).astype(np.float64)
    exact = np.where(np.abs(exact) < smallest, np.copysign(0.0, exact), exact)
    got = found.view(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    np.testing.assert_allclose(got, exact, rtol=2.0**-23)
    zero = exact == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(exact[zero]))


_DIVIDE = """v_div_scale_f32 v5, s[12:13], v3, v3, v2
  v_div_scale_f32 v6, vcc, v2, v3, v2
  v_rcp_f32 v7, v5
  s_nop 0
  v_fma_f32 v8, -v5, v7, 1.0
  v_fma_f32 v7, v8, v7, v7
  v_mul_f32 v8, v6, v7
  v_fma_f32 v9, -v5, v8, v6
  v_fma_f32 v8, v9, v7, v8
  v_fma_f32 v9, -v5, v8, v6
  s_nop 0
  v_div_fmas_f32 v9, v9, v7, v8
  v_div_fixup_f32 v5, v9, v3, v2"""


def test_the_compilers_division_is_exact_for_divisors_of_every_size():
    """As LLVM divides with denormals kept: also where the reciprocal is denormal and flushed."""
    for _ in range(16):
        exponents = _RNG.uniform(-126, 127.9, (2, 64))
        exponents[1, :24] = _RNG.uniform(125.5, 127.99, 24)
        exponents[0, :12] = _RNG.uniform(-149, 10, 12)
        data = (_RNG.choice([-1, 1], (2, 64)) * 2.0**exponents).astype(np.float32)
        (found,) = _run(_DIVIDE, data)
        with np.errstate(all="ignore"):
            exact = (data[0] / data[1]).view(np.uint32)
        np.testing.assert_array_equal(found, exact)


def test_bits_of_64_bit_scalars():
    cases = [(0, 0), (0, 8), (1 << 40, 0), (0x10, 0), (1 << 63, 0), ((1 << 64) - 1, 0), (5, 60)]
    for value, low in cases:
        body = f"""  s_mov_b32 s10, {value & 0xFFFFFFFF:#x}
  s_mov_b32 s11, {value >> 32:#x}
  s_ff1_i32_b64 s12, s[10:11]
  s_bfm_b64 s[14:15], {value % 64}, {low}
  v_mov_b32 v5, s12
  v_mov_b32 v6, s14
  v_mov_b32 v7, s15"""
        found = _run(body, np.zeros((1, 64), np.uint32), 3)[:, 0]
        first = (value & -value).bit_length() - 1
        mask = ((1 << value % 64) - 1 << low) % (1 << 64)
        assert found.tolist() == [first % (1 << 32), mask & 0xFFFFFFFF, mask >> 32], (value, low)
