"""MlaDecodeKernel and its plans: what they pass on and refuse; no GPU is needed for either."""

import math
from dataclasses import replace

import ml_dtypes
import msgspec
import numpy as np
import pytest

from mlagen.attention.latent.costs import Costs
from mlagen.attention.latent.facts import Facts
from mlagen.attention.latent.order import SEESAW
from mlagen.attention.latent.scales import MODEL_SCALE
from mlagen.codegen.manifest import plain_facts
from mlagen.errors import ConfigError
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.launch import CudaLauncher, LaunchReport
from mlagen.ops import MlaDecodeKernel

BF16 = ml_dtypes.bfloat16
CONFIG = MlaDecodeConfig(64, q_len=2)
OUT, LSE = (3, 2, 64, 512), (3, 64, 2)


class Tensor:
    """A tensor of a GPU as far as a launcher's caller sees it; its memory is the host's."""

    def __init__(self, array):
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.__cuda_array_interface__ = {
            "data": (array.ctypes.data, False),
            "typestr": array.dtype.str,
            "shape": array.shape,
            "version": 3,
        }

    def get(self):
        return self.array.copy()


class Memory:
    """Where plans' tensors come from here."""

    def upload(self, array):
        return Tensor(array.copy())

    def empty(self, shape, dtype):
        return Tensor(np.full(shape, np.nan, {"fp32": np.float32}[dtype]))

    def write(self, tensor, array):
        tensor.array[...] = array


class Recorder:
    """A launcher that keeps what it was given."""

    def __init__(self):
        self.calls = []

    def launch(self, artifact, *, tensors, scalars, sizes):
        self.calls.append((tensors, scalars, sizes))
        self.kernels = [*getattr(self, "kernels", ()), artifact.manifest.kernel]
        return LaunchReport("recorded", (1, 1, 1), (384, 1, 1), 0.0)


def make(make_artifact, *scalars, problem=None):
    from mlagen.artifact import Arg

    args = tuple(
        Arg(name, 8 * n, 8, "pointer", "write" if name in ("o", "lse") else "read")
        for n, name in enumerate(("q", "cache", "block_table", "cache_lengths", "o", "lse"))
    )
    numbers = tuple(
        Arg(name, 48 + 4 * n, 4, kind, "value") for n, (name, kind) in enumerate(scalars)
    )
    return make_artifact(
        kernel="mla_decode_sm90",
        target="sm_90a",
        family="mla_decode",
        problem_type="MlaDecodeConfig",
        problem=problem or CONFIG.to_fields(),
        facts=plain_facts(Facts(SEESAW, 64, costs=Costs())),
        args=args + numbers,
        kernarg_bytes=48 + 4 * len(numbers),
    )


ALL = (("max_pages", "u32"), ("lse_stride", "u32"), ("scale_log2e", "f32"))


@pytest.fixture(scope="module")
def artifact(make_artifact):
    return make(make_artifact, *ALL)


@pytest.fixture(scope="module")
def merge(make_artifact):
    return make_artifact(
        kernel="merge", target="sm_90a", family="split_merge", problem_type="MlaDecodeMergeConfig"
    )


def decode(artifact, launcher, merge=None):
    made = None if merge is None else lambda: merge
    return MlaDecodeKernel(artifact, launcher, memory=Memory(), merge=made)


def tensors(lengths=(100, 0, 5)):
    made = mla_decode_inputs(CONFIG, lengths=lengths, data="randn")
    arrays = (made.q, made.cache, made.block_table, made.cache_lengths)
    return dict(
        zip(("q", "cache", "block_table", "cache_lengths"), map(Tensor, arrays), strict=True)
    )


def outputs(batch=3):
    return {
        "out": Tensor(np.zeros((batch, *OUT[1:]), BF16)),
        "lse": Tensor(np.zeros((batch, *LSE[1:]), np.float32)),
    }


