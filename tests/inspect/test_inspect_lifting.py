"""Roles, loops, clusters and the timeline of binaries that carry no line map."""

from __future__ import annotations

import pytest
from foreign_kernels import (
    BY_MASK,
    COMES_IN,
    GUARDED,
    ON_DATA,
    TWO_ENTRIES,
    TWO_LATCHES,
    TWO_ROLES,
    for_threads,
)


@pytest.fixture
def two_roles(inspected):
    return inspected(for_threads(256, TWO_ROLES), lds=8192)


def test_waves_that_meet_other_barriers_are_roles(two_roles):
    assert [(r.name, r.first, r.last) for r in two_roles.roles] == [
        ("waves 0-1", 0, 1),
        ("waves 2-3", 2, 3),
    ]


def test_loops_are_found_with_their_barriers(two_roles):
    assert [(loop.name, loop.roles, loop.barriers) for loop in two_roles.loops] == [
        ("L1", ("waves 0-1",), 2),
        ("L2", ("waves 2-3",), 2),
    ]


def test_clusters_end_at_barriers(two_roles):
    looped = [(c.loop, c.kind, c.end) for c in two_roles.looped]
    assert looped == [
        ("L1", "matrix", "barrier"),
        ("L1", "memory", "barrier"),
        ("L1", "control", "jump"),
        ("L2", "matrix", "barrier"),
        ("L2", "memory", "barrier"),
        ("L2", "control", "jump"),
    ]
    # Every instruction is in one cluster, in order.
    places = [line.at for cluster in two_roles.clusters for line in cluster.lines]
    assert places == sorted(set(places))
    assert sum(two_roles.mix().values()) == len(places)


def test_the_timeline_counts_the_barriers_before_the_loops(two_roles):
    """The second role passes one barrier more: its matrix cluster meets the other's reads."""
    line = two_roles.timeline
    assert line.columns == 2

    def kinds(row):
        return [{two_roles.cluster(id).kind for id in cell} - {"control"} for cell in row]

    (first, row), (second, behind) = line.rows
    assert (first, second) == ("waves 0-1", "waves 2-3")
    assert kinds(row) == [{"matrix"}, {"memory"}]
    assert kinds(behind) == [{"memory"}, {"matrix"}]


def test_without_the_extra_barrier_the_roles_run_in_step(inspected):
    level = TWO_ROLES.replace("second:\n  s_barrier\n", "second:\n")
    (_, row), (_, other) = inspected(for_threads(256, level), lds=8192).timeline.rows
    assert len(row) == len(other) == 2


def test_loops_of_different_lengths_are_not_drawn_together(inspected):
    longer = TWO_ROLES.replace("again:\n", "again:\n  s_barrier\n")
    line = inspected(for_threads(256, longer), lds=8192).timeline
    assert line.rows == ()
    assert line.why == "the roles' loops pass different numbers of barriers"


def test_waits_of_a_binary_have_no_known_need(two_roles):
    waits = [(w.text, w.source, w.needed, w.before) for c in two_roles.looped for w in c.waits]
    assert ("lgkmcnt(0)", "binary", "", "s_barrier") in waits
    assert waits[0][:3] == ("lgkmcnt(2)", "binary", "")
    assert waits[0][3].startswith("v_mfma_f32_32x32x8_f16")


def test_a_guard_without_barriers_makes_no_role(inspected):
    report = inspected(for_threads(256, GUARDED))
    assert [(r.first, r.last) for r in report.roles] == [(0, 3)]


def test_a_branch_on_data_makes_no_role(inspected):
    report = inspected(for_threads(256, ON_DATA))
    assert [(r.first, r.last) for r in report.roles] == [(0, 3)]


def test_a_mask_of_lanes_makes_roles(inspected):
    report = inspected(for_threads(192, BY_MASK))
    assert [(r.name, r.first, r.last) for r in report.roles] == [
        ("wave 0", 0, 0),
        ("waves 1-2", 1, 2),
    ]
    # The barrier between the branch and its target is wave 0's alone, and a cluster of its own.
    assert [(c.kind, c.roles) for c in report.clusters] == [
        ("vector", ("wave 0", "waves 1-2")),
        ("bare barrier", ("wave 0",)),
        ("bare barrier", ("wave 0", "waves 1-2")),
        ("control", ("wave 0", "waves 1-2")),
    ]


def test_a_jump_from_elsewhere_begins_a_cluster(inspected):
    report = inspected(COMES_IN)
    assert [c.lines[-1].text.partition(" ")[0] for c in report.clusters] == [
        "s_barrier",
        "v_mov_b32",
        "s_endpgm",
    ]


def test_a_loop_with_two_ways_round_has_no_one_number_of_barriers(inspected):
    (loop,) = inspected(TWO_LATCHES).loops
    assert loop.barriers is None


def test_a_loop_with_two_entries_is_a_loop_and_is_told(inspected):
    report = inspected(TWO_ENTRIES)
    (loop,) = report.loops
    assert loop.barriers == 1 or loop.barriers is None
    assert any("is entered at 2 places" in limit for limit in report.limits)


def test_without_metadata_the_workgroup_is_an_assumption_that_is_told(inspected):
    report = inspected(GUARDED)
    assert any("256 threads in one dimension is assumed" in limit for limit in report.limits)


def test_an_artifact_lifted_without_its_map_has_the_same_loop(mha, mha_report, tmp_path):
    """The line map adds names; what the loop is made of stands in the code."""
    from mlagen.inspect import inspect_path

    bare = tmp_path / "bare.co"
    bare.write_bytes((mha / "kernel.co").read_bytes())
    lifted = inspect_path(bare)
    assert lifted.origin == "binary"
    assert [(r.first, r.last) for r in lifted.roles] == [(0, 3), (4, 7)]
    assert lifted.mix(lifted.looped) == mha_report.mix(mha_report.looped)
    assert [loop.barriers for loop in lifted.loops] == [8]
    closed = [c.mix for c in lifted.looped if c.end == "barrier"]
    named = [c.mix for c in mha_report.looped if c.end == "barrier"]
    assert len(closed) == len(named) == 8
    # Without names the control code at the loop's head belongs to the cluster after it.
    assert closed[1:4] == named[1:4]
