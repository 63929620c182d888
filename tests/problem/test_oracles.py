"""Both oracles: what they say, and that their bounds hold and are sharp."""

import math
from functools import lru_cache

import ml_dtypes
import numpy as np
import pytest
from mha_simulation import FAULTS, simulate

from mlagen.attention.prefill.exact import exact
from mlagen.attention.prefill.rounded import rounded
from mlagen.errors import ConfigError
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.made_up import KINDS, mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.problem.expected import compare
from mlagen.problem.formats import SMALLEST_NORMAL

BF16 = ml_dtypes.bfloat16


def run(inputs, **options):
    return simulate(
        inputs.config, inputs.q, inputs.k, inputs.v, inputs.scale, inputs.start_pos, **options
    )


def oracles(inputs, **selection):
    return exact(inputs, **selection).output, rounded(inputs, **selection).output


@lru_cache
def demo(data):
    """The demo shape with its oracles: B1, H8, H_kv 2, S 512, D 128, causal."""
    inputs = mha_inputs(MhaConfigV2(8, 2), data=data, seq_len=512)
    return inputs, *oracles(inputs)


def plain_attention(inputs, batch, row, head):
    """One row by the textbook, with python floats and loops."""
    config = inputs.config
    q = inputs.q[batch, row, head].astype(float)
    kv = config.kv_head_of(head)
    position = inputs.start_pos + row
    seen = [j for j in range(inputs.keys) if config.mask.visible(position, j)]
    if not seen:
        return np.zeros(config.depth), -math.inf
    z = [inputs.scale * float(q @ inputs.k[batch, j, kv].astype(float)) for j in seen]
    top = max(z)
    total = sum(math.exp(value - top) for value in z)
    out = sum(
        math.exp(value - top) / total * inputs.v[batch, j, kv].astype(float)
        for value, j in zip(z, seen, strict=True)
    )
    return out, top + math.log(total)


@pytest.mark.parametrize(
    "mask, start_pos, num_keys",
    [
        ("null", 0, 47),
        ("causal", 3, 70),
        ("causal", 100, 65),  # queries beyond the last key
        ("sliding_window_causal[9]", 64, 70),  # some rows see nothing
        ("chunked_causal[16]", 63, 130),
    ],
)
def test_exact_is_the_textbook(mask, start_pos, num_keys):
    config = MhaConfigV2(6, 3, depth=64, mask=mask)
    inputs = mha_inputs(
        config, batch=2, seq_len=40, num_keys=num_keys, start_pos=start_pos, data="randn"
    )
    result = exact(inputs)
    rng = np.random.default_rng(5)
    rows = {0, 39, *rng.integers(0, 40, 6).tolist()}
    for batch in range(2):
        for head in range(6):
            for row in rows:
                out, lse = plain_attention(inputs, batch, row, head)
                at = (batch, row, head)
                np.testing.assert_allclose(result.output.values[at], out, rtol=1e-9, atol=1e-12)
                assert result.lse.values[(*at, 0)] == pytest.approx(lse, rel=1e-12)


def test_empty_rows_are_zero_and_nothing_else_passes():
    config = MhaConfigV2(2, 1, mask="sliding_window_causal[4]")
    inputs = mha_inputs(config, seq_len=40, num_keys=10, start_pos=0, data="randn")
    result = exact(inputs)
    for expected in (result.output, rounded(inputs).output):
        assert (expected.values[:, 13:] == 0).all() and (expected.bounds[:, 13:] == 0).all()
        assert (expected.values[:, :13] != 0).all()
        output = run(inputs)
        assert compare(expected, output).passed
        output[0, 20, 1, 7] = 1e-30
        comparison = compare(expected, output)
        assert comparison.failures == 1
        assert (comparison.worst.row, comparison.worst.head, comparison.worst.depth) == (20, 1, 7)
    lse = result.lse.values
    assert np.isneginf(lse[:, 13:]).all() and np.isfinite(lse[:, :13]).all()


@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("data", KINDS)
def test_an_honest_kernel_is_within_both_bounds(data, order):
    inputs, *both = demo(data)
    output = run(inputs, order=order)
    for expected in both:
        comparison = compare(expected, output)
        assert comparison.passed, comparison.worst
        assert comparison.undecided == 0


