"""mla_decode_gfx950 whose workgroups take several items, the plan's or AITER's, executed: by both
oracles, with empty items and parts among them; raw launches that must store nothing; edits of the
text that must be found."""

import re
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from aiter_decode_call import AiterDecode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlagen.attention.latent.facts import order_of
from mlagen.attention.latent.order import BY_WAVES
from mlagen.codegen import build
from mlagen.errors import ConfigError
from mlagen.families.mla_decode import FAMILY
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.kernel import decode_kernel
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.plan import plan_work
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded
from mlagen.families.mla_decode.verification import KIND
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.launch import EmulatedLauncher
from mlagen.mutation.gfx950.mutant import assembled
from mlagen.problem.expected import compare
from mlagen.verify import verify

KERNEL = "mla_decode_gfx950"
CALL = ("q", "cache", "block_table", "cache_lengths")
SEVERAL = {"persistent": 1}
AITER = {"persistent": 1, "arguments": "aiter"}
FORMS = pytest.mark.parametrize("knobs", [SEVERAL, AITER], ids=["plan", "aiter"])
# None, one, around a tile of 32 keys and of the plan's 64, and through the loop: each after each.
LENGTHS = (0, 33, 1, 290, 0, 64, 200, 31, 65)


@lru_cache(maxsize=64)
def _built(config, knobs):
    return build(KERNEL, config, knobs=dict(knobs))


def built(config, knobs):
    return _built(config, tuple(knobs.items()))


def check(artifact, **sizes):
    report = verify(artifact, **sizes)
    assert report.passed, report.facts()


@FORMS
@pytest.mark.parametrize("heads", [1, 16, 40, 64, 128])
def test_heads(heads, knobs):
    check(built(MlaDecodeConfig(heads), knobs), lengths=LENGTHS[:4], blocks=2)


@FORMS
@pytest.mark.parametrize("mask", ["null", "causal"])
@pytest.mark.parametrize("q_len", [2, 8])
def test_new_tokens(q_len, mask, knobs):
    config = MlaDecodeConfig(12, q_len=q_len, mask=mask)
    check(built(config, knobs), lengths=LENGTHS, blocks=3, data="late_max")


@FORMS
@pytest.mark.parametrize("page_size", [1, 16, 32, 64, 192])
def test_pages(page_size, knobs):
    check(built(MlaDecodeConfig(4, page_size=page_size), knobs), lengths=LENGTHS, blocks=2)


@FORMS
@pytest.mark.parametrize("page_size", [1, 64, 128])
def test_parts_of_sequences(page_size, knobs):
    config = MlaDecodeConfig(40, q_len=2, page_size=page_size)
    sizes = {"lengths": (0, 64, 65, 300), "blocks": 4, "data": "late_max"}
    check(built(config, knobs), split_keys=128, **sizes)
    check(built(config, knobs), **sizes)


def test_a_window_in_several_items():
    config = MlaDecodeConfig(12, q_len=8, mask="sliding_window_causal[70]")
    check(built(config, SEVERAL), lengths=(5, 40, 100, 290), blocks=2, data="late_max")


@FORMS
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    heads=st.integers(1, 128),
    page_size=st.sampled_from([1, 16, 32, 64, 192]),
    q_len=st.integers(1, 8),
    mask=st.sampled_from(["null", "causal"]),
    lengths=st.lists(st.integers(0, 300), min_size=1, max_size=4).filter(any),
    split_keys=st.sampled_from([0, 64, 128]),
    blocks=st.integers(1, 6),
    data=st.sampled_from(["realistic", "late_max"]),
)
def test_any_call(knobs, heads, page_size, q_len, mask, lengths, split_keys, blocks, data):
    config = MlaDecodeConfig(heads, page_size=page_size, q_len=q_len, mask=mask)
    sizes = {"lengths": tuple(lengths), "split_keys": split_keys, "blocks": blocks}
    check(built(config, knobs), data=data, **sizes)


STORED = [
    {"cache_dtype": "fp8_e4m3"},
    {"cache_dtype": "fp8_e4m3", "dtype": "fp8_e4m3"},
    {"dtype": "fp8_e4m3"},
]


