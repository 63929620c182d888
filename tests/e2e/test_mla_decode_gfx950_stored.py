"""mla_decode_gfx950 over caches of e4m3 and rope-aware rows, and with queries that are stored so,
executed: heads, pages, masks, lengths and splits, by both oracles; calls; lengths beyond the table;
e4m3's NaN; and edits of its text that must be found."""

import re
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlagen.attention.latent.facts import facts_of
from mlagen.codegen import build
from mlagen.errors import MlagenError
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.kernel import decode_kernel
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded
from mlagen.families.mla_decode.verification import KIND
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.launch import EmulatedLauncher
from mlagen.launch_findings import findings_of
from mlagen.mutation.gfx950.mutant import assembled
from mlagen.problem.expected import compare
from mlagen.verify import verify

KERNEL = "mla_decode_gfx950"
E4M3, ROPE_AWARE = "fp8_e4m3", "fp8_rope_aware"
OF_E4M3 = (E4M3, E4M3, "fp8")
# Queries and cache: every pair but bf16 and bf16; and the one whose products may be of e4m3.
PAIRS = [
    ("bf16", E4M3), (E4M3, E4M3), (E4M3, "bf16"),
    ("bf16", ROPE_AWARE), (E4M3, ROPE_AWARE), (ROPE_AWARE, ROPE_AWARE),
    OF_E4M3,
]  # fmt: skip
# None, one, around a tile of 64 keys, and through the loop.
LENGTHS = (0, 1, 33, 64, 65, 127, 130, 300)


def of_rows(pair, rows):
    """The variant with so many query rows a wave."""
    name = "bf16" if pair[1] == "bf16" else "qkv_fp8" if pair == OF_E4M3 else "kv_fp8"
    return name + ("_rows_32" if rows == 32 else "")


stored = pytest.mark.parametrize("pair", PAIRS, ids="-".join)


@lru_cache(maxsize=64)
def built(config, **knobs):
    return build(KERNEL, config, knobs=knobs)


def config_of(pair, heads, **fields):
    dtype, cache_dtype, compute = (*pair, "bf16")[:3]
    return MlaDecodeConfig(heads, dtype=dtype, cache_dtype=cache_dtype, compute=compute, **fields)


def check(artifact, **sizes):
    report = verify(artifact, **sizes)
    assert report.passed, report.facts()


@stored
@pytest.mark.parametrize("heads", [1, 16, 64, 100, 128])
def test_heads(pair, heads):
    check(built(config_of(pair, heads)), lengths=(0, 1, 33, 200))


@stored
@pytest.mark.parametrize("page_size", [1, 16, 64, 128, 192])
@pytest.mark.parametrize("mask", ["null", "causal"])
def test_pages_and_new_tokens(pair, page_size, mask):
    config = config_of(pair, 12, page_size=page_size, q_len=3, mask=mask)
    check(built(config), lengths=LENGTHS, data="late_max")


@stored
def test_a_thousand_keys(pair):
    check(built(config_of(pair, 8)), lengths=(1000,), data="late_max")


@stored
@pytest.mark.parametrize("kind", ["sliding_window_causal", "chunked_causal"])
@pytest.mark.parametrize("window", [1, 33, 64, 150, 1000])
def test_windows_and_chunks(pair, kind, window):
    config = config_of(pair, 12, q_len=5, mask=f"{kind}[{window}]")
    check(built(config), lengths=(3, 40, 150, 290), split_keys=64, data="late_max")


@stored
@pytest.mark.parametrize("split_keys", [64, 128])
def test_parts_of_sequences(pair, split_keys):
    check(built(config_of(pair, 40)), lengths=(0, 64, 65, 300), split_keys=split_keys)


@pytest.mark.parametrize("pair", [("bf16", E4M3), (E4M3, E4M3), OF_E4M3], ids="-".join)
@pytest.mark.parametrize("kv_heads", [2, 8])
def test_kv_heads(pair, kv_heads):
    config = config_of(pair, 16, num_kv_heads=kv_heads, q_len=2, page_size=16)
    check(built(config), lengths=(1, 70, 130))


