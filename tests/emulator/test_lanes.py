"""The vector code of the engine, called directly: more values than kernels can be run for."""

import ml_dtypes
import numpy as np
import pytest
from numba import njit

from mlagen.emulator.gfx950 import layout
from mlagen.emulator.gfx950 import opcodes as o
from mlagen.emulator.gfx950.lanes import (
    OPERATIONS,
    exp2,
    lanes_f32,
    row_add_carry,
    row_sub_borrow,
    rows_of,
)
from mlagen.emulator.gfx950.matrix import multiply, work_space
from mlagen.emulator.gfx950.planes import spread_e4m3, spread_e5m2
from mlagen.emulator.native.compiling import callable_from_python, compiled, entry
from mlagen.emulator.native.raw import load_i64

KEEP, FLUSH = 0xFFFFFFFF, 0x80000000
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, 1e-40, -1e-40, 3e38, np.inf, -np.inf, np.nan, -np.nan]


def rows(body):
    """The operation over any multiple of 64 lanes: f(a, b, c, keep, aux) on uint32 arrays."""
    intrinsic = rows_of(body)

    @njit
    def loop(out, a, b, c, keep, aux, count):
        for i in range(count):
            place = 256 * i
            intrinsic(out + place, a + place, b + place, c + place, keep, aux)

    def call(a, b=None, c=None, keep=KEEP, aux=0, in_place=False):
        arrays = [np.ascontiguousarray(x).view(np.uint32) for x in (a, a if b is None else b)]
        arrays.append(arrays[0] if c is None else np.ascontiguousarray(c).view(np.uint32))
        assert arrays[0].size % 64 == 0
        out = arrays[0] if in_place else np.full_like(arrays[0], 0xDEADBEEF)
        loop(*(x.ctypes.data for x in (out, *arrays)), keep, aux, out.size // 64)
        return out

    return call


def whole_rows(values):
    """float32, padded with ones to whole rows."""
    values = np.asarray(values, np.float32)
    return np.concatenate([values, np.ones(-values.size % 64, np.float32)])


@np.errstate(all="ignore")
def test_exp2_rounds_correctly_but_for_double_rounding():
    rng = np.random.default_rng(1)
    x = whole_rows(np.concatenate([SPECIAL, rng.uniform(-150, 129, 1 << 20)]))
    found = rows(exp2)(x).view(np.float32)
    expected = np.exp2(x.astype(np.float64)).astype(np.float32)
    different = ~((found == expected) | (np.isnan(found) & np.isnan(expected)))
    assert different.sum() <= 2  # one in 2^27, and numpy's own errors
    np.testing.assert_allclose(found[different], expected[different], rtol=2e-7)


@pytest.mark.parametrize("clamp", [0, 1])
def test_e4m3_rounds_to_nearest_even_at_every_boundary(clamp):
    codes = np.arange(0x7F, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    middles = (codes[1:] + codes[:-1]) / 2
    near = np.concatenate([codes, middles, [464.0, 480.0, 1e30, 1e-30]]).astype(np.float32)
    near = np.concatenate([near, np.nextafter(near, 0), np.nextafter(near, 1e38).astype("f4")])
    x = whole_rows(np.concatenate([near, -near, SPECIAL]).astype(np.float32))
    found = rows(OPERATIONS[o.V_CVT_PK_FP8_F32])(x, x[::-1].copy(), aux=clamp)
    expected = x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8).astype(np.uint32)
    sign = np.signbit(x).astype(np.uint32) << 7
    over = np.abs(x) > 464  # ml_dtypes' NaN has no clamped form
    expected[over] = sign[over] | (0x7E if clamp else 0x7F)
    expected[np.isnan(x)] = sign[np.isnan(x)] | 0x7F
    np.testing.assert_array_equal(found & 0xFF, expected)
    np.testing.assert_array_equal(found >> 8, expected[::-1])


@pytest.mark.parametrize(
    ("intrinsic", "dtype"),
    [(spread_e4m3, ml_dtypes.float8_e4m3fn), (spread_e5m2, ml_dtypes.float8_e5m2)],
)
def test_all_8_bit_codes_decode(intrinsic, dtype):
    codes = np.arange(256, dtype=np.uint8)
    dwords = codes.reshape(4, 64).T.copy().view(np.uint32).reshape(64)  # byte e: codes 64 * e ..
    out = np.zeros(256, np.uint32)

    @njit
    def spread(out, source):
        for i in range(4):
            intrinsic(out + 64 * i, 256, source + 64 * i)

    spread(out.ctypes.data, dwords.ctypes.data)
    expected = codes.view(dtype).astype(np.float32)
    values = out.view(np.float32)
    nan = np.isnan(expected)
    np.testing.assert_array_equal(out[~nan], expected[~nan].view(np.uint32))
    assert np.isnan(values[nan]).all()


def test_extrema_prefer_numbers_and_order_zeros():
    a, b = (x.ravel() for x in np.meshgrid(np.array(SPECIAL, "f4"), np.array(SPECIAL, "f4")))
    a, b = whole_rows(a), whole_rows(b)

    def order(value):
        return value, not np.signbit(value)

    for operation, pick in ((o.V_MAX_F32, max), (o.V_MIN_F32, min)):
        found = rows(OPERATIONS[operation])(a, b).view(np.float32)
        for x, y, z in zip(a, b, found, strict=True):
            expected = pick((x, y), key=order)
            if np.isnan(x) or np.isnan(y):
                expected = y if np.isnan(x) else x
            assert z == expected or (np.isnan(z) and np.isnan(expected)), (x, y, z)
            assert np.isnan(z) or np.signbit(z) == np.signbit(expected), (x, y, z)
    np.testing.assert_array_equal(
        rows(OPERATIONS[o.V_MAX3_F32])(a, b, b), rows(OPERATIONS[o.V_MAX_F32])(a, b)
    )


def test_denormals_are_flushed_on_both_sides():
    tiny = whole_rows([1e-40, -1e-40, 1e-30, -1e-30])
    small = whole_rows([1e30, 1e30, 1e-12, 1e-12])
    found = rows(OPERATIONS[o.V_MUL_F32])(tiny, small, keep=FLUSH)
    assert found[:4].tolist() == [0, 0x80000000, 0, 0x80000000]
    kept = rows(OPERATIONS[o.V_MUL_F32])(tiny, small)
    np.testing.assert_array_equal(kept, (tiny * small).view(np.uint32))
    np.testing.assert_array_equal(
        rows(OPERATIONS[o.V_MUL_F32])(tiny.copy(), small, in_place=True), kept
    )


def test_permute_picks_bytes_signs_and_constants():
    rng = np.random.default_rng(2)
    a, b = (rng.integers(0, 1 << 32, 256, dtype=np.uint32) for _ in range(2))
    select = rng.integers(0, 16, (256, 4), dtype=np.uint8)
    select[:16, 0] = 255
    found = rows(OPERATIONS[o.V_PERM_B32])(a, b, select.view(np.uint32).ravel())
    for lane in range(256):
        pool = b[lane].tobytes() + a[lane].tobytes()
        signs = [pool[1], pool[3], pool[5], pool[7]]
        for byte, s in enumerate(select[lane]):
            if s < 8:
                expected = pool[s]
            elif s < 12:
                expected = 255 * (signs[s - 8] >> 7)
            else:
                expected = 0 if s == 12 else 255
            assert (found[lane] >> (8 * byte)) & 255 == expected


def test_carries_and_relations_come_as_lane_masks():
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 1 << 32, 64, dtype=np.uint32) for _ in range(2))
    a[:8], b[:8] = [0, 0, 1, 1, 2**32 - 1, 2**32 - 1, 5, 0], [0, 1, 1, 0, 0, 2**32 - 1, 5, 2**31]
    carry = int(rng.integers(0, 1 << 62))
    bits = np.array([(carry >> i) & 1 for i in range(64)], dtype=object)
    wide_a, wide_b = a.astype(object), b.astype(object)
    for intrinsic, exact in (
        (row_add_carry, wide_a + wide_b + bits),
        (row_sub_borrow, wide_a - wide_b - bits),
    ):
        out = np.zeros(64, np.uint32)
        call = njit(lambda o, x, y, m, f=intrinsic: f(o, x, y, m))
        mask = call(out.ctypes.data, a.ctypes.data, b.ctypes.data, carry)
        assert out.tolist() == [int(v) % 2**32 for v in exact]
        assert [(mask >> i) & 1 for i in range(64)] == [int(not 0 <= v < 2**32) for v in exact]
    x = np.array([SPECIAL[i % 12] for i in range(64)], np.float32)
    y = np.array([SPECIAL[(i * 5 + i // 12) % 12] for i in range(64)], np.float32)
    call = njit(lambda p, q, relation, keep: lanes_f32(p, q, relation, keep))
    for relation in range(8):
        outcome = (x < y) * 1 | (x == y) * 2 | (x > y) * 4
        mask = call(x.ctypes.data, y.ctypes.data, relation, KEEP)
        assert [(mask >> i) & 1 for i in range(64)] == [int(v & relation != 0) for v in outcome]


@compiled
def _product(words: int, unused: int) -> int:
    """`multiply` with the arguments that lie at an address."""
    work, dst, a = load_i64(words, 1), load_i64(words, 2), load_i64(words, 3)
    multiply(load_i64(words, 0), 0, work, dst, a, load_i64(words, 4), load_i64(words, 5), 256)
    return 0


def test_a_kept_operand_is_decoded_again_when_its_registers_change():
    rng = np.random.default_rng(4)
    a, b = (rng.integers(0, 256, (8, 256), dtype=np.uint8) & 0xBF for _ in range(2))
    zero = np.zeros((16, 64), np.float32)
    row = np.zeros(layout.P_SIZE, np.int64)
    row[layout.P_OP] = o.M_32X32X64_F8
    row[layout.P_AUX : layout.P_AUX + 3] = 16, 8, 16  # registers of D, of A; chunks of 16 bytes
    product_of = entry(_product)
    call = callable_from_python(lambda words, unused: product_of(words, unused), kept=False)

    def product(work):
        out = np.zeros((16, 64), np.float32)
        words = np.array([x.ctypes.data for x in (row, work, out, a, b, zero)])
        call(words.ctypes.data, 0)
        return out

    kept = work_space()
    first = product(kept)
    np.testing.assert_array_equal(product(kept), first)
    b[7, 255] ^= 0x11  # the last byte of the last register
    again = product(kept)
    np.testing.assert_array_equal(again, product(work_space()))
    assert (again != first).any()


def test_python_cannot_call_a_part_of_the_engine():
    with pytest.raises(TypeError, match="only the engine's compiled code can call multiply"):
        multiply(0, 0, 0, 0, 0, 0, 0, 0)