@pytest.mark.parametrize("seed", range(12))
def test_an_honest_kernel_is_within_both_bounds_on_odd_shapes(seed):
    rng = np.random.default_rng(seed)
    heads = [(1, 1), (4, 1), (8, 2), (6, 3)][seed % 4]
    masks = ["null", "causal", "sliding_window_causal[70]", "chunked_causal[100]"]
    config = MhaConfigV2(
        *heads,
        depth=int(rng.choice([64, 128])),
        mask=masks[seed // 3],
        output_dtype=["bf16", "fp32"][seed % 2],
        rescale_threshold=[8.0, 2.0, 0.0][seed % 3],
    )
    inputs = mha_inputs(
        config,
        batch=1 + seed % 2,
        seq_len=int(rng.choice([1, 30, 65, 256, 300])),
        num_keys=int(rng.choice([1, 47, 64, 65, 128, 175, 500])),
        start_pos=int(rng.choice([0, 1, 63, 64, 100])),
        data=list(KINDS)[seed % 4],
        seed=seed,
    )
    for expected in oracles(inputs):
        for order in ("ascending", "descending"):
            comparison = compare(expected, run(inputs, order=order))
            assert comparison.passed, comparison.worst
            assert comparison.undecided == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_each_bound_is_sharp_on_the_demo_data(fault):
    inputs, *both = demo("realistic")
    output = run(inputs, fault=fault)
    for expected in both:
        comparison = compare(expected, output)
        assert not comparison.passed
        assert comparison.max_ratio > 3
        # No head hides it; a rescale happens in some only.
        failing = [head.head for head in comparison.heads if head.failures]
        assert len(failing) >= (1 if fault == "stale rescale" else 8)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "stale rescale"])
@pytest.mark.parametrize("data", ["randn", "falling"])
def test_each_bound_is_sharp_without_rescaling(data, fault):
    inputs, *both = demo(data)
    output = run(inputs, fault=fault)
    for expected in both:
        assert compare(expected, output).max_ratio > 3


def test_the_rounding_oracle_is_far_sharper():
    _, expected, sharp = demo("randn")
    assert np.median(sharp.bounds) < np.median(expected.bounds) / 30
    # Rounding P to nearest or by truncation is a difference that only it sees.
    assert compare(expected, expected.values.astype(np.float32)).passed
    assert not compare(sharp, expected.values.astype(np.float32)).passed


def test_that_a_wave_moves_as_a_whole_matters_to_the_rounding_oracle():
    """A kernel that lets each row's maximum move on its own is right, but rounds other P."""
    inputs, *_ = demo("realistic")
    rows = range(256, 320)
    output = run(inputs)
    for row in rows:
        alone = MhaInputs(
            inputs.config, inputs.q[:, [row]], inputs.k, inputs.v, inputs.scale, start_pos=row
        )
        output[:, row] = run(alone)[:, 0]
    expected, sharp = oracles(inputs, rows=rows)
    assert compare(expected, output).passed
    assert compare(sharp, output).max_ratio > 3
    assert compare(sharp, run(inputs)).passed


def test_nan_never_passes_and_is_counted():
    inputs, *both = demo("realistic")
    output = run(inputs)
    output[0, 100, 3, 5] = np.nan
    output[0, 101, 3, 6] = np.inf
    for expected in both:
        comparison = compare(expected, output)
        assert (comparison.nans, comparison.failures) == (1, 2)
        assert comparison.max_ratio == math.inf
        assert comparison.worst.row == 100
        failing = [head.head for head in comparison.heads if head.failures]
        assert failing == [3]


def test_selected_rows_and_heads_are_those_of_the_whole():
    inputs, *both = demo("late_max")
    rows, heads = [3, 40, 41, 300, 511], [1, 6]
    output = run(inputs)
    for whole, part in zip(both, oracles(inputs, rows=rows, heads=heads), strict=True):
        at = np.ix_([0], rows, heads)
        np.testing.assert_allclose(part.values, whole.values[at], rtol=1e-12)
        comparison = compare(part, output)
        assert comparison.passed
        assert [head.head for head in comparison.heads] == heads
        output_wrong = output.copy()
        output_wrong[0, 41, 6, 9] += 1
        worst = compare(part, output_wrong).worst
        assert (worst.row, worst.head, worst.depth) == (41, 6, 9)