def test_what_the_launcher_is_given(artifact):
    launcher = Recorder()
    given, made = tensors(), outputs()
    out, lse = decode(artifact, launcher)(**given, **made, scale=0.25)
    assert out is made["out"] and lse is made["lse"]
    ((passed, scalars, sizes),) = launcher.calls
    assert {name: passed[name] for name in given} == given
    assert passed["o"] is out and passed["lse"] is lse
    assert set(passed) == {*given, "o", "lse", "items", "partial_o", "partial_lse"}
    assert scalars == {
        "max_pages": 4,
        "lse_stride": 2,
        "scale_log2e": pytest.approx(0.25 * math.log2(math.e)),
    }
    assert sizes == {"items": 6}  # two blocks of 64 rows a sequence


def test_scales_of_what_is_stored(make_artifact):
    launcher = Recorder()
    problem = {**CONFIG.to_fields(), "dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3"}
    kernel = decode(make(make_artifact, *ALL, ("kv_scale", "f32"), problem=problem), launcher)
    given = tensors()
    for name in ("q", "cache"):
        given[name] = Tensor(np.zeros(given[name].shape, ml_dtypes.float8_e4m3fn))
    kernel(**given, **outputs(), scale=0.25, kv_scale=0.5, q_scale=3.0)
    scalars = launcher.calls[0][1]
    assert scalars["scale_log2e"] == pytest.approx(0.375 * math.log2(math.e))
    assert scalars["kv_scale"] == 0.5
    with pytest.raises(ConfigError, match="q_scale=0 must be positive"):
        kernel(**given, **outputs(), scale=0.25, q_scale=0)


def test_row_scales(make_artifact):
    launcher = Recorder()
    config = replace(CONFIG, cache_dtype="fp8_rope_aware")
    kernel = decode(
        make(make_artifact, *ALL, ("num_blocks", "u32"), problem=config.to_fields()), launcher
    )
    made = mla_decode_inputs(config, lengths=(100, 0, 5), data="randn")
    given = {name: Tensor(array) for name, array in made.tensors.items()}
    kernel(**given, **outputs(), scale=0.25)
    passed, scalars, _ = launcher.calls[0]
    assert passed["kv_scales"] is given["kv_scales"]
    assert scalars["num_blocks"] == made.num_blocks and "kv_scale" not in scalars
    for change, words in (
        ({"kv_scales": None}, "kv_scales are missing: rope-aware rows"),
        ({"kv_scales": sized((2, 64), np.float32)}, r"kv_scales has shape \(2, 64\)"),
        ({"kv_scales": sized((made.num_blocks, 64), BF16)}, "kv_scales has dtype bfloat16"),
        ({"cache": tensors()["cache"]}, "cache has dtype bfloat16"),
        ({"kv_scale": 2.0}, "rope-aware rows have a scale each"),
    ):
        with pytest.raises(ConfigError, match=words):
            kernel(**{**given, **outputs(), "scale": 0.25, **change})
    assert len(launcher.calls) == 1
    both = decode(
        make(make_artifact, *ALL, problem=replace(config, dtype="fp8_rope_aware").to_fields()),
        launcher,
    )
    stored = mla_decode_inputs(both.config, lengths=(100, 0, 5), data="randn")
    given = {name: Tensor(array) for name, array in stored.tensors.items()}
    both(**given, **outputs(), scale=0.25)
    assert launcher.calls[1][0]["q_scales"] is given["q_scales"]
    for change, words in (
        ({"q_scales": None}, "q_scales are missing: rope-aware queries"),
        ({"kv_scales": None}, "kv_scales are missing"),
        ({"q_scales": sized((3,), np.float32)}, r"q_scales has shape \(3,\).*\(3, 2\)"),
        ({"q": tensors()["q"]}, "q has dtype bfloat16"),
        ({"q_scale": 0.5}, "rope-aware queries have a scale a token"),
    ):
        with pytest.raises(ConfigError, match=words):
            both(**{**given, **outputs(), "scale": 0.25, **change})
    plain = decode(make(make_artifact, *ALL), launcher)
    with pytest.raises(ConfigError, match="bf16 queries have none"):
        plain(**tensors(), **outputs(), scale=0.25, q_scales=given["q_scales"])
    with pytest.raises(ConfigError, match="rows of a bf16 cache have none"):
        plain(**tensors(), **outputs(), scale=0.25, kv_scales=given["kv_scales"])