@FORMS
@pytest.mark.parametrize("fields", STORED, ids=["cache", "both", "queries"])
def test_e4m3(fields, knobs):
    config = MlaDecodeConfig(20, q_len=2, **fields)
    check(built(config, knobs), lengths=LENGTHS, blocks=3, split_keys=128, data="late_max")


def test_rope_aware_rows_in_several_items():
    config = MlaDecodeConfig(20, q_len=2, cache_dtype="fp8_rope_aware")
    check(built(config, SEVERAL), lengths=LENGTHS, blocks=3, data="late_max")


@FORMS
def test_all_code_that_can_be_reached_is_checked(knobs):
    report = verify(built(MlaDecodeConfig(6, q_len=2), knobs))
    assert report.passed, report.facts()


@FORMS
def test_a_trial_plans_its_items(knobs):
    """What runs a trial without planning it, as the cycle model does, gets items too."""
    artifact = built(MlaDecodeConfig(16), knobs)
    made = KIND.inputs({"num_heads": 16}, data="realistic", seed=0, lengths=(70, 33))
    outputs, report = KIND.trial(made).run(artifact, EmulatedLauncher())
    assert not report.emulation.findings
    assert np.isfinite(outputs["o"].astype(np.float32)).all()


# ---- the plan's items -----------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 3, 7])
def test_a_call_of_several_items(blocks):
    """Both kernels: shares of the plan, parts that the merge kernel adds up, a plan anew."""
    config = MlaDecodeConfig(12, q_len=2, page_size=16)
    merge = build("mla_decode_merge_gfx950", MlaDecodeMergeConfig(12))
    kernel = decode_kernel(built(config, SEVERAL), build=lambda name, fields: merge)
    plan = kernel.plan((300, 0, 65), device="cpu", blocks=blocks, split_keys=64, room=(600,) * 3)
    for lengths in ((300, 0, 65), (10, 500, 33)):
        made = mla_decode_inputs(config, data="late_max", seed=0, lengths=lengths)
        plan.update(lengths)
        out, lse = kernel(**{n: getattr(made, n) for n in CALL}, scale=made.scale, plan=plan)
        for oracle in (exact, rounded):
            expected = oracle(made, splits=plan.splits, order=BY_WAVES)
            assert compare(expected.output, out).passed
            assert compare_lse(expected.lse, lse).passed


def test_no_part_is_taken_in():
    """Two parts are merged like more; Hopper's blocks would take one in."""
    lengths, config = (4000, 4000, 4000), MlaDecodeConfig(16)
    taking, merging = (
        plan_work(config, lengths, blocks=2, persistent=True, takes_in=takes)
        for takes in (True, False)
    )
    assert (taking.items[:, 10] != 0).any() and not len(taking.merges)
    assert not (merging.items[:, 10] != 0).any() and len(merging.merges)


def test_plans_of_other_forms_are_refused():
    config = MlaDecodeConfig(16)
    one, several = (decode_kernel(built(config, knobs)) for knobs in ({}, SEVERAL))
    made = mla_decode_inputs(config, data="realistic", seed=0, lengths=(70,))
    tensors = {n: getattr(made, n) for n in CALL}
    for kernel, other, words in ((one, several, "not "), (several, one, "")):
        plan = other.plan((70,), device="cpu")
        with pytest.raises(ConfigError, match=f"the plan is {'' if words else 'not '}for blocks"):
            kernel(**tensors, scale=made.scale, plan=plan)


# ---- AITER's arguments ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def reduce():
    return build("mla_prefill_reduce", MlaReduceConfig(24, depth=512, lse=True))


def aiter_kernel(config, reduce=None):
    brought = None if reduce is None else lambda name, fields: reduce
    return FAMILY.kernel(built(config, AITER), build=brought)