@pytest.mark.parametrize(
    "pair, slots, bands",
    [
        (("bf16", E4M3), (2, 3), (4, 2)),
        ((E4M3, E4M3), (2, 3), (8, 4)),
        (("bf16", ROPE_AWARE), (2,), (4, 2)),
        ((ROPE_AWARE, ROPE_AWARE), (3, 2), (8, 4)),
        (OF_E4M3, (4,), (16, 8)),
    ],
    ids=str,
)
def test_knobs(pair, slots, bands):
    for tiles in slots:
        for band in bands:
            check(built(config_of(pair, 16), slots=tiles, band=band), lengths=LENGTHS)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    pair=st.sampled_from(PAIRS),
    heads=st.integers(1, 128),
    page_size=st.sampled_from([1, 16, 32, 64, 192]),
    q_len=st.integers(1, 8),
    mask=st.sampled_from(["null", "causal", "sliding_window_causal[70]", "chunked_causal[70]"]),
    lengths=st.lists(st.integers(0, 400), min_size=1, max_size=4).filter(any),
    split_keys=st.sampled_from([0, 64, 128]),
    data=st.sampled_from(["realistic", "late_max"]),
)
def test_any_call(pair, heads, page_size, q_len, mask, lengths, split_keys, data):
    config = config_of(pair, heads, page_size=page_size, q_len=q_len, mask=mask)
    check(built(config), lengths=tuple(lengths), split_keys=split_keys, data=data)


@stored
def test_all_code_that_can_be_reached_is_checked(pair):
    report = verify(built(config_of(pair, 6, q_len=2)))
    assert report.passed, report.facts()


# ---- other numbers of query rows a wave -----------------------------------------------------


@stored
@pytest.mark.parametrize("heads", [65, 96, 128])
def test_more_than_64_rows_share_their_keys(pair, heads):
    artifact = built(config_of(pair, heads))
    assert facts_of(artifact.manifest).rows == 128
    check(artifact, lengths=(0, 1, 64, 130), data="late_max")


@stored
@pytest.mark.parametrize("mask", ["causal", "sliding_window_causal[70]"])
@pytest.mark.parametrize("split_keys", [0, 128])
def test_eight_tokens_of_sixteen_heads_are_one_workgroup(pair, mask, split_keys):
    config = config_of(pair, 16, q_len=8, mask=mask, page_size=16)
    check(built(config), lengths=(5, 40, 290), split_keys=split_keys)


@pytest.mark.parametrize(("rows", "between"), [(16, False), (32, True)])
def test_branches_reach_the_epilogue(rows, between):
    """Of more code than a branch reaches it stands between the loop and its drains."""
    text = built(config_of(PAIRS[0], 16), variant=of_rows(PAIRS[0], rows)).text
    assert (text.index("==== epilogue") < text.index("==== drain")) is between


@pytest.mark.parametrize("pair", [("bf16", E4M3), (ROPE_AWARE, ROPE_AWARE)], ids="-".join)
@pytest.mark.parametrize("slots", [3, 2])
@pytest.mark.parametrize("band", [8, 4])
def test_knobs_of_wide_waves(pair, slots, band):
    artifact = built(config_of(pair, 12), variant=of_rows(pair, 32), slots=slots, band=band)
    check(artifact, lengths=LENGTHS, data="late_max")


@pytest.mark.parametrize("heads", [12, 128])
@pytest.mark.parametrize("band", [16, 8])
def test_knobs_of_products_of_e4m3(heads, band):
    """In wide waves, and of workgroups of several items."""
    config = config_of(OF_E4M3, heads)
    check(built(config, variant=of_rows(OF_E4M3, 32), band=band), lengths=LENGTHS, data="late_max")
    check(built(config, persistent=1, band=band), lengths=LENGTHS, split_keys=64, blocks=3)


@stored
def test_more_than_64_rows_in_waves_of_16(pair):
    check(
        built(config_of(pair, 128), variant=of_rows(pair, 16)),
        lengths=(1, 65, 200),
        data="late_max",
    )


@pytest.mark.parametrize("heads", [16, 128])
def test_chunks_are_refused_on_hopper_by_few_rows_and_by_many(heads):
    with pytest.raises(MlagenError, match=re.escape("mask=chunked_causal[8]: mla_decode_sm90")):
        build("mla_decode_sm90", MlaDecodeConfig(heads, mask="chunked_causal[8]"))


# ---- calls ----------------------------------------------------------------------------------


@stored
@pytest.mark.parametrize("heads", [12, 40])
def test_a_call_of_split_work(pair, heads):
    """With scales as arguments, and the merge kernel after it."""
    config = config_of(pair, heads, q_len=2, page_size=16)
    merge = MlaDecodeMergeConfig
    kernel = decode_kernel(built(config), build=lambda name, fields: build(name, merge(**fields)))
    made = mla_decode_inputs(config, data="late_max", seed=0, lengths=(300, 0, 65))
    plan = kernel.plan(made.cache_lengths, device="cpu", split_keys=64)
    out, lse = kernel(**made.tensors, **made.scales, plan=plan)
    splits = ((0, 1, 2, 3, 4), (0,), (0, 1))
    order = KIND.trial(made).planned(built(config)).order
    for oracle in (exact, rounded):
        expected = oracle(made, splits=splits, order=order)
        assert compare(expected.output, out).passed
        assert compare_lse(expected.lse, lse).passed


