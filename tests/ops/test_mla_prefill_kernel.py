"""MlaPrefillKernel: what a launcher is given, what is refused, and persistent work on the host."""

from __future__ import annotations

import math
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from work_simulation import WorkSimulation, artifact_of

from mlagen.attention.prefill.exact import exact
from mlagen.attention.prefill.host import check_extents
from mlagen.attention.prefill.plan import WorkPlan
from mlagen.errors import ConfigError
from mlagen.families.mla_prefill.call import plan_inputs, work_shape
from mlagen.families.mla_prefill.gfx950.form import aiter_signature, signature
from mlagen.families.mla_prefill.made_up import mla_prefill_inputs
from mlagen.families.mla_prefill.problem import MlaConfigV2
from mlagen.launch import LaunchReport
from mlagen.ops import MlaPrefillKernel, kernel_of
from mlagen.problem.expected import compare

FP8, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16
CONFIG = MlaConfigV2(4, 2, dtype="fp8_e4m3")


class Recorder:
    """A launcher that keeps what it was given and writes 1."""

    def __init__(self):
        self.calls = []

    def launch(self, artifact, *, tensors, scalars, sizes):
        names = {arg.name for arg in artifact.manifest.args}
        assert names == tensors.keys() | scalars.keys()
        assert np.isnan(tensors["o"].astype(np.float32)).all()
        self.calls.append((tensors, scalars, sizes))
        tensors["o"].fill(1)
        return LaunchReport("recorded", (1, 1, 1), (512, 1, 1), 0.0)


def static(make_artifact, config, launcher=None):
    return MlaPrefillKernel(artifact_of(make_artifact, config, persistent=False), launcher)


# ---- the static grid -----------------------------------------------------------------------------


@pytest.mark.parametrize("kv_form", ["k_and_v", "nope_rope", "latent"])
@pytest.mark.parametrize(
    "form", [{}, {"ragged": True}, {"page_size": 16}, {"ragged": True, "page_size": 1}], ids=str
)
@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3"])
def test_every_form_is_given_exactly_its_arguments(make_artifact, dtype, form, kv_form):
    config = MlaConfigV2(4, 2, dtype=dtype, kv_form=kv_form, lse=bool(form), **form)
    rows = {"lengths": [41, 0]} if config.ragged else {"batch": 2, "seq_len": 41}
    inputs = mla_prefill_inputs(config, num_keys=70, start_pos=29, **rows)
    launcher = Recorder()
    run = static(make_artifact, config, launcher).run(inputs)
    ((tensors, scalars, sizes),) = launcher.calls
    assert tensors["q"] is inputs.q and tensors["o"] is run.output
    assert run.output.shape == (*inputs.q.shape[:-1], 128)
    assert ("v" in tensors, "k_rope" in tensors) == (kv_form != "latent", kv_form == "nope_rope")
    assert ("out_scale" in scalars) == (dtype == "fp8_e4m3")
    assert sizes == {"num_heads": 4, "seq_len": 41, "batch": 2}


def test_scales_of_a_call(make_artifact):
    launcher = Recorder()
    inputs = mla_prefill_inputs(CONFIG, seq_len=8, num_keys=16)
    kernel = static(make_artifact, CONFIG, launcher)
    kernel(inputs.q, inputs.k, inputs.v, q_scale=0.5, k_scale=0.25, v_scale=3.0)
    kernel(inputs.q, inputs.k, inputs.v, scale=0.1)
    (_, first, _), (_, second, _) = launcher.calls
    log2e = math.log2(math.e)
    assert first["scale_log2e"] == pytest.approx(log2e / math.sqrt(192) / 8)
    assert first["out_scale"] == 3.0
    assert second["scale_log2e"] == pytest.approx(0.1 * log2e) and second["out_scale"] == 1.0


