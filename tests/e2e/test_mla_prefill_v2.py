"""mla_prefill_v2, executed: right by both oracles, clean under the sanitizer, in every form.

Tensors are quantised with scales that are not 1. All that is no key is NaN in the data: the columns
between the parts of a latent row, rows past a length, pages of nobody.
"""

from dataclasses import fields
from functools import lru_cache

import numpy as np
import pytest
from mla_cases import KERNEL, TILE, artifact, built, check, keys_of

from mlagen.attention.prefill.exact import exact
from mlagen.attention.prefill.rounded import rounded
from mlagen.codegen.schedules import describe, load
from mlagen.errors import CapacityError, ConfigError, ProofError
from mlagen.families.mla_prefill.inputs import MlaPrefillInputs
from mlagen.families.mla_prefill.made_up import mla_prefill_inputs
from mlagen.families.mla_prefill.problem import MlaConfigV2
from mlagen.ops import MlaPrefillKernel
from mlagen.problem.expected import compare
from mlagen.verify import verify_inputs

TAILS = [0, 1, 47, 65]  # keys in the last tile; 0: it is full
KINDS = ["realistic", "randn", "late_max", "falling", "jumps", "peaked", "half", "constant"]
KV_FORMS = ["k_and_v", "nope_rope", "latent"]
WINDOWS = [
    f"{name}[{w}]" for name in ("sliding_window_causal", "chunked_causal") for w in (1, 128, 200)
]
FORMS = {
    "dense": {},
    "ragged": {"ragged": True},
    "paged": {"page_size": 64},
    "ragged, paged": {"ragged": True, "page_size": 16},
    "ragged, pages of 1": {"ragged": True, "page_size": 1},
}
LENGTHS, KEYS, STARTS = [300, 0, 1, 256, 33], [300, 70, 0, 129, 64], [0, 3, 5, 100, 63]
MFMA = "v_mfma_f32_32x32x64_f8f6f4"


def config_of(kernel):
    return MlaConfigV2.from_fields(kernel.manifest.problem)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("n", range(1, 10))
def test_every_tile_count(n, tail):
    """Null: all tiles for all rows. Causal: rows end where the keys do, so the last query tile
    walks all N tiles of its keys."""
    num_keys = keys_of(n, tail)
    data = {"data": KINDS[(n + tail) % 8], "seed": n}
    check(artifact(mask="null"), seq_len=70, num_keys=num_keys, **data)
    seq_len = min(num_keys, 80)
    start = num_keys - seq_len
    check(artifact(mask="causal"), seq_len=seq_len, num_keys=num_keys, start_pos=start, **data)


@pytest.mark.parametrize("heads", [(4, 1), (8, 2), (6, 3), (2, 2)])
def test_heads(heads):
    check(artifact(heads), batch=2, seq_len=300, start_pos=20)


@pytest.mark.parametrize("start_pos", [0, 1, 64, 127, 1000])
@pytest.mark.parametrize("mask", ["causal", *WINDOWS])
def test_masks_at_any_start(mask, start_pos):
    check(artifact(mask=mask, lse=True), seq_len=300, start_pos=start_pos, modes=["latest"])


@pytest.mark.parametrize("mask", ["null", "causal"])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_and_several_query_tiles(mask, kind):
    kernel = artifact((2, 1), mask=mask)
    check(kernel, batch=2, seq_len=513, num_keys=577, start_pos=64, data=kind, seed=3)


@pytest.mark.parametrize("output", ["bf16", "fp32"])
@pytest.mark.parametrize("dtype", ["fp8_e4m3", "bf16"])
@pytest.mark.parametrize("kv_form", KV_FORMS)
def test_types_and_forms_of_keys(kv_form, dtype, output):
    kernel = artifact((4, 2), dtype=dtype, kv_form=kv_form, output_dtype=output, lse=True)
    for data in ("realistic", "late_max"):
        check(kernel, seq_len=270, num_keys=300, start_pos=30, data=data)


@pytest.mark.parametrize(("depth", "offset"), [(192, 128), (576, 512), (640, 144)])
def test_latent_rows_of_other_widths(depth, offset):
    kernel = artifact((2, 1), kv_form="latent", cache_depth=depth, rope_cache_offset=offset)
    check(kernel, seq_len=40, num_keys=300, start_pos=260)


@pytest.mark.parametrize("threshold", [0.0, 3.0, 8.8])
def test_thresholds(threshold):
    for data in ("late_max", "jumps"):
        check(artifact(rescale_threshold=threshold), seq_len=333, data=data)


