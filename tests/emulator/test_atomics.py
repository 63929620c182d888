"""Atomics on global memory: what they leave, what they return, and what the sanitizer says."""

import ml_dtypes
import numpy as np
import pytest
from emulating import execute, kinds, load_rows
from gfx950_assembler import assemble

from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate

_RNG = np.random.default_rng(23)
_MODES = ("latest", "earliest", "random")
_EDGES = np.array([0, 1, 2, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF], np.uint32)


def _words():
    words = _RNG.integers(0, 1 << 32, (1, 64), dtype=np.uint32)
    words[0, : len(_EDGES)] = _RNG.permutation(_EDGES)
    words[0, 20:40] %= 5
    return words


def _signed(x):
    return x.view(np.int32)


_INTEGERS = {
    "swap": lambda old, own: own,
    "add": lambda old, own: old + own,
    "sub": lambda old, own: old - own,
    "smin": lambda old, own: np.minimum(_signed(old), _signed(own)).view(np.uint32),
    "umin": np.minimum,
    "smax": lambda old, own: np.maximum(_signed(old), _signed(own)).view(np.uint32),
    "umax": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "inc": lambda old, own: np.where(old >= own, np.uint32(0), old + np.uint32(1)),
    "dec": lambda old, own: np.where((old == 0) | (old > own), own, old - np.uint32(1)),
}


def _apply(name, own, memory, returned=False):
    """One atomic a lane on its own dword; (memory after it, what it returned)."""
    out = np.concatenate([memory, np.zeros_like(memory)])
    line = f"  global_atomic_{name} v63, v2, s[6:7]\n"
    tail = ""
    if returned:
        line = f"  global_atomic_{name} v5, v63, v2, s[6:7] sc0\n  s_waitcnt vmcnt(0)\n"
        tail = "  global_store_dword v63, v5, s[6:7] offset:256\n"
    _, result = execute(load_rows(2, 1) + line + tail, own, out)
    assert kinds(result) == []
    return out[:1], out[1:]


@pytest.mark.parametrize("name", _INTEGERS)
def test_integers(name):
    own, memory = _words(), _words()
    with np.errstate(over="ignore"):
        expected = _INTEGERS[name](memory, own).astype(np.uint32)
    left, returned = _apply(name, own, memory, returned=True)
    np.testing.assert_array_equal(left, expected)
    np.testing.assert_array_equal(returned, memory)


def _floats(dtype, count):
    """Random numbers of all sizes with denormals, infinities and a NaN."""
    info = ml_dtypes.finfo(dtype)
    exponents = _RNG.uniform(float(info.minexp) - 3, float(info.maxexp) - 1, count)
    values = _RNG.choice([-1.0, 1.0], count) * 2.0**exponents
    values[: count // 2] = _RNG.standard_normal(count // 2)
    values[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, float(info.max)]
    with np.errstate(over="ignore"):
        return _RNG.permutation(values).astype(dtype)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("add_f32", np.dtype(np.float32)),
        ("pk_add_f16", np.dtype(np.float16)),
        ("pk_add_bf16", np.dtype(ml_dtypes.bfloat16)),
    ],
)
def test_sums_of_floats_are_rounded_once_and_keep_denormals(name, dtype):
    count = 256 // dtype.itemsize
    for _ in range(6):
        memory, own = _floats(dtype, count), _floats(dtype, count)
        with np.errstate(over="ignore", invalid="ignore"):
            # Exact in double precision where a second rounding could matter.
            exact = (memory.astype(np.float64) + own.astype(np.float64)).astype(dtype)
        left, _ = _apply(name, own.view(np.uint32)[None], memory.view(np.uint32)[None])
        got = left.reshape(-1).view(dtype)
        both = np.isnan(exact.astype(np.float64))
        np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), both)
        bits = np.dtype(f"u{dtype.itemsize}")
        np.testing.assert_array_equal(got.view(bits)[~both], exact.view(bits)[~both])


