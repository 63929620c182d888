"""MhaKernel: what it passes on, what it refuses, and the real kernel through it."""

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from mlagen.attention.prefill.exact import exact
from mlagen.attention.prefill.host import check_extents
from mlagen.attention.prefill.rounded import rounded
from mlagen.codegen import build
from mlagen.errors import ConfigError, FindingsError
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.made_up import mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.launch import EmulatedLauncher, LaunchReport
from mlagen.launch.launcher import LaunchRefused
from mlagen.ops import MhaKernel
from mlagen.problem.expected import compare

BF16 = ml_dtypes.bfloat16
CONFIG = MhaConfigV2(4, 2)
RACY = Path(__file__).resolve().parents[1] / "codegen" / "schedules" / "no_dma_waits.py"


class Recorder:
    """A launcher that keeps what it was given and writes `value`, or nothing for None."""

    def __init__(self, value=1.0):
        self.value, self.calls = value, []

    def launch(self, artifact, *, tensors, scalars, sizes):
        self.calls.append((tensors, scalars, sizes))
        assert np.isnan(tensors["o"].astype(np.float32)).all()
        if self.value is not None:
            tensors["o"].fill(self.value)
        return LaunchReport("recorded", (1, 1, 1), (512, 1, 1), 0.0)


@pytest.fixture(scope="module")
def artifact(make_artifact):
    return make_artifact(kernel="mha", family="mha_prefill", config=CONFIG)


@pytest.fixture(scope="module")
def real():
    return build("mha_prefill_v2", CONFIG)


def tensors(batch=2, seq_len=8, num_keys=16):
    q = np.zeros((batch, seq_len, 4, 128), BF16)
    k = np.zeros((batch, num_keys, 2, 128), BF16)
    return q, k, k.copy()


def test_what_the_launcher_is_given(artifact):
    launcher = Recorder()
    q, k, v = tensors()
    out = MhaKernel(artifact, launcher)(q, k, v, start_pos=8)
    ((given, scalars, sizes),) = launcher.calls
    assert given["q"] is q and given["k"] is k and given["v"] is v and given["o"] is out
    assert scalars == {
        "seq_len": 8,
        "num_keys": 16,
        "start_pos": 8,
        "batch": 2,
        "scale_log2e": pytest.approx(math.log2(math.e) / math.sqrt(128)),
    }
    assert sizes == {"num_heads": 4, "seq_len": 8, "batch": 2}
    assert out.shape == q.shape and out.dtype == BF16 and (out == 1).all()


def test_scale_and_out_are_used(artifact):
    launcher = Recorder()
    q, k, v = tensors()
    out = np.full(q.shape, 7, BF16)
    assert MhaKernel(artifact, launcher)(q, k, v, scale=0.5, out=out) is out
    assert launcher.calls[0][1]["scale_log2e"] == pytest.approx(0.5 * math.log2(math.e))
    assert (out == 1).all()


def test_what_the_kernel_does_not_write_is_nan(artifact):
    q, k, v = tensors()
    out = np.full(q.shape, 7, BF16)
    MhaKernel(artifact, Recorder(value=None))(q, k, v, out=out)
    assert np.isnan(out.astype(np.float32)).all()


