"""Both oracles of sparse MLA: what they say, and that their bounds hold and are sharp."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from mla_sparse_simulation import FAULTS, simulate, simulate_splits

from mlagen.attention.latent.order import SEESAW, Order, keys_in_registers
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse import expected as expected_module
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.exact import exact
from mlagen.families.mla_sparse.expected import compare_outputs
from mlagen.families.mla_sparse.lists import listed
from mlagen.families.mla_sparse.made_up import (
    PATTERNS,
    SPARSE_KINDS,
    mla_sparse_decode_inputs,
    mla_sparse_prefill_inputs,
)
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rounded import rounded
from mlagen.families.mla_sparse.rows import FORMATS

ORACLES = (exact, rounded)
ALL = [(name, width) for name, row in FORMATS.items() for width in row.widths]
SINKS = (0.7, -np.inf, np.inf, -1e38, 3e38, 95.0, -20.0)


def prefill(heads=3, *, d_qk=576, dtype="bf16", rows_as="bf16", **sizes):
    config = MlaSparsePrefillConfig(heads, d_qk=d_qk, dtype=dtype, rows=rows_as)
    return mla_sparse_prefill_inputs(config, **sizes)


def any_call(name, width, heads=3, **sizes):
    """A prefill call."""
    return prefill(heads, d_qk=width, rows_as=name, rows=2, **sizes)


@lru_cache
def demo(name, width, data="randn"):
    """Two lists with invalid places, sinks, pages of 64 rows of the second of two layers."""
    call = any_call(
        name, width, topk=150, data=data, pattern="invalid", sink=(1.0, 2.5, 0.0), page_size=64,
        layers=2, room=16,
    )  # fmt: skip
    return call, exact(call), rounded(call)


def found(call, outputs, both=None):
    """The comparisons by output, with each oracle."""
    for expected in both or [oracle(call) for oracle in ORACLES]:
        yield compare_outputs(call, expected, outputs)


def assert_honest(call, arithmetic="hopper"):
    for comparisons in found(call, simulate(call, arithmetic=arithmetic)):
        for name, one in comparisons.items():
            assert one.passed, (name, one.oracle, one.worst)


# ---- what is expected ----------------------------------------------------------------------------


def textbook(rows, q, scale, sink):
    """O, the largest score and the LSE of one head, by the definition."""
    if not len(rows):
        return np.zeros(512), -np.inf, -np.inf
    z = scale * rows @ q
    top, total = z.max(), np.exp(z - z.max()).sum()
    with np.errstate(over="ignore"):
        drawn = np.exp(np.float64(sink) - top)
    return np.exp(z - top) / (total + drawn) @ rows[:, :512], top, top + np.log(total)


@pytest.mark.parametrize("name, width", ALL)
def test_exact_is_the_textbook_of_the_rows_that_lists_name(name, width):
    """With lists of all patterns, lengths, sinks; rows as the pool decodes them one by one."""
    call = any_call(name, width, topk=90, lengths=(70, 90), sink=(0.5, -np.inf, 3.0))
    expected = exact(call)
    for entry, token, head in np.ndindex(1, 2, 3):
        row_ids = call.indices.reshape(2, 90)[token, : (70, 90)[token]].tolist()
        rows = [call.pool.numbers(np.array([r])) for r in row_ids if 0 <= r < 512]
        numbers = np.array([n.exact[0] * n.scales[0] for n in rows]) * call.kv_scale
        q = call.queries(entry, token)[head] * call.q_scale
        o, top, lse = textbook(numbers, q, call.scale, call.sink[head])
        at = (entry, token, head)
        np.testing.assert_allclose(expected.output.values[at], o, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(expected.max_logits.values[at][0], top, rtol=1e-11)
        np.testing.assert_allclose(expected.lse.values[at][0], lse, rtol=1e-11)


@pytest.mark.parametrize("shared", [False, True])
def test_decode_counts_positions_and_appends_the_extra_list(shared):
    config = MlaSparseDecodeConfig(2, q_len=3, shared_list=shared, extra=True, causal=True)
    call = mla_sparse_decode_inputs(
        config, batch=2, topk=80, extra_topk=30, pattern="invalid", lengths=(61, 80),
        extra_lengths=(30, 0),
    )  # fmt: skip
    expected = exact(call)
    hidden = 0
    for entry, token, head in np.ndindex(2, 3, 2):
        at = (entry,) if shared else (entry, token)
        rows = []
        for t in range((61, 80)[entry]):
            index = int(call.indices[(*at, t)])
            if not 0 <= index < 512:
                continue
            if call.positions[(*at, t)] <= call.first_position[entry] + token:
                rows.append(call.cache.reshape(512, 576)[index])
            else:
                hidden += 1
        for index in call.extra_indices[at][: (30, 0)[entry]].tolist():
            if 0 <= index < 512:
                rows.append(call.extra_cache.reshape(512, 576)[index])
        q = call.queries(entry, token)[head]
        o, _, lse = textbook(np.array(rows, float), q, call.scale, -np.inf)
        np.testing.assert_allclose(expected.output.values[entry, token, head], o, rtol=1e-9,
                                   atol=1e-12)  # fmt: skip
        np.testing.assert_allclose(expected.lse.values[entry, token, head, 0], lse, rtol=1e-11)
    assert hidden > 50


# ---- an honest kernel is within both bounds ------------------------------------------------------


@pytest.mark.parametrize("arithmetic", ["hopper", "nearest"])
@pytest.mark.parametrize("name, width", ALL)
def test_an_honest_kernel_is_within_both_bounds(name, width, arithmetic):
    call, *both = demo(name, width)
    for comparisons in found(call, simulate(call, arithmetic=arithmetic), both):
        assert set(comparisons) == {"o", "lse", "max_logits"}
        assert all(one.passed for one in comparisons.values()), comparisons


@pytest.mark.parametrize("data", SPARSE_KINDS)
def test_on_all_data(data):
    """Finite and infinite sinks, lists of every pattern, an empty and a partial length."""
    call = prefill(
        5, rows=6, topk=300, data=data, lengths=[300, 171, 64, 300, 0, 1], sink=SINKS[:5]
    )
    assert_honest(call)


@pytest.mark.parametrize("seed", range(20))
def test_odd_calls(seed):
    rng = np.random.default_rng(seed)
    name, width = ALL[seed % len(ALL)]
    topk = int(rng.choice([1, 63, 64, 65, 129, 257])) if seed else 700
    common = {
        "topk": topk, "seed": seed, "data": list(SPARSE_KINDS)[seed % 6], "cache_rows": 720,
        "page_size": int(rng.choice([1, 3, 16, 720])), "layers": int(rng.integers(1, 3)),
        "lengths": [topk, int(rng.integers(-1, topk + 3))], "scale": float(rng.choice([0.03, 0.2])),
        "sink": None if seed % 3 == 0 else rng.choice(SINKS, 2).tolist(),
    }  # fmt: skip
    dtype = ("bf16", "fp8_e4m3")[seed % 2]
    if seed % 4 < 2:
        call = prefill(2, d_qk=width, dtype=dtype, rows_as=name, rows=2, **common)
    else:
        flags = dict(zip(("shared_list", "extra", "causal"), rng.random(3) < 0.5, strict=True))
        fields = {flag: bool(value) for flag, value in flags.items()}
        config = MlaSparseDecodeConfig(
            2, d_qk=width, dtype=dtype, rows=name, q_len=int(rng.choice([1, 3])), **fields
        )
        call = mla_sparse_decode_inputs(config, batch=2, extra_topk=int(rng.integers(1, 90)),
                                        extra_lengths=[40, 0], **common)  # fmt: skip
    assert_honest(call)


def test_repeated_rows_round_alike(monkeypatch):
    """Two rows 350 times each: a P is rounded 350 times in the same way. A bound that takes these
    errors for independent ones is too small."""
    call = prefill(2, topk=700, rows=2, data="randn", pattern="distinct", seed=1)
    twice = np.array([call.indices[:, 0], call.indices[:, 1]]).T
    call = replace(call, indices=np.ascontiguousarray(np.repeat(twice, 350, axis=1)))
    assert_honest(call)
    assert_honest(call, "nearest")

    def apart(parts, tile, **more):
        keys = listed(parts, tile, **more)
        return replace(keys, kernel=replace(keys.kernel, rows=None))

    monkeypatch.setattr(expected_module, "listed", apart)
    assert not compare_outputs(call, exact(call), simulate(call))["o"].passed


@pytest.mark.parametrize("sink", SINKS)
def test_sinks(sink):
    call = prefill(2, rows=2, topk=65, data="randn", sink=[sink, 0.0])
    assert_honest(call)
    values = exact(call).output.values[0, :, 0]
    without = exact(replace(call, sink=None))
    if sink in (-np.inf, -1e38):
        np.testing.assert_array_equal(values, without.output.values[0, :, 0])
    if sink in (np.inf, 3e38):
        assert not values.any()
    np.testing.assert_array_equal(exact(call).lse.values, without.lse.values)


# ---- the bounds are sharp ------------------------------------------------------------------------

SHOWS = {  # the outputs that show a fault, those of prefill
    "dropped key": ("o", "lse"),
    "swapped keys": ("o",),
    "scale off by 1 %": ("o", "lse", "max_logits"),
    "stale rescale": ("o",),
    "invalid key counted": ("o", "lse"),
    "sink left out": ("o",),
    "sink in the LSE": ("lse",),
    "maximum in base 2": ("max_logits",),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name, width", [pair for pair in ALL if pair != ("e4m3", 512)])
def test_each_bound_is_sharp(name, width, fault):
    call, *both = demo(name, width)
    outputs = simulate(call, fault=fault)
    for comparisons in found(call, outputs, both):
        for output, one in comparisons.items():
            if output in SHOWS[fault]:
                assert one.max_ratio > 2, (output, one.oracle, one.max_ratio)


def test_a_list_that_is_read_past_its_length_meets_nan():
    call = prefill(2, rows=2, topk=100, lengths=[40, 99], data="randn", pattern="distinct")
    for comparisons in found(call, simulate(replace(call, topk_length=None))):
        assert comparisons["o"].nans and not comparisons["o"].passed


def heaviest(call, block=576):
    """The row that the first head of the first query row weighs most, and which of its blocks of
    columns has the largest part in its score."""
    part = call.parts(0, 0)[0]
    numbers = part.pool.numbers(part.read)
    products = numbers.exact * numbers.scales[:, None] * call.queries(0, 0)[0]
    row = int(np.argmax(products.sum(axis=1)))
    blocks = np.add.reduceat(products[row, :512], np.arange(0, 512, block))
    return int(part.read[row]), int(np.argmax(np.abs(blocks)))


@pytest.mark.parametrize("name", ["e4m3_row", "rope_aware"])
def test_one_row_s_scale_off_by_one_percent(name):
    call, _, sharp = demo(name, 576, "peaked")
    off = call.kv_scales.copy()
    off[heaviest(call)[0]] *= np.float32(1.01)
    (comparisons,) = found(call, simulate(replace(call, kv_scales=off)), [sharp])
    assert comparisons["o"].max_ratio > 8 and comparisons["lse"].max_ratio > 8


@pytest.mark.parametrize("name", ["e4m3_block32", "e4m3_block64", "e4m3_block128", "v32"])
def test_one_block_s_scale_off_by_one_percent(name):
    call, _, sharp = demo(name, 576, "peaked")
    row, block = heaviest(call, FORMATS[name].block)
    if name == "v32":
        cache = call.cache.copy()
        own = cache[row // 64, row % 64, 512:528].view(np.float32)
        own[block] *= np.float32(1.01)
        wrong = replace(call, cache=cache)
    else:
        off = call.kv_scales.copy()
        off[row, block] *= np.float32(1.01)
        wrong = replace(call, kv_scales=off)
    (comparisons,) = found(call, simulate(wrong), [sharp])
    assert comparisons["o"].max_ratio > 8 and comparisons["lse"].max_ratio > 8


@pytest.mark.parametrize("scale", ["kv_scale", "q_scale"])
def test_a_tensor_s_scale_off_by_one_percent(scale):
    call = prefill(2, dtype="fp8_e4m3", rows_as="e4m3", rows=2, data="randn", pattern="invalid")
    wrong = simulate(replace(call, **{scale: 1.01 * getattr(call, scale)}))
    for comparisons in found(call, wrong):
        assert all(one.max_ratio > 2 for one in comparisons.values())


@pytest.mark.parametrize("name", ["v32", "e4m3_block64"])
def test_scales_that_are_rounded_first_are_another_kernel(name):
    """What the rounding oracle follows is one rounding of each product, no other."""
    call, _, sharp = demo(name, 576)
    if name == "v32":
        cache = call.cache.copy()
        own = cache[..., 512:528].view(np.float32)
        own.view(np.uint32)[...] &= np.uint32(0xFFFF0000)
        other = simulate(replace(call, cache=cache))
    else:
        bits = call.kv_scales.view(np.uint32) & np.uint32(0xFFFF0000)
        other = simulate(replace(call, kv_scales=bits.view(np.float32)))
    (comparisons,) = found(call, other, [sharp])
    assert not comparisons["o"].passed


# ---- edges ---------------------------------------------------------------------------------------


def test_rows_without_keys_are_zero_and_minus_infinity_and_nothing_else_passes():
    call = prefill(2, rows=5, topk=70, pattern="mixed", lengths=[70, 0, -3, 70, 70], sink=[1, -1])
    honest = simulate(call)
    for oracle in ORACLES:
        expected = oracle(call)
        for row in (1, 2, 3):
            assert not expected.output.values[0, row].any()
            assert not expected.output.bounds[0, row].any()
            assert np.isneginf(expected.lse.values[0, row]).all()
            assert np.isneginf(expected.max_logits.values[0, row]).all()
        for name, wrong in (
            ("o", 1e-30), ("lse", np.inf), ("lse", 0.0), ("lse", np.nan), ("max_logits", -1e30)
        ):  # fmt: skip
            outputs = {key: array.copy() for key, array in honest.items()}
            outputs[name][(3, 1, 7) if name == "o" else (3, 1)] = wrong
            one = compare_outputs(call, expected, outputs)[name]
            assert (one.failures, one.worst.row, one.worst.head) == (1, 3, 1)
        outputs = {**honest, "lse": honest["lse"].copy()}
        outputs["lse"][0, 0] = -np.inf
        assert compare_outputs(call, expected, outputs)["lse"].failures == 1


def test_pools_and_pages_never_matter():
    """Another page size, layers and room: the same expected bits."""
    plain = any_call("model1", 512, topk=70, data="randn", page_size=512)
    for sizes in ({"page_size": 2}, {"page_size": 64, "layers": 3}):
        other = any_call("model1", 512, topk=70, data="randn", **sizes)
        for oracle in ORACLES:
            one, two = oracle(plain), oracle(other)
            np.testing.assert_array_equal(one.output.values, two.output.values)
            np.testing.assert_array_equal(one.lse.bounds, two.lse.bounds)


def test_splits_do_not_change_what_is_exact():
    call = prefill(2, rows=2, topk=400, data="realistic", pattern="invalid", sink=[2.0, np.inf])
    whole, parts = exact(call), exact(call, splits=[(0, 2, 6), (0, 4)])
    for name in ("output", "lse", "max_logits"):
        one, two = getattr(whole, name), getattr(parts, name)
        np.testing.assert_allclose(two.values, one.values, rtol=1e-9, atol=1e-12)
        assert (two.bounds <= 1.5 * one.bounds + 3e-6).all()
    with pytest.raises(ConfigError, match="ascend from 0"):
        exact(call, splits=[(1, 2)] * 2)


SPLITS = [(0, 2, 3), (0, 1)]


def with_sinks_near_the_lse(data):
    call = prefill(4, rows=2, topk=330, data=data, pattern="distinct")
    near = exact(call).lse.values[0, 0, :, 0] + [0.0, -np.inf, 2.0, -3.0]
    return replace(call, sink=near.astype(np.float32))


@pytest.mark.parametrize("data", SPARSE_KINDS)
def test_splits_are_merged_with_the_sink(data):
    call = with_sinks_near_the_lse(data)
    merged = simulate_splits(call, SPLITS)
    for oracle in ORACLES:
        for one in compare_outputs(call, oracle(call, splits=SPLITS), merged).values():
            assert one.passed, one.worst


def test_a_sink_in_every_split_is_not():
    call = with_sinks_near_the_lse("randn")
    wrong = simulate_splits(call, SPLITS, sink_in_each=True)
    for oracle in ORACLES:
        assert compare_outputs(call, oracle(call, splits=SPLITS), wrong)["o"].max_ratio > 2


def test_another_order_rounds_other_numbers():
    call = prefill(2, rows=1, topk=300, data="randn", pattern="distinct")
    plain = rounded(call, order=Order(tile=64, first_columns=(0,), late_columns=512))
    outputs = simulate(call)
    assert compare_outputs(call, rounded(call, order=SEESAW), outputs)["o"].passed
    comparison = compare_outputs(call, plain, outputs)["o"]
    assert comparison.max_ratio > 2 and comparison.worst.depth >= 256
    assert compare_outputs(call, exact(call), outputs)["o"].passed


@pytest.mark.parametrize(("columns", "first"), [(576, 512), (512, 448)])
def test_keys_in_registers_add_four_columns_of_four_lanes(columns, first):
    order = keys_in_registers(columns)
    added = order.added()
    assert sorted(added) == list(range(columns))
    lanes = [16 * lane + one for lane in range(4) for one in range(4)]
    assert list(added[:16]) == [first + at for at in lanes]
    assert list(added[16:32]) == [first + 4 + at for at in lanes]
    boxes = [{column // 64 for column in added[at : at + 64]} for at in range(0, columns, 64)]
    assert sorted(boxes, key=min) == [{box} for box in range(columns // 64)]


def test_selected_heads_are_those_of_the_whole():
    call = prefill(5, rows=2, topk=90, data="randn")
    outputs = simulate(call)
    for oracle in ORACLES:
        part, whole = oracle(call, heads=[3, 0]), oracle(call)
        np.testing.assert_allclose(part.output.values, whole.output.values[:, :, [0, 3]], rtol=1e-9)
        assert all(one.passed for one in compare_outputs(call, part, outputs).values())
        with pytest.raises(ConfigError, match=r"not all in 0 \.\. 4"):
            oracle(call, heads=[5])


@pytest.mark.parametrize("oracle", ORACLES)
def test_what_is_not_finite_is_refused(oracle):
    call = prefill(2, rows=2, topk=20, pattern="distinct", data="randn")
    cache, q = call.cache.copy(), call.q.copy()
    row = int(call.indices[1, 3])
    cache[0, row, 570] = np.inf
    with pytest.raises(ConfigError, match=f"row {row} of cache is not finite in bf16"):
        oracle(replace(call, cache=cache))
    q[1, 0, 2] = np.nan
    with pytest.raises(ConfigError, match="q of row 1 is not finite"):
        oracle(replace(call, q=q))


def test_outputs_of_another_shape_or_name_are_refused():
    call, expected, _ = demo("bf16", 576)
    outputs = simulate(call)
    for wrong in (
        {"lse": outputs["lse"].T.copy()}, {"lse": outputs["lse"].astype(float)},
        {"o": outputs["o"][:1]},
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"{next(iter(wrong))} has shape"):
            compare_outputs(call, expected, wrong)
    with pytest.raises(ConfigError, match="no output 'max'"):
        compare_outputs(call, expected, {"max": outputs["lse"]})


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern):
    call = prefill(1, rows=2, topk=100, pattern=pattern, data="randn")
    valid = (call.indices >= 0) & (call.indices < 512)
    seen = set(call.indices[~valid].tolist())
    own = [len(set(row[ok].tolist())) for row, ok in zip(call.indices, valid, strict=True)]
    if pattern in ("distinct", "repeated"):
        assert valid.all()
        assert own == [100, 100] if pattern == "distinct" else max(own) <= 12
    else:
        assert seen <= {-(2**31), -123456, -1, 512, 2**31 - 1} and len(seen) == 5
        assert valid.any() == (pattern == "invalid")
    named = {*call.indices[valid].tolist()}
    nan = np.isnan(call.cache.astype(np.float32)).all(axis=2)[0]
    assert {row for row in range(512) if not nan[row]} == named
