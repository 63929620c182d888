"""mla_decode_gfx950 and its merge, executed: heads, pages, masks, lengths and splits, by both
oracles; what is refused; and edits of its text that must be found."""

import re
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlagen.attention.latent.order import BY_WAVES, BY_WIDE_WAVES
from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.kernel import decode_kernel
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.mutation.gfx950.mutant import assembled
from mlagen.problem.expected import compare
from mlagen.verify import verify, verify_thoroughly

KERNEL, MERGE = "mla_decode_gfx950", "mla_decode_merge_gfx950"
OF_ROWS = {16: "bf16", 32: "bf16_rows_32"}  # variants by query rows of a wave
CALL = ("q", "cache", "block_table", "cache_lengths")
# None, one, around a tile of 32 keys and of the plan's 64, and through the loop.
LENGTHS = (0, 1, 31, 33, 64, 65, 127, 200, 290)


@lru_cache(maxsize=64)
def built(config, **knobs):
    return build(KERNEL, config, knobs=knobs)


def check(artifact, **sizes):
    report = verify(artifact, **sizes)
    assert report.passed, report.facts()


@pytest.mark.parametrize("heads", [1, 8, 16, 24, 32, 40, 64, 96, 128])
def test_heads(heads):
    check(built(MlaDecodeConfig(heads)), lengths=(0, 1, 33, 200))


@pytest.mark.parametrize("mask", ["null", "causal"])
@pytest.mark.parametrize("q_len", [1, 2, 5, 8])
def test_new_tokens(q_len, mask):
    """Older ones see fewer keys; the oldest of a short sequence sees none."""
    check(built(MlaDecodeConfig(12, q_len=q_len, mask=mask)), lengths=LENGTHS, data="late_max")


@pytest.mark.parametrize("split_keys", [0, 64])
@pytest.mark.parametrize("kind", ["sliding_window_causal", "chunked_causal"])
@pytest.mark.parametrize("window", [1, 31, 32, 33, 64, 150, 1000])
def test_windows_and_chunks(kind, window, split_keys):
    """Their first keys lie in one tile, or in two; whole parts of a sequence may be hidden."""
    config = MlaDecodeConfig(12, q_len=8, mask=f"{kind}[{window}]")
    check(built(config), lengths=(5, 40, 100, 290), split_keys=split_keys, data="late_max")


@pytest.mark.parametrize("page_size", [1, 16, 32, 64, 128, 192, 320])
def test_pages(page_size):
    check(built(MlaDecodeConfig(4, page_size=page_size)), lengths=LENGTHS)


@pytest.mark.parametrize("kv_heads", [2, 8])
def test_kv_heads(kv_heads):
    config = MlaDecodeConfig(16, num_kv_heads=kv_heads, q_len=2, page_size=16)
    check(built(config), lengths=(1, 70, 130))


@pytest.mark.parametrize("split_keys", [64, 128, 192])
def test_parts_of_sequences(split_keys):
    config = MlaDecodeConfig(40, q_len=2)
    check(built(config), lengths=(0, 64, 65, 300), split_keys=split_keys, data="late_max")


@pytest.mark.parametrize("band", [6, 4, 2])
@pytest.mark.parametrize("slots", [4, 2])
def test_knobs(slots, band):
    check(built(MlaDecodeConfig(16), slots=slots, band=band), lengths=LENGTHS)


# ---- 32 query rows a wave -------------------------------------------------------------------


@pytest.mark.parametrize("data", ["realistic", "late_max"])
@pytest.mark.parametrize("heads", [65, 96, 100, 128])
def test_more_than_64_rows_share_their_keys(heads, data):
    """One workgroup a sequence, all waves or some with rows of their own."""
    artifact = built(MlaDecodeConfig(heads))
    assert artifact.manifest.knobs["variant"] == OF_ROWS[32]
    check(artifact, lengths=(0, 1, 33, 64, 130), data=data)


@pytest.mark.parametrize("split_keys", [0, 64, 192])
@pytest.mark.parametrize("mask", ["causal", "null", "sliding_window_causal[33]"])
def test_eight_tokens_of_sixteen_heads_are_one_workgroup(mask, split_keys):
    config = MlaDecodeConfig(16, q_len=8, mask=mask, page_size=16)
    check(built(config), lengths=(5, 40, 290), split_keys=split_keys, data="late_max")


@pytest.mark.parametrize("band", [6, 5, 4])
def test_bands_of_wide_waves(band):
    check(
        built(MlaDecodeConfig(12), variant=OF_ROWS[32], band=band),
        lengths=LENGTHS,
        data="late_max",
    )