def test_fp32_output(make_artifact):
    config = MhaConfigV2(4, 2, output_dtype="fp32")
    artifact = make_artifact(family="mha_prefill", config=config)
    q, k, v = tensors()
    assert MhaKernel(artifact, Recorder())(q, k, v).dtype == np.float32
    with pytest.raises(ConfigError, match="out has dtype bfloat16, the kernel wants fp32"):
        MhaKernel(artifact, Recorder())(q, k, v, out=np.zeros(q.shape, BF16))


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda q, k, v: {"q": q.astype(np.float32)}, ["q has dtype float32", "bf16"]),
        (lambda q, k, v: {"q": q[:, :, :3]}, ["q has shape (2, 8, 3, 128)", "(*, *, 4, 128)"]),
        (lambda q, k, v: {"k": k[:, :-1]}, ["k has shape (2, 15, 2, 128)", "v has"]),
        (lambda q, k, v: {"v": v.tolist()}, ["v is a list"]),
        (lambda q, k, v: {"q": np.zeros((2, 16, 4, 128), BF16)[:, ::2]}, ["q is not C-contig"]),
        (
            lambda q, k, v: {"k": k.swapaxes(0, 1).copy().swapaxes(0, 1)},
            ["k is not C-contiguous", "np.ascontiguousarray(k)"],
        ),
        (lambda q, k, v: {"scale": -0.1}, ["scale=-0.1", "positive"]),
        (lambda q, k, v: {"scale": math.nan}, ["scale=nan"]),
        (lambda q, k, v: {"scale": "big"}, ["scale='big'"]),
        (lambda q, k, v: {"start_pos": -1}, ["start_pos=-1"]),
        (lambda q, k, v: {"start_pos": 2**31}, ["start_pos=2147483648"]),
        (lambda q, k, v: {"out": q}, ["out overlaps q"]),
        (lambda q, k, v: {"out": np.zeros((2, 8, 4, 64), BF16)}, ["out has shape"]),
        (lambda q, k, v: {"out": np.zeros(q.shape, np.float32)}, ["out has dtype float32"]),
        (lambda q, k, v: {"out": read_only(np.zeros(q.shape, BF16))}, ["out is read-only"]),
        (
            lambda q, k, v: {"out": np.zeros((2, 8, 128, 4), BF16).swapaxes(2, 3)},
            ["out is not C-contiguous"],
        ),
    ],
)
def test_bad_calls_are_refused_before_anything_runs(artifact, change, words):
    q, k, v = tensors()
    arguments = {"q": q, "k": k, "v": v, **change(q, k, v)}
    launcher = Recorder()
    with pytest.raises(ConfigError) as caught:
        MhaKernel(artifact, launcher)(**arguments)
    for word in words:
        assert word in str(caught.value)
    assert not launcher.calls
    assert (q == 0).all()


def test_partial_overlap_of_the_output_is_refused(artifact):
    q, k, v = tensors(batch=1)
    memory = np.zeros(k.size + q.size, BF16)
    key = memory[: k.size].reshape(k.shape)
    out = memory[k.size - 128 : k.size - 128 + q.size].reshape(q.shape)
    with pytest.raises(ConfigError, match="out overlaps k in memory"):
        MhaKernel(artifact, Recorder())(q, key, v, out=out)
    beside = memory[k.size :].reshape(q.shape)
    MhaKernel(artifact, Recorder())(q, key, v, out=beside)


def test_rows_behind_the_keys_are_refused(artifact):
    q, k, v = tensors()
    inputs = MhaInputs(CONFIG, q, k, v, 0.1, num_keys=15)
    with pytest.raises(ConfigError, match="num_keys=15 of 16 rows"):
        MhaKernel(artifact, Recorder()).run(inputs)


def test_inputs_of_another_problem_are_refused(artifact):
    q, k, v = tensors()
    other = MhaConfigV2(4, 2, mask="null")
    with pytest.raises(ConfigError, match="the inputs are those of"):
        MhaKernel(artifact, Recorder()).run(MhaInputs(other, q, k, v, 0.1))


def test_an_artifact_of_another_problem_is_refused(make_artifact):
    with pytest.raises(ConfigError, match="solves a AddConfig, not an MhaProblem"):
        MhaKernel(make_artifact())


def test_32_bit_extents():
    # 512 bytes a K/V row, 1024 a Q row: 2^32 bytes are 8388608 and 4194304 rows.
    fits = {"batch": 1, "seq_len": 256, "num_keys": 8388544}
    check_extents(CONFIG, **fits)
    for change, words in (
        ({"num_keys": 8388545}, ["k and v: 8388545 rows", "at most 8388544 rows"]),
        ({"seq_len": 4194304}, ["q: 4194304 rows", "at most 4194303 rows"]),
        ({"batch": 600}, ["5033126400 keys", "32 bits"]),
        ({"batch": 65536, "num_keys": 1}, ["65536 batch entries", "65535"]),
    ):
        with pytest.raises(ConfigError) as caught:
            check_extents(CONFIG, **{**fits, **change})
        for word in words:
            assert word in str(caught.value)
    wide = MhaConfigV2(4, 2, output_dtype="fp32")
    with pytest.raises(ConfigError, match="out: 2097152 rows"):
        check_extents(wide, batch=1, seq_len=2097152, num_keys=64)


@pytest.mark.parametrize("start_pos", [0, 29])
def test_the_real_kernel_computes_attention(real, start_pos):
    inputs = mha_inputs(CONFIG, batch=2, seq_len=41, num_keys=70, start_pos=start_pos)
    out = MhaKernel(real)(inputs.q, inputs.k, inputs.v, start_pos=start_pos)
    assert compare(exact(inputs).output, out).passed
    assert compare(rounded(inputs).output, out).passed


