"""The reduce kernel in the emulator: numbers of partials, forms, and a whole attention."""

from dataclasses import replace
from functools import lru_cache
from importlib import resources

import ml_dtypes
import numpy as np
import pytest
from reduce_cases import grouped

from mlagen.attention.prefill.exact import exact as attention
from mlagen.attention.prefill.plan import plan_work
from mlagen.attention.prefill.work import check_work
from mlagen.audit.gfx950 import audit_code_object
from mlagen.codegen import build
from mlagen.families.mla_prefill.made_up import mla_prefill_inputs
from mlagen.families.mla_prefill.problem import MlaConfigV2
from mlagen.families.split_merge.prefill_exact import exact
from mlagen.families.split_merge.prefill_inputs import MlaReduceInputs
from mlagen.families.split_merge.prefill_made_up import MLA_REDUCE_KINDS
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.launch import EmulatedLauncher
from mlagen.ops import MlaReduceKernel
from mlagen.problem.expected import compare
from mlagen.verify import verify, verify_inputs

U32 = 2.0**-24


@lru_cache
def artifact(heads=3, output_dtype="fp32", lse=True, ahead=1, waves=1):
    config = MlaReduceConfig(heads, output_dtype=output_dtype, lse=lse)
    return build("mla_prefill_reduce", config, knobs={"ahead": ahead, "waves": waves})


def check(built, inputs, modes=("latest", "earliest", "random")):
    report = verify_inputs(built, inputs, modes=modes)
    assert report.passed, str(report.error())
    return report


@pytest.mark.parametrize("data", MLA_REDUCE_KINDS)
def test_one_to_nine_partials(data):
    counts, rows = list(range(9, 0, -1)), [16, 1, 7, 16, 2, 5, 16, 3, 9]
    inputs = grouped(MlaReduceConfig(3, output_dtype="fp32", lse=True), counts, rows, data=data)
    report = check(artifact(), inputs)
    assert report.sizes == {"rows": tuple(rows), "partials": tuple(counts)}
    assert len(report.runs[0].comparisons) == 2


