"""Instructions and habits of compiled code: SDWA, halfwords, wide multiplies, lane masks."""

import dataclasses

import numpy as np
import pytest
from emulating import execute, kinds, load_rows, store_rows
from gfx950_assembler import assemble

from mlagen.binary import CodeObject, load_code_object
from mlagen.emulator import Argument, Launch, emulate
from mlagen.errors import UnsupportedError


@pytest.fixture
def pair():
    """Two rows of random dwords."""
    values = np.random.default_rng(3).integers(0, 1 << 32, 128, dtype=np.uint64)
    return values.astype(np.uint32)


def _run(body, source, rows=1):
    out, result = execute(
        load_rows(1, 2) + body + store_rows(3, rows), source, np.zeros(64 * rows, np.uint32)
    )
    assert not result.findings, result.findings[0]
    return out.reshape(rows, 64).astype(np.int64)


@pytest.mark.parametrize("unused", ["PAD", "SEXT", "PRESERVE"])
@pytest.mark.parametrize(("part", "bits", "shift"), [("BYTE_2", 8, 16), ("WORD_1", 16, 16)])
def test_sub_dword_results(pair, unused, part, bits, shift):
    selects = f"dst_sel:{part} dst_unused:UNUSED_{unused} src0_sel:BYTE_3 src1_sel:WORD_1"
    body = f"  v_mov_b32 v3, 0x12345678\n  v_add_u32_sdwa v3, v1, v2 {selects}\n"
    (out,) = _run(body, pair)
    x, y = pair.astype(np.int64).reshape(2, 64)
    mask = (1 << bits) - 1
    value = ((x >> 24) + (y >> 16)) & mask
    if unused == "PAD":
        expected = value << shift
    elif unused == "SEXT":
        expected = (value ^ (mask + 1) >> 1) - ((mask + 1) >> 1) << shift & 0xFFFFFFFF
    else:
        expected = 0x12345678 & ~(mask << shift) | value << shift
    assert (out == expected).all()


def test_sub_dword_sources_are_sign_extended(pair):
    body = "  v_add_u32_sdwa v3, sext(v1), v2 dst_sel:DWORD dst_unused:UNUSED_PAD "
    (out,) = _run(body + "src0_sel:BYTE_1 src1_sel:DWORD\n", pair)
    x, y = pair.reshape(2, 64)
    expected = y + (x >> 8).astype(np.uint8).view(np.int8)[::1].astype(np.int64)
    assert (out == expected & 0xFFFFFFFF).all()


def test_sub_dword_compare(pair):
    body = """  v_cmp_lt_u32_sdwa s[12:13], v1, v2 src0_sel:BYTE_0 src1_sel:BYTE_3
  s_nop 1
  v_cndmask_b32_e64 v3, 0, 1, s[12:13]
"""
    (out,) = _run(body, pair)
    x, y = pair.reshape(2, 64)
    assert (out == (x & 0xFF < y >> 24)).all()


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("v_add_u16", lambda x, y: x + y),
        ("v_sub_u16", lambda x, y: x - y),
        ("v_subrev_u16", lambda x, y: y - x),
        ("v_mul_lo_u16", lambda x, y: x * y),
        ("v_lshlrev_b16", lambda x, y: y << (x & 15)),
        ("v_lshrrev_b16", lambda x, y: y >> (x & 15)),
        ("v_ashrrev_i16", lambda x, y: y.astype(np.int16) >> (x & 15)),
        ("v_min_u16", np.minimum),
        ("v_max_i16", lambda x, y: np.maximum(x.astype(np.int16), y.astype(np.int16))),
    ],
)
def test_halfwords(pair, name, formula):
    (out,) = _run(f"  {name} v3, v1, v2\n", pair)
    x, y = (pair & 0xFFFF).astype(np.int64).reshape(2, 64)
    assert (out == formula(x, y).astype(np.int64) & 0xFFFF).all()