def test_kv_heads_of_wide_waves():
    config = MlaDecodeConfig(128, num_kv_heads=2, q_len=2, page_size=1)
    check(built(config, variant=OF_ROWS[32]), lengths=(1, 70))


@pytest.mark.parametrize(
    ("fields", "rows"),
    [
        ({"num_heads": 64}, 16),
        ({"num_heads": 65}, 32),
        ({"num_heads": 13, "q_len": 5}, 32),
        ({"num_heads": 128, "num_kv_heads": 2, "q_len": 8}, 16),
    ],
    ids=str,
)
def test_rows_of_a_wave_follow_from_the_rows_that_share_keys(fields, rows):
    schedule = schedule_of(load(KERNEL), MlaDecodeConfig(**fields), {})
    assert schedule.facts.rows == 4 * rows


def test_wide_waves_have_a_simd_to_themselves():
    resources = built(MlaDecodeConfig(128)).manifest.resources
    assert resources.vgprs <= 256 and resources.agprs <= 256
    assert resources.vgprs + resources.agprs > 256
    assert resources.lds_bytes <= 160 * 1024


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    heads=st.integers(1, 128),
    page_size=st.sampled_from([1, 16, 32, 64, 192]),
    q_len=st.integers(1, 8),
    mask=st.sampled_from(["null", "causal", "sliding_window_causal[70]", "chunked_causal[70]"]),
    lengths=st.lists(st.integers(0, 400), min_size=1, max_size=4).filter(any),
    split_keys=st.sampled_from([0, 64, 128]),
    data=st.sampled_from(["realistic", "late_max"]),
)
def test_any_call(heads, page_size, q_len, mask, lengths, split_keys, data):
    config = MlaDecodeConfig(heads, page_size=page_size, q_len=q_len, mask=mask)
    check(built(config), lengths=tuple(lengths), split_keys=split_keys, data=data)


@pytest.mark.parametrize(
    ("fields", "knobs"),
    [
        ({"num_heads": 6, "q_len": 2}, {}),
        ({"num_heads": 3, "q_len": 8}, {"variant": OF_ROWS[32]}),
        ({"num_heads": 128}, {"persistent": 1}),
        ({"num_heads": 16, "q_len": 4, "mask": "null"}, {}),
        ({"num_heads": 16, "num_kv_heads": 4, "q_len": 3}, {}),
        ({"num_heads": 40, "q_len": 2}, {"persistent": 1, "arguments": "aiter"}),
        ({"num_heads": 12, "q_len": 8, "mask": "sliding_window_causal[200]"}, {}),
        ({"num_heads": 16, "q_len": 2, "mask": "sliding_window_causal[500]"}, {"persistent": 1}),
        ({"num_heads": 5, "mask": "chunked_causal[512]"}, {}),
        ({"num_heads": 9, "q_len": 8, "mask": "sliding_window_causal[500]",
          "cache_dtype": "fp8_e4m3"}, {}),
    ],
)  # fmt: skip
def test_all_code_is_reached(fields, knobs):
    """Masks stand only where the problem can hide a key, and verification's calls take them."""
    report = verify_thoroughly(built(MlaDecodeConfig(**fields), **knobs))
    assert report.passed, report.facts()
    assert report.coverage.reached == report.coverage.total, report.coverage.gaps


@pytest.mark.parametrize(
    "knobs", [{}, {"variant": OF_ROWS[32]}, {"persistent": 1, "arguments": "aiter"}]
)
@pytest.mark.parametrize("split_keys", [0, 64])
def test_sequences_of_different_numbers_of_new_tokens(knobs, split_keys):
    """The oldest token of one sequence sees more keys than another's: none, all or some of them."""
    sizes = {"lengths": (64, 65, 290, 33, 1, 0), "q_lens": (1, 4, 2, 0, 3, 4)}
    check(built(MlaDecodeConfig(6, q_len=4), **knobs), **sizes, split_keys=split_keys)


def test_numbers_of_new_tokens_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match=r"q_lens \[3\] of 2 sequences of up to 2 new tokens"):
        verify(built(MlaDecodeConfig(6, q_len=2)), lengths=(5, 6), q_lens=(3,))


def test_a_call_of_arrays():
    kernel = decode_kernel(built(MlaDecodeConfig(16)))
    made = mla_decode_inputs(kernel.config, data="realistic", seed=0, lengths=(70, 0, 33))
    out, lse = kernel(**{n: getattr(made, n) for n in CALL}, scale=made.scale)
    assert out.shape == (3, 1, 16, 512) and np.isfinite(out.astype(np.float32)).all()
    assert np.isneginf(lse[1]).all() and np.isfinite(lse[::2]).all()


