"""Memory that a launch uses is not given away before the GPU is done with it: on other streams, in
graphs, by whichever way a call is made. The allocator is a stand-in for torch's."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fake_cuda import OK, FakeApi, names
from sparse_calls import artifact
from torch_memory import Allocator, Memory, Tensor, module

from mlagen.families.mla_decode.kernel import MlaDecodeKernel
from mlagen.families.mla_sparse.kernel import MlaSparseDecodeKernel, MlaSparsePrefillKernel
from mlagen.launch import CudaLauncher
from mlagen.launch.cuda_driver import CudaDriver
from mlagen.launch.lifetimes import HELD

SIDE, OWN = 9, 5  # streams
HEADS = {"num_heads": 8}


class Api(FakeApi):
    """A driver that knows kernels of several layouts, captures, and graphs that go."""

    CUhostFn = int
    CUuserObject_flags = names("CU_USER_OBJECT_NO_DESTRUCTOR_SYNC")
    CUuserObjectRetain_flags = names("CU_GRAPH_USER_OBJECT_MOVE")

    def __init__(self) -> None:
        super().__init__()
        self.layouts: dict[bytes, tuple[int, ...]] = {}
        self.number = 100  # of the capture
        self.objects: dict[Any, list[tuple[int, int]]] = {}  # of graphs
        self.captures: set[int] = set()  # streams that are captured

    def knows(self, made: Any) -> Any:
        self.layouts[made.manifest.symbol.encode()] = tuple(a.size for a in made.manifest.args)
        return made

    def cuFuncGetParamInfo(self, function: Any, index: int) -> Any:
        self.parameters = self.layouts[function[1]]
        return super().cuFuncGetParamInfo(function, index)

    def cuLaunchKernelEx(self, config: Any, function: Any, parameters: int, extra: Any) -> Any:
        self.parameters = self.layouts[function[1]]
        return super().cuLaunchKernelEx(config, function, parameters, extra)

    def cuStreamIsCapturing(self, stream: int) -> Any:
        return OK, int(stream in self.captures)

    def cuStreamGetCaptureInfo(self, stream: int) -> Any:
        return OK, 1, self.number, ("graph", self.number), [], [], 0

    def cuUserObjectCreate(self, place: int, function: int, count: int, _flags: Any) -> Any:
        assert count == 1
        return OK, (function, place)

    def cuGraphRetainUserObject(self, graph: Any, made: Any, count: int, flags: Any) -> Any:
        assert (count, flags) == (1, "CU_GRAPH_USER_OBJECT_MOVE")
        self.objects.setdefault(graph, []).append(made)
        return (OK,)

    def graph_goes(self, number: int) -> None:
        """The driver calls what the graph was given, from C."""
        for function, place in self.objects.pop(("graph", number)):
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(function)(place)


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    made = Allocator()
    monkeypatch.setitem(sys.modules, "torch", module(made))
    return made


@pytest.fixture
def api() -> Api:
    return Api()


def launcher_on(api: Api, stream: int | None = None) -> CudaLauncher:
    launcher = CudaLauncher(stream=stream)
    launcher.driver = CudaDriver.start(api)
    return launcher


def decode(api: Api, memory: Memory | None, stream: int | None = None) -> MlaDecodeKernel:
    own = api.knows(artifact("mla_decode_sm90", HEADS))
    merge = lambda: api.knows(artifact("mla_decode_merge_sm90", HEADS))  # noqa: E731
    return MlaDecodeKernel(own, launcher_on(api, stream), merge=merge, memory=memory)


def decode_call(allocator: Allocator, batch: int = 3) -> dict[str, Any]:
    return {
        "q": Tensor(allocator, (batch, 1, 8, 576), "bfloat16"),
        "cache": Tensor(allocator, (90, 64, 1, 576), "bfloat16"),
        "block_table": Tensor(allocator, (batch, 200), "int32"),
        "cache_lengths": Tensor(allocator, (batch,), "int32"),
        "scale": 0.25,
    }


def sparse(api: Api, memory: Memory, which: str) -> Any:
    own = api.knows(artifact(f"mla_sparse_{which}_sm90", HEADS))
    build = lambda name, fields: api.knows(artifact(name, fields))  # noqa: E731
    kind = MlaSparseDecodeKernel if which == "decode" else MlaSparsePrefillKernel
    return kind(own, launcher_on(api), build=build, memory=memory, sms=132)


def sparse_call(allocator: Allocator, which: str) -> dict[str, Any]:
    rows = (3, 1) if which == "decode" else (3,)
    return {
        "q": Tensor(allocator, (*rows, 8, 576), "bfloat16"),
        "cache": Tensor(allocator, (9, 64, 576), "bfloat16"),
        "indices": Tensor(allocator, (*rows, 704), "int32"),
        "scale": 0.25,
    }


def own_memory(plan: Any) -> set[int]:
    named = ("items", "merges", "shares", "arrivals", "partial_o", "partial_lse")
    tensors = [getattr(plan, name) for name in named]
    return {tensor.pointer for tensor in tensors if tensor is not None}


def pointers(api: Api) -> set[int]:
    """All that launches were told of 64 bits."""
    told = [data for launch in api.launches for data in launch["arguments"] if len(data) == 8]
    return {int.from_bytes(data, "little") for data in told}


def given_away(allocator: Allocator, stream: int = OWN) -> set[int]:
    """Where the next tensors of a stream lie that something was let go of."""
    gc.collect()
    with allocator.stream(stream):
        kept, found = [], set()
        for block in sorted(allocator.free, key=lambda one: -one.size):
            kept.append(Tensor(allocator, (block.size // 4,), "int32"))
            found.add(kept[-1].pointer)
    return found


Way = Callable[[Any, dict[str, Any]], Any]
WAYS: dict[str, Way] = {
    "run": lambda plan, call: plan.run(**call),
    "twice": lambda plan, call: [plan.run(**call) for _ in range(2)],
    "prepared": lambda plan, call: plan.call.__self__.prepare(**call, plan=plan)(),
    "checked by the launcher": lambda plan, call: plan.call.__self__.run(**call, plan=plan),
}


@pytest.mark.parametrize("keys", [100, 12000], ids=["whole", "in parts"])
@pytest.mark.parametrize("way", WAYS)
def test_a_plan_that_is_let_go_is_used_to_the_end(
    allocator: Allocator, api: Api, way: str, keys: int
) -> None:
    """It was made in one stream and is used in another, which has work before it."""
    kernel = decode(api, Memory(allocator))
    with allocator.stream(OWN):
        call = decode_call(allocator)
        plan = kernel.plan([keys] * 3, together=1)
        assert (plan.merges is not None) == (keys == 12000)
    theirs = own_memory(plan)
    allocator.busy = {SIDE}
    with allocator.stream(SIDE):
        WAYS[way](plan, call)
    assert len(api.launches) == (2 if keys == 12000 else 1) * (2 if way == "twice" else 1)
    del plan
    assert not given_away(allocator) & theirs
    allocator.busy = set()
    assert given_away(allocator) >= theirs, "and not longer"


def test_a_call_that_is_known_is_told_of_a_new_stream(allocator: Allocator, api: Api) -> None:
    """It was made in its own stream at first."""
    kernel = decode(api, Memory(allocator))
    with allocator.stream(OWN):
        call, plan = decode_call(allocator), kernel.plan([100] * 3)
        out, lse = plan.run(**call)
        plan.run(**call, out=out, lse=lse)
    theirs = own_memory(plan)
    allocator.busy = {SIDE}
    with allocator.stream(SIDE):
        plan.run(**call, out=out, lse=lse)
    del plan
    assert not given_away(allocator) & theirs


def test_a_launcher_s_own_stream_uses_plan_and_outputs(allocator: Allocator, api: Api) -> None:
    """torch takes what is made in its current stream to be used there."""
    kernel = decode(api, Memory(allocator), stream=SIDE)
    with allocator.stream(OWN):
        call = decode_call(allocator)
        plan = kernel.plan([100] * 3)
        outputs = plan.run(**call), plan.run(**call)
    used = own_memory(plan) | {tensor.pointer for pair in outputs for tensor in pair}
    allocator.busy = {SIDE}
    del plan, outputs
    assert not given_away(allocator) & used


def test_a_prepared_call_that_is_let_go_is_used_to_the_end(allocator: Allocator, api: Api) -> None:
    """With its outputs and with what its caller let go of."""
    kernel = decode(api, Memory(allocator))
    with allocator.stream(OWN):
        call = decode_call(allocator)
        plan = kernel.plan([100] * 3)
        step = kernel.prepare(**call, plan=plan)
    used = own_memory(plan) | {step.output.pointer, step.lse.pointer}
    used |= {tensor.pointer for tensor in call.values() if isinstance(tensor, Tensor)}
    allocator.busy = {SIDE}
    with allocator.stream(SIDE):
        step()
    del plan, step, call
    assert not given_away(allocator) & used


@pytest.mark.parametrize("which", ["decode", "prefill"])
def test_what_sparse_calls_share_is_used_to_the_end(
    allocator: Allocator, api: Api, which: str
) -> None:
    """Tables, workspaces, and what stands for arguments that are not given belong to the kernel,
    which is let go."""
    kernel = sparse(api, Memory(allocator), which)
    with allocator.stream(OWN):
        call = sparse_call(allocator, which)
        kernel(**call)
        theirs = {call[name].pointer for name in ("q", "cache", "indices")}
    allocator.busy = {SIDE}
    api.launches.clear()
    with allocator.stream(SIDE):
        more = {"splits": 11, "together": 1} if which == "decode" else {}
        held = kernel(**call, **more)
    owned = {tensor.pointer for tensor in _tensors(kernel)} & pointers(api)
    assert len(owned) >= (5 if which == "decode" else 2)
    del kernel
    assert not given_away(allocator) & owned
    assert held and theirs
    allocator.busy = set()
    assert given_away(allocator) | given_away(allocator, SIDE) >= owned


def _tensors(kernel: Any) -> list[Tensor]:
    """All that a sparse kernel keeps."""
    found: list[Tensor] = []

    def look(value: Any) -> None:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, dict):
            look(list(value.values()))
        elif isinstance(value, list | tuple):
            for one in value:
                look(one)
        elif hasattr(value, "_held"):
            look(value._held)

    for kept in kernel._kept.values():
        look(list(vars(kept).values()))
    return [one for one in found if one.pointer]


def test_a_launch_of_a_launcher(allocator: Allocator, api: Api) -> None:
    """Of any artifact: GEMM's, and those that callers make."""
    merge = api.knows(artifact("mla_decode_merge_sm90", HEADS))
    launcher = launcher_on(api)
    with allocator.stream(OWN):
        tensors = {
            arg.tensor: Tensor(allocator, (3, 64, 512), "float32")
            for arg in merge.manifest.args
            if arg.tensor and arg.dtype == "fp32"
        }
        tensors["merges"] = Tensor(allocator, (3, 8), "int32")
        tensors["o"] = Tensor(allocator, (3, 1, 8, 512), "bfloat16")
    used = {tensor.pointer for tensor in tensors.values()}
    allocator.busy = {SIDE}
    with allocator.stream(SIDE):
        scalars = {a.name: 1 for a in merge.manifest.args if not a.tensor}
        launcher.launch(merge, tensors=tensors, scalars=scalars, sizes={"merges": 3})
    del tensors
    assert not given_away(allocator) & used


