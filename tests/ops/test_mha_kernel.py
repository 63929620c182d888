"""MhaKernel: what it passes on, what it refuses, and the real kernel through it."""

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from mlagen.codegen import build
from mlagen.errors import ConfigError, FindingsError
from mlagen.launch import EmulatedLauncher, LaunchReport
from mlagen.launch.launcher import LaunchRefused
from mlagen.ops import MhaKernel
from mlagen.ops.mha import check_extents
from mlagen.problem import MhaConfig, MhaInputs, compare, exact, rounded
from mlagen.testdata import mha_inputs

BF16 = ml_dtypes.bfloat16
CONFIG = MhaConfig(4, 2)
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
    return make_artifact(kernel="mha", problem_type="MhaConfig", problem=CONFIG.to_fields())


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
    config = MhaConfig(4, 2, output_dtype="fp32")
    artifact = make_artifact(problem_type="MhaConfig", problem=config.to_fields())
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
    other = MhaConfig(4, 2, mask="null")
    with pytest.raises(ConfigError, match="the inputs are those of"):
        MhaKernel(artifact, Recorder()).run(MhaInputs(other, q, k, v, 0.1))


def test_an_artifact_of_another_problem_is_refused(make_artifact):
    with pytest.raises(ConfigError, match="solves a AddConfig, not an MhaConfig"):
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
    wide = MhaConfig(4, 2, output_dtype="fp32")
    with pytest.raises(ConfigError, match="out: 2097152 rows"):
        check_extents(wide, batch=1, seq_len=2097152, num_keys=64)


@pytest.mark.parametrize("start_pos", [0, 29])
def test_the_real_kernel_computes_attention(real, start_pos):
    inputs = mha_inputs(CONFIG, batch=2, seq_len=41, num_keys=70, start_pos=start_pos)
    out = MhaKernel(real)(inputs.q, inputs.k, inputs.v, start_pos=start_pos)
    assert compare(exact(inputs).expected, out).passed
    assert compare(rounded(inputs), out).passed


def test_a_racing_kernel_is_refused_and_its_findings_raise():
    racy = build(str(RACY), MhaConfig(1, 1), allow_unproved=True)
    inputs = mha_inputs(MhaConfig(1, 1), seq_len=64, num_keys=512, start_pos=448)
    with pytest.raises(LaunchRefused, match="unproved"):
        MhaKernel(racy)(inputs.q, inputs.k, inputs.v, start_pos=448)
    launcher = EmulatedLauncher(allow_unproved=True)
    with pytest.raises(FindingsError) as caught:
        MhaKernel(racy, launcher)(inputs.q, inputs.k, inputs.v, start_pos=448)
    message = str(caught.value)
    assert "the sanitizer found" in message and "error[" in message
    assert "no_dma_waits.py:" in message