@pytest.mark.parametrize(
    "change, words",
    [
        ({"v": None}, ["v is missing", "kv_form=k_and_v"]),
        ({"k_rope": np.zeros((2, 16, 64), FP8)}, ["k_rope is given"]),
        ({"k": np.zeros((2, 16, 2, 128), FP8)}, ["k has shape", "(2, *, 2, 192)"]),
        ({"q": np.zeros((2, 8, 4, 192), BF16)}, ["q has dtype bfloat16", "fp8_e4m3"]),
        ({"v": np.zeros((2, 15, 2, 128), FP8)}, ["k has shape", "v has"]),
        ({"v_scale": 0.0}, ["v_scale=0", "positive"]),
        ({"q_scale": math.nan}, ["q_scale=nan"]),
        ({"k_scale": 1e-30, "q_scale": 1e-30}, ["scale * q_scale * k_scale"]),
        ({"out": np.zeros((2, 8, 4, 192), np.float32)}, ["out has shape"]),
        ({"out": np.zeros((2, 8, 4, 128), BF16)}, ["out has dtype bfloat16", "fp32"]),
        ({"lse": np.zeros((2, 4, 8), np.float32)}, ["lse is given", "lse=true"]),
        ({"start_pos": -1}, ["start_pos=-1"]),
        ({"max_seq_len": 8}, ["max_seq_len=8", "of a GPU"]),
    ],
    ids=str,
)
def test_bad_calls_are_refused_before_anything_runs(make_artifact, change, words):
    launcher = Recorder()
    inputs = mla_prefill_inputs(CONFIG, batch=2, seq_len=8, num_keys=16)
    with pytest.raises(ConfigError) as caught:
        static(make_artifact, CONFIG, launcher)(
            **{"q": inputs.q, "k": inputs.k, "v": inputs.v, **change}
        )
    for word in words:
        assert word in str(caught.value)
    assert not launcher.calls


def test_scales_of_bf16_tensors_are_refused(make_artifact):
    config = MlaConfigV2(4, 2)
    inputs = mla_prefill_inputs(config, seq_len=8, num_keys=16)
    with pytest.raises(ConfigError, match="takes no scales of its tensors"):
        static(make_artifact, config, Recorder())(inputs.q, inputs.k, inputs.v, k_scale=2.0)


def test_32_bit_extents():
    # K rows of 2 heads are 384 bytes, V rows 256; output rows of fp32 4 * 128 * 4.
    fits = {"batch": 1, "seq_len": 256, "num_keys": 11184768}
    check_extents(CONFIG, **fits)
    for change, words in (
        ({"num_keys": 11184769}, ["k: 11184769 rows", "at most 11184768"]),
        ({"seq_len": 2097152}, ["out: 2097152 rows"]),
        ({"batch": 65536, "num_keys": 1}, ["65536 batch entries"]),
    ):
        with pytest.raises(ConfigError) as caught:
            check_extents(CONFIG, **{**fits, **change})
        for word in words:
            assert word in str(caught.value)
    latent = MlaConfigV2(4, 2, kv_form="latent", dtype="fp8_e4m3")
    with pytest.raises(ConfigError, match="k: 4000000 rows of 1152 bytes"):
        check_extents(latent, batch=1, seq_len=1, num_keys=4000000)


def test_an_artifact_is_called_by_its_problem(make_artifact):
    assert isinstance(kernel_of(artifact_of(make_artifact, CONFIG)), MlaPrefillKernel)
    with pytest.raises(ConfigError, match="solves a AddConfig, not an MlaProblem"):
        MlaPrefillKernel(make_artifact())


# ---- persistent kernels --------------------------------------------------------------------------

PERSISTENT = [
    {},
    {"ragged": True, "lse": True},
    {"page_size": 16, "lse": True},
    {"ragged": True, "page_size": 1, "kv_form": "latent"},
    {"ragged": True, "page_size": 64, "kv_form": "nope_rope", "lse": True},
]


def persistent_call(**fields):
    config = MlaConfigV2(4, 2, dtype="fp8_e4m3", **fields)
    if config.ragged:
        shape = {
            "lengths": [600, 0, 33, 1],
            "num_keys": [600, 70, 290, 0],
            "start_pos": [0, 0, 9, 2],
        }
    elif config.page_size:
        shape = {"batch": 3, "seq_len": 300, "num_keys": [900, 0, 300], "start_pos": [600, 1, 0]}
    else:
        shape = {"batch": 2, "seq_len": 300, "num_keys": 900, "start_pos": 600}
    return mla_prefill_inputs(config, quantise=True, **shape)


