"""mlagen.build's callable on tensors of ROCm: the real kernel through the real hip-python."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hip_standin import DLPack, Interface, StandIn, TorchTensor, call, rocm_torch

import mlagen
from mlagen.attention.prefill.exact import exact
from mlagen.attention.prefill.rounded import rounded
from mlagen.errors import ConfigError
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.made_up import mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.launch import HipLauncher
from mlagen.ops import MhaKernel
from mlagen.problem.expected import compare

BF16 = ml_dtypes.bfloat16
CONFIG = MhaConfigV2(2, 1)


@pytest.fixture(scope="module")
def kernel() -> Any:
    return mlagen.build("mha_prefill_v2", num_heads=2, num_kv_heads=1, depth=128, mask="causal")


@pytest.fixture(scope="module")
def inputs() -> MhaInputs:
    return mha_inputs(CONFIG, batch=2, seq_len=41, num_keys=70, start_pos=29)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    module = rocm_torch()
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def on_device(inputs: MhaInputs, kind: Any) -> dict[str, Any]:
    return {name: kind(getattr(inputs, name)) for name in ("q", "k", "v")}


def poisoned(inputs: MhaInputs, kind: Any, dtype: Any = BF16) -> Any:
    return kind(np.full(inputs.q.shape, np.nan, dtype))


def agrees(oracle: Any, inputs: MhaInputs, out: np.ndarray) -> bool:
    """Whether the output is within the oracle's bounds everywhere."""
    return compare(oracle(inputs).output, inputs.output_view(out)).passed


def test_both_oracles_agree_with_what_comes_back(
    standin: StandIn, kernel: MhaKernel, inputs: MhaInputs
) -> None:
    given, out = on_device(inputs, DLPack), poisoned(inputs, DLPack)
    returned = kernel(**given, start_pos=29, out=out)
    assert returned is out
    assert standin.queued == 1  # enqueued, not waited for
    got = out.numpy()
    assert agrees(exact, inputs, got)
    assert agrees(rounded, inputs, got)
    (told,) = standin.launches
    assert told.grid == kernel.artifact.manifest.grid_for(
        {"num_heads": 2, "seq_len": 41, "batch": 2}
    )
    assert told.dynamic_lds == 0  # the descriptor asks for all of it
    emulated = kernel(inputs.q, inputs.k, inputs.v, start_pos=29)  # the same object, on the host
    np.testing.assert_array_equal(emulated.view(np.uint16), got.view(np.uint16))


def test_the_oracles_would_see_a_wrong_argument(
    standin: StandIn, kernel: MhaKernel, inputs: MhaInputs
) -> None:
    out = poisoned(inputs, DLPack)
    kernel(**on_device(inputs, DLPack), start_pos=30, out=out)
    assert not agrees(exact, inputs, out.numpy())
    kernel(**on_device(inputs, DLPack), start_pos=29, scale=0.09, out=out)
    assert not agrees(exact, inputs, out.numpy())


def test_torch_makes_the_output_and_names_the_stream(
    standin: StandIn, kernel: MhaKernel, inputs: MhaInputs, torch: SimpleNamespace
) -> None:
    torch.streams[0] = int(call("hipStreamCreate"))
    out = kernel(**on_device(inputs, TorchTensor), start_pos=29)
    assert isinstance(out, TorchTensor)
    call("hipStreamSynchronize", torch.streams[0])
    assert [told.stream for told in standin.launches] == [torch.streams[0]]
    assert agrees(exact, inputs, out.numpy())


def test_a_call_can_be_prepared(
    standin: StandIn, kernel: MhaKernel, inputs: MhaInputs, torch: SimpleNamespace
) -> None:
    made = kernel.arguments(**on_device(inputs, TorchTensor), start_pos=29)
    prepared = kernel.gpu_launcher.prepare(
        kernel.artifact, tensors=made.tensors, scalars=made.scalars, sizes=made.sizes
    )
    standin.calls()
    prepared()
    assert standin.calls() == ["hipGetDevice", "hipModuleLaunchKernel"]
    assert agrees(exact, inputs, made.tensors["o"].numpy())


def test_a_launcher_of_ones_own(standin: StandIn, kernel: MhaKernel, inputs: MhaInputs) -> None:
    launcher = HipLauncher(stream=call("hipStreamCreate"))
    own = MhaKernel(kernel.artifact, launcher)
    out = poisoned(inputs, DLPack)
    own(**on_device(inputs, DLPack), start_pos=29, out=out)
    call("hipDeviceSynchronize")
    assert [told.stream for told in standin.launches] == [launcher.stream]


