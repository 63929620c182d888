"""Calls that are like earlier ones: what is launched, what is looked at again, what is kept."""

from __future__ import annotations

import gc
import struct
import sys
import weakref
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "launch"))

from fake_cuda import FakeApi, TorchTensor

from mlagen.attention.latent import known_calls as mla_decode_known
from mlagen.attention.latent.call_tensors import Workspace
from mlagen.attention.latent.costs import Costs
from mlagen.attention.latent.facts import Facts
from mlagen.attention.latent.order import SEESAW
from mlagen.attention.latent.outputs import Outputs
from mlagen.codegen.manifest import plain_facts
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.launch import CudaLauncher
from mlagen.launch.cuda_driver import CudaDriver
from mlagen.ops import MlaDecodeKernel

CONFIG = MlaDecodeConfig(64, q_len=2)
WORK = ("items", "partial_o", "partial_lse")
NAMES = ("q", "cache", "block_table", "cache_lengths", "o", "lse", *WORK)
PLACES = count(1 << 20, 1 << 20)


class Tensor(TorchTensor):
    """What fast calls ask besides."""

    def __init__(self, shape: Any, dtype: str, pointer: int | None = None, **more: Any) -> None:
        super().__init__(tuple(shape), dtype, next(PLACES) if pointer is None else pointer, **more)

    def dim(self) -> int:
        return len(self.shape)

    def get_device(self) -> int:
        return int(self.device.index)

    def is_contiguous(self) -> bool:
        return self.strides == Tensor(self.shape, "x", 0).strides

    def element_size(self) -> int:
        return {"torch.bfloat16": 2}.get(self.dtype, 4)

    def new_empty(self, shape: Any, dtype: Any = None) -> Tensor:
        return Tensor(shape, "bfloat16" if dtype is None else dtype)


class Memory:
    def upload(self, array: Any) -> Tensor:
        return Tensor(array.shape, "int32")

    def empty(self, shape: Any, dtype: str) -> Tensor:
        return Tensor(shape, "float32")


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def kernel(make_artifact: Any, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> MlaDecodeKernel:
    from mlagen.artifact import Arg

    torch = SimpleNamespace(Tensor=Tensor, float32="float32", bfloat16="bfloat16")
    torch.cuda = SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=5))
    torch.empty = lambda shape, dtype, device: Tensor(shape, dtype)
    monkeypatch.setitem(sys.modules, "torch", torch)
    args = tuple(
        Arg(name, 8 * n, 8, "pointer", "write" if name in ("o", "lse") else "read")
        for n, name in enumerate(NAMES)
    )
    args = (*args, Arg("scale_log2e", 8 * len(NAMES), 4, "f32", "value"))
    artifact = make_artifact(
        kernel="mla_decode_sm90", target="sm_90a", family="mla_decode",
        problem_type="MlaDecodeConfig",
        problem=CONFIG.to_fields(), args=args, kernarg_bytes=8 * len(NAMES) + 4, grid=(),
        block=(64, 1, 1), facts=plain_facts(Facts(SEESAW, 64, costs=Costs())),
    )  # fmt: skip
    api.parameters = (8,) * len(NAMES) + (4,)
    launcher = CudaLauncher()
    launcher.driver = CudaDriver.start(api)
    return MlaDecodeKernel(artifact, launcher, memory=Memory())


def given(batch: int = 3, **changes: Any) -> dict[str, Any]:
    made = {
        "q": Tensor((batch, 2, 64, 576), "bfloat16"),
        "cache": Tensor((9, 64, 1, 576), "bfloat16"),
        "block_table": Tensor((batch, 4), "int32"),
        "cache_lengths": Tensor((batch,), "int32"),
    }
    return {**made, **changes}


def pointers(api: FakeApi) -> dict[str, int]:
    """What the last launch was told."""
    values = api.launches[-1]["arguments"][: len(NAMES)]
    return dict(zip(NAMES, (struct.unpack("<Q", value)[0] for value in values), strict=True))


def test_the_second_call_only_launches(kernel: MlaDecodeKernel, api: FakeApi) -> None:
    tensors, plan = given(), kernel.plan([100, 0, 5])
    out, lse = kernel(**tensors, scale=0.25, plan=plan)
    first = api.launches[-1]
    api.calls.clear()
    again = plan.run(**tensors, scale=0.25, out=out, lse=lse)
    assert again == (out, lse)
    assert set(api.calls) <= {
        "cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuLaunchKernelEx"
    }  # fmt: skip
    assert api.launches[-1]["arguments"] == first["arguments"]
    assert api.launches[-1]["grid"] == first["grid"]
    assert pointers(api) == {
        **{name: tensor.pointer for name, tensor in tensors.items()},
        **{name: getattr(plan, name).pointer for name in WORK},
        "o": out.pointer, "lse": lse.pointer,
    }  # fmt: skip