@pytest.mark.parametrize("selection", [{"rows": [512]}, {"rows": []}, {"heads": [-1]}])
def test_rows_and_heads_that_do_not_exist_are_refused(selection):
    inputs, *_ = demo("randn")
    for oracle in (exact, rounded):
        with pytest.raises(ConfigError, match="are not all in"):
            oracle(inputs, **selection)


def test_what_lies_behind_the_keys_never_matters():
    config = MhaConfigV2(4, 2, mask="null")
    inputs = mha_inputs(config, seq_len=70, num_keys=100, data="realistic")
    poison = np.full((1, 28, 2, 128), np.nan, BF16)
    longer = MhaInputs(
        config,
        inputs.q,
        np.concatenate([inputs.k, poison], axis=1),
        np.concatenate([inputs.v, poison], axis=1),
        inputs.scale,
        num_keys=100,
    )
    for clean, poisoned in zip(oracles(inputs), oracles(longer), strict=True):
        assert np.array_equal(clean.values, poisoned.values)
        assert np.array_equal(clean.bounds, poisoned.bounds)


def test_what_lies_in_hidden_keys_never_matters():
    inputs = mha_inputs(MhaConfigV2(2, 1), seq_len=64, num_keys=64, data="randn")
    k, v = inputs.k.copy(), inputs.v.copy()
    k[:, 40:], v[:, 40:] = np.nan, np.inf
    poisoned = MhaInputs(inputs.config, inputs.q, k, v, inputs.scale)
    for clean, other in zip(oracles(inputs), oracles(poisoned), strict=True):
        assert np.array_equal(clean.values[:, :40], other.values[:, :40])
        assert np.array_equal(clean.bounds[:, :40], other.bounds[:, :40])
        assert np.isnan(other.values[:, 40:]).all()
        assert not compare(other, np.zeros_like(inputs.q)).passed


def test_a_close_vote_may_go_either_way():
    """With the threshold on a growth of this data, fp32 may move the maximum or not."""
    base = mha_inputs(MhaConfigV2(1, 1), seq_len=32, num_keys=128, start_pos=96, data="late_max")
    scores = _scores(base)
    growth = scores[:, 64:].max(axis=1) - scores[:, :64].max(axis=1)
    threshold = float(growth.max())

    def with_threshold(value):
        config = MhaConfigV2(1, 1, rescale_threshold=value)
        return MhaInputs(config, base.q, base.k, base.v, base.scale, base.start_pos)

    moved = run(with_threshold(threshold * 0.999))
    kept = run(with_threshold(threshold * 1.001))
    assert not np.array_equal(moved, kept)
    expected = rounded(with_threshold(threshold)).output
    assert len(expected.alternatives) == 2
    assert compare(expected, moved).passed and compare(expected, kept).passed
    # But one wave goes one way: half of each is wrong.
    mixed = moved.copy()
    mixed[:, 16:] = kept[:, 16:]
    assert not compare(expected, mixed).passed
    # And away from the threshold there is one way only.
    clear = rounded(with_threshold(threshold * 0.999)).output
    assert not clear.alternatives
    assert compare(clear, moved).passed and not compare(clear, kept).passed


def _scores(inputs):
    """[rows, keys] of the only head, log2 units, -inf where hidden."""
    c = np.float32(inputs.scale * math.log2(math.e))
    q = (inputs.q[0, :, 0].astype(np.float32) * c).astype(BF16).astype(float)
    scores = q @ inputs.k[0, :, 0].astype(float).T
    position = inputs.start_pos + np.arange(inputs.seq_len)
    return np.where(np.arange(inputs.keys) <= position[:, None], scores, -np.inf)


def test_bounds_are_never_zero_where_a_key_is_seen():
    _, *both = demo("realistic")
    for expected in both:
        assert (expected.bounds >= SMALLEST_NORMAL).all()
