"""Both oracles on every form of a call: ragged, paged, sinks, windows, the log-sum-exp.

That their bounds hold for a simulated kernel, that each defect exceeds them, and that what is no
key never matters.
"""

import math
from dataclasses import replace
from functools import lru_cache

import ml_dtypes
import numpy as np
import pytest
from mha_simulation import FAULTS, PAGE_FAULT, SINK_FAULTS, WINDOW_FAULTS, simulate_inputs

from mlagen.attention.prefill.exact import exact
from mlagen.attention.prefill.rounded import rounded
from mlagen.errors import ConfigError
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.made_up import KINDS, mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.problem.expected import compare

BF16 = ml_dtypes.bfloat16
MASKS = ("null", "causal", "sliding_window_causal[70]", "chunked_causal[100]")
FORMS = {
    "dense": {"sink": True, "lse": True},
    "ragged": {"ragged": True, "sink": True, "lse": True},
    "paged": {"page_size": 64, "sink": True, "lse": True},
    "ragged, paged": {"ragged": True, "page_size": 32, "sink": True, "lse": True},
}
BY_SEQUENCE = {"num_keys": [300, 70, 0, 200], "start_pos": [0, 3, 5, 137]}
SHAPES = {
    "dense": {"batch": 2, "seq_len": 300, "num_keys": 260, "start_pos": 40},
    "ragged": {"lengths": [300, 0, 1, 65], **BY_SEQUENCE},
    "paged": {"batch": 4, "seq_len": 65, **BY_SEQUENCE},
    "ragged, paged": {"lengths": [300, 0, 1, 65], **BY_SEQUENCE},
}


@lru_cache
def made(form, mask, data="realistic", seed=0):
    config = MhaConfigV2(4, 2, depth=64, mask=mask, **FORMS[form])
    inputs = mha_inputs(config, data=data, seed=seed, **SHAPES[form])
    return inputs, exact(inputs), rounded(inputs)


def comparisons(inputs, expected, output, lse):
    return (
        compare(expected.output, inputs.output_view(output)),
        compare(expected.lse, inputs.lse_view(lse)),
    )


def textbook(inputs, sequence, row, head):
    """One row with python floats: O and LSE, the sink in the denominator."""
    kv = inputs.config.kv_head_of(head)
    q = inputs.queries(sequence, np.array([row]), head)[0].astype(float)
    k, v = (array.astype(float) for array in inputs.key_rows(sequence, kv))
    position = sequence.start_pos + row
    seen = [j for j in range(sequence.keys) if inputs.config.mask.visible(position, j)]
    z = [inputs.scale * float(q @ k[j]) for j in seen]
    sink = -math.inf if inputs.sinks is None else float(inputs.sinks[head])
    top = max([*z, sink])
    if math.isinf(top):
        return np.zeros(inputs.config.depth), -math.inf
    total = sum(math.exp(value - top) for value in [*z, sink])
    out = sum((math.exp(x - top) / total * v[j] for x, j in zip(z, seen, strict=True)), start=0.0)
    return out + np.zeros(inputs.config.depth), top + math.log(total)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("form", FORMS)
def test_exact_is_the_textbook(form, mask):
    inputs, result, _ = made(form, mask)
    rng = np.random.default_rng(7)
    for sequence in inputs.sequences:
        rows = {0, sequence.rows - 1, *rng.integers(max(sequence.rows, 1), size=3).tolist()}
        for row in (row for row in rows if 0 <= row < sequence.rows):
            for head in range(4):
                out, lse = textbook(inputs, sequence, row, head)
                batch = 0 if inputs.config.ragged else sequence.index
                at = (batch, sequence.first_row + row, head)
                np.testing.assert_allclose(result.output.values[at], out, rtol=1e-9, atol=1e-12)
                assert result.lse.values[(*at, 0)] == pytest.approx(lse, rel=1e-12)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("data", KINDS)
def test_an_honest_kernel_is_within_both_bounds(form, mask, data):
    inputs, *both = made(form, mask, data, seed=1)
    turn = list(FORMS).index(form) + MASKS.index(mask) + list(KINDS).index(data)
    outputs = simulate_inputs(inputs, order=("ascending", "descending")[turn % 2])
    for expected in both:
        for comparison in comparisons(inputs, expected, *outputs):
            assert comparison.passed, comparison.worst
            assert comparison.undecided == 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fault", [*FAULTS, *SINK_FAULTS])
def test_each_defect_exceeds_both_bounds(form, fault):
    data = "late_max" if fault == "stale rescale" else "realistic"
    inputs, *both = made(form, "causal", data)
    outputs = simulate_inputs(inputs, fault=fault)
    for expected in both:
        output, lse = comparisons(inputs, expected, *outputs)
        assert output.max_ratio > 3, output.worst
        # What moves no row sum is no business of the LSE's.
        if fault not in ("swapped keys", "stale rescale"):
            assert lse.max_ratio > 3, lse.worst
        else:
            assert lse.passed