@pytest.mark.parametrize(
    ("kv_form", "mask"),
    [("k_and_v", "null"), ("nope_rope", "causal"), ("latent", "sliding_window_causal[70]")],
)
@pytest.mark.parametrize("form", [name for name in FORMS if name != "dense"])
def test_sequences_of_all_lengths(form, kv_form, mask):
    """Empty ones, single rows, whole and partial tiles; keys of their own (cross-attention)."""
    fields = FORMS[form]
    kernel = artifact((4, 2), mask=mask, kv_form=kv_form, lse=True, **fields)
    rows = {"lengths": LENGTHS} if "ragged" in fields else {"batch": 5, "seq_len": 70}
    check(kernel, num_keys=KEYS, start_pos=STARTS, data="jumps", **rows)


@pytest.mark.parametrize("page_size", [1, 16, 32, 64, 128, 192, 1024])
def test_every_page_size(page_size):
    keys = [0, 1, 15, 16, 17, 63, 64, 191, 257, 1030]
    kernel = artifact(page_size=page_size, mask="null")
    check(kernel, batch=len(keys), seq_len=33, num_keys=keys, data="late_max")


def test_a_ragged_batch_is_its_sequences_alone():
    kernel = artifact((2, 1), ragged=True, lse=True)
    config = config_of(kernel)
    inputs = mla_prefill_inputs(
        config, lengths=[270, 1, 64], num_keys=[300, 64, 65], start_pos=[30, 63, 1], quantise=True
    )
    whole = MlaPrefillKernel(kernel).run(inputs)
    for s in inputs.sequences:
        rows = slice(s.first_row, s.first_row + s.rows)
        keys = slice(int(inputs.kv_offsets[s.index]), int(inputs.kv_offsets[s.index]) + s.keys)
        alone = MlaPrefillInputs(
            config, inputs.q[rows], inputs.k[keys], inputs.v[keys], inputs.scale, s.start_pos,
            q_offsets=np.array([0, s.rows], np.int32), kv_offsets=np.array([0, s.keys], np.int32),
            q_scale=inputs.q_scale, k_scale=inputs.k_scale, v_scale=inputs.v_scale,
        )  # fmt: skip
        run = MlaPrefillKernel(kernel).run(alone)
        assert np.array_equal(run.output.view(np.uint32), whole.output[rows].view(np.uint32))
        assert np.array_equal(run.lse, whole.lse[:, rows])


def test_the_forms_of_keys_give_the_same_bits():
    """The same keys and values, wherever their columns lie."""
    latent = artifact(kv_form="latent")
    inputs = mla_prefill_inputs(config_of(latent), seq_len=60, num_keys=300, start_pos=240)
    nope, rope = inputs.k[..., :128], inputs.k[:, :, 0, 512:]
    joined = np.concatenate([nope, rope[:, :, None]], axis=3)
    given = {
        "latent": {"k": inputs.k},
        "nope_rope": {"k": nope.copy(), "v": nope.copy(), "k_rope": rope.copy()},
        "k_and_v": {"k": joined, "v": nope.copy()},
    }
    made = [
        MlaPrefillKernel(artifact(kv_form=form))(q=inputs.q, start_pos=240, **tensors)
        for form, tensors in given.items()
    ]
    assert not np.isnan(made[0]).any()
    assert all(np.array_equal(made[0].view(np.uint32), other.view(np.uint32)) for other in made)


def test_scales_are_those_of_the_tensors():
    """Each scale by itself, and all at once: the same numbers divided differently."""
    kernel = artifact(lse=True)
    plain = mla_prefill_inputs(config_of(kernel), seq_len=40, num_keys=200, start_pos=160)
    call = {"q": plain.q, "k": plain.k, "v": plain.v, "start_pos": 160}
    for scales in ({"q_scale": 0.3}, {"k_scale": 1.7}, {"v_scale": 0.02},
                   {"q_scale": 0.2, "k_scale": 3.0, "v_scale": 7.0}):  # fmt: skip
        out, lse = MlaPrefillKernel(kernel)(**call, **scales)
        inputs = MlaPrefillInputs(config=plain.config, scale=plain.scale, **call, **scales)
        for oracle in (exact(inputs), rounded(inputs)):
            assert compare(oracle.output, inputs.output_view(out)).passed
            assert compare(oracle.lse, inputs.lse_view(lse)).passed
        assert not compare(rounded(plain).output, plain.output_view(out)).passed


def test_random_completion_and_interleaving_change_no_bit():
    kernel = artifact(mask="null")
    for seed in range(5):
        check(kernel, seq_len=256, num_keys=700, seed=seed, modes=("latest", "random"))


