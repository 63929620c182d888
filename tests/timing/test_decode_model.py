"""Launches of decode kernels: synthetic ones always, AITER's where their objects are.

`MLAGEN_AITER` names a folder with `mla/`; `MLAGEN_AITER_HISTORY` one with `COMMIT/hsa/gfx950/mla`.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cycle_model.aiter_decode import DECODE, persistent_groups, split_count, split_groups
from cycle_model.decode import DecodeKernel, Part, fetches, traffic
from cycle_model.decode_points import POINTS
from cycle_model.decode_validation import (
    DECODE_ERROR,
    LONG_CALL,
    SHARED_ERROR,
    DecodeLibrary,
    DecodeVerdict,
    decode_verdicts,
)
from cycle_model.validation import Score
from gfx950_assembler import assemble

from mlagen.binary import load_code_object
from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
from mlagen.timing.constants import machine
from mlagen.timing.unit import memory_latency, memory_share, time_unit

NEEDED = ("MLAGEN_AITER", "MLAGEN_AITER_HISTORY")
objects = pytest.mark.skipif(
    not all(Path(os.environ.get(name, "?")).is_dir() for name in NEEDED),
    reason=f"{' and '.join(NEEDED)} name no folders of AITER's objects",
)
PAGE = Path(__file__).parents[2] / "docs" / "timing.md"
KEYS = (8, 16)


# The second argument counts: loads of 4 KiB by one wave, a key each, `ahead` of them on their way
# while one is waited for.
_LOADS = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_load_dword s6, s[0:1], 0x8
  v_lshlrev_b32 v1, 4, v0
  s_waitcnt lgkmcnt(0)
{first}again:
{key}  s_waitcnt vmcnt({left})
  s_sub_u32 s6, s6, 1
  s_cmp_lg_u32 s6, 0
  s_cbranch_scc1 again
  s_waitcnt vmcnt(0)
  s_endpgm
"""


def loads(ahead: int) -> bytes:
    key = "".join(
        f"  global_load_dwordx4 v[{8 + 4 * i}:{11 + 4 * i}], v1, s[4:5] offset:{1024 * i}\n"
        for i in range(4)
    )
    key += "  s_add_u32 s4, s4, 4096\n  s_addc_u32 s5, s5, 0\n"
    return assemble(_LOADS.format(first=key * ahead, key=key, left=4 * ahead), vgprs=128)


@cache
def kernel(ahead: int) -> DecodeKernel:
    code = load_code_object(loads(ahead))
    memory = Buffer("memory", np.zeros(1024 * (max(KEYS) + ahead), np.uint32))
    streams = {
        n: emulate(
            code,
            Launch((1, 1, 1), (64, 1, 1), [Argument(0, memory), Argument(8, np.uint32(n))]),
            Settings(sanitize=False, record=True),
        ).streams[0]
        for n in KEYS
    }
    return DecodeKernel("loads", code.kernel(), streams, rows=1, tile=1)


def test_loads_that_are_the_first_to_ask_wait_for_the_hbm() -> None:
    on = machine()
    assert memory_latency(on, 1e9, 2.4) == on.l2_latency
    assert memory_latency(on, 1.0, 2.4) == round(359 * 2.4)
    assert memory_latency(on, 2.0, 2.4) == round((500 + 359 * 2.4) / 2)
    assert memory_latency(on, 1.0, 1.0) == on.l2_latency  # never less than a hit


def test_few_compute_units_have_more_of_the_hbm_each() -> None:
    on = machine()
    assert memory_share(on, 1.0, 2.4, 128) == pytest.approx(2 * memory_share(on, 1.0, 2.4))
    assert memory_share(on, 1.0, 2.4, 1) == on.l2_bytes


def test_what_is_on_its_way_limits_a_compute_unit_of_its_own() -> None:
    """Little's law: a wave with 4 KiB on their way gets 4 KiB a latency; with four times as many,
    four times as much, until the L2's 64 bytes a cycle are reached."""
    latency = memory_latency(machine(), 1.0, 2.4)
    one = kernel(1).growth(machine()).slope
    assert 4096 / one == pytest.approx(2 * 4096 / (latency + 4096 / 64), rel=0.06)
    assert kernel(3).growth(machine()).slope < 0.62 * one
    streams, code = kernel(3).streams, kernel(3).code
    slow = [time_unit(streams[n], code, machine(), reuse=1.0).cycles for n in KEYS]  # all CUs ask
    each = 4096 / memory_share(machine(), 1.0, 2.4)
    assert (slow[1] - slow[0]) / (KEYS[1] - KEYS[0]) == pytest.approx(each, rel=0.02)


def test_a_launch_is_limited_by_issue_or_by_what_all_ask_for() -> None:
    """Long enough, 256 workgroups take the HBM's time, one takes its own."""
    on, loaded = machine(), kernel(3)
    assert loaded.bytes.slope == 4096 and loaded.line_bytes == 4096
    many = loaded.call([[Part(i, 0, 4096)] for i in range(256)], on)
    hbm = 256 * 4096 * 4096 / (on.hbm * on.hbm_rows * 1e3)
    assert many.shares and many.us == pytest.approx(hbm + on.launch, rel=0.02)
    alone = loaded.call([[Part(0, 0, 4096)]], on)
    own = loaded.growth(on).at(4096) / 2.4e3
    assert not alone.shares and alone.us == pytest.approx(own + on.launch, rel=0.02)
    assert many.us > 1.4 * alone.us
    faster = loaded.call([[Part(i, 0, 4096)] for i in range(256)], on.changed(hbm=1e5))
    assert faster.us == pytest.approx(hbm * on.hbm * on.hbm_rows / on.hbm_pin + on.launch, rel=0.02)