@pytest.mark.parametrize("fault", WINDOW_FAULTS)
@pytest.mark.parametrize("mask", ["sliding_window_causal[70]", "chunked_causal[100]"])
@pytest.mark.parametrize("form", FORMS)
def test_a_window_that_is_off_by_one_exceeds_both_bounds(form, mask, fault):
    inputs, *both = made(form, mask)
    outputs = simulate_inputs(inputs, fault=fault)
    for expected in both:
        assert min(c.max_ratio for c in comparisons(inputs, expected, *outputs)) > 3


@pytest.mark.parametrize("form", ["paged", "ragged, paged"])
@pytest.mark.parametrize("data", ["realistic", "randn"])
def test_swapped_pages_exceed_both_bounds(form, data):
    """Under a causal mask: without one, the order of keys does not matter to the exact answer."""
    inputs, *both = made(form, "causal", data)
    outputs = simulate_inputs(inputs, fault=PAGE_FAULT)
    for expected in both:
        assert min(c.max_ratio for c in comparisons(inputs, expected, *outputs)) > 3


@pytest.mark.parametrize("wrong", [2.0, 1.0 / math.log(2.0), None])
def test_a_log_sum_exp_in_other_units_or_without_its_sink_exceeds_both_bounds(wrong):
    inputs, *both = made("dense", "causal", "randn")
    output, lse = simulate_inputs(inputs)
    if wrong is None:
        _, without = simulate_inputs(inputs, fault="sink ignored")
        lse = without
    else:
        lse = lse * np.float32(wrong)
    for expected in both:
        assert comparisons(inputs, expected, output, lse)[1].max_ratio > 100


@pytest.mark.parametrize("sink", [-1e38, -200.0, -1.0, 5.0, 60.0, 1e37])
def test_any_finite_sink(sink):
    """From one that vanishes to one that leaves nothing of the output."""
    config = MhaConfigV2(2, 1, depth=64, mask="sliding_window_causal[4]", sink=True, lse=True)
    inputs = mha_inputs(config, seq_len=40, num_keys=10, data="randn")  # rows 13.. see nothing
    inputs = replace(inputs, sinks=np.full(2, sink, np.float32))
    outputs = simulate_inputs(inputs)
    for expected in (exact(inputs), rounded(inputs)):
        for comparison in comparisons(inputs, expected, *outputs):
            assert comparison.passed, comparison.worst
        empty = expected.output.values[:, 13:]
        assert (empty == 0).all() and (expected.output.bounds[:, 13:] == 0).all()
        assert expected.lse.values[:, 13:] == pytest.approx(np.float32(sink))
        assert np.isfinite(expected.lse.bounds).all() and np.isfinite(expected.output.bounds).all()


def test_a_sink_of_minus_infinity_is_none():
    inputs, *_ = made("dense", "causal")
    none = replace(inputs, sinks=np.full(4, -np.inf, np.float32))
    plain = replace(inputs, config=replace(inputs.config, sink=False), sinks=None)
    for oracle in (exact, rounded):
        with_sink, without = oracle(none), oracle(plain)
        for one, other in (
            (with_sink.output, without.output),
            (with_sink.lse, without.lse),
        ):
            assert np.array_equal(one.values, other.values)
            assert np.array_equal(one.bounds, other.bounds)


def test_rows_without_a_key_have_minus_infinity_and_nothing_else_passes():
    config = MhaConfigV2(2, 1, depth=64, mask="causal", ragged=True, lse=True)
    inputs = mha_inputs(config, lengths=[3, 2], num_keys=[0, 5], data="randn")
    output, lse = simulate_inputs(inputs)
    for expected in (exact(inputs), rounded(inputs)):
        assert np.isneginf(expected.lse.values[0, :3]).all()
        assert (expected.output.values[0, :3] == 0).all()
        assert all(c.passed for c in comparisons(inputs, expected, output, lse))
        for wrong in (np.inf, np.nan, -3e38, 0.0):
            spoiled = lse.copy()
            spoiled[1, 2] = wrong
            comparison = comparisons(inputs, expected, output, spoiled)[1]
            assert comparison.failures == 1 and comparison.nans == np.isnan(wrong)
            assert (comparison.worst.row, comparison.worst.head) == (2, 1)