def wide(array: np.ndarray) -> DLPack:
    """A tensor that says it has more rows than 32-bit offsets reach; it is only looked at."""
    made = DLPack(array)
    made.shape, made.pointer = (2, 2**24 + 1, *array.shape[2:]), 1 << 44
    return made


def test_bad_calls_are_refused_before_anything_runs(
    standin: StandIn, kernel: MhaKernel, inputs: MhaInputs
) -> None:
    good = {**on_device(inputs, DLPack), "out": poisoned(inputs, DLPack), "start_pos": 29}
    shape = inputs.q.shape
    for change, message in (
        ({"k": inputs.k}, "k is in the host's memory"),
        ({"out": np.zeros(shape, BF16)}, "out is in the host's memory"),
        ({"q": DLPack(inputs.q.astype(np.float32))}, "q is fp32, the kernel wants bf16"),
        ({"q": DLPack(inputs.q.astype(np.float16))}, "q is fp16, the kernel wants bf16"),
        ({"q": Interface(inputs.q.view(np.uint16))}, "q is <u2, the kernel wants bf16\n.*DLPack"),
        ({"q": DLPack(inputs.q[:, :, :1])}, "q has shape"),
        ({"v": DLPack(inputs.v[:, :-1])}, "k has shape .* but v has"),
        ({"out": None}, "out is not given, and mlagen cannot make a hip_standin tensor"),
        ({"out": poisoned(inputs, DLPack, np.float32)}, "out is fp32, the kernel wants bf16"),
        ({"out": DLPack(inputs.q[:1])}, r"out has shape \(1, 41, 2, 128\), the kernel wants \(2,"),
        ({"out": good["q"]}, "out overlaps q in memory"),
        ({"start_pos": -1}, "start_pos=-1"),
        ({"k": wide(inputs.k), "v": wide(inputs.v)}, "k and v: 16777217 rows of 256 bytes"),
        ({"scale": float("nan")}, "scale=nan must be positive and finite"),
    ):
        with pytest.raises(ConfigError, match=message):
            kernel(**{**good, **change})
    turned = DLPack(inputs.k)
    turned.strides = (70 * 128, 1, 128, 70)
    with pytest.raises(ConfigError, match="k is not contiguous"):
        kernel(**{**good, "k": turned})
    assert standin.queued == 0 and not standin.launches
    assert np.isnan(good["out"].numpy().astype(np.float32)).all()


# ---- packed rows, pages, sinks, log-sum-exp ------------------------------------------------------

FORMS = [
    {"sink": True, "lse": True},
    {"ragged": True},
    {"page_size": 16, "lse": True},
    {"ragged": True, "page_size": 64, "sink": True, "lse": True},
]
Q_LENGTHS, KV_LENGTHS, STARTS = (33, 0, 7), (40, 5, 70), (7, 0, 63)
ARRAYS = ("q_offsets", "kv_offsets", "kv_lengths", "page_table", "sinks")