def test_parts_take_a_second_launch_and_its_bytes() -> None:
    on, loaded = machine(), kernel(1)
    whole = loaded.call([[Part(i, 0, 512)] for i in range(256)], on)
    parts = loaded.call([[Part(i, 0, 512, True)] for i in range(256)], on)
    assert whole.launches == on.launch and whole.merge == 0
    assert parts.launches == 2 * on.launch
    assert parts.merge == pytest.approx(256 * 513 * 4 / (on.mall * 1e3) + 4 * 0.359, rel=0.01)


def test_workgroups_of_the_same_keys_share_an_xcds_l2_or_the_infinity_cache() -> None:
    on = machine()
    pair = [[Part(i, 0, 1000)] for i in range(8) for _ in range(2)]  # side by side: two XCDs
    apart = [[Part(i % 8, 0, 1000)] for i in range(16)]  # eight apart: the same XCD
    for groups, fetched in ((pair, 16), (apart, 8)):
        flow = traffic(groups, 1152, 1152, 256, on)
        assert flow.asked == 16 * 1000 * 1152
        assert flow.fetched == fetched * 1000 * 1152
        assert flow.delivered == 8 * 1000 * 1152
    # One after the other: again from the HBM where the Infinity Cache does not hold all of it.
    late = traffic(apart, 1152, 1152, 8, on)
    assert late.delivered == 8 * 1000 * 1152 and late.fetched == 16 * 1000 * 1152
    assert traffic(apart, 1152, 1152, 8, on.changed(mall_bytes=1e6)).delivered == late.fetched
    # The Infinity Cache limits pairs that every XCD fetches for itself.
    slow = on.changed(mall=1000)
    assert traffic(pair, 1, 1, 256, slow).capacity(slow, 2.0) == pytest.approx(500)


def test_a_cache_line_comes_once_if_it_is_asked_for_again_soon() -> None:
    none = np.full(64, -1)
    first = np.concatenate([np.arange(32) * 4, none[32:]])  # a line
    second = first + np.where(first >= 0, 128, 0)
    rows = np.stack([first, first, second, none, first, second])
    assert fetches(rows, 0) == 5  # nothing is near but the access itself
    assert fetches(rows, 1) == 4
    assert fetches(rows, 3) == 2


def test_workgroups_on_a_compute_unit_share_what_it_gets() -> None:
    """Three loads ahead of each: two get what one does each, eight the L2's share together."""
    loaded = kernel(3)
    one, two, eight = (loaded.growth(machine(), held).slope for held in (1, 2, 8))
    assert one == two and eight == pytest.approx(8 * 4096 / machine().l2_bytes, rel=0.05)
    assert loaded.held([[]] * 256, machine()) == 1
    assert loaded.held([[]] * 512, machine()) == 2


def test_rows_that_halve_cache_lines_cost_whole_ones() -> None:
    flow = traffic([[Part(0, 0, 100)]], 576, 640, 256, machine())
    on = machine()
    whole = on.hbm * on.hbm_rows / 2.4
    assert flow.capacity(on, 2.4) == pytest.approx(whole * 576 / 640)


def test_persistent_work_is_cut_evenly_and_whole() -> None:
    for lengths, most in (([4096] * 128, 32), ([131072], 32), ([131072], 0), ([100, 5000, 1], 0)):
        groups = persistent_groups(lengths, 256, most)
        assert len(groups) <= 256
        for sequence, length in enumerate(lengths):
            mine = [p for group in groups for p in group if p.sequence == sequence]
            assert sum(p.keys for p in mine) == length
            assert all(p.partial == (len(mine) > 1) for p in mine)
    assert len(persistent_groups([131072], 256, 32)) == 32
    assert len(persistent_groups([131072], 256)) > 200


def test_splits_fill_the_compute_units() -> None:
    assert [split_count(b, 16384, 256) for b in (1, 64, 128, 256)] == [16, 4, 2, 1]
    groups = split_groups([1000, 64], 2, 64)
    assert [[(p.sequence, p.keys) for p in g] for g in groups] == [
        [(0, 512)], [(1, 64)], [(0, 512)],
    ]  # fmt: skip


def test_one_point_fixes_and_all_others_are_held_out() -> None:
    fixed = [p for p in POINTS if p.fixes]
    assert [(p.batch, p.keys, p.us) for p in fixed] == [(128, 131072, 3246.21)]
    assert len(POINTS) == 45 and sum(p.us >= LONG_CALL for p in POINTS) == 27
    assert all(p.kernel in DECODE for p in POINTS)


@cache
def found() -> tuple[list[DecodeVerdict], DecodeLibrary]:
    library = DecodeLibrary(*(os.environ[name] for name in NEEDED))
    return decode_verdicts(library, machine()), library


@objects
def test_every_object_that_was_measured_is_there() -> None:
    assert found()[0] and found()[1].substitutes == set()


@objects
def test_errors_are_those_that_are_told() -> None:
    verdicts = [v for v in found()[0] if v.counts]
    for chosen, told in (
        (verdicts, DECODE_ERROR),
        ([v for v in verdicts if v.time.shares], SHARED_ERROR),
    ):
        score = Score.of([v.error for v in chosen])
        assert (score.mean, score.worst) == pytest.approx(told, abs=0.001)
    (fixed,) = [v for v in found()[0] if v.point.fixes]
    assert abs(fixed.error) < 0.001


@objects
def test_the_page_has_every_call() -> None:
    text = PAGE.read_text()
    for v in found()[0]:
        p = v.point
        call = f"| {p.source[6:]} | {p.heads} | {p.batch} | {p.keys} |"
        assert f"{call} {p.us:.1f} | {v.time.us:.1f} | {v.error:+.1%} |" in text