@pytest.mark.parametrize("form", ["paged", "ragged, paged"])
@pytest.mark.parametrize("page_size", [16, 32, 64, 128, 256])
def test_pages_are_the_rows_they_hold(form, page_size):
    """The answer does not depend on where keys lie, nor on what lies beside them."""
    config = MhaConfigV2(4, 2, depth=64, page_size=page_size, ragged=form != "paged", lse=True)
    inputs = mha_inputs(config, data="randn", **SHAPES[form])
    packed = [
        np.concatenate(
            [
                np.stack([inputs.key_rows(sequence, head)[part] for head in range(2)], axis=1)
                for sequence in inputs.sequences
            ]
        )
        for part in range(2)
    ]
    assert all(np.isfinite(rows.astype(np.float32)).all() for rows in packed)
    assert all(np.isnan(pool.astype(np.float32)).any() for pool in (inputs.k, inputs.v))
    rows = np.array([sequence.rows for sequence in inputs.sequences])
    contiguous = MhaInputs(
        replace(config, page_size=0, ragged=True),
        inputs.q.reshape(-1, 4, 64),
        *packed,
        inputs.scale,
        inputs.start_pos,
        q_offsets=np.cumsum([0, *rows], dtype=np.int32),
        kv_offsets=np.cumsum([0, *(s.keys for s in inputs.sequences)], dtype=np.int32),
    )
    for oracle in (exact, rounded):
        one, other = oracle(inputs), oracle(contiguous)
        assert np.array_equal(one.output.values.reshape(-1), other.output.values.reshape(-1))
        assert np.array_equal(one.lse.values.reshape(-1), other.lse.values.reshape(-1))


@pytest.mark.parametrize("form", FORMS)
def test_the_rows_of_workgroups_are_those_of_the_whole(form):
    inputs, *both = made(form, "causal")
    output, lse = simulate_inputs(inputs)
    last = inputs.batch - 1
    groups = [(0, 0, 0), (3, 0, last), (2, 1, 0), (0, 0, 1)]
    groups = [g for g in groups if g[1] < inputs.config.q_tiles(inputs.seq_len)]
    for whole, oracle in zip(both, (exact, rounded), strict=True):
        part = oracle(inputs, workgroups=groups)
        for kind, view in (
            ("output", inputs.output_view(output)),
            ("lse", inputs.lse_view(lse)),
        ):
            all_lines, own = getattr(whole, kind), getattr(part, kind)
            at = (own.lines.batch, own.lines.row, own.lines.head)
            np.testing.assert_allclose(own.values[0, :, 0], all_lines.values[at], rtol=1e-12)
            comparison = compare(own, view)
            assert comparison.passed
            # Four rows beside them are not looked at, a wrong one among them is named.
            spoiled = np.full(view.shape, np.nan, view.dtype)
            spoiled[at] = view[at]
            assert compare(own, spoiled).passed
            place = tuple(int(index[5 % len(index)]) for index in at)
            spoiled[place][..., 0] += 1
            wrong = compare(own, spoiled)
            assert (wrong.worst.batch, wrong.worst.row, wrong.worst.head) == place
            assert [h.head for h in wrong.heads if h.failures] == [place[2]]
    expected_rows = sum(
        min(256, max(0, inputs.sequences[z].rows - 256 * y)) for _, y, z in set(groups)
    )
    assert part.output.values.shape == (1, expected_rows, 1, 64)


def test_workgroups_that_do_not_exist_are_refused():
    inputs, *_ = made("dense", "causal")
    with pytest.raises(ConfigError, match=r"workgroup \(4, 0, 0\) lies outside the grid \(4, 2, "):
        exact(inputs, workgroups=[(4, 0, 0)])
    with pytest.raises(ConfigError, match="one or the other"):
        exact(inputs, workgroups=[(0, 0, 0)], rows=[1])
    # A tile past a short sequence has no rows, and no rows are no comparison.
    inputs, *_ = made("ragged", "causal")
    nothing = exact(inputs, workgroups=[(0, 0, 1)])
    with pytest.raises(ConfigError, match="nothing to compare"):
        compare(nothing.output, inputs.output_view(inputs.q))


def test_selected_packed_rows_are_those_of_the_whole():
    inputs, *both = made("ragged", "sliding_window_causal[70]", "late_max")
    rows, heads = [3, 40, 299, 300, 301, 365], [1, 3]
    for whole, oracle in zip(both, (exact, rounded), strict=True):
        part = oracle(inputs, rows=rows, heads=heads)
        at = np.ix_([0], rows, heads)
        np.testing.assert_allclose(part.output.values, whole.output.values[at], rtol=1e-12)
        np.testing.assert_allclose(part.lse.values, whole.lse.values[at], rtol=1e-12)


def test_a_poisoned_neighbour_never_matters():
    """Sequences lie side by side: what one holds must not reach another."""
    config = MhaConfigV2(2, 1, depth=64, mask="null", ragged=True, lse=True)
    inputs = mha_inputs(config, lengths=[40, 0, 33], num_keys=[100, 64, 47], data="randn")
    k, v = inputs.k.copy(), inputs.v.copy()
    k[100:164] = v[100:164] = np.nan
    poisoned = replace(inputs, k=k, v=v)
    for oracle in (exact, rounded):
        clean, other = oracle(inputs), oracle(poisoned)
        assert np.array_equal(clean.output.values, other.output.values)
        assert np.array_equal(clean.lse.bounds, other.lse.bounds)