@pytest.mark.parametrize("workgroups", [1, 3, 8, 256])
@pytest.mark.parametrize("mask", ["null", "causal"])
@pytest.mark.parametrize("fields", PERSISTENT, ids=str)
def test_the_work_of_every_form(make_artifact, fields, mask, workgroups):
    inputs = persistent_call(mask=mask, **fields)
    launcher = WorkSimulation(inputs)
    artifact = artifact_of(make_artifact, inputs.config)
    run = MlaPrefillKernel(artifact, launcher, workgroups=workgroups).run(inputs)
    expected = exact(inputs)
    assert compare(expected.output, inputs.output_view(run.output)).passed
    if inputs.config.lse:
        assert compare(expected.lse, inputs.lse_view(run.lse)).passed
    ((tensors, _, sizes),) = launcher.launches
    assert sizes == {"workgroups": workgroups}
    assert len(tensors["work_indptr"]) == workgroups + 1
    if workgroups in (3, 256):
        assert len(tensors["partial_o"])


def test_one_item_less_would_show(make_artifact):
    inputs = persistent_call(ragged=True)
    launcher = WorkSimulation(inputs, spoil=lambda items: items[1:])
    kernel = MlaPrefillKernel(artifact_of(make_artifact, inputs.config), launcher, workgroups=3)
    assert not compare(exact(inputs).output, inputs.output_view(kernel.run(inputs).output)).passed


@pytest.mark.parametrize("page_size", [0, 1])
def test_aiters_arguments(make_artifact, page_size):
    config = MlaConfigV2(
        2, 2, dtype="fp8_e4m3", output_dtype="bf16", ragged=True, page_size=1
    )  # fmt: skip
    inputs = mla_prefill_inputs(config, lengths=[300, 20], num_keys=[333, 150],
                                start_pos=[33, 130], quantise=True)  # fmt: skip
    artifact = artifact_of(make_artifact, config, aiter=True)
    launcher = WorkSimulation(inputs)
    run = MlaPrefillKernel(artifact, launcher, workgroups=6).run(inputs)
    assert compare(exact(inputs).output, inputs.output_view(run.output)).passed
    ((tensors, scalars, _),) = launcher.launches
    assert scalars == {"scale": inputs.scale, "q_rows": 320, "num_heads": 2,
                       "pages": len(inputs.k), "listed": 483}  # fmt: skip
    assert tensors["kv_offsets"].tolist() == [0, 333, 483]
    assert tensors["page_list"].tolist() == [
        *inputs.page_table[0, :333], *inputs.page_table[1, :150]
    ]  # fmt: skip
    assert [float(tensors[f"{x}_scale"][0]) for x in "qkv"] == [
        inputs.q_scale, inputs.k_scale, inputs.v_scale
    ]  # fmt: skip


def moved(plan, column, change):
    """The first item of a split tile with another number in it."""
    info = plan.work_info.copy()
    at = int(np.flatnonzero(info[:, 1] >= 0)[0])
    word = {"partial": 1, "kv_start": 4, "kv_end": 5}[column]
    info[at, word] = change(info[at, word])
    return replace(plan, work_info=info)


@pytest.mark.parametrize(
    "spoil, said",
    [
        (lambda p: moved(p, "kv_start", lambda n: n + 1), "leave a gap"),
        (lambda p: moved(p, "kv_end", lambda n: 9999), "run out of those of sequence 0"),
        (lambda p: moved(p, "kv_end", lambda n: n + 1), "overlap"),
        (lambda p: moved(p, "partial", lambda n: 5), "neither -1 nor a multiple of 256"),
        (lambda p: moved(p, "partial", lambda n: 100 * 256), "the partial buffers have"),
        (lambda p: replace(p, work_indptr=p.work_indptr[::-1].copy()), r"work_indptr\[0\]="),
        (lambda p: replace(p, work_info=p.work_info[:-1]), "the last offset is"),
        (lambda p: replace(p, work_info=p.work_info.astype(np.int64)), "int64"),
        (lambda p: replace(p, shape=replace(p.shape, causal=False)), "for another call"),
    ],
)
def test_bad_work_is_refused_before_anything_runs(make_artifact, spoil, said):
    inputs = persistent_call(ragged=True)
    launcher = WorkSimulation(inputs)
    kernel = MlaPrefillKernel(artifact_of(make_artifact, inputs.config), launcher)
    with pytest.raises(ConfigError, match=said):
        kernel.run(inputs, plan=spoil(plan_inputs(inputs, 8)))
    assert not launcher.launches