@pytest.mark.parametrize("workgroups", [1, 3, 20])
def test_a_call_in_aiters_form(reduce, workgroups):
    """Ours, and our reduce kernel: what one leaves, the other merges."""
    config = MlaDecodeConfig(24, q_len=3, page_size=16)
    call = AiterDecode(config, (300, 0, 70, 2), workgroups, split_keys=128)
    out, lse = aiter_kernel(config, reduce)(**call.arguments)
    call.check(out, lse)


@pytest.mark.parametrize("fields", STORED, ids=["cache", "both", "queries"])
def test_calls_with_scales_in_aiters_form(reduce, fields):
    config = MlaDecodeConfig(24, q_len=3, **fields)
    call = AiterDecode(config, (300, 0, 70, 2), 3, split_keys=128)
    kernel = aiter_kernel(config, reduce)
    out, lse = kernel(**call.arguments)
    call.check(out, lse, order=order_of(kernel.artifact))
    for name in ("q_scale", "kv_scale"):
        there = call.arguments.get(name)
        change = np.ones(1, np.float32) if there is None else None
        with pytest.raises(ConfigError, match=f"{name} is {'given' if there is None else 'mis'}"):
            kernel(**call.arguments | {name: change})


def test_parts_may_be_left(reduce):
    config = MlaDecodeConfig(24, q_len=3, page_size=16)
    call = AiterDecode(config, (300, 70), 2, split_keys=128)
    rows = call.plan.partial_rows
    arguments = {n: x for n, x in call.arguments.items() if not n.startswith("reduce")}
    arguments |= call.parts(rows)
    run = aiter_kernel(config).run(**arguments)
    assert not run.reports[0].emulation.findings and np.isfinite(run.partial_o).all()
    assert np.isnan(run.output[:3].astype(np.float32)).all()  # the first sequence is in parts
    assert np.isfinite(run.output[3:].astype(np.float32)).all()


def test_entries_past_the_last_have_no_meaning(reduce):
    """AITER's arrays are longer than what they hold, and its groups without parts hold anything."""
    config = MlaDecodeConfig(24, q_len=3, page_size=16)
    call = AiterDecode(config, (300, 0, 70, 2), 5, split_keys=128)
    anything = np.full((3, 8), 0x7FFFFFF0, np.int32)
    arguments = dict(call.arguments)
    for name in ("work_info_set", "reduce_final_map", "reduce_partial_map", "kv_page_indices"):
        more = anything.reshape(-1)[: 24 // 8 * (arguments[name][:1].size)]
        more = more.reshape(-1, *arguments[name].shape[1:])
        arguments[name] = np.concatenate([arguments[name], more])
    last = arguments["reduce_indptr"][-1:]
    arguments["reduce_indptr"] = np.concatenate([arguments["reduce_indptr"], last, last])
    out, lse = aiter_kernel(config, reduce)(**arguments)
    call.check(out, lse)


def test_sequences_of_fewer_tokens():
    """Packed queries, with none and with one to three tokens a sequence: as padding for a graph has
    it, and items of some tokens of a sequence."""
    config = MlaDecodeConfig(40, q_len=3)
    whole = AiterDecode(config, (300, 70, 5), 1)
    arguments = dict(whole.arguments)
    pages = whole.arguments["kv_indptr"].tolist()
    # Tokens 2 of sequence 0, 3 to 5 of sequence 1, none of sequence 2.
    arguments["q"] = np.ascontiguousarray(whole.arguments["q"][2:6])
    arguments["qo_indptr"] = np.array([0, 1, 4, 4], np.int32)
    items = [
        (0, -1, 0, 1, pages[0], pages[1], 0, 0), (1, -1, 1, 2, pages[1], pages[2], 0, 0),
        (1, -1, 2, 4, pages[1], pages[2], 0, 0), (2, -1, 4, 4, pages[2], pages[3], 0, 0),
    ]  # fmt: skip
    arguments["work_indptr"] = np.array([0, 3, 4], np.int32)
    arguments["work_info_set"] = np.array(items, np.int32)
    out, lse = aiter_kernel(config)(**arguments | whole.parts(1, maps=False))
    whole.check(out, lse, rows=range(2, 6))


def test_no_lse_where_the_host_wants_none():
    config = MlaDecodeConfig(24, q_len=3)
    call = AiterDecode(config, (100, 5), 2)
    out, lse = call.launched(built(config, AITER), lse=None)
    assert np.isnan(lse).all()
    call.check(out, None)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"num_heads": 48}, "twice the heads"),
        ({"num_heads": 12}, "half of them"),
        ({"num_heads": 72}, "as older launchers pass it: heads * tokens"),
        ({"q_stride": 24 * 1152}, "fewer tokens a sequence"),
        ({"page_stride": 64 * 576}, "a cache of one byte an element"),
        ({"page_stride": 1152}, "another page size"),
        ({"world": 2}, "a cache that GPUs share"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_launched_raw_for_another_call_nothing_is_stored(change, what):
    config = MlaDecodeConfig(24, q_len=3)
    call = AiterDecode(config, (100, 200), 2, split_keys=128)
    for outputs in call.launched_all(built(config, AITER), **change):
        assert np.isnan(outputs.astype(np.float32)).all(), what


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("work_indptr", (5, 3, 2)),
        ("work_info_set", (0, -1, 0, 4, 0, 2, 0, 0)),  # four tokens, of three
        ("work_info_set", (0, -1, 3, 0, 0, 2, 0, 0)),  # the end before the start
    ],
)
def test_bad_work_launched_raw_ends_and_stays_inside(at, words):
    """Nothing is written where it does not belong: the sanitizer is silent, and it ends."""
    config = MlaDecodeConfig(24, q_len=3)
    call = AiterDecode(config, (100, 70), 2)
    bad = call.arguments[at].copy()
    bad[0 if at == "work_info_set" else slice(None)] = words
    out, *_ = call.launched_all(built(config, AITER), **{at: bad})
    assert np.isnan(out[:3].astype(np.float32)).all()


