"""Workgroups that share the memory, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from cycle_model.fluid import Phase, finish, level

from mlagen.timing.constants import machine

ON = machine().changed(dispatch=0, cus=8)  # a compute unit an XCD


def test_a_level_fills_what_there_is_evenly() -> None:
    demands, counts = np.array([1.0, 10.0, 4.0]), np.array([2.0, 1.0, 1.0])
    assert level(demands, counts, 100.0) == 10.0  # enough for all
    assert level(demands, counts, 16.0) == 10.0
    assert level(demands, counts, 12.0) == 6.0  # 1, 1, 4 and what they leave
    assert level(demands, counts, 8.0) == 3.0
    assert level(demands, counts, 2.0) == 0.5
    for capacity in (0.5, 3.0, 7.0, 11.0, 15.9):
        most = level(demands, counts, capacity)
        assert (np.minimum(demands, most) * counts).sum() == pytest.approx(capacity)


def test_alone_a_workgroup_takes_its_own_cycles() -> None:
    assert finish([[Phase(100.0, 640.0), Phase(50.0, 0.0)]], 1, 64.0, ON) == pytest.approx(150)


def test_together_they_take_what_the_bytes_take() -> None:
    group = [Phase(100.0, 1000.0)]
    assert finish([group] * 8, 1, 80.0, ON) == pytest.approx(100)
    assert finish([group] * 8, 1, 40.0, ON) == pytest.approx(200)


def test_a_tail_of_few_is_faster_than_many() -> None:
    """Seven end at 160 cycles, when each got 5 bytes a cycle; the last one has the rest alone."""
    groups = [[Phase(80.0, 800.0)]] * 7 + [[Phase(160.0, 1600.0)]]
    assert finish(groups, 1, 40.0, ON) == pytest.approx(160 + 80)


def test_waves_that_wait_leave_their_part_to_the_others() -> None:
    """Four do not ask for anything: the four others have all of the 40 bytes a cycle."""
    groups = [[Phase(100.0, 1000.0)]] * 4 + [[Phase(100.0, 0.0)]] * 4
    assert finish(groups, 1, 40.0, ON) == pytest.approx(100)


def test_more_workgroups_than_places_follow_one_another() -> None:
    group = [Phase(100.0, 1000.0)]
    assert finish([group] * 16, 1, 1e9, ON) == pytest.approx(200)
    assert finish([group] * 16, 2, 1e9, ON) == pytest.approx(100)
    assert finish([group] * 9, 1, 1e9, ON.changed(dispatch=10)) == pytest.approx(220)
    # XCD 0 has the first and the ninth; nobody else asks while it does the latter.
    assert finish([group] * 9, 1, 40.0, ON) == pytest.approx(300)