def test_only_numbers_that_the_kernel_names_are_passed(make_artifact):
    launcher = Recorder()
    kernel = decode(make(make_artifact, ALL[0], ("num_blocks", "u32")), launcher)
    given = tensors()
    kernel(**given, **outputs(), scale=0.25)
    assert launcher.calls[0][1] == {"max_pages": 4, "num_blocks": given["cache"].shape[0]}


def test_split_work_is_merged_in_a_second_launch(artifact, merge):
    launcher = Recorder()
    kernel = decode(artifact, launcher, merge)
    plan = kernel.plan([200, 0, 5], split_keys=64)
    assert plan.splits == ((0, 1, 2, 3), (0,), (0,))
    made = outputs()
    kernel(**tensors((200, 0, 5)), **made, scale=0.25, plan=plan)
    assert launcher.kernels == ["mla_decode_sm90", "merge"]
    (first, *_), (second, scalars, sizes) = launcher.calls
    assert first["items"].shape == (2 * 4 + 2 + 2, 12)
    assert second["o"] is made["out"] and second["partial_o"] is first["partial_o"]
    assert (scalars, sizes) == ({"lse_stride": 2}, {"merges": plan.merges.shape[0]})
    assert first["partial_o"].shape == (8, 64, 512)


def test_without_a_merge_kernel_nothing_is_split(artifact):
    kernel = decode(artifact, Recorder())
    assert kernel.plan([100_000]).work.slots == 0
    with pytest.raises(ConfigError, match="no merge kernel"):
        kernel.plan([100], split_keys=64)


@pytest.fixture(scope="module")
def persistent(make_artifact):
    """A kernel whose blocks take several items."""
    from mlagen.artifact import Arg

    made = make(make_artifact, *ALL)
    args = (*made.manifest.args, Arg("shares", 64, 8, "pointer", "read"))
    facts = plain_facts(Facts(SEESAW, 64, items="several", costs=Costs()))
    return replace(made, manifest=msgspec.structs.replace(made.manifest, args=args, facts=facts))


def test_persistent_blocks_get_their_shares(persistent, merge):
    launcher = Recorder()
    kernel = decode(persistent, launcher, merge)
    plan = kernel.plan([9000, 100, 5], blocks=5, room=[20000] * 3)
    shares = plan.shares
    assert shares.shape == (6,) and shares.array.tolist() == plan.work.shares.tolist()
    kernel(**tensors(), **outputs(), scale=0.25, plan=plan)
    passed, _, sizes = launcher.calls[0]
    assert passed["shares"] is shares and sizes == {"blocks": 5}
    items = passed["items"].shape
    for lengths in ([1, 2, 3], [20000, 20000, 20000], [64, 20000, 0]):
        plan.update(lengths)
        assert plan.shares is shares and plan.items.shape == items
        assert shares.array.tolist() == plan.work.shares.tolist()
        count = int(shares.array[-1])
        assert np.array_equal(plan.items.array[:count], plan.work.items)


def test_persistent_blocks_without_a_merge_or_a_plan(persistent):
    launcher = Recorder()
    kernel = decode(persistent, launcher)
    work = kernel.plan([100_000, 5]).work
    assert work.slots == 0 and np.diff(work.shares).max() == 1
    kernel(**tensors(), **outputs(), scale=0.25)
    assert launcher.calls[0][2] == {"blocks": 132}


def test_plans_are_for_the_kernel_s_blocks(artifact, persistent, merge):
    one, several = (decode(x, Recorder(), merge) for x in (artifact, persistent))
    for kernel, other, words in (
        (one, several, "plan is for blocks that take several items"),
        (several, one, "plan is not for blocks that take several items"),
    ):
        with pytest.raises(ConfigError, match=words):
            kernel(**tensors(), **outputs(), scale=0.25, plan=other.plan([100, 0, 5]))


