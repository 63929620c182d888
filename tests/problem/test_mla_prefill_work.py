"""Work items of persistent MLA prefill: the plan against a model key by key, refusals, merging."""

from dataclasses import replace

import numpy as np
import pytest

from mlagen.attention.prefill.plan import plan_work
from mlagen.attention.prefill.work import WorkItem, check_work, work_arrays
from mlagen.errors import ConfigError
from mlagen.families.split_merge.prefill_partials import (
    check_reduction,
    merge_partials,
    reduce_work,
)

CASES = [
    # rows, keys, heads, workgroups, causal, block size
    ([700], [700], 1, 4, True, 1),
    ([700], [700], 16, 16, True, 1),  # as many clusters as heads: nothing is cut
    ([300, 1, 0, 513], [300, 900, 40, 600], 2, 6, True, 16),
    ([300, 1, 0, 513], [300, 900, 40, 600], 3, 5, False, 64),
    ([1000, 256], [5000, 257], 8, 80, False, 256),
    ([600, 10], [100, 0], 2, 4, True, 1),  # rows that see nothing
    ([300, 10], [0, 0], 2, 4, False, 1),
    ([40], [40], 6, 4, True, 1),  # more heads than workgroups
]


def seen_by(plan, batch, row):
    """How many keys a row of the packed Q sees."""
    shape = plan.shape
    if not shape.causal:
        return shape.kv_lengths[batch]
    position = shape.start_pos[batch] + row - shape.qo_indptr[batch]
    return max(min(position + 1, shape.kv_lengths[batch]), 0)


@pytest.mark.parametrize(("rows", "keys", "heads", "groups", "causal", "block"), CASES)
def test_every_row_meets_each_of_its_keys_once(rows, keys, heads, groups, causal, block):
    plan = plan_work(rows, keys, heads, groups, causal=causal, block_size=block)
    shape = plan.shape
    work = check_work(shape, plan.work_indptr, plan.work_info, partial_rows=plan.partial_rows)
    assert len(work) == groups
    met = {
        (head, row): np.zeros(keys[b], int)
        for head in range(heads)
        for b in range(len(rows))
        for row in range(shape.qo_indptr[b], shape.qo_indptr[b + 1])
    }
    written = dict.fromkeys(met, 0)
    slots = {}
    for item in (item for group in work for item in group):
        first = (item.kv_start - shape.kv_indptr[item.batch]) * block
        end = (item.kv_end - shape.kv_indptr[item.batch]) * block
        for row in range(item.qo_start, item.qo_end):
            met[item.head, row][first:end] += 1
            written[item.head, row] += not item.partial
        if item.partial:
            slots.setdefault((item.qo_start, item.qo_end), set()).add(item.partial_o_loc)
            rest = keys[item.batch] - end
            assert item.kv_offset in (0, rest)
    for (head, row), count in met.items():
        batch = int(np.searchsorted(shape.qo_indptr, row, side="right")) - 1
        assert (count[: seen_by(plan, batch, row)] == 1).all() and count.max(initial=0) <= 1
        split = [rows for rows in slots if rows[0] <= row < rows[1]]
        assert written[head, row] == (0 if split else 1)
    groups_of = check_reduction(plan.reduce_indptr, plan.reduce_final_map, plan.reduce_partial_map)
    assert {rows: set(found) for rows, found in groups_of.items()} == slots