@pytest.mark.parametrize("mode", _MODES)
def test_lanes_waves_and_workgroups_add_up(mode):
    out = np.zeros((1, 64), np.uint32)
    body = "  v_mov_b32 v2, 1.0\n  v_mov_b32 v3, 0\n  global_atomic_add_f32 v3, v2, s[6:7]\n"
    _, result = execute(body, out=out, waves=4, grid=3, mode=mode)
    assert kinds(result) == []
    assert out.view(np.float32)[0, 0] == 4 * 3 * 64
    assert not out[0, 1:].any()


def test_inactive_lanes_and_lanes_out_of_range_change_nothing():
    memory = np.ones((1, 64), np.float32)
    body = (
        load_rows(2, 1)
        + """
  s_mov_b64 s[8:9], s[6:7]
  s_mov_b32 s10, 160
  s_mov_b32 s11, 0x20000
  s_mov_b32 exec_lo, 0x0ffffff0
  s_mov_b32 exec_hi, 0x0fffffff
  s_nop 4
  buffer_atomic_add_f32 v2, v63, s[8:11], 0 offen
  buffer_atomic_add_f32 v2, v63, s[8:11], 0 offen sc0
  s_waitcnt vmcnt(0)
  s_mov_b64 exec, -1
  s_nop 4
  global_store_dword v63, v2, s[6:7] offset:256
"""
    )
    own = np.arange(64, dtype=np.float32)[None]
    out = np.concatenate([memory, memory]).view(np.uint32)
    _, result = execute(body, own.view(np.uint32), out)
    assert kinds(result) == []
    left, returned = out.view(np.float32)
    lane = np.arange(64)
    active = (0x0FFFFFFF0FFFFFF0 >> lane.astype(np.uint64)) & 1 == 1
    inside = lane < 40
    np.testing.assert_array_equal(left, np.where(active & inside, 1 + 2 * lane, 1))
    expected = np.where(active, np.where(inside, 1 + lane, 0), lane)
    np.testing.assert_array_equal(returned, expected)


def test_the_returned_value_is_in_flight_until_a_wait():
    body = load_rows(2, 1) + "  global_atomic_add v5, v63, v2, s[6:7] sc0\n"
    wait = "  s_waitcnt vmcnt(0)\n"
    use = "  v_mov_b32 v6, v5\n"
    for mode in _MODES:
        _, result = execute(body + use, mode=mode)
        (finding,) = result.findings
        assert (finding.kind, finding.resource, finding.needs) == ("missing-wait", "v5", "vmcnt(0)")
        _, result = execute(body + wait + use, mode=mode)
        assert kinds(result) == []


def test_the_operand_may_be_overwritten_and_must_be_defined():
    body = load_rows(2, 1) + "  global_atomic_add v63, v2, s[6:7]\n  v_mov_b32 v2, 0\n"
    out, result = execute(body, np.full((1, 64), 3, np.uint32), mode="latest")
    assert kinds(result) == []
    assert (out == 3).all()
    _, result = execute("  v_mov_b32 v3, 0\n  global_atomic_add v3, v9, s[6:7]\n")
    assert kinds(result) == ["undefined-register"]


def test_alignment_and_bounds():
    body = "  v_mov_b32 v2, 1\n  v_lshlrev_b32 v3, 2, v0\n  v_add_u32 v3, {}, v3\n"
    body += "  global_atomic_add v3, v2, s[6:7]\n"
    out, result = execute(body.format(2), out=np.zeros(65, np.uint32))
    (finding,) = result.findings
    assert finding.kind == "global-alignment"
    assert "buffer out + 0x2" in finding.message
    assert not out.any()
    out, result = execute(body.format(4))
    assert kinds(result) == ["global-bounds"]
    assert "buffer out + 0x100" in result.findings[0].message
    np.testing.assert_array_equal(out, [0, *[1] * 63])
    _, result = execute(body.format(0).replace("s[6:7]", "s[4:5]"))
    assert kinds(result) == ["global-bounds"]  # the input may not be written


_ADD = "  global_atomic_add_f32 v63, v2, s[6:7]\n"
_OWN = "  v_lshlrev_b32 v63, 2, v0\n  v_mov_b32 v2, 1.0\n"