@lru_cache
def knobs_of():
    """Every choice of every knob but the defaults and another grid's."""
    return [
        (knob.name, choice)
        for knob in describe(load(KERNEL)).knobs
        if knob.name not in ("grid", "arguments")  # test_mla_prefill_persistent
        for choice in knob.choices[1:]
    ]


@pytest.mark.parametrize(("name", "choice"), knobs_of(), ids=str)
def test_every_knob_keeps_the_result_or_is_refused(name, choice):
    """A choice that does not fit the LDS, or that waits cannot order, is no kernel. An eager
    rescale moves every maximum, as a threshold of 0 says."""
    more = {"rescale_threshold": 0.0} if choice == "eager" else {}
    knobs = {name: choice}
    if name in {field.name for field in fields(MlaConfigV2)}:  # a config has these of its own
        more, knobs = {**more, **knobs}, {}
    try:
        config = MlaConfigV2(1, 1, mask="null", dtype="fp8_e4m3", **more)
    except ConfigError as refused:  # as 64 keys a tile are of fp8
        pytest.skip(f"{name}={choice} is refused: {refused.message.splitlines()[0][:90]}")
    try:
        kernel = built(config, **knobs)
    except (CapacityError, ProofError) as refused:
        pytest.skip(f"{name}={choice} is refused: {refused.message.splitlines()[0][:90]}")
    for num_keys in (100, 700):
        check(kernel, seq_len=64, num_keys=num_keys, data="late_max")


def test_rescale_runs_when_the_maximum_grows_and_not_when_it_falls():
    """v_pk_mul_f32 appears 32 times in the epilogue of a wave and 32 times in each rescale."""
    kernel, shape = artifact(mask="null"), {"seq_len": 256, "num_keys": 1280}
    counts = {
        data: check(kernel, data=data, **shape).runs[0].counts["v_pk_mul_f32"]
        for data in ("falling", "late_max", "jumps")
    }
    epilogue = counts["falling"]
    assert epilogue <= 8 * 64  # by the row sum, and by the scale of V
    most = 8 * (1280 // TILE - 1)  # each wave at each tile but the first
    for data in ("late_max", "jumps"):
        rescales, rest = divmod(counts[data] - epilogue, 32)
        assert rest == 0 and 0 < rescales < most, (data, rescales, most)


def test_fully_visible_tiles_run_no_mask_code():
    """8 waves x 64 compares a masked tile; the last of 5 tiles alone is cut by num_keys."""
    kernel = artifact(mask="null")
    full = check(kernel, seq_len=256, num_keys=5 * TILE).runs[0].counts
    cut = check(kernel, seq_len=256, num_keys=5 * TILE - 1).runs[0].counts
    assert full.get("v_cmp_gt_i32", 0) == 0
    assert cut["v_cmp_gt_i32"] == 8 * 64


@pytest.mark.parametrize("mask", ["causal", "sliding_window_causal[1]", "chunked_causal[200]"])
@pytest.mark.parametrize("form", FORMS)
def test_hidden_tiles_are_not_computed(form, mask):
    """20 matrix instructions a tile and wave, 12 for S and 8 for O: the tiles are those that some
    row of the workgroup sees."""
    fields = FORMS[form]
    kernel = artifact(mask=mask, **fields)
    config = config_of(kernel)
    shape = {"seq_len": 600, "start_pos": 70}
    if fields:
        rows = {"lengths": [600, 0, 33]} if config.ragged else {"batch": 3, "seq_len": 300}
        shape = {**rows, "start_pos": [70, 0, 500]}
    inputs = mla_prefill_inputs(config, **shape)
    tiles = sum(
        len(config.tiles(tile, seq_len=s.rows, start_pos=s.start_pos, num_keys=s.keys))
        for s in inputs.sequences
        for tile in range(config.q_tiles(s.rows))
    )
    report = verify_inputs(kernel, inputs, modes=["latest"])
    assert report.passed, str(report.error())
    assert report.runs[0].counts[MFMA] == tiles * config.num_warps * 20


@pytest.mark.parametrize("mask", ["null", "causal", "chunked_causal[5]"])
def test_no_keys_at_all(mask):
    kernel = artifact((2, 1), mask=mask, lse=True)
    config = config_of(kernel)
    inputs = mla_prefill_inputs(config, seq_len=41, num_keys=0)
    out, lse = MlaPrefillKernel(kernel)(inputs.q, inputs.k, inputs.v)
    assert (out == 0).all() and np.isneginf(lse).all()


def test_a_sample_of_a_large_call():
    report = check(artifact((4, 4)), seq_len=8192, sample=2, modes=["latest"])
    assert (report.sample.workgroups, report.sample.of) == (2, 128)