def test_outputs_are_new_at_every_call(kernel: MlaDecodeKernel, api: FakeApi) -> None:
    tensors, plan = given(), kernel.plan([100, 0, 5])
    one, two = (kernel(**tensors, scale=0.25, plan=plan) for _ in range(2))
    assert one[0].pointer != two[0].pointer
    assert pointers(api)["o"] == two[0].pointer
    assert pointers(api)["lse"] == two[1].pointer
    assert (two[0].shape, two[1].shape) == ((3, 2, 64, 512), (3, 64, 2))
    assert (two[0].dtype, two[1].dtype) == ("torch.bfloat16", "torch.float32")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("device", [0, 1])
def test_outputs_by_torch_s_own_short_way(
    kernel: MlaDecodeKernel, device: int, packed: bool
) -> None:
    """On the current device by what compiled code calls, elsewhere by `new_empty`."""
    made: list[Any] = []

    def empty(shape: Any, strides: Any, dtype: str) -> Tensor:
        made.append((shape, strides, dtype))
        return Tensor(shape, dtype)

    guards = SimpleNamespace(_empty_strided_cuda=empty)
    sys.modules["torch"]._C = SimpleNamespace(  # type: ignore[attr-defined]
        _dynamo=SimpleNamespace(guards=guards), _cuda_getDevice=lambda: device
    )
    tensors, plan = given(), kernel.plan([100, 0, 5])
    rows: tuple[int, ...] = (3, 2)
    if packed:
        tensors["q"], plan = Tensor((4, 64, 576), "bfloat16"), kernel.plan([9, 7], q_lens=[2, 2])
        tensors |= {"block_table": Tensor((2, 4), "int32"), "cache_lengths": Tensor((2,), "int32")}
        rows = (4,)
    outputs = Outputs.of(CONFIG, rows)
    for _ in range(2):
        out, lse = plan.run(**tensors, scale=0.25)
        assert (out.shape, lse.shape) == (outputs.o[0], outputs.lse[0])
        assert out.is_contiguous() and lse.is_contiguous()
        assert (out.dtype, lse.dtype) == ("torch.bfloat16", "torch.float32")
    assert made == ([(*outputs.o, "bfloat16"), (*outputs.lse, "float32")] * 2)[: 4 * (not device)]
    for shape, strides, _ in made:
        assert strides == Tensor(shape, "x", 0).strides


@pytest.mark.parametrize("name", ["q", "cache", "block_table", "cache_lengths"])
def test_another_place_is_another_call(kernel: MlaDecodeKernel, api: FakeApi, name: str) -> None:
    tensors, plan = given(), kernel.plan([100, 0, 5])
    kernel(**tensors, scale=0.25, plan=plan)
    old = tensors[name]
    moved = Tensor(old.shape, old.dtype.removeprefix("torch."))
    kernel(**{**tensors, name: moved}, scale=0.25, plan=plan)
    assert pointers(api)[name] == moved.pointer
    kernel(**tensors, scale=0.25, plan=plan)
    assert pointers(api)[name] == old.pointer


def test_other_numbers_and_plans_are_other_calls(kernel: MlaDecodeKernel, api: FakeApi) -> None:
    tensors, plans = given(), [kernel.plan([100, 0, 5]) for _ in range(2)]
    seen = set()
    for plan in plans:
        for scale in (0.25, 0.5):
            out, _ = kernel(**tensors, scale=scale, plan=plan)
            for _ in range(2):
                kernel(**tensors, scale=scale, plan=plan, out=out)
                assert pointers(api)["items"] == plan.items.pointer
                seen.add(api.launches[-1]["arguments"][-1])
    assert len(seen) == 2
    kernel(**tensors, scale=0.25)
    (usual,) = kernel._plans.values()
    for _ in range(2):
        kernel(**tensors, scale=0.25)
        assert pointers(api)["items"] == usual.items.pointer


def test_what_is_not_right_is_refused_as_before(kernel: MlaDecodeKernel, api: FakeApi) -> None:
    """At the very place of a tensor that was right."""
    tensors, plan = given(), kernel.plan([100, 0, 5])
    out, lse = kernel(**tensors, scale=0.25, plan=plan)
    launches = len(api.launches)
    q, table = tensors["q"], tensors["block_table"]
    for changes, message in (
        ({"q": Tensor(q.shape, "float16", q.pointer)}, "float16"),
        ({"q": Tensor((3, 2, 32, 576), "bfloat16", q.pointer)}, "shape"),
        ({"q": Tensor(q.shape, "bfloat16", q.pointer, strides=(1, 2, 3, 4))}, "contiguous"),
        ({"q": Tensor(q.shape, "bfloat16", q.pointer, is_cuda=False)}, "host"),
        ({"block_table": Tensor(table.shape, "int64", table.pointer)}, "int64"),
        ({"block_table": Tensor(table.shape, "int32", table.pointer, device=1)}, "GPU 1"),
        ({"out": Tensor(out.shape, "bfloat16", q.pointer)}, "overlaps"),
        ({"scale": float("nan")}, "scale"),
        ({"plan": kernel.plan([1])}, "plan is for 1"),
    ):
        for _ in range(2):
            with pytest.raises(ConfigError, match=message):
                kernel(
                    **{**tensors, "out": out, "lse": lse, "scale": 0.25, "plan": plan, **changes}
                )
    assert len(api.launches) == launches