def test_a_plan_is_for_its_shapes(artifact, merge):
    launcher = Recorder()
    kernel = decode(artifact, launcher, merge)
    with pytest.raises(ConfigError, match="plan is for 2 sequences"):
        kernel(**tensors(), **outputs(), scale=0.25, plan=kernel.plan([1, 2]))
    packed = kernel.plan([1, 2, 3], q_lens=[2, 1, 0])
    with pytest.raises(ConfigError, match=r"wants \(tokens, num_heads, 576\)"):
        kernel(**tensors(), **outputs(), scale=0.25, plan=packed)
    assert not launcher.calls
    for bad, words in (
        ({"q_lens": [3, 0, 0]}, r"q_lens\[0\]=3 is not in 0 .. 2"),
        ({"q_lens": [1, 1]}, "q_lens of 2 sequences"),
        ({"split_keys": 100}, "split_keys=100 is no positive multiple of 64"),
        ({"blocks": 0}, "blocks=0"),
    ):
        with pytest.raises(ConfigError, match=words):
            kernel.plan([1, 2, 3], **bad)
    with pytest.raises(ConfigError, match=r"lengths\[1\]=-1"):
        kernel.plan([1, -1])


def test_packed_queries(artifact, merge):
    launcher = Recorder()
    kernel = decode(artifact, launcher, merge)
    given = tensors()
    given["q"] = Tensor(np.zeros((3, 64, 576), BF16))
    made = {
        "out": Tensor(np.zeros((3, 64, 512), BF16)),
        "lse": Tensor(np.zeros((64, 3), np.float32)),
    }
    kernel(**given, **made, scale=0.25, plan=kernel.plan([100, 0, 5], q_lens=[2, 0, 1]))
    ((passed, scalars, sizes),) = launcher.calls
    assert scalars["lse_stride"] == 3 and sizes == {"items": 3}
    items = passed["items"].array
    assert items[:, [0, 1, 8]].tolist() == [[0, 0, 0], [0, 64, 0], [2, 128, 2]]


def test_a_plan_is_updated_in_place(artifact, merge):
    kernel = decode(artifact, Recorder(), merge)
    plan = kernel.plan([100, 100], split_keys=64, room=[640, 640])
    items, shape = plan.items, plan.items.shape
    plan.update([640, 1])
    assert plan.items is items and items.shape == shape and len(plan.splits[0]) == 10
    used = len(plan.work.items)
    assert (items.array[:used] == plan.work.items).all()
    assert (items.array[used:, 2] == 0).all() and (items.array[used:, 7] == -1).all()
    with pytest.raises(ConfigError, match="the plan has room for"):
        plan.update([100_000, 1])
    with pytest.raises(ConfigError, match="1 lengths for a plan of 2 sequences"):
        plan.update([5])


def test_an_empty_batch_launches_nothing(artifact):
    launcher = Recorder()
    given = tensors()
    none = {
        "q": Tensor(np.zeros((0, 2, 64, 576), BF16)),
        "block_table": Tensor(np.zeros((0, 4), np.int32)),
        "cache_lengths": Tensor(np.zeros(0, np.int32)),
    }
    made = outputs(batch=0)
    run = decode(artifact, launcher).run(**{**given, **none}, **made, scale=0.25)
    assert run.output is made["out"] and run.lse is made["lse"] and run.reports == ()
    assert not launcher.calls


def test_checked_calls_look_at_lengths_and_pages(artifact):
    launcher = Recorder()
    kernel = decode(artifact, launcher)
    kernel(**tensors(), **outputs(), scale=0.25, checked=True)
    assert len(launcher.calls) == 1
    too_long, no_page = tensors(), tensors()
    too_long["cache_lengths"].array[0] = 257
    no_page["block_table"].array[0, 1] = 77
    for given, words in (
        (too_long, ["cache_lengths[0]=257", "0 .. 256", "4 pages of 64 rows"]),
        (no_page, ["block_table[0, 1]=77", "is not in 0 .. "]),
    ):
        with pytest.raises(ConfigError) as caught:
            kernel(**given, **outputs(), scale=0.25, checked=True)
        for word in words:
            assert word in str(caught.value)
        assert len(launcher.calls) == 1
    kernel(**no_page, **outputs(), scale=0.25)  # without the check nothing is read back
    assert len(launcher.calls) == 2