@pytest.mark.parametrize("signed", [False, True])
def test_wide_multiply_add_and_its_mask(pair, signed):
    pair[:4] = pair[64:68] = (0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 1)
    name = "v_mad_i64_i32" if signed else "v_mad_u64_u32"
    body = f"""  v_mov_b32 v6, v1
  v_mov_b32 v7, v2
  {name} v[8:9], s[12:13], v1, v2, v[6:7]
  v_mov_b32 v3, v8
  v_mov_b32 v4, v9
  v_cndmask_b32_e64 v5, 0, 1, s[12:13]
"""
    low, high, mask = _run(body, pair, 3)
    for lane in range(64):
        x, y = int(pair[lane]), int(pair[64 + lane])
        z = x | y << 32
        if signed:
            x, y = x - (x >> 31 << 32), y - (y >> 31 << 32)
            z -= z >> 63 << 64
        total = x * y + z
        assert low[lane] | high[lane] << 32 == np.int64(np.uint64(total & (1 << 64) - 1))
        assert mask[lane] == total >> 64 & 1


def test_fract_of_large_numbers():
    source = np.zeros(128, np.float32)
    source[:5] = (1e30, -1.25, 3.75, np.inf, np.nan)
    (out,) = _run("  v_fract_f32 v3, v1\n", source.view(np.uint32))
    found = out.astype(np.uint32).view(np.float32)
    assert found[:3].tolist() == [0, 0.75, 0.75] and np.isnan(found[3:5]).all()


def test_a_scalar_bit_field_ends_with_the_register(pair):
    body = """  s_mov_b32 s12, 0x87654321
  s_bfe_i32 s13, s12, 0x280004
  v_mov_b32 v3, s13
"""
    (out,) = _run(body, pair)
    assert (out == 0x08765432).all()


def test_packed_sources_are_read_as_op_sel_says():
    body = """  s_mov_b32 s12, 1.0
  v_mov_b32 v2, 1.0
  v_mov_b32 v3, 1.0
  v_pk_mul_f32 v[4:5], v[2:3], s[12:13] {}
"""
    assert not execute(body.format("op_sel_hi:[1,0]"))[1].findings
    found = execute(body.format(""))[1].findings
    assert [(f.kind, f.resource) for f in found] == [("undefined-register", "s13")]


def test_lane_masks_may_start_undefined():
    assert not execute("  s_or_b64 s[12:13], s[12:13], exec\n")[1].findings
    result = execute("  s_or_b64 s[12:13], s[12:13], s[4:5]\n")[1]
    assert set(kinds(result)) == {"undefined-register"}


@pytest.mark.parametrize(("offset", "found"), [(0x10, []), (0x20, ["global-bounds"])])
def test_sixteen_bytes_at_the_end_of_the_arguments(offset, found):
    """20 bytes of arguments lie in two times 16."""
    code = assemble(f"  s_load_dwordx4 s[8:11], s[0:1], {offset}\n  s_endpgm\n", kernarg=20)
    arguments = [Argument(16, np.uint32(5))]
    result = emulate(code, Launch(grid=(1, 1, 1), block=(64, 1, 1), arguments=arguments))
    assert kinds(result) == found


def _preloading(count, offset):
    kernel = load_code_object(
        assemble("  v_mov_b32 v1, s2\n  s_nop 0\n  s_endpgm\n", kernarg=16)
    ).kernel()
    descriptor = dataclasses.replace(
        kernel.descriptor,
        user_sgprs=(*kernel.descriptor.user_sgprs, ("kernarg_preload", count)),
        kernarg_preload=count,
        kernarg_preload_offset=offset,
    )
    return CodeObject("gfx950", {"k": dataclasses.replace(kernel, descriptor=descriptor)}, {})


def test_preloaded_arguments_beyond_the_segment_are_refused():
    arguments = [Argument(8, np.uint64(1))]
    launch = Launch((1, 1, 1), (64, 1, 1), arguments)
    assert not emulate(_preloading(2, 2), launch).findings
    with pytest.raises(UnsupportedError, match="20 preloaded bytes of 16"):
        emulate(_preloading(2, 3), launch)