@pytest.mark.parametrize(("heads", "order"), [(12, BY_WAVES), (40, BY_WIDE_WAVES)])
def test_a_call_of_split_work(heads, order):
    """Both kernels: what one leaves, the other merges."""
    config = MlaDecodeConfig(heads, q_len=2, page_size=16)
    kernel = decode_kernel(built(config), build=lambda name, fields: build(name, merged(fields)))
    made = mla_decode_inputs(config, data="late_max", seed=0, lengths=(300, 0, 65))
    plan = kernel.plan(made.cache_lengths, device="cpu", split_keys=64)
    out, lse = kernel(**{n: getattr(made, n) for n in CALL}, scale=made.scale, plan=plan)
    splits = ((0, 1, 2, 3, 4), (0,), (0, 1))
    for oracle in (exact, rounded):
        expected = oracle(made, splits=splits, order=order)
        assert compare(expected.output, out).passed
        assert compare_lse(expected.lse, lse).passed


def merged(fields):
    return MlaDecodeMergeConfig(**fields)


@pytest.mark.parametrize("slot_rows", [64, 128])
@pytest.mark.parametrize("ahead", [1, 3, 7])
@pytest.mark.parametrize("heads", [1, 20, 128])
def test_merge(heads, ahead, slot_rows):
    artifact = build(MERGE, MlaDecodeMergeConfig(heads), knobs={"ahead": ahead})
    for data in ("realistic", "unseen"):
        check(artifact, partials=(2, 3, 9, 33), slot_rows=slot_rows, data=data)


def test_a_plan_for_other_waves_is_refused():
    config = MlaDecodeConfig(16)
    made = mla_decode_inputs(config, data="realistic", seed=0, lengths=(70, 3))
    plan = decode_kernel(built(config)).plan(made.cache_lengths, device="cpu")
    wide = decode_kernel(built(config, variant=OF_ROWS[32]))
    with pytest.raises(ConfigError, match="for blocks of 64 query rows, the kernel has 128"):
        wide(**{n: getattr(made, n) for n in CALL}, scale=made.scale, plan=plan)


def test_plans_fill_all_compute_units():
    kernel = decode_kernel(built(MlaDecodeConfig(128)), build=lambda name, fields: None)
    assert len(kernel.plan([65536] * 2, device="cpu").work.items) == 256


# ---- edits that must be found ---------------------------------------------------------------


def without(artifact, lines):
    """The artifact without these lines of its text."""
    return replace(artifact, code=assembled(artifact, dict.fromkeys(lines, ())))


def lines_of(artifact, pattern, after="loop, i % 4 = 0"):
    """Where a pattern stands from some place on: usually the loop, which 500 keys pass."""
    lines = artifact.text.split("\n")
    first = next(n for n, line in enumerate(lines) if after in line)
    return [n for n, line in enumerate(lines, 1) if n > first and re.search(pattern, line)]


@pytest.mark.parametrize("rows", [16, 32])
@pytest.mark.parametrize("pattern", [r"s_waitcnt vmcnt.*cluster", r"s_barrier"])
def test_a_removed_wait_or_barrier_is_found(pattern, rows):
    artifact = built(MlaDecodeConfig(16), variant=OF_ROWS[rows])
    changed = without(artifact, lines_of(artifact, pattern)[:1])
    report = verify(changed, lengths=(500,))
    assert not report.clean, pattern


@pytest.mark.parametrize(
    ("rows", "pattern"),
    [(16, r"v_pk_mul_f32 v\[O\+"), (32, r"v_pk_mul_f32 v\[O\+"), (32, r"accvgpr_write_b32 a\[OA")],
)
def test_an_output_that_does_not_follow_the_maximum_is_wrong(rows, pattern):
    artifact = built(MlaDecodeConfig(16), variant=OF_ROWS[rows])
    changed = without(artifact, lines_of(artifact, pattern))
    report = verify(changed, lengths=(500,), data="late_max", modes=("latest",))
    assert report.clean and not report.right


@pytest.mark.parametrize("rows", [16, 32])
def test_a_key_past_the_last_that_is_seen_is_wrong(rows):
    artifact = built(MlaDecodeConfig(16), variant=OF_ROWS[rows])
    changed = without(artifact, lines_of(artifact, r"v_cndmask_b32 v\[S", after=".text"))
    report = verify(changed, lengths=(33, 70), modes=("latest",))
    assert report.clean and not report.right