@pytest.mark.parametrize(
    ("fields", "knobs", "words"),
    [
        ({}, {"arguments": "aiter"}, "arguments=aiter: AITER's arguments are those of its pers"),
        ({"num_kv_heads": 2}, AITER, "num_kv_heads=2: AITER's arguments know one"),
        ({"mask": "sliding_window_causal[9]"}, AITER, "AITER's work items know no window"),
        ({"mask": "chunked_causal[9]"}, AITER, "AITER's work items know no window and no chunk"),
        ({"cache_dtype": "fp8_rope_aware"}, AITER, "AITER's arguments know no scales of rows"),
    ],
)
def test_what_aiters_arguments_do_not_describe(fields, knobs, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        built(MlaDecodeConfig(16, **fields), knobs)


# ---- edits that must be found ---------------------------------------------------------------


def without(artifact, pattern, after="loop, i % 4 = 0", most=1):
    """The artifact without the first lines that a pattern has from some place on."""
    lines = artifact.text.split("\n")
    first = next(n for n, line in enumerate(lines) if after in line)
    found = [n for n, x in enumerate(lines, 1) if n > first and re.search(pattern, x)][:most]
    assert found
    return replace(artifact, code=assembled(artifact, dict.fromkeys(found, ())))


@FORMS
def test_an_item_that_is_not_waited_for_is_found(knobs):
    artifact = built(MlaDecodeConfig(16), knobs)
    changed = without(artifact, "s_waitcnt lgkmcnt", after="==== item")
    assert not verify(changed, lengths=(100, 100), blocks=1).clean


@FORMS
def test_an_item_that_begins_with_the_last_ones_sum_is_wrong(knobs):
    artifact = built(MlaDecodeConfig(16), knobs)
    changed = without(artifact, r"v_mov_b32 v\[L\], 0", after="==== item")
    assert not verify(changed, lengths=(500, 500), blocks=1, modes=("latest",)).right


def test_a_row_block_that_is_computed_twice_is_wrong():
    artifact = built(MlaDecodeConfig(128, q_len=2), AITER)
    changed = without(artifact, r"s_add_u32 s\[WORK\+1\], s\[WORK\+1\], s\[TMP\+2\]", "==== item")
    assert not verify(changed, lengths=(40,), modes=("latest",)).right
