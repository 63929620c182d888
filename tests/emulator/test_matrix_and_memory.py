"""Matrix layouts, LDS reads and writes, loads to LDS, buffer range checks: against numpy."""

import ml_dtypes
import numpy as np
import pytest
from emulating import execute, kinds, load_rows, store_rows

_RNG = np.random.default_rng(11)
_LANES = np.arange(64)


def _bf16_operand(matrix, registers, rows):
    """Registers of an A operand (rows x k), or of a B operand given as its transpose."""
    lanes = np.zeros((registers, 64), np.uint32)
    for lane in range(64):
        for e in range(2 * registers):
            k = 2 * registers * (lane // rows) + e
            bits = int(matrix[lane % rows, k].view(np.uint16))
            lanes[e // 2, lane] |= np.uint32(bits << (16 * (e % 2)))
    return lanes


def _fp8_operand(matrix, registers, rows, chunk):
    lanes = np.zeros((registers, 64), np.uint32)
    groups = 64 // rows
    for lane in range(64):
        for e in range(4 * registers):
            k = e // chunk * chunk * groups + chunk * (lane // rows) + e % chunk
            bits = int(matrix[lane % rows, k].view(np.uint8))
            lanes[e // 4, lane] |= np.uint32(bits << (8 * (e % 4)))
    return lanes


def _result(registers, rows):
    """(rows x rows) matrix of a D operand, by the layout of the matrix calculator."""
    matrix = np.zeros((rows, rows), np.float32)
    for register, values in enumerate(registers.view(np.float32)):
        for lane in range(64):
            if rows == 32:
                row = 8 * (register // 4) + 4 * (lane // 32) + register % 4
            else:
                row = 4 * (lane // 16) + register
            matrix[row, lane % rows] = values[lane]
    return matrix


_MATRIX = {  # name: (rows, depth, operand registers, element type, chunk)
    "v_mfma_f32_32x32x16_bf16": (32, 16, 4, ml_dtypes.bfloat16, 0),
    "v_mfma_f32_16x16x32_bf16": (16, 32, 4, ml_dtypes.bfloat16, 0),
    "v_mfma_f32_32x32x8_bf16": (32, 8, 2, ml_dtypes.bfloat16, 0),
    "v_mfma_f32_16x16x16_bf16": (16, 16, 2, ml_dtypes.bfloat16, 0),
    "v_mfma_f32_32x32x64_f8f6f4": (32, 64, 8, ml_dtypes.float8_e4m3fn, 16),
    "v_mfma_f32_16x16x128_f8f6f4": (16, 128, 8, ml_dtypes.float8_e4m3fn, 16),
    "v_mfma_f32_32x32x16_fp8_fp8": (32, 16, 2, ml_dtypes.float8_e4m3fn, 8),
    "v_mfma_f32_16x16x32_bf8_bf8": (16, 32, 2, ml_dtypes.float8_e5m2, 8),
}


@pytest.mark.parametrize("name", _MATRIX)
@pytest.mark.parametrize("file", ["v", "a"])
def test_matrix_product(name, file):
    rows, depth, registers, element, chunk = _MATRIX[name]
    a = _RNG.standard_normal((rows, depth)).astype(element)
    b = _RNG.standard_normal((rows, depth)).astype(element)  # B transposed: column, k
    count = rows * rows // 64
    c = _RNG.standard_normal((count, 64)).astype(np.float32)
    pack = (lambda m: _fp8_operand(m, registers, rows, chunk)) if chunk else (
        lambda m: _bf16_operand(m, registers, rows)
    )  # fmt: skip
    data = np.concatenate([pack(a), pack(b), c.view(np.uint32)])
    v = lambda first, n: f"v[{first}:{first + n - 1}]"  # noqa: E731
    first_c = 2 + 2 * registers
    body = load_rows(2, len(data))
    accumulator = v(first_c, count)
    if file == "a":
        for i in range(count):
            body += f"  v_accvgpr_write_b32 a{i}, v{first_c + i}\n"
        accumulator = f"a[0:{count - 1}]"
    body += f"  s_nop 1\n  {name} {accumulator}, {v(2, registers)}, {v(2 + registers, registers)}, "
    body += f"{accumulator}\n"
    body += store_rows(0 if file == "a" else first_c, count, file)
    out = np.zeros((count, 64), np.uint32)
    _, result = execute(body, data, out, vgprs=64 + 16, accum=64)
    assert not kinds(result)
    exact = a.astype(np.float64) @ b.astype(np.float64).T + _result(c, rows)
    np.testing.assert_allclose(_result(out, rows), exact, rtol=1e-5, atol=1e-4)


_INTEGER_MATRIX = {  # name: (rows, depth, operand registers)
    "v_mfma_i32_32x32x16_i8": (32, 16, 2),
    "v_mfma_i32_16x16x32_i8": (16, 32, 2),
    "v_mfma_i32_32x32x32_i8": (32, 32, 4),
    "v_mfma_i32_16x16x64_i8": (16, 64, 4),
}


@pytest.mark.parametrize("name", _INTEGER_MATRIX)
@pytest.mark.parametrize("constant", [False, True])
def test_integer_matrix_product(name, constant):
    """Sums modulo 2^32: the largest products of all, and accumulators at both ends of int32."""
    rows, depth, registers = _INTEGER_MATRIX[name]
    a, b = _RNG.integers(-128, 128, (2, rows, depth), dtype=np.int8)
    a[0], b[0] = -128, -128
    a[1], b[1] = 127, -128
    count = rows * rows // 64
    c = _RNG.integers(0, 1 << 32, (count, 64), dtype=np.uint32)
    c[0, :32], c[0, 32:] = 0x7FFFFFFF, 0x80000000
    chunk = 4 * registers
    data = np.concatenate(
        [_fp8_operand(a, registers, rows, chunk), _fp8_operand(b, registers, rows, chunk), c]
    )
    v = lambda first, n: f"v[{first}:{first + n - 1}]"  # noqa: E731
    first_c = 2 + 2 * registers
    source = "7" if constant else v(first_c, count)
    body = load_rows(2, len(data)) + f"  s_nop 1\n  {name} {v(first_c, count)}, {v(2, registers)}, "
    body += f"{v(2 + registers, registers)}, {source}\n" + store_rows(first_c, count)
    out = np.zeros((count, 64), np.uint32)
    _, result = execute(body, data, out, vgprs=64)
    assert not kinds(result)
    before = np.full_like(c, 7) if constant else c
    exact = a.astype(np.int64) @ b.astype(np.int64).T
    exact += _result(before.view(np.float32), rows).view(np.int32)
    found = _result(out.view(np.float32), rows).view(np.uint32)
    np.testing.assert_array_equal(found, (exact % (1 << 32)).astype(np.uint32))


def test_accumulation_is_fused_in_k_order():
    a = np.zeros((32, 16), ml_dtypes.bfloat16)
    b = np.zeros((32, 16), ml_dtypes.bfloat16)
    a[0, :3] = [1, 1, 1]
    b[0, :3] = [2.0**24, 1, 1]  # 2^24 + 1 + 1 in f32, one rounding a step
    data = np.concatenate([_bf16_operand(a, 4, 32), _bf16_operand(b, 4, 32)])
    body = load_rows(2, 8) + "  s_nop 1\n  v_mfma_f32_32x32x16_bf16 v[10:25], v[2:5], v[6:9], 0\n"
    out = np.zeros((16, 64), np.uint32)
    execute(body + store_rows(10, 16), data, out)
    assert _result(out, 32)[0, 0] == 2.0**24


_TO_LDS = """  v_lshlrev_b32 v62, 4, v0
  ds_write_b128 v62, v[2:5]
  s_waitcnt lgkmcnt(0)
"""


def test_transposing_read_b16():
    """16 lanes hold a 4 x 16 tile of halfwords row-major; lane j gets column j."""
    words = _RNG.integers(0, 1 << 32, (4, 64), dtype=np.uint32)
    body = load_rows(2, 4) + _TO_LDS + "  v_lshlrev_b32 v62, 3, v0\n"
    body += "  ds_read_b64_tr_b16 v[10:11], v62\n  s_waitcnt lgkmcnt(0)\n" + store_rows(10, 2)
    out = np.zeros((2, 64), np.uint32)
    _, result = execute(body, words, out, lds=1024)
    assert not kinds(result)
    memory = np.ascontiguousarray(words.T).reshape(-1).view(np.uint16)[: 64 * 4]
    tiles = memory.reshape(4, 4, 16)  # group, row, column
    expected = tiles.transpose(0, 2, 1).reshape(64, 4)  # lane, element
    found = np.ascontiguousarray(out.T).view(np.uint16).reshape(64, 4)
    np.testing.assert_array_equal(found, expected)


def test_transposing_read_b8():
    """16 lanes hold an 8 x 16 tile of bytes row-major; lane j gets column j."""
    words = _RNG.integers(0, 1 << 32, (4, 64), dtype=np.uint32)
    body = load_rows(2, 4) + _TO_LDS + "  v_lshlrev_b32 v62, 3, v0\n"
    body += "  ds_read_b64_tr_b8 v[10:11], v62 offset:512\n  s_waitcnt lgkmcnt(0)\n"
    out = np.zeros((2, 64), np.uint32)
    execute(body + store_rows(10, 2), words, out, lds=1024)
    memory = np.ascontiguousarray(words.T).reshape(-1).view(np.uint8)[512:]
    expected = memory.reshape(4, 8, 16).transpose(0, 2, 1).reshape(64, 8)
    found = np.ascontiguousarray(out.T).view(np.uint8).reshape(64, 8)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("bits", "dwords"), [(4, 2), (6, 3)])
def test_transposing_reads_of_less_than_a_byte(bits, dwords):
    """16 lanes hold a 16 x 16 tile, a row each; lane j gets column j, packed as the rows were."""
    words = _RNG.integers(0, 1 << 32, (4, 64), dtype=np.uint32)
    body = load_rows(2, 4) + _TO_LDS
    body += f"  ds_read_b{32 * dwords}_tr_b{bits} v[10:{9 + dwords}], v62\n"
    out = np.zeros((dwords, 64), np.uint32)
    _, result = execute(
        body + "  s_waitcnt lgkmcnt(0)\n" + store_rows(10, dwords), words, out, lds=1024
    )
    assert not kinds(result)
    rows = [sum(int(words[i, lane]) << 32 * i for i in range(dwords)) for lane in range(64)]
    for lane in range(64):
        column = [rows[lane & ~15 | row] >> bits * (lane & 15) for row in range(16)]
        kept = [element & (1 << bits) - 1 for element in column]
        packed = sum(element << bits * row for row, element in enumerate(kept))
        expected = [packed >> 32 * i & 0xFFFFFFFF for i in range(dwords)]
        assert [int(out[i, lane]) for i in range(dwords)] == expected


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_transposing_reads_are_the_same_one_lane_at_a_time(bits):
    """Lanes whose addresses are not in one run go another way through the emulator."""
    words = _RNG.integers(0, 1 << 32, (4, 64), dtype=np.uint32)
    body = load_rows(2, 4) + _TO_LDS
    read = f"  ds_read_b64_tr_b{bits} v[10:11], v62\n  s_waitcnt lgkmcnt(0)\n" + store_rows(10, 2)
    out = np.zeros((2, 64), np.uint32)
    execute(body + read, words, out, lds=1024)
    again = np.zeros((2, 64), np.uint32)
    off = "  s_mov_b32 exec_hi, 0x7fffffff\n  s_nop 4\n"
    on = "  s_mov_b64 exec, -1\n  s_nop 4\n"
    execute(body + "  v_mov_b32 v10, 0\n  v_mov_b32 v11, 0\n" + off
            + read.replace("  s_waitcnt lgkmcnt(0)\n", "  s_waitcnt lgkmcnt(0)\n" + on),
            words, again, lds=1024)  # fmt: skip
    inner = slice(0, 48)  # the tiles of which each lane is on
    np.testing.assert_array_equal(out[:, inner], again[:, inner])


@pytest.mark.parametrize(
    ("read", "count", "place"),
    [
        ("ds_read_b32 v10, v62 offset:4", 1, lambda lane: [lane * 16 + 4]),
        ("ds_read_b64 v[10:11], v62 offset:8", 2, lambda lane: [lane * 16 + 8, lane * 16 + 12]),
        ("ds_read_b96 v[10:12], v62", 3, lambda lane: [lane * 16 + 4 * i for i in range(3)]),
        ("ds_read_b128 v[10:13], v62", 4, lambda lane: [lane * 16 + 4 * i for i in range(4)]),
        ("ds_read2_b32 v[10:11], v62 offset0:3 offset1:1", 2,
         lambda lane: [lane * 16 + 12, lane * 16 + 4]),
        ("ds_read2_b64 v[10:13], v62 offset0:1 offset1:0", 4,
         lambda lane: [lane * 16 + p for p in (8, 12, 0, 4)]),
    ],
)  # fmt: skip
def test_lds_reads(read, count, place):
    words = _RNG.integers(0, 1 << 32, (4, 64), dtype=np.uint32)
    out = np.zeros((count, 64), np.uint32)
    body = load_rows(2, 4) + _TO_LDS + f"  {read}\n  s_waitcnt lgkmcnt(0)\n"
    _, result = execute(body + store_rows(10, count), words, out, lds=1040)
    assert not kinds(result)
    memory = np.ascontiguousarray(words.T).reshape(-1)
    expected = np.array([[memory[p // 4] for p in place(lane)] for lane in _LANES]).T
    np.testing.assert_array_equal(out, expected)


def test_sub_dword_lds_and_two_writes():
    words = _RNG.integers(0, 1 << 32, (4, 64), dtype=np.uint32)
    body = load_rows(2, 4) + "  v_lshlrev_b32 v62, 3, v0\n  v_lshlrev_b32 v61, 1, v0\n"
    body += "  ds_write2_b32 v62, v2, v3 offset0:0 offset1:1\n  s_waitcnt lgkmcnt(0)\n"
    body += "  ds_write_b16 v61, v4\n  s_waitcnt lgkmcnt(0)\n"
    body += "  ds_read_b64 v[10:11], v62\n  ds_read_i16 v12, v61\n  ds_read_u8 v13, v0\n"
    out = np.zeros((4, 64), np.uint32)
    execute(body + "  s_waitcnt lgkmcnt(0)\n" + store_rows(10, 4), words, out, lds=512)
    memory = np.ascontiguousarray(words[:2].T).reshape(-1)
    memory.view(np.uint16)[:64] = words[2].astype(np.uint16)
    np.testing.assert_array_equal(np.ascontiguousarray(out[:2].T).reshape(-1), memory)
    np.testing.assert_array_equal(
        out[2].view(np.int32), words[2].astype(np.uint16).view(np.int16).astype(np.int32)
    )
    np.testing.assert_array_equal(out[3], memory.view(np.uint8)[:64])


def test_bpermute_reads_other_lanes():
    data = np.stack([_RNG.permutation(64) * 4, _RNG.integers(0, 99, 64)]).astype(np.uint32)
    body = load_rows(2, 2) + "  ds_bpermute_b32 v5, v2, v3\n  s_waitcnt lgkmcnt(0)\n"
    out, result = execute(body + store_rows(5, 1), data, lds=0)
    np.testing.assert_array_equal(out, data[1, data[0] // 4])
    assert not kinds(result)


_RESOURCE = """
  s_mov_b64 s[8:9], s[4:5]
  s_mov_b32 s10, {records}
  s_mov_b32 s11, 0x20000
  v_lshlrev_b32 v1, 4, v0
"""


@pytest.mark.parametrize(
    ("records", "soffset", "offset"), [(1000, 0, 0), (512, 64, 20), (40, 8, 4)]
)
def test_buffer_loads_clamp_per_dword(records, soffset, offset):
    data = _RNG.integers(1, 1 << 32, 512, dtype=np.uint32)
    body = _RESOURCE.format(records=records) + f"  s_mov_b32 s12, {soffset}\n"
    body += f"  buffer_load_dwordx4 v[10:13], v1, s[8:11], s12 offen offset:{offset}\n"
    out = np.zeros((4, 64), np.uint32)
    _, result = execute(body + "  s_waitcnt vmcnt(0)\n" + store_rows(10, 4), data, out)
    assert not kinds(result)
    place = 16 * _LANES + soffset + offset + 4 * np.arange(4)[:, None]
    expected = np.where(place + 4 <= records, data[np.minimum(place // 4, 511)], 0)
    np.testing.assert_array_equal(out, expected)


def test_buffer_stores_beyond_the_range_are_dropped():
    body = """
  s_mov_b64 s[8:9], s[6:7]
  s_mov_b32 s10, 104
  s_mov_b32 s11, 0x20000
  v_lshlrev_b32 v1, 3, v0
  v_mov_b32 v2, 1
  v_mov_b32 v3, 2
  buffer_store_dwordx2 v[2:3], v1, s[8:11], 0 offen
"""
    out = np.full(128, 9, np.uint32)
    _, result = execute(body, None, out)
    assert not kinds(result)
    np.testing.assert_array_equal(out, np.where(np.arange(128) < 26, np.arange(128) % 2 + 1, 9))


def test_structured_index_is_checked_as_a_whole():
    data = np.arange(256, dtype=np.uint32) + 1
    body = """
  s_mov_b32 s8, s4
  s_or_b32 s9, s5, 0x80000
  s_mov_b32 s10, 20
  s_mov_b32 s11, 0x20000
  buffer_load_dwordx2 v[10:11], v0, s[8:11], 0 idxen
  s_waitcnt vmcnt(0)
"""
    out = np.zeros((2, 64), np.uint32)
    execute(body + store_rows(10, 2), data, out)
    expected = np.where(_LANES < 20, 2 * _LANES + np.array([[1], [2]]), 0)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("mode", ["latest", "earliest", "random"])
@pytest.mark.parametrize("form", ["buffer", "global"])
def test_load_to_lds_places_lanes_after_m0_and_offset(mode, form):
    """LDS byte = M0 + instruction offset + 16 * lane; the offset moves the global side too."""
    data = _RNG.integers(0, 1 << 32, 512, dtype=np.uint32)
    load = {
        "buffer": "buffer_load_dwordx4 v1, s[8:11], 0 offen offset:64 lds",
        "global": "global_load_lds_dwordx4 v1, s[4:5] offset:64",
    }[form]
    body = (
        _RESOURCE.format(records=1024)
        + f"""
  s_movk_i32 m0, 0x100
  s_nop 0
  {load}
  s_waitcnt vmcnt(0)
  ds_read_b128 v[10:13], v1 offset:320
  s_waitcnt lgkmcnt(0)
"""
    )
    out = np.zeros((4, 64), np.uint32)
    _, result = execute(body + store_rows(10, 4), data, out, lds=2048, mode=mode)
    assert not kinds(result)
    dwords = 16 + 4 * _LANES + np.arange(4)[:, None]
    inside = 4 * dwords + 4 <= 1024 if form == "buffer" else np.ones_like(dwords, bool)
    np.testing.assert_array_equal(out, np.where(inside, data[dwords], 0))


def test_global_and_scalar_loads():
    data = np.arange(256, dtype=np.uint32)
    body = """
  s_load_dwordx4 s[12:15], s[4:5], 0x20
  s_movk_i32 s16, 0x10
  s_load_dword s17, s[4:5], s16
  v_lshlrev_b32 v1, 2, v0
  global_load_ushort v2, v1, s[4:5] offset:2
  v_mov_b32 v4, s4
  v_mov_b32 v5, s5
  global_load_dwordx2 v[6:7], v[4:5], off
  s_waitcnt vmcnt(0) lgkmcnt(0)
  v_mov_b32 v8, s14
  v_mov_b32 v9, s17
"""
    out = np.zeros((8, 64), np.uint32)
    data[5] = 0xABCD1234
    _, result = execute(body + store_rows(2, 8), data, out, vgprs=64)
    assert out[0, 5] == 0xABCD
    assert out[4, 0] == 0 and out[5, 0] == 1
    assert (out[6] == data[10]).all() and (out[7] == data[4]).all()
    assert kinds(result).count("undefined-register") == 1  # v3 was stored and never written