def sized(shape, dtype=BF16):
    """A tensor of any size, as far as its shape is looked at."""
    return Tensor(np.broadcast_to(np.zeros((), dtype), shape))


@pytest.mark.parametrize(
    "change, words",
    [
        ({"q": Tensor(np.zeros((3, 2, 64, 576), np.float16))}, ["q has dtype float16", "bfloat16"]),
        ({"q": sized((3, 2, 128, 576))}, ["q has shape (3, 2, 128, 576)", "(3, 2, 64, 576)"]),
        ({"q": sized((3, 9, 64, 576))}, ["q has shape (3, 9, 64, 576)", "(3, 2, 64, 576)"]),
        ({"q": sized((3, 64, 576))}, ["q has shape (3, 64, 576)", "batch"]),
        ({"q": sized((3, 2, 64, 192))}, ["q has shape (3, 2, 64, 192)", "576"]),
        ({"cache": sized((8, 24, 1, 576))}, ["cache has shape (8, 24, 1, 576)", "(*, 64, 1, 576)"]),
        ({"cache": sized((0, 64, 1, 576))}, ["cache has shape (0, 64, 1, 576)", "at least 1"]),
        ({"cache": sized((2**25 + 1, 64, 1, 576))}, ["2147483712 rows", "at most 33554432"]),
        ({"block_table": sized((2, 4), np.int32)}, ["block_table has shape (2, 4)", "(3, *)"]),
        ({"block_table": sized((3, 4), np.int64)}, ["block_table has dtype int64", "int32"]),
        ({"cache_lengths": sized((3, 1), np.int32)}, ["cache_lengths has shape (3, 1)", "(3)"]),
        ({"cache_lengths": [1, 2, 3]}, ["cache_lengths is a list, no tensor"]),
        ({"scale": 0.0}, ["scale=0.0", "192 ** -0.5"]),
        ({"scale": "x"}, ["scale='x'", "number"]),
        ({"q_scale": 2.0}, ["q_scale=2.0", "bf16 queries"]),
        ({"kv_scale": 2.0}, ["kv_scale=2.0", "bf16 cache"]),
        ({"out": Tensor(np.zeros((3, 2, 64, 576), BF16))}, ["out has shape", "(3, 2, 64, 512)"]),
        ({"out": Tensor(np.zeros(OUT, np.float32))}, ["out has dtype float32", "bfloat16"]),
        ({"lse": Tensor(np.zeros((3, 2, 64), np.float32))}, ["lse has shape (3, 2, 64)"]),
        ({"lse": Tensor(np.zeros(LSE, BF16))}, ["lse has dtype bfloat16", "float32"]),
        ({"out": None}, ["out is not given", "pass out= of shape (3, 2, 64, 512)"]),
        ({"lse": None}, ["lse is not given", "pass lse= of shape (3, 64, 2)"]),
    ],
)
def test_bad_calls_are_refused_before_anything_runs(artifact, change, words):
    launcher = Recorder()
    with pytest.raises(ConfigError) as caught:
        MlaDecodeKernel(artifact, launcher)(
            **{**tensors(), **outputs(), "scale": MODEL_SCALE, **change}
        )
    for word in words:
        assert word in str(caught.value)
    assert not launcher.calls


def test_the_scale_has_no_default(artifact):
    with pytest.raises(TypeError, match="scale"):
        MlaDecodeKernel(artifact, Recorder())(**tensors(), **outputs())


def test_overlapping_outputs_are_refused(artifact):
    kernel = MlaDecodeKernel(artifact, Recorder())
    given = tensors()
    memory = given["q"].array.reshape(-1)
    inside = Tensor(memory[-math.prod(OUT) :].reshape(OUT))
    with pytest.raises(ConfigError, match="out overlaps q in memory"):
        kernel(**given, **{**outputs(), "out": inside}, scale=0.25)
    made = outputs()
    made["lse"] = Tensor(
        made["out"].array.reshape(-1)[: 2 * math.prod(LSE)].view(np.float32).reshape(LSE)
    )
    with pytest.raises(ConfigError, match="lse overlaps out in memory"):
        kernel(**given, **made, scale=0.25)