@pytest.mark.parametrize(
    "partial_o, said",
    [
        (np.zeros((256, 4, 128), np.float32), "the partial buffers have 256"),
        (np.zeros((4096, 4, 64), np.float32), r"partial_o has shape \(4096, 4, 64\)"),
        (np.zeros((4096, 4, 128), np.float64), "float64"),
        (np.zeros((4096, 4, 256), np.float32)[..., ::2], "not C-contiguous"),
    ],
)
def test_bad_partial_buffers_are_refused(make_artifact, partial_o, said):
    inputs = persistent_call(ragged=True)
    launcher = WorkSimulation(inputs)
    kernel = MlaPrefillKernel(artifact_of(make_artifact, inputs.config), launcher, workgroups=8)
    with pytest.raises(ConfigError, match=said):
        kernel.run(inputs, partial_o=partial_o)
    assert not launcher.launches


def test_windows_have_no_work_items():
    config = MlaConfigV2(4, 4, mask="sliding_window_causal[70]")
    inputs = mla_prefill_inputs(config, seq_len=40)
    with pytest.raises(ConfigError, match="know no window"):
        work_shape(inputs)


def test_a_static_kernel_takes_no_plan(make_artifact):
    inputs = mla_prefill_inputs(CONFIG, seq_len=8)
    plan = plan_inputs(inputs, 2)
    assert isinstance(plan, WorkPlan)
    with pytest.raises(ConfigError, match="takes neither a plan nor partial outputs"):
        static(make_artifact, CONFIG, Recorder()).run(inputs, plan=plan)


# ---- signatures ----------------------------------------------------------------------------------


def test_persistent_arguments_come_behind_the_tensors():
    config = MlaConfigV2(4, 2, dtype="fp8_e4m3", ragged=True, lse=True)
    names = [a.name for a in signature(config, persistent=True).arguments]
    assert names == [
        "q", "k", "v", "o", "lse", "partial_o", "partial_lse", "work_indptr", "work_info",
        "q_offsets", "kv_offsets", "start_positions", "seq_len", "batch", "scale_log2e",
        "out_scale",
    ]  # fmt: skip
    assert signature(config, persistent=True).grid == (("workgroups", 1),)


def test_offsets_of_aiters_arguments():
    """Those of its launcher, `mla_prefill_ps_asm_fwd`: 16 bytes each, in its order."""
    config = MlaConfigV2(16, 16, dtype="fp8_e4m3", output_dtype="bf16", ragged=True, page_size=1)
    offsets = {a.name: a.offset for a in aiter_signature(config).arguments}
    assert (offsets["o"], offsets["work_indptr"], offsets["page_list"]) == (0x30, 0x60, 0xA0)
    assert (offsets["q_scale"], offsets["scale"], offsets["listed"]) == (0xB0, 0xE0, 0x120)


@pytest.mark.parametrize(
    "fields, said",
    [
        ({"dtype": "bf16"}, "dtype=bf16"),
        ({"output_dtype": "fp32"}, "output_dtype=fp32"),
        ({"num_kv_heads": 8}, "num_kv_heads=8"),
        ({"page_size": 0}, "page_size=0"),
        ({"lse": True}, "lse=True"),
        ({"mask": "chunked_causal[9]"}, "know no window"),
        ({"kv_form": "latent"}, "kv_form=latent"),
    ],
)
def test_problems_that_aiters_arguments_do_not_describe(fields, said):
    wanted = {"num_heads": 16, "num_kv_heads": 16, "dtype": "fp8_e4m3", "output_dtype": "bf16",
              "ragged": True, "page_size": 1}  # fmt: skip
    with pytest.raises(ConfigError, match=said):
        aiter_signature(MlaConfigV2(**{**wanted, **fields}))