def form_inputs(config: MhaConfigV2) -> MhaInputs:
    """Three sequences of one call, in the form of `config`."""
    rng = np.random.default_rng(5)

    def randn(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(BF16)

    def offsets(lengths: tuple[int, ...]) -> np.ndarray:
        return np.cumsum([0, *lengths], dtype=np.int32)

    more: dict[str, Any] = {}
    q, kv = (3, 33, 2, 128), (3, 70, 1, 128)
    if config.ragged:
        q, kv = (sum(Q_LENGTHS), 2, 128), (sum(KV_LENGTHS), 1, 128)
        more["q_offsets"] = offsets(Q_LENGTHS)
        if not config.page_size:
            more["kv_offsets"] = offsets(KV_LENGTHS)
    if config.page_size:
        pages = -(-max(KV_LENGTHS) // config.page_size)
        kv = (3 * pages + 1, config.page_size, 1, 128)
        more["kv_lengths"] = np.array(KV_LENGTHS, np.int32)
        more["page_table"] = rng.permutation(3 * pages + 1)[: 3 * pages].reshape(3, pages)
        more["page_table"] = more["page_table"].astype(np.int32)
    if config.sink:
        more["sinks"] = np.array([0.5, -2.0], np.float32)
    start: Any = np.array(STARTS, np.int32) if config.by_sequence else 37
    return MhaInputs(config, randn(*q), randn(*kv), randn(*kv), 0.1, start, **more)


def form_call(inputs: MhaInputs, kind: Any) -> dict[str, Any]:
    """The inputs as tensors of the device, with the numbers of the call."""
    arrays = {name: getattr(inputs, name) for name in ("q", "k", "v", *ARRAYS)}
    made = {name: kind(array) for name, array in arrays.items() if array is not None}
    start = inputs.start_pos
    made["start_pos"] = kind(start) if isinstance(start, np.ndarray) else start
    if inputs.config.ragged:
        made["max_seq_len"] = max(Q_LENGTHS)
    return {**made, "scale": inputs.scale}


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_is_rescaled_p_whole(
    standin: StandIn, torch: SimpleNamespace, form: dict[str, Any]
) -> None:
    kernel = mlagen.build("mha_prefill_v2", num_heads=2, num_kv_heads=1, **form)
    inputs = form_inputs(kernel.config)
    made = kernel.arguments(**form_call(inputs, TorchTensor))
    manifest = kernel.artifact.manifest
    HipLauncher().launch(
        kernel.artifact, tensors=made.tensors, scalars=made.scalars, sizes=made.sizes
    )
    out = made.tensors["o"].numpy()
    for oracle in (exact, rounded):
        expected = oracle(inputs)
        assert compare(expected.output, inputs.output_view(out)).passed
        if kernel.config.lse:
            lse = inputs.lse_view(made.tensors["lse"].numpy())
            assert compare(expected.lse, lse).passed
    assert {arg.tensor for arg in manifest.args if arg.tensor} == made.tensors.keys()
    assert len(standin.launches) == 1


@pytest.mark.parametrize(
    ("form", "change", "message"),
    [
        ({"ragged": True}, {"q_offsets": None}, "q_offsets is missing: the kernel is built for ra"),
        ({"ragged": True}, {"kv_lengths": "q_offsets"}, "kv_lengths is given, but the kernel does"),
        ({"ragged": True}, {"max_seq_len": None}, "max_seq_len is missing.*\n.*40, the rows of q"),
        ({"ragged": True}, {"max_seq_len": 41}, r"max_seq_len=41 is not in 1 \.\. 40"),
        ({"ragged": True}, {"kv_offsets": "start_pos"}, r"kv_offsets has shape \(3,\), .* \(4\)"),
        ({"page_size": 16}, {"max_seq_len": 33}, "max_seq_len=33 is given, but the shape of q"),
        ({"page_size": 16}, {"kv_lengths": "q"}, "kv_lengths is bf16, the kernel wants int32"),
        ({"page_size": 16}, {"start_pos": -1}, "start_pos=-1 is not in 0"),
        ({"page_size": 16}, {"lse": "q"}, r"lse is given, but the kernel does not write it"),
        ({"lse": True}, {"lse": "q"}, "lse is bf16, the kernel wants fp32"),
        ({"sink": True}, {"sinks": None}, "sinks is missing"),
        ({"sink": True}, {"start_pos": "k"}, "start_pos is a TorchTensor, but all sequences of a"),
    ],
)
def test_forms_are_checked(
    standin: StandIn,
    torch: SimpleNamespace,
    make_artifact: Any,
    form: dict[str, Any],
    change: dict[str, Any],
    message: str,
) -> None:
    config = MhaConfigV2(2, 1, **form)
    kernel = MhaKernel(make_artifact(kernel="mha", family="mha_prefill", config=config))
    good = form_call(form_inputs(config), TorchTensor)
    bad = {name: good[what] if isinstance(what, str) else what for name, what in change.items()}
    kernel.arguments(**good)
    with pytest.raises(ConfigError, match=message):
        kernel.arguments(**{**good, **bad})


def test_one_start_position_for_all_needs_torch(standin: StandIn, make_artifact: Any) -> None:
    config = MhaConfigV2(2, 1, page_size=16)
    kernel = MhaKernel(make_artifact(kernel="mha", family="mha_prefill", config=config))
    good = form_call(form_inputs(config), DLPack)
    message = r"start_pos=4 is a number, and mlagen cannot make a hip_standin tensor.*\n.*\(3,\)"
    with pytest.raises(ConfigError, match=message):
        kernel.arguments(**{**good, "start_pos": 4})