@pytest.mark.parametrize("pair", [("bf16", "bf16"), *PAIRS], ids="-".join)
def test_a_length_beyond_the_table_is_cut(pair):
    """The kernel reads lengths itself: what is behind the table's last page is not looked up."""
    artifact = built(config_of(pair, 16))
    made = mla_decode_inputs(artifact_config(artifact), data="realistic", seed=0, lengths=(256, 70))
    made = replace(made, block_table=np.ascontiguousarray(made.block_table[:, :4]))
    trial = KIND.trial(made).planned(artifact)
    assert len(trial.work.items) == 2
    honest, _ = trial.run(artifact, EmulatedLauncher())
    # The plan is made: it says nothing of the last part's end.
    object.__setattr__(made, "cache_lengths", np.array([900, 70], np.int32))
    cut, report = trial.run(artifact, EmulatedLauncher())
    assert not findings_of(artifact, report)
    for name, values in honest.items():
        assert values.tobytes() == cut[name].tobytes()


def artifact_config(artifact):
    return MlaDecodeConfig.from_fields(artifact.manifest.problem)


@pytest.mark.parametrize("pair", [("bf16", E4M3), (E4M3, E4M3), OF_E4M3], ids="-".join)
def test_a_nan_of_e4m3_stays_one(pair):
    """In every row that sees its key, and in no other sequence."""
    config = config_of(pair, 4)
    kernel = decode_kernel(built(config), launcher=EmulatedLauncher())
    made = mla_decode_inputs(config, data="realistic", seed=0, lengths=(70, 33))
    made.cache[made.block_table[0, 0], 5, 0, 17] = np.nan
    out, lse = kernel(**made.tensors, **made.scales)
    assert np.isnan(out[0].astype(np.float32)).all()
    assert np.isfinite(out[1].astype(np.float32)).all() and np.isfinite(lse[1]).all()


# ---- edits that must be found ---------------------------------------------------------------


def without(artifact, lines):
    """The artifact without these lines of its text."""
    return replace(artifact, code=assembled(artifact, dict.fromkeys(lines, ())))


def lines_of(artifact, pattern, after="loop, i % 2 = 0"):
    lines = artifact.text.split("\n")
    first = next(n for n, line in enumerate(lines) if after in line)
    return [n for n, line in enumerate(lines, 1) if n > first and re.search(pattern, line)]


@pytest.mark.parametrize("rows", [16, 32])
@pytest.mark.parametrize("pair, slots", [((E4M3, E4M3), 2), (OF_E4M3, 4)])
@pytest.mark.parametrize("pattern", [r"s_waitcnt vmcnt.*cluster", r"s_barrier"])
def test_a_removed_wait_or_barrier_is_found(pattern, pair, slots, rows):
    artifact = built(config_of(pair, 16), variant=of_rows(pair, rows), slots=slots)
    changed = without(artifact, lines_of(artifact, pattern, f"loop, i % {slots} = 0")[:1])
    assert not verify(changed, lengths=(700,)).clean, pattern


@pytest.mark.parametrize("pattern", [r"v_cvt_scalef32_pk_bf16_fp8 v\[WIDE", r"v_mul_f32 v\[S"])
def test_a_number_that_is_not_converted_or_scaled_is_wrong(pattern):
    artifact = built(config_of(("bf16", ROPE_AWARE), 16))
    changed = without(artifact, [lines_of(artifact, pattern)[7]])
    report = verify(changed, lengths=(700,), data="late_max", modes=("latest",))
    assert not report.right


@pytest.mark.parametrize("rows", [16, 32])
@pytest.mark.parametrize("pattern", [r"v_cvt_pk_fp8_f32 v\[S.*op_sel", r"v_add_f32.*0xc0c00000"])
def test_weights_are_packed_relative_to_their_bias(pattern, rows):
    """A half that is not packed is wrong; so is P without its bias, as small ones become 0."""
    artifact = built(config_of(OF_E4M3, 16), variant=of_rows(OF_E4M3, rows))
    changed = without(artifact, lines_of(artifact, pattern, after=".text"))
    report = verify(changed, lengths=(700,), modes=("latest",))
    assert not report.right


@pytest.mark.parametrize("factor", ["S", "P"])
def test_scales_enter_scores_and_weights(factor):
    """16 products of S are followed by 16 of P, in every tile's text."""
    artifact = built(config_of((ROPE_AWARE, ROPE_AWARE), 16))
    products = lines_of(artifact, r"v_mul_f32 v\[S.*SCALES", after=".text")
    first = 0 if factor == "S" else 16
    lines = [line for at, line in enumerate(products) if first <= at % 32 < first + 16]
    report = verify(without(artifact, lines), lengths=(100,), modes=("latest",))
    assert report.clean and not report.right