def test_another_tensor_at_the_same_place(kernel: MlaDecodeKernel, api: FakeApi) -> None:
    """A new object that is as the old one was is no new call; one that is not is refused."""
    tensors, plan = given(), kernel.plan([100, 0, 5])
    out, lse = kernel(**tensors, scale=0.25, plan=plan)
    for _ in range(3):
        alike = {
            name: Tensor(old.shape, old.dtype.removeprefix("torch."), old.pointer)
            for name, old in tensors.items()
        }
        known = len(kernel._known._calls)
        plan.run(**alike, scale=0.25, out=out, lse=lse)
        assert len(kernel._known._calls) - known <= 1
    assert len(kernel._known._calls) == 2  # outputs made, outputs given
    fewer = Tensor((2, 4), "int32", tensors["block_table"].pointer)
    with pytest.raises(ConfigError, match="block_table"):
        plan.run(**{**tensors, "block_table": fewer}, scale=0.25, out=out, lse=lse)


def test_no_tensor_is_kept(kernel: MlaDecodeKernel) -> None:
    tensors, plan = given(), kernel.plan([100, 0, 5])
    out, lse = kernel(**tensors, scale=0.25, plan=plan)
    watched = [weakref.ref(one) for one in (*tensors.values(), out, lse, plan.items)]
    del tensors, plan, out, lse
    gc.collect()
    assert [ref() for ref in watched] == [None] * len(watched)


def test_usual_plans_of_one_stream_share_a_workspace(
    kernel: MlaDecodeKernel, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def partial(stream: int, batch: int, pages: int) -> int:
        torch = sys.modules["torch"]
        found = SimpleNamespace(cuda_stream=stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: found)
        table = Tensor((batch, pages), "int32")
        kernel(**given(batch, block_table=table), scale=0.25)
        assert api.launches[-1]["stream"] == stream
        return pointers(api)["partial_o"]

    first = partial(5, 3, 20)
    assert partial(5, 3, 40) == partial(5, 7, 20) == first
    assert partial(6, 3, 20) != first
    plans = len(kernel._plans)
    for pages in range(64, 80):  # a table that grows page by page
        partial(5, 3, pages)
    assert len(kernel._plans) <= plans + 3


def test_a_workspace_grows() -> None:
    space = Workspace(Memory())
    small = space.empty((3, 64), "fp32")
    assert space.empty((2, 64), "fp32") is small
    large = space.empty((4, 64), "fp32")
    assert large.shape == (6, 64)
    assert space.empty((3, 64), "fp32") is large
    assert space.empty((3, 512), "fp32").shape == (3, 512)


def test_memory_has_an_end(kernel: MlaDecodeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mla_decode_known, "MOST", 3)
    plan = kernel.plan([100, 0, 5])
    for _ in range(10):
        kernel(**given(), scale=0.25, plan=plan)
        assert len(kernel._known._calls) <= 3


def test_checked_calls_look_every_time(
    kernel: MlaDecodeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors, plan = given(), kernel.plan([100, 0, 5])
    out, lse = kernel(**tensors, scale=0.25, plan=plan)

    def refuse(*_: Any) -> None:
        raise ConfigError("looked")

    monkeypatch.setattr("mlagen.families.mla_decode.kernel.as_host", refuse)
    for _ in range(2):
        with pytest.raises(ConfigError, match="looked"):
            kernel(**tensors, scale=0.25, plan=plan, out=out, lse=lse, checked=True)


def test_reports_of_known_calls(kernel: MlaDecodeKernel) -> None:
    tensors, plan = given(), kernel.plan([100, 0, 5])
    first = kernel.run(**tensors, scale=0.25, plan=plan)
    second = kernel.run(**tensors, scale=0.25, plan=plan, out=first.output, lse=first.lse)
    for one, other in zip(first.reports, second.reports, strict=True):
        assert (one.launcher, one.grid, one.block) == (other.launcher, other.grid, other.block)
    assert [r.launcher for r in second.reports] == ["cuda"]