@pytest.mark.parametrize("way", WAYS)
def test_a_graph_keeps_the_plan_that_it_uses(allocator: Allocator, api: Api, way: str) -> None:
    kernel = decode(api, Memory(allocator))
    with allocator.stream(OWN):
        call = decode_call(allocator)
        plan = kernel.plan([12000] * 3, together=1)
        allocator.capturing = True
        api.captures = {OWN}
        WAYS[way](plan, call)
        allocator.capturing = False
    assert len(api.objects[("graph", 100)]) == 1  # however many launches
    theirs = own_memory(plan)
    del plan
    assert not given_away(allocator) & theirs
    HELD.sweep()
    assert not given_away(allocator) & theirs
    api.graph_goes(100)
    HELD.sweep()
    assert given_away(allocator) >= theirs


def test_a_graph_keeps_no_memory_of_its_caller(allocator: Allocator, api: Api) -> None:
    """Activations of a captured step share memory, one after the other."""
    kernel = decode(api, Memory(allocator))
    with allocator.stream(OWN):
        plan = kernel.plan([100] * 3)
        allocator.capturing = True
        call = decode_call(allocator)
        out, lse = plan.run(**call)
        places = {out.pointer, lse.pointer, call["q"].pointer}
        allocator.capturing = False
    del out, lse, call
    assert given_away(allocator) >= places
    api.graph_goes(100)
    HELD.sweep()


def test_what_a_graph_used_goes_at_the_next_capture_or_plan(allocator: Allocator, api: Api) -> None:
    kernel = decode(api, Memory(allocator))
    before = len(HELD)
    with allocator.stream(OWN):
        call = decode_call(allocator)
        for number in (200, 201, 202):
            api.number = number
            allocator.capturing = True
            kernel.plan([100] * 3).run(**call)
            allocator.capturing = False
            assert len(HELD) == before + 1
            api.graph_goes(number)
    HELD.sweep()
    assert len(HELD) == before


def test_the_default_stream_is_not_asked_whether_it_is_captured(
    allocator: Allocator, api: Api
) -> None:
    """A capture cannot be there, and asking takes time."""
    sys.modules["torch"]._C._cuda_isCurrentStreamCapturing = lambda: pytest.fail("asked")
    kernel = decode(api, Memory(allocator))
    call, plan = decode_call(allocator), kernel.plan([100] * 3)
    plan.run(**call)


def test_another_library_s_tensors_are_left_to_their_memory(api: Api) -> None:
    """They are not told of streams; nothing is asked of them that they have not."""
    from mlagen.launch.lifetimes import tell

    tell([SimpleNamespace(shape=(1,))], SIDE, 0)