@pytest.mark.parametrize("output_dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("lse", [False, True])
@pytest.mark.parametrize("heads", [1, 2, 16])
def test_forms(heads, lse, output_dtype):
    built = artifact(heads, output_dtype, lse)
    config = MlaReduceConfig(heads, output_dtype=output_dtype, lse=lse)
    inputs = grouped(config, [2, 1, 4], [13, 16, 1], data="unseen", seed=heads)
    check(built, inputs, modes=["latest"])


@pytest.mark.parametrize("ahead", [1, 2, 3])
@pytest.mark.parametrize("waves", [1, 2, 4, 8])
def test_knobs(ahead, waves):
    config = MlaReduceConfig(3, output_dtype="fp32", lse=True)
    inputs = grouped(config, [1, 2, 3, 4, 5, 6, 9], [5, 16, 1, 2, 3, 16, 11], data="unseen")
    check(artifact(ahead=ahead, waves=waves), inputs, modes=["latest", "random"])


def test_plans_of_sequences():
    for seed, (rows, keys, groups) in enumerate(
        [([70, 40], [700, 900], 12), ([100], [4000], 30), ([33, 0, 65], [1200, 50, 300], 7)]
    ):
        report = verify(artifact(), seq_len=rows, num_keys=keys, workgroups=groups, tile_q=32,
                        data="unseen", seed=seed, modes=["latest"])  # fmt: skip
        assert report.passed, str(report.error())


def test_rows_that_are_not_merged_stay():
    """Rows between the groups, and those of a group without partials: they are results of items
    that computed their tile alone."""
    config = MlaReduceConfig(3, lse=True)
    inputs = grouped(config, [2, 0, 3], [5, 4, 9])
    rng = np.random.default_rng(2)
    out = rng.standard_normal((inputs.rows, 3, 128)).astype(ml_dtypes.bfloat16)
    lse = rng.standard_normal((inputs.rows, 3)).astype(np.float32)
    before = out.copy(), lse.copy()
    kernel = MlaReduceKernel(artifact(output_dtype="bf16"))
    arrays = (inputs.partial_o, inputs.partial_lse, inputs.reduce_indptr, inputs.reduce_final_map,
              inputs.reduce_partial_map)  # fmt: skip
    made = kernel(*arrays, out=out, lse=lse)
    assert made[0] is out and made[1] is lse
    merged = np.zeros(inputs.rows, bool)
    for group in inputs.merged:
        merged[group.first : group.end] = True
    assert 0 < merged.sum() < inputs.rows - 4
    np.testing.assert_array_equal(out[~merged], before[0][~merged])
    np.testing.assert_array_equal(lse[~merged], before[1][~merged])
    expected = exact(inputs)
    assert compare(expected.output, out[None]).passed
    assert compare(expected.lse, lse[None, ..., None]).passed
    # Without arrays of its own the call makes them, with NaN where nothing was merged.
    fresh, fresh_lse = kernel(*arrays)
    assert np.isnan(fresh_lse[~merged[: len(fresh)]]).all()
    np.testing.assert_array_equal(fresh[merged[: len(fresh)]], out[merged])


@pytest.mark.parametrize("form", ["drop", "swap"])
def test_a_wrong_map_is_told(form):
    """A kernel that takes one partial less, or the LSEs of other partials, is far off."""
    config = MlaReduceConfig(3, output_dtype="fp32", lse=True)
    inputs = grouped(config, [2, 3, 5], [16, 4, 9], data="randn")
    indptr, final, slots = inputs.reduce_indptr, inputs.reduce_final_map, inputs.reduce_partial_map
    partial_lse = inputs.partial_lse
    if form == "drop":
        slots = np.delete(slots, [1, 4, 9]).astype(np.int32)
        indptr = (indptr - np.arange(4)).astype(np.int32)
    else:
        partial_lse = partial_lse.copy()
        for first, last in ((0, 1), (2, 4), (5, 9)):
            a, b = (slice(slots[n], slots[n] + 16) for n in (first, last))
            partial_lse[a], partial_lse[b] = partial_lse[b].copy(), partial_lse[a].copy()
    given = MlaReduceInputs(
        config, inputs.partial_o, partial_lse, indptr, final, slots, inputs.rows
    )
    run = MlaReduceKernel(artifact(), EmulatedLauncher()).run(given)
    comparison = compare(exact(inputs).output, run.output[None])
    assert comparison.failures > comparison.elements // 2 and comparison.max_ratio > 1e4


def test_a_weight_that_multiplies_instead_of_selecting_is_told(tmp_path):
    """O of a partial without keys is NaN: without its v_cndmask it gets through."""
    folder = resources.files("mlagen.templates") / "gfx950" / "split_merge"
    text = (folder / "add.s.j2").read_text()
    line = next(x for x in text.splitlines() if x.startswith("v_cndmask_b32 {{ P["))
    own = tmp_path / "gfx950" / "split_merge"
    own.mkdir(parents=True)
    (own / "add.s.j2").write_text(text.replace(line, ""))
    config = MlaReduceConfig(3, output_dtype="fp32", lse=True)
    built = build("mla_prefill_reduce", config, templates_dir=tmp_path)
    report = verify_inputs(built, grouped(config, [3], [16], data="unseen"), modes=["latest"])
    assert not report.right and report.runs[0].comparisons[0].nans > 0


def test_the_code_is_clean_on_all_paths():
    for ahead, waves in ((1, 1), (3, 4)):
        report = audit_code_object(artifact(ahead=ahead, waves=waves).code)
        assert (
            report.kernels
            and not report.findings
            and not any(kernel.unchecked for kernel in report.kernels)
        )


# ---- a whole attention, split and merged ------------------------------------------------


def partials_of(inputs, plan, items):
    """Partial O and LSE of every split item, computed in fp64 and rounded to fp32; the rest NaN."""
    heads = inputs.config.num_heads
    partial_o = np.full((plan.partial_rows, heads, 128), np.nan, np.float32)
    partial_lse = np.full((plan.partial_rows, heads), np.nan, np.float32)
    for item in (item for group in items for item in group if item.partial):
        sequence = inputs.sequences[item.batch]
        k, v = (a.astype(np.float64) for a in inputs.key_rows(sequence, item.head))
        first = item.kv_start - plan.shape.kv_indptr[item.batch]
        keys = np.arange(first, first + item.kv_end - item.kv_start)
        local = np.arange(item.qo_start, item.qo_end) - sequence.first_row
        q = inputs.queries(sequence, local, item.head).astype(np.float64)
        scores = inputs.scale * (q @ k[keys].T)
        seen = keys[None] <= sequence.start_pos + local[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            top = np.where(seen, scores, -np.inf).max(axis=1, keepdims=True)
            e = np.where(seen, np.exp(scores - top), 0.0)
            total = e.sum(axis=1, keepdims=True)
            at = slice(item.partial_o_loc, item.partial_o_loc + len(local))
            partial_o[at, item.head] = e @ v[keys] / total  # NaN where no key is seen
            lse = np.where(seen.any(axis=1), (top + np.log(total))[:, 0], -np.inf)
            partial_lse[at, item.head] = lse
    return partial_o, partial_lse


@pytest.mark.parametrize("data", ["realistic", "late_max"])
def test_split_attention_merges_to_the_whole(data):
    config = MlaConfigV2(2, 2, ragged=True, dtype="bf16", kv_form="k_and_v", mask="causal")
    lengths, keys = [70, 40], [900, 1300]
    starts = [n - r for r, n in zip(lengths, keys, strict=True)]
    starts[1] = 620  # keys from 640 on are a unit of their own, which the first rows do not see
    whole = mla_prefill_inputs(
        config, lengths=lengths, num_keys=keys, start_pos=starts, data=data, seed=5
    )
    plan = plan_work(lengths, keys, 2, 48, causal=True, start_pos=starts, tile_q=32)
    items = check_work(plan.shape, plan.work_indptr, plan.work_info, partial_rows=plan.partial_rows)
    given = MlaReduceInputs(
        MlaReduceConfig(2, output_dtype="fp32", lse=True), *partials_of(whole, plan, items),
        plan.reduce_indptr, plan.reduce_final_map, plan.reduce_partial_map, sum(lengths),
    )  # fmt: skip
    assert len(given.merged) >= 4 and max(len(g.slots) for g in given.merged) >= 3
    assert any(np.isneginf(log).any() for g in given.merged for log in given.parts(g)[1])

    run = MlaReduceKernel(artifact(2), EmulatedLauncher()).run(given)
    assert not run.report.emulation.findings
    merged = exact(given)
    assert compare(merged.output, run.output[None]).passed

    # Against attention over all keys at once, the partials' own rounding to fp32 is to be added:
    # O_p by u of itself; LSE_p by u of itself, which moves weights against each other by twice so.
    rows = merged.output.rows
    answer = attention(whole, rows=rows.tolist())
    logs = [np.where(np.isfinite(x), np.abs(x), 0.0) for g in given.merged
            for x in given.parts(g)[1]]  # fmt: skip
    parts = [np.nan_to_num(np.abs(x)) for g in given.merged for x in given.parts(g)[0]]
    off = U32 * max(x.max() for x in logs)
    largest = max(x.max() for x in parts)
    output = replace(
        merged.output,
        values=answer.output.values,
        bounds=merged.output.bounds + (U32 + 2 * np.expm1(2 * off)) * largest,
    )
    lse = replace(merged.lse, values=answer.lse.values, bounds=merged.lse.bounds + off + U32)
    for expected, made in ((output, run.output[None]), (lse, run.lse[None, ..., None])):
        comparison = compare(expected, made)
        assert comparison.passed and comparison.elements == expected.values.size
        assert expected.bounds.max() < 1e-3  # of numbers about 1: no loose bound
    # The heaviest partial of one group left out, and the whole is missed.
    group = given.merged[0]
    heaviest = np.argmax([np.mean(np.exp(log)) for log in given.parts(group)[1]])
    given.parts(group)[1][heaviest][:] = -np.inf
    less = MlaReduceKernel(artifact(2), EmulatedLauncher()).run(given)
    assert compare(output, less.output[None]).failures > 100
    assert compare(lse, less.lse[None, ..., None]).failures > 10
