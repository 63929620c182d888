"""Merging split MLA prefill work as a problem: refusals, and an oracle that sees what it should."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from reduce_cases import grouped, simulated

from mlagen.errors import ConfigError
from mlagen.families.split_merge.prefill_exact import exact
from mlagen.families.split_merge.prefill_inputs import MlaReduceInputs
from mlagen.families.split_merge.prefill_made_up import MLA_REDUCE_KINDS, mla_reduce_inputs
from mlagen.families.split_merge.prefill_partials import merge_partials
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.problem.expected import compare

CONFIG = MlaReduceConfig(num_heads=3, output_dtype="fp32", lse=True)
COUNTS = list(range(1, 10))
ROWS = [16, 1, 7, 16, 2, 5, 16, 3, 9]


def judged(inputs, out, lse):
    """Ratios of error to bound: of O, of the LSE."""
    expected = exact(inputs)
    output = compare(expected.output, out[None])
    return output, compare(expected.lse, lse[None, ..., None])


@pytest.mark.parametrize("data", MLA_REDUCE_KINDS)
def test_honest_arithmetic_is_within_the_bounds(data):
    for seed in range(5):
        inputs = grouped(CONFIG, COUNTS, ROWS, data=data, seed=seed)
        out, lse = simulated(inputs)
        for comparison in judged(inputs, out, lse):
            assert comparison.passed and comparison.nans == 0
        rounded = out.astype(ml_dtypes.bfloat16)
        assert compare(exact(inputs).output, rounded[None]).passed


@pytest.mark.parametrize(
    ("mistake", "data", "told_by"),
    [
        ("drops the last partial", "randn", "both"),
        ("swaps two LSEs", "randn", "o"),
        ("never rescales O", "late_max", "o"),
        ("weights of base 2", "randn", "o"),
        ("log2 for ln", "randn", "lse"),
        ("multiplies by 0", "unseen", "o"),
    ],
)
def test_mistakes_are_far_beyond_the_bounds(mistake, data, told_by):
    inputs = grouped(CONFIG, [2, 3, 5], [16, 4, 9], data=data)
    with np.errstate(invalid="ignore"):
        output, lse = judged(inputs, *simulated(inputs, mistake=mistake))
    for name, comparison in (("o", output), ("lse", lse)):
        if told_by in (name, "both"):
            assert comparison.max_ratio > 1e4 and comparison.failures > comparison.elements // 20
    # A bf16 output hides no such mistake either.
    if told_by in ("o", "both"):
        with np.errstate(invalid="ignore"):
            out, _ = simulated(inputs, mistake=mistake)
        rounded = compare(exact(inputs).output, out.astype(ml_dtypes.bfloat16)[None])
        assert rounded.failures > rounded.elements // 20


def test_what_no_partial_saw_is_zero_exactly():
    inputs = grouped(CONFIG, [3], [16], data="unseen", seed=1)
    expected = exact(inputs)
    empty = np.isneginf(expected.lse.values[..., 0])
    assert empty.any() and not empty.all()
    assert (expected.output.values[empty] == 0).all() and (expected.output.bounds[empty] == 0).all()
    assert (expected.lse.bounds[empty] == 0).all()
    out, lse = simulated(inputs)
    first = inputs.groups[0].first
    row, head = np.argwhere(empty[0])[0]
    out[first + row, head, 5] = 1e-30
    lse[first + row, head] = np.inf
    output, of_lse = judged(inputs, out, lse)
    assert output.failures == 1 and of_lse.failures == 1


def test_bounds_are_near_the_error_of_fp32():
    """One partial: O is what it was, but for the reciprocal of 1; some units in the last place."""
    inputs = grouped(CONFIG, [1], [16], data="randn")
    expected = exact(inputs)
    size = np.abs(expected.output.values) + 1e-30
    assert (expected.output.bounds / size).max() < 16 * 2.0**-24
    nine = exact(grouped(CONFIG, [9], [16], data="randn")).output
    assert np.median(nine.bounds / (np.abs(nine.values) + 1e-30)) < 400 * 2.0**-24


def test_made_up_partials_are_poisoned_where_nobody_looks():
    inputs = mla_reduce_inputs(CONFIG, seq_len=[70, 40], num_keys=[700, 900], workgroups=12,
                               tile_q=32)  # fmt: skip
    used = np.zeros(len(inputs.partial_lse), bool)
    for group in inputs.merged:
        for slot in group.slots:
            used[slot : slot + group.end - group.first] = True
        values, _ = merge_partials(*(np.stack(parts) for parts in inputs.parts(group)))
        assert np.isfinite(values).all()
    assert 0 < used.sum() < len(used)
    assert np.isnan(inputs.partial_o[~used]).all() and np.isnan(inputs.partial_lse[~used]).all()
    again = mla_reduce_inputs(CONFIG, seq_len=[70, 40], num_keys=[700, 900], workgroups=12,
                              tile_q=32)  # fmt: skip
    np.testing.assert_array_equal(inputs.partial_o, again.partial_o)
    with pytest.raises(ConfigError, match="unknown data 'flat'"):
        mla_reduce_inputs(CONFIG, data="flat")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"num_heads": 0}, "num_heads=0 is not in 1 .. 32768"),
        ({"num_heads": 2.5}, "num_heads=2.5 is not an integer"),
        ({"num_heads": 4, "depth": 256}, "depth=256"),
        ({"num_heads": 4, "output_dtype": "fp16"}, "output_dtype=fp16"),
        ({"num_heads": 4, "lse": 2}, "lse=2 is neither"),
        ({"num_heads": 4, "tile_q": 64}, "has no field 'tile_q'"),
        ({}, "needs num_heads"),
    ],
)
def test_refused_problems(fields, said):
    with pytest.raises(ConfigError) as error:
        MlaReduceConfig.from_fields(fields)
    assert said in str(error.value)


INPUTS = grouped(CONFIG, [2, 0, 3], [16, 4, 9])


def int32(*numbers):
    return np.array(numbers, np.int32)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"partial_o": INPUTS.partial_o.astype(np.float64)}, "partial_o has dtype float64"),
        ({"partial_o": INPUTS.partial_o[:, :2]}, "partial_o has shape"),
        ({"partial_lse": INPUTS.partial_lse[1:]}, "partial_lse has shape"),
        ({"reduce_indptr": int32(0, 2, 1, 5)}, "must not fall"),
        ({"reduce_indptr": int32(0, 2, 2, 4)}, "the last offset is the number of rows of"),
        ({"reduce_final_map": int32(3, 19, 20, 24, 25, 25).reshape(3, 2)}, "is no range of rows"),
        ({"reduce_final_map": int32(3, 19, 18, 24, 25, 34).reshape(3, 2)}, "goes to row 18"),
        ({"reduce_final_map": int32(3, 19, 20, 24, 25, 37).reshape(3, 2)}, "O has 36 rows"),
        ({"reduce_partial_map": int32(0, 16, 32, 48, 104)}, "reduce_partial_map has 104"),
        ({"reduce_partial_map": int32(0, 16, 32, 48, -1)}, "reduce_partial_map has -1"),
        ({"rows": "many"}, "rows='many' is not an integer"),
    ],
)
def test_refused_inputs(change, said):
    with pytest.raises(ConfigError) as error:
        replace(INPUTS, **change)
    assert said in str(error.value)


def test_groups_without_partials_are_not_merged():
    assert [len(group.slots) for group in INPUTS.groups] == [2, 0, 3]
    assert [group.index for group in INPUTS.merged] == [0, 2]
    rows = exact(INPUTS).output.rows
    first, end = INPUTS.reduce_final_map[1]
    assert not ((first <= rows) & (rows < end)).any()
    nothing = MlaReduceInputs(
        CONFIG, INPUTS.partial_o, INPUTS.partial_lse, int32(0), np.zeros((0, 2), np.int32),
        int32(), 7,
    )  # fmt: skip
    assert nothing.merged == () and nothing.most_rows == 0
    with pytest.raises(ConfigError, match="there is nothing to merge"):
        exact(nothing)