@pytest.mark.parametrize(("rows", "keys", "heads", "groups", "causal", "block"), CASES)
def test_workgroups_get_the_same_units(rows, keys, heads, groups, causal, block):
    plan = plan_work(rows, keys, heads, groups, causal=causal, block_size=block)
    work = check_work(plan.shape, plan.work_indptr, plan.work_info, partial_rows=plan.partial_rows)
    unit = max(128, block)
    cost = [sum(-(-(i.kv_end - i.kv_start) * block // unit) for i in group) for group in work]
    own_heads = heads // np.gcd(heads, groups)
    assert max(cost) - min(cost) <= own_heads


def test_layout_of_a_cut_tile():
    """AITER's: eight words, ping-pong order, partial tiles by 256 rows, keys after a piece."""
    plan = plan_work([512], [512], 1, 4, causal=True)
    # Tiles 0 (2 units) and 1 (4 units), 6 units over 4 workgroups: 2, 2, 1, 1.
    assert plan.work_indptr.tolist() == [0, 1, 2, 3, 4]
    assert plan.work_info.tolist() == [
        [0, -1, 0, 256, 0, 256, 0, 1 << 16],
        [0, 0, 256, 512, 0, 256, 256, 1 << 16],
        [0, 256, 256, 512, 256, 384, 128, 1 << 16],
        [0, 512, 256, 512, 384, 512, 0, 1 << 16],
    ]
    assert plan.reduce_indptr.tolist() == [0, 3]
    assert plan.reduce_final_map.tolist() == [[256, 512]]
    assert plan.reduce_partial_map.tolist() == [0, 256, 512]
    assert plan.partial_rows == 768
    order = plan_work([256 * 5], [256 * 5], 1, 1, causal=True).work_info[:, 2] // 256
    assert order.tolist() == [0, 4, 1, 3, 2]


def items_of(plan):
    return [WorkItem.of_words(words) for words in plan.work_info]


PLAN = plan_work([512, 10], [512, 40], 2, 4, causal=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda i: i[:-1], "no work item computes"),
        (lambda i: [*i, i[-1]], "which 2 items compute"),
        (lambda i: [replace(i[0], batch=2), *i[1:]], "batch 2 is not in 0 .. 1"),
        (lambda i: [replace(i[0], head=2), *i[1:]], "head 2 is not in 0 .. 1"),
        (lambda i: [replace(i[0], qo_end=255), *i[1:]], "are no query tile"),
        (lambda i: [replace(i[0], kv_end=600), *i[1:]], "run out of those"),
        (lambda i: [replace(i[0], kv_start=300), *i[1:]], "run out of those"),
        (lambda i: [replace(i[0], kv_end=i[0].kv_end - 1), *i[1:]], "but the tile sees 256 keys"),
    ],
)
def test_refused_items(change, said):
    indptr, info = work_arrays([change(items_of(PLAN))])
    with pytest.raises(ConfigError) as error:
        check_work(PLAN.shape, indptr, info, partial_rows=PLAN.partial_rows)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kv_start": 1}, "leave a gap"),
        ({"kv_end": 300}, "overlap"),
        ({"partial_o_loc": -1}, "which 2 items compute"),
        ({"partial_o_loc": 100}, "neither -1 nor a multiple of 256"),
        ({"partial_o_loc": -2}, "neither -1"),
        ({"partial_o_loc": 2560}, "needs 2816 rows, the partial buffers have 512"),
    ],
)
def test_refused_pieces(change, said):
    plan = plan_work([256], [512], 1, 2, causal=False)
    items = items_of(plan)
    index = next(n for n, item in enumerate(items) if item.partial)
    items[index] = replace(items[index], **change)
    indptr, info = work_arrays([items])
    with pytest.raises(ConfigError) as error:
        check_work(plan.shape, indptr, info, partial_rows=plan.partial_rows)
    assert said in str(error.value)