def test_a_racing_kernel_is_refused_and_its_findings_raise():
    racy = build(str(RACY), MhaConfigV2(1, 1), allow_unproved=True)
    inputs = mha_inputs(MhaConfigV2(1, 1), seq_len=64, num_keys=512, start_pos=448)
    with pytest.raises(LaunchRefused, match="unproved"):
        MhaKernel(racy)(inputs.q, inputs.k, inputs.v, start_pos=448)
    launcher = EmulatedLauncher(allow_unproved=True)
    with pytest.raises(FindingsError) as caught:
        MhaKernel(racy, launcher)(inputs.q, inputs.k, inputs.v, start_pos=448)
    message = str(caught.value)
    assert "the sanitizer found" in message and "error[" in message
    assert "no_dma_waits.py:" in message


# ---- packed rows, pages, sinks, log-sum-exp ------------------------------------------------------

RAGGED = MhaConfigV2(4, 2, ragged=True)
PAGED = MhaConfigV2(4, 2, page_size=16, sink=True, lse=True)


def form_artifact(make_artifact, config):
    return make_artifact(kernel="mha", family="mha_prefill", config=config)


def ragged_call(**change):
    inputs = mha_inputs(RAGGED, lengths=[3, 0, 5], num_keys=[7, 2, 9], start_pos=[1, 0, 4])
    names = ("q", "k", "v", "start_pos", "q_offsets", "kv_offsets")
    return {**{name: getattr(inputs, name) for name in names}, **change}


def paged_call(**change):
    inputs = mha_inputs(PAGED, batch=2, seq_len=8, num_keys=[20, 3])
    names = ("q", "k", "v", "start_pos", "kv_lengths", "page_table", "sinks")
    return {**{name: getattr(inputs, name) for name in names}, **change}


def test_what_the_launcher_is_given_of_a_ragged_call(make_artifact):
    launcher = Recorder()
    call = ragged_call()
    out = MhaKernel(form_artifact(make_artifact, RAGGED), launcher)(**call)
    ((given, scalars, sizes),) = launcher.calls
    start = call.pop("start_pos")
    assert given.keys() == {*call, "start_positions", "o"}
    assert given["start_positions"] is start and given["o"] is out
    assert all(given[name] is call[name] for name in call)
    scale_log2e = pytest.approx(math.log2(math.e) / math.sqrt(128))
    assert scalars == {"seq_len": 5, "batch": 3, "scale_log2e": scale_log2e}
    assert sizes == {"num_heads": 4, "seq_len": 5, "batch": 3}
    assert out.shape == (8, 4, 128)


def test_what_the_launcher_is_given_of_a_paged_call(make_artifact):
    launcher = Recorder()
    call = paged_call(start_pos=6, sinks=np.ones(4, BF16))
    out, lse = MhaKernel(form_artifact(make_artifact, PAGED), launcher)(**call)
    ((given, scalars, _),) = launcher.calls
    assert given["lse"] is lse and lse.shape == (2, 4, 8) and lse.dtype == np.float32
    assert np.isnan(lse).all() and (out == 1).all()  # the recorder writes o alone
    assert given["start_positions"].tolist() == [6, 6]
    assert given["start_positions"].dtype == np.int32
    assert given["sinks"].dtype == np.float32 and (given["sinks"] == 1).all()
    assert scalars["max_pages"] == call["page_table"].shape[1]
    assert scalars.keys() == {"seq_len", "batch", "scale_log2e", "max_pages"}


def test_a_call_without_a_query_launches_nothing(make_artifact):
    launcher = Recorder()
    call = ragged_call(q=np.zeros((0, 4, 128), BF16), q_offsets=np.zeros(4, np.int32))
    out = MhaKernel(form_artifact(make_artifact, RAGGED), launcher)(**call)
    assert out.shape == (0, 4, 128) and not launcher.calls


