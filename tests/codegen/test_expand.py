"""Prologue and drain are the loop with the tiles outside [0, N) dropped."""

import pytest

from mlagen.codegen.expand import expand_loop, loop_bounds
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.dsl import Cluster, Operation, Tile
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.targets.gfx950.codegen.expand import bounds, expand

SCHEDULE = schedule_of(load("mha_prefill_v2"), MhaConfigV2(num_heads=8, num_kv_heads=2), {})


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


def looped(offset: int, **of: int) -> tuple[Cluster, ...]:
    """A loop of one cluster that walks tiles and does one operation to some of them."""

    def operation(name: str, at: int, **more: int) -> Operation:
        return Operation(name, f"{name}.s.j2", Tile(at), lambda at: {}, **more)

    steps = operation("walk", 0), operation("some", offset, **of)
    return (Cluster("A", steps, 0, None, 0),)


def tiles_of(loop: tuple[Cluster, ...], n: int, offset: int, period: int = 4) -> list[int]:
    instances = expand_loop(loop, loop_bounds(loop, period), n)
    found = [x.i for x in instances if "some" in {operation.name for operation in x.operations}]
    return [i + offset for i in found]


@pytest.mark.parametrize("n", range(1, 14))
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("offset", [0, 1])
def test_operations_of_last_tiles(n: int, count: int, offset: int) -> None:
    found = tiles_of(looped(offset, last_tiles=count), n, offset)
    assert found == list(range(max(n - count, 0), n))


@pytest.mark.parametrize("n", range(1, 14))
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("offset", [0, 1])
def test_operations_of_first_tiles(n: int, count: int, offset: int) -> None:
    """They stand where one of these tiles is, and in no code that never has one."""
    loop = looped(offset, first_tiles=count)
    edge = loop_bounds(loop, 4)
    found = tiles_of(loop, n, offset)
    assert found[: min(count, n)] == list(range(min(count, n)))

    def code(tile: int, n: int) -> object:
        i = tile - offset
        if n < edge.first_looped or i < edge.low:
            return n, i
        return ("loop", i % 4) if i < n - edge.high else ("drain", (n - edge.high) % 4, i - n)

    shared = {code(tile, m) for m in range(14) for tile in range(min(count, m))}
    assert found == [tile for tile in range(n) if code(tile, n) in shared]