@pytest.mark.parametrize(
    ("plain", "found"),
    [
        ("  global_store_dword v63, v2, s[6:7]\n", ["race-global"]),
        ("  global_load_dword v3, v63, s[6:7]\n  s_waitcnt vmcnt(0)\n", ["race-global"]),
        ("  global_load_dword v3, v63, s[6:7] sc1\n  s_waitcnt vmcnt(0)\n", []),
        ("  global_store_dword v63, v2, s[6:7] offset:256\n", []),
        (_ADD, []),
    ],
)
def test_atomics_of_one_workgroup_and_plain_accesses_of_another(plain, found):
    """s2, the workgroup's number, chooses between an atomic and another access."""
    body = _OWN + "  s_cmp_eq_u32 s2, 0\n  s_cbranch_scc1 plain\n" + _ADD
    body += "  s_branch done\nplain:\n" + plain + "done:\n  s_nop 0\n"
    for grid, expected in ((1, []), (2, found), (3, found)):
        out = np.zeros((2, 64), np.uint32)
        _, result = execute(body, out=out, grid=grid)
        assert kinds(result) == expected, grid
    if found:
        assert "workgroup (0, 0, 0)" in result.findings[0].message
        assert result.findings[0].workgroup == (1, 0, 0)
        assert result.findings[0].resource == "buffer out"


def test_one_workgroup_may_read_what_it_added():
    body = _OWN + _ADD + "  s_waitcnt vmcnt(0)\n  global_load_dword v3, v63, s[6:7]\n"
    _, result = execute(body + "  s_waitcnt vmcnt(0)\n")
    assert kinds(result) == []


def test_workgroups_that_count_each_other_are_left_alone():
    """A value that an atomic returns may order two workgroups: nothing is said then."""
    body = _OWN + "  s_cmp_eq_u32 s2, 0\n  s_cbranch_scc1 plain\n"
    body += "  global_atomic_add v5, v63, v2, s[6:7] sc0\n  s_branch done\nplain:\n"
    body += "  global_store_dword v63, v2, s[6:7]\ndone:\n  s_waitcnt vmcnt(0)\n"
    _, result = execute(body, grid=2)
    assert kinds(result) == []


def test_sums_do_not_depend_on_the_host_threads():
    """Every workgroup adds another float to one dword: the order decides the rounding."""
    code = assemble(
        """
  s_load_dwordx2 s[6:7], s[0:1], 0x0
  s_add_u32 s3, s2, 1
  v_cvt_f32_u32 v2, s3
  v_rcp_f32 v2, v2
  v_mov_b32 v3, 0
  s_waitcnt lgkmcnt(0)
  global_atomic_add_f32 v3, v2, s[6:7]
  s_endpgm
"""
    )
    left = []
    for threads in (1, 2):
        memory = np.zeros(1, np.float32)
        emulate(
            code,
            Launch(
                grid=(12, 1, 1), block=(64, 1, 1), arguments=[Argument(0, Buffer("sum", memory))]
            ),
            Settings(threads=threads),
        )
        expected = np.float32(0)
        for group in range(12):
            for _ in range(64):
                expected += np.float32(1) / np.float32(group + 1)
        assert memory[0] == expected
        left.append(memory[0])
    assert left[0] == left[1]


def test_a_nan_that_was_added_is_traced_to_its_origin():
    body = load_rows(2, 1) + "  v_rcp_f32 v3, v2\n  s_nop 0\n"
    body += "  global_atomic_add_f32 v63, v3, s[6:7]\n"
    code = assemble(
        "  s_load_dwordx4 s[4:7], s[0:1], 0x0\n  s_waitcnt lgkmcnt(0)\n" + body + "  s_endpgm\n"
    )
    source = np.ones(64, np.float32)
    source[7] = 0.0
    out = np.zeros(64, np.float32)
    result = emulate(
        code,
        Launch(
            grid=(1, 1, 1),
            block=(64, 1, 1),
            arguments=[
                Argument(0, Buffer("source", source, "read")),
                Argument(8, Buffer("out", out)),
            ],
        ),
        Settings(trace_nonfinite=True),
    )
    (left,) = result.nonfinite_outputs
    assert left.index == (7,) and left.origin is not None
    assert left.origin.asm.startswith("v_rcp_f32")