@pytest.mark.parametrize("name", ["q", "cache", "block_table", "cache_lengths", "out", "lse"])
def test_tensors_of_two_places_are_refused(artifact, name):
    launcher = Recorder()
    given = {**tensors(), **outputs()}
    given[name] = given[name].array
    with pytest.raises(ConfigError) as caught:
        MlaDecodeKernel(artifact, launcher)(**given, scale=0.25)
    for word in (f"{name} lies in the host's memory", "on a GPU", "emulated"):
        assert word in str(caught.value)
    assert not launcher.calls


def arrays():
    return {name: tensor.array for name, tensor in tensors().items()}


def test_arrays_of_the_host_go_to_the_emulator(artifact, monkeypatch):
    """With outputs and a plan of the host, where none are given."""
    launcher = Recorder()
    monkeypatch.setattr("mlagen.families.mla_decode.kernel.EmulatedLauncher", lambda: launcher)
    kernel = MlaDecodeKernel(artifact)
    for plan in (None, kernel.plan([100, 0, 5], device="cpu")):
        out, lse = kernel(**arrays(), scale=0.25, plan=plan)
        assert out.shape == OUT and out.dtype == BF16 and np.isnan(out).all()
        assert lse.shape == LSE and lse.dtype == np.float32
        passed, _, _ = launcher.calls[-1]
        assert passed["o"] is out and passed["lse"] is lse
        assert all(isinstance(tensor, np.ndarray) for tensor in passed.values())


def test_findings_are_raised_by_a_call_and_reported_by_run(artifact, monkeypatch):
    monkeypatch.setattr(
        "mlagen.families.mla_decode.kernel.findings_of", lambda artifact, report: ("one",)
    )
    monkeypatch.setattr(
        "mlagen.families.mla_decode.kernel.findings_error", lambda artifact, found: KeyError(found)
    )
    kernel = MlaDecodeKernel(artifact, Recorder())
    with pytest.raises(KeyError, match="one"):
        kernel(**arrays(), scale=0.25)
    assert len(kernel.run(**arrays(), scale=0.25).reports) == 1


def test_what_arrays_of_the_host_are_refused_for(artifact):
    launcher = Recorder()
    kernel, given = MlaDecodeKernel(artifact, launcher), arrays()
    far = given["cache_lengths"] + 10_000
    with pytest.raises(ConfigError, match=r"cache_lengths\[0\]=10100 is not in 0"):
        kernel(**{**given, "cache_lengths": far}, scale=0.25)
    with pytest.raises(ConfigError, match="lse overlaps q in memory"):
        lse = given["q"].reshape(-1).view(np.float32)[: math.prod(LSE)].reshape(LSE)
        kernel(**given, lse=lse, scale=0.25)
    with pytest.raises(ConfigError, match="prepare: arrays of the host are emulated"):
        kernel.prepare(**given, scale=0.25)
    assert not launcher.calls


def test_a_plan_needs_somewhere_to_be(artifact):
    with pytest.raises(ConfigError, match="made by torch"):
        MlaDecodeKernel(artifact, Recorder()).plan([1, 2, 3])


def test_without_a_launcher_the_gpu_is_asked(artifact):
    kernel = MlaDecodeKernel(artifact)
    assert isinstance(kernel.launcher, CudaLauncher)
    assert "mla_decode_sm90" in repr(kernel) and "num_heads=64" in repr(kernel)


def test_an_artifact_of_another_problem_is_refused(make_artifact):
    other = make_artifact(
        kernel="mha",
        family="mha_prefill",
        config=MhaConfigV2(4, 2),
    )
    with pytest.raises(ConfigError, match="mha solves a MhaProblem, not an MlaDecodeConfig"):
        MlaDecodeKernel(other)