def test_refused_arrays():
    def check(indptr=PLAN.work_indptr, info=PLAN.work_info, rows=PLAN.partial_rows):
        check_work(PLAN.shape, indptr, info, partial_rows=rows)

    check()
    falling = PLAN.work_indptr.copy()
    falling[1], falling[2] = falling[2], falling[1] - 1
    for options, said in (
        ({"indptr": falling}, "must not fall"),
        ({"indptr": PLAN.work_indptr[:-1]}, "the last offset is the number of rows of work_info"),
        ({"info": PLAN.work_info[:, :7]}, "work_info has shape"),
        ({"info": PLAN.work_info.astype(np.int64)}, "dtype int64"),
        ({"rows": 128}, "the partial buffers have 128"),
    ):
        with pytest.raises(ConfigError) as error:
            check(**options)
        assert said in str(error.value)
    two = PLAN.work_info.copy()
    two[0, 7] = 2 << 16
    with pytest.raises(ConfigError, match="an item is for one"):
        check(info=two)
    twice = plan_work([256], [512], 1, 2, causal=False)
    info = twice.work_info.copy()
    info[:, 1] = 0
    with pytest.raises(ConfigError, match="both write partial_o_loc=0"):
        check_work(twice.shape, twice.work_indptr, info, partial_rows=512)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"heads": 0}, "heads=0"),
        ({"heads": 2**15 + 1}, "heads=32769"),
        ({"workgroups": 0}, "workgroups=0"),
        ({"block_size": 24}, "block_size=24 does not divide tile_kv=128"),
        ({"seqlens_kv": [1, 2]}, "seqlens_kv has 2 entries for 1 sequences"),
        ({"seqlens_qo": [-1]}, "must not be negative"),
        ({"start_pos": [-1]}, "start_pos=[-1] must not be negative"),
    ],
)
def test_refused_plans(options, said):
    given = {"seqlens_qo": [5], "seqlens_kv": [9], "heads": 2, "workgroups": 4, "causal": True}
    with pytest.raises(ConfigError) as error:
        plan_work(**{**given, **options})
    assert said in str(error.value)


def test_merging_gives_the_whole():
    """Partials of a softmax cut at random places, one of them empty and poisoned."""
    rng = np.random.default_rng(3)
    scores, values = rng.normal(0, 4, (7, 2, 60)), rng.normal(size=(60, 5))
    cuts = [(0, 17), (17, 18), (18, 60)]
    parts, logs = [], []
    for first, end in cuts:
        e = np.exp(scores[..., first:end])
        parts.append(e @ values[first:end] / e.sum(axis=-1, keepdims=True))
        logs.append(np.log(e.sum(axis=-1)))
    e = np.exp(scores)
    whole = e @ values / e.sum(axis=-1, keepdims=True)
    for empty in (-np.inf, np.nan):
        o, lse = merge_partials(
            [*parts, np.full_like(parts[0], np.nan)], [*logs, np.full((7, 2), empty)]
        )
        np.testing.assert_allclose(o, whole, rtol=1e-12)
        np.testing.assert_allclose(lse, np.log(e.sum(axis=-1)), rtol=1e-12)
        o, lse = merge_partials(np.full((2, 3, 4), np.nan), np.full((2, 3), empty))
        assert (o == 0).all() and np.isneginf(lse).all()
    # A NaN that was seen is not hidden.
    assert np.isnan(merge_partials([np.full((1, 4), np.nan)], [np.zeros(1)])[0]).all()


def test_reduction_finds_its_partials():
    plan = plan_work([300, 300], [700, 400], 2, 10, causal=False)
    rng = np.random.default_rng(1)
    partial_o = np.full((plan.partial_rows, 2, 128), np.nan, np.float32)
    partial_lse = np.full((plan.partial_rows, 2), np.nan, np.float32)
    wanted = {}
    for item in items_of(plan):
        if item.partial:
            at = slice(item.partial_o_loc, item.partial_o_loc + item.qo_end - item.qo_start)
            o = rng.normal(size=(item.qo_end - item.qo_start, 128)).astype(np.float32)
            partial_o[at, item.head], partial_lse[at, item.head] = o, item.kv_start / 100
            parts = wanted.setdefault((item.qo_start, item.qo_end, item.head), [])
            parts.append((np.exp(item.kv_start / 100), o.astype(float)))
    made = reduce_work(plan, partial_o, partial_lse)
    assert set(made) == {key[:2] for key in wanted} and len(wanted) > 2
    for (first, end, head), parts in wanted.items():
        mean = sum(w * o for w, o in parts) / sum(w for w, _ in parts)
        np.testing.assert_allclose(made[first, end][0][:, head], mean, rtol=1e-6, atol=1e-6)
    with pytest.raises(ConfigError, match="a tile is 256 rows"):
        reduce_work(plan, partial_o[:-1], partial_lse[:-1])
    with pytest.raises(ConfigError, match="dtype float64"):
        reduce_work(plan, partial_o.astype(float), partial_lse)
