"""Prologue and drain are the loop with the tiles outside [0, N) dropped."""

import pytest

from mlagen.codegen.schedules import load
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.targets.gfx950.codegen.expand import bounds, expand

SCHEDULE = load("mha_prefill_v2").build(MhaConfigV2(num_heads=8, num_kv_heads=2), {})


@pytest.mark.parametrize("n", range(1, 14))
def test_every_operation_runs_once_a_tile_and_in_order(n):
    seen: dict[str, list[int]] = {}
    for instance in expand(SCHEDULE, n):
        for operation in instance.operations:
            tile = instance.i + operation.tile.offset
            seen.setdefault(f"{operation.name} {operation.template} {operation.access}", []).append(
                tile
            )
    once = {name for name in seen if name.startswith("prescale")}
    rest = {name for name in seen if name.startswith("rescale")}
    for name, tiles in seen.items():
        if name in once:
            assert tiles == [0]
        elif name in rest:
            assert tiles == list(range(1, n))
        else:
            assert tiles == list(range(n)), name
    names = {name.split()[0] for name in seen}
    expected = {"copy", "read", "qk", "mask", "partial_softmax", "tail_softmax", "pv", "prescale"}
    assert names == expected | ({"rescale"} if n > 1 else set())


@pytest.mark.parametrize("n", range(1, 14))
def test_clusters_follow_each_other_without_gap(n):
    names = [instance.cluster.name for instance in expand(SCHEDULE, n)]
    start = "ABCD".index(names[0])
    assert names == ["ABCD"[(start + k) % 4] for k in range(len(names))]


def test_no_tiles_no_clusters():
    assert expand(SCHEDULE, 0) == []


def test_bounds_of_the_four_row_loop():
    edge = bounds(SCHEDULE)
    # Tile 0 is rendered differently in C(i) -> pv(i-1), so iteration 2 is the first steady one;
    # K(i+3) is the farthest copy.
    assert (edge.low, edge.high, edge.period, edge.first_looped) == (2, 3, 4, 5)