@pytest.mark.parametrize(
    "call, change, words",
    [
        (ragged_call, {"q_offsets": None}, ["q_offsets is missing"]),
        (ragged_call, {"page_table": np.zeros((3, 1), np.int32)}, ["page_table is given"]),
        (ragged_call, {"sinks": np.zeros(4, np.float32)}, ["sinks is given"]),
        (ragged_call, {"lse": np.zeros((4, 8), np.float32)}, ["lse is given", "lse=true"]),
        (ragged_call, {"max_seq_len": 5}, ["max_seq_len=5", "of a GPU"]),
        (ragged_call, {"q_offsets": np.zeros(8, np.int32)[::2]}, ["q_offsets[3]=0"]),
        (
            ragged_call,
            {"q_offsets": np.array([0, 9, 3, 9, 3, 9, 8, 9], np.int32)[::2]},
            ["q_offsets is not C-contiguous"],
        ),
        (ragged_call, {"out": np.zeros((8, 4, 64), BF16)}, ["out has shape"]),
        (paged_call, {"kv_lengths": np.array([20, 99], np.int32)}, ["kv_lengths[1]=99"]),
        (paged_call, {"page_table": np.full((2, 2), 77, np.int32)}, ["page_table[0, 0]=77"]),
        (paged_call, {"sinks": np.zeros(8, np.float32)}, ["sinks has shape (8,)"]),
        (paged_call, {"lse": np.zeros((2, 4, 9), np.float32)}, ["lse has shape (2, 4, 9)"]),
        (paged_call, {"lse": np.zeros((2, 4, 8))}, ["lse has dtype float64"]),
        (paged_call, {"start_pos": -1}, ["start_pos=-1"]),
    ],
)
def test_bad_calls_of_other_forms_are_refused_before_anything_runs(
    make_artifact, call, change, words
):
    config = RAGGED if call is ragged_call else PAGED
    launcher = Recorder()
    with pytest.raises(ConfigError) as caught:
        MhaKernel(form_artifact(make_artifact, config), launcher)(**call(**change))
    for word in words:
        assert word in str(caught.value)
    assert not launcher.calls


def test_outputs_must_not_overlap_anything(make_artifact):
    kernel = MhaKernel(form_artifact(make_artifact, PAGED), Recorder())
    call = paged_call()
    memory = np.zeros(call["q"].size // 2 + 64, np.float32)
    out = memory[: call["q"].size // 2].view(BF16).reshape(call["q"].shape)
    lse = memory[-128:][:64].reshape(2, 4, 8)
    with pytest.raises(ConfigError, match="lse overlaps out in memory"):
        kernel(**call, out=out, lse=lse)
    words = np.zeros(64, np.float32)
    call["page_table"] = words.view(np.int32)[:6].reshape(2, 3)
    with pytest.raises(ConfigError, match="lse overlaps page_table in memory"):
        kernel(**call, lse=words.reshape(2, 4, 8))


def test_pages_may_lie_beyond_32_bits():
    """Rows of contiguous keys may not, whatever the form."""
    far = {"batch": 1, "seq_len": 256, "num_keys": 2**31 - 1}
    check_extents(MhaConfigV2(4, 2, page_size=64), **far)
    check_extents(MhaConfigV2(4, 2, page_size=64, ragged=True), **far)
    with pytest.raises(ConfigError, match="k and v: 2147483647 rows"):
        check_extents(MhaConfigV2(4, 2, ragged=True), **far)


@pytest.mark.parametrize(
    "fields",
    [{"sink": True, "lse": True}, {"ragged": True}, {"page_size": 32, "ragged": True, "lse": True}],
    ids=str,
)
def test_the_real_kernel_computes_every_form(fields):
    import mlagen

    kernel = mlagen.build("mha_prefill_v2", num_heads=2, num_kv_heads=1, **fields)
    shape = {"lengths": [41, 0, 1]} if kernel.config.ragged else {"seq_len": 41}
    inputs = mha_inputs(kernel.config, num_keys=70, start_pos=29, **shape)
    names = ("q_offsets", "kv_offsets", "kv_lengths", "page_table", "sinks")
    arrays = {name: getattr(inputs, name) for name in names}
    made = kernel(inputs.q, inputs.k, inputs.v, start_pos=inputs.start_pos, **arrays)
    out, lse = made if kernel.config.lse else (made, None)
    for expected in (exact(inputs), rounded(inputs)):
        assert compare(expected.output, inputs.output_view(out)).passed
        if lse is not None:
            assert compare(expected.lse, inputs.lse_view(lse)).passed


@pytest.mark.parametrize("mask", ["null", "causal", "chunked_causal[5]"])
def test_no_keys_at_all(mask):
    import mlagen

    kernel = mlagen.build(
        "mha_prefill_v2", num_heads=4, num_kv_heads=2, mask=mask, sink=True, lse=True
    )
    q, k, v = tensors(seq_len=41, num_keys=0)
    sinks = np.array([0, 1, -np.inf, 3], np.float32)
    out, lse = kernel(q + np.array(1, BF16), k, v, sinks=sinks)
    assert (out == 0).all()
    assert (lse[:, 2] == -np.inf).all()
    np.testing.assert_allclose(
        lse[:, [0, 1, 3]], np.broadcast_to([[[0], [1], [3]]], (2, 3, 41)), rtol=1e-6
    )
