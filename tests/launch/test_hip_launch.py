"""The HIP launcher through the real hip-python: a runtime stand-in whose launches are emulated."""

from __future__ import annotations

import gc
import re
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hip_standin import DLPack, Interface, StandIn, TorchTensor, call, hip, rocm_torch
from small_kernel import ADD_TEXT
from tma_kernel import make_tma_artifact

from mlagen.artifact import Arg, Artifact, GridDim, Proof, Resources
from mlagen.errors import ConfigError, MissingError
from mlagen.launch import CudaLauncher, HipLauncher, LaunchFailed, LaunchRefused, gpu_launcher
from mlagen.launch.gpu import stream_handle

N = 150
SIZES = {"length": N}


def operands(kind: Any = Interface, **more: Any) -> dict[str, Any]:
    return {
        "x": kind(np.arange(192, dtype=np.uint32), **more),
        "o": kind(np.zeros(192, np.uint32), **more),
    }


def launch(artifact: Artifact, tensors: dict[str, Any], launcher: Any = None, **more: Any) -> Any:
    arguments = {"tensors": tensors, "scalars": {"add": 7}, "sizes": SIZES, **more}
    return (launcher or HipLauncher()).launch(artifact, **arguments)


def test_the_kernel_runs_when_somebody_waits(standin: StandIn, add_artifact: Artifact) -> None:
    tensors = operands()
    report = launch(add_artifact, tensors)
    assert (report.launcher, report.grid, report.block) == ("hip", (3, 1, 1), (64, 1, 1))
    assert standin.queued == 1  # enqueued, not waited for
    np.testing.assert_array_equal(tensors["o"].numpy(), np.arange(192) + 7)
    (told,) = standin.launches
    assert (told.grid, told.block, told.dynamic_lds) == ((3, 1, 1), (64, 1, 1), 0)
    assert (told.device, told.stream) == (0, 0)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    module = rocm_torch()
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_a_prepared_launch_only_launches(
    standin: StandIn, add_artifact: Artifact, torch: SimpleNamespace
) -> None:
    tensors = operands(TorchTensor)
    prepared = HipLauncher().prepare(add_artifact, tensors=tensors, scalars={"add": 7}, sizes=SIZES)
    assert standin.queued == 0
    standin.calls()
    prepared()
    torch.streams[0] = int(call("hipStreamCreate"))  # the next launch goes to the new current one
    prepared()
    made = standin.calls()
    made.remove("hipStreamCreate")
    assert made == ["hipGetDevice", "hipModuleLaunchKernel"] * 2
    assert standin.queued == 2
    call("hipStreamSynchronize", torch.streams[0])
    assert [told.stream for told in standin.launches] == [torch.streams[0]]
    assert standin.queued == 1
    np.testing.assert_array_equal(tensors["o"].numpy()[:N], np.arange(N) + 7)
    assert [told.stream for told in standin.launches] == [torch.streams[0], 0]


def test_a_prepared_launch_sees_new_contents_and_keeps_the_tensors(
    standin: StandIn, add_artifact: Artifact
) -> None:
    tensors = operands()
    prepared = HipLauncher().prepare(add_artifact, tensors=tensors, scalars={"add": 7}, sizes=SIZES)
    out, new = tensors["o"], np.arange(192, dtype=np.uint32)[::-1].copy()
    x = tensors["x"].pointer
    del tensors
    gc.collect()
    assert standin.library.standin_extent(x)  # nobody but the launch holds it
    kinds = hip().hipMemcpyKind
    call("hipMemcpy", x, new, new.nbytes, kinds.hipMemcpyHostToDevice)
    prepared()
    np.testing.assert_array_equal(out.numpy(), new + 7)
    del prepared
    gc.collect()
    assert not standin.library.standin_extent(x)


def test_the_code_lives_as_long_as_what_was_loaded_from_it(
    standin: StandIn, make_artifact: Any
) -> None:
    artifact = make_artifact()
    code, launcher = artifact.code, HipLauncher()
    held = sys.getrefcount(code)
    launch(artifact, operands(), launcher)
    del artifact
    gc.collect()
    assert sys.getrefcount(code) == held  # the artifact's reference, and then the launcher's
    del launcher
    gc.collect()
    assert sys.getrefcount(code) == held - 1


def test_arguments_are_copied_at_the_launch(standin: StandIn, add_artifact: Artifact) -> None:
    tensors, other = operands(), operands()
    launch(add_artifact, tensors)
    gc.collect()  # what the first launch packed may be gone
    launch(add_artifact, other, scalars={"add": 1})
    assert standin.queued == 2
    np.testing.assert_array_equal(tensors["o"].numpy(), np.arange(192) + 7)
    np.testing.assert_array_equal(other["o"].numpy(), np.arange(192) + 1)


def test_modules_are_loaded_once_a_device(standin: StandIn, add_artifact: Artifact) -> None:
    standin.machine(devices=2)
    launcher, first, second = HipLauncher(), operands(), operands(device=1)
    standin.calls()
    for tensors in (first, first, second, second, first):
        launch(add_artifact, tensors, launcher)
    made = standin.calls()
    assert made.count("hipModuleLoadData") == made.count("hipModuleGetFunction") == 2
    assert made.count("hipGetDevicePropertiesR0600") == 2
    call("hipDeviceSynchronize")
    assert [told.device for told in standin.launches] == [0, 0, 1, 1, 0]


def test_the_current_device_is_put_back(standin: StandIn, add_artifact: Artifact) -> None:
    standin.machine(devices=2)
    tensors = operands(device=1)
    launcher = HipLauncher()
    assert call("hipGetDevice") == 0
    launch(add_artifact, tensors, launcher)
    assert call("hipGetDevice") == 0
    call("hipSetDevice", 1)
    standin.calls()
    launch(add_artifact, tensors, launcher)
    assert "hipSetDevice" not in standin.calls()
    np.testing.assert_array_equal(tensors["o"].numpy(), np.arange(192) + 7)


def test_streams(standin: StandIn, add_artifact: Artifact) -> None:
    stream = call("hipStreamCreate")
    handle = int(stream)
    assert stream_handle(stream) == handle
    tensors = operands()
    launch(add_artifact, tensors, HipLauncher(stream=stream))
    tensors["x"].stream = tensors["o"].stream = handle
    launch(add_artifact, tensors)
    tensors["x"].stream = tensors["o"].stream = 1  # the interface's name of the default stream
    launch(add_artifact, tensors)
    call("hipDeviceSynchronize")
    assert [told.stream for told in standin.launches] == [handle, handle, 0]
    with pytest.raises(LaunchFailed, match="hipErrorContextIsDestroyed"):
        launch(add_artifact, tensors, HipLauncher(stream=3))
    tensors["x"].stream = handle
    with pytest.raises(ConfigError, match="ready in 2 different streams") as caught:
        launch(add_artifact, tensors)
    assert "HipLauncher(stream=...)" in str(caught.value)


def test_tensors_by_dlpack(standin: StandIn, make_artifact: Any) -> None:
    args = (
        Arg("x", 0, 8, "pointer", "read", dtype="fp32"),
        Arg("o", 8, 8, "pointer", "write", dtype="fp32"),
        Arg("add", 16, 4, "u32", "value"),
    )
    bits = np.arange(192, dtype=np.uint32)
    tensors = {
        "x": DLPack(bits.view(np.float32)),
        "o": DLPack(np.zeros(192, np.float32)),
    }
    launch(make_artifact(args=args), tensors)
    np.testing.assert_array_equal(tensors["o"].numpy().view(np.uint32), bits + 7)
    assert tensors["x"].streams == [0]
    launch(make_artifact(args=args), tensors, HipLauncher(stream=call("hipStreamCreate")))
    assert tensors["x"].streams[1] > 2  # its maker was told where it will be used


def test_hip_pythons_own_arrays(standin: StandIn, make_artifact: Any) -> None:
    args = (
        Arg("x", 0, 8, "pointer", "read", dtype="uint32"),
        Arg("o", 8, 8, "pointer", "write", dtype="uint32"),
        Arg("add", 16, 4, "u32", "value"),
    )
    memory = operands()
    arrays = {
        name: call("hipMalloc", 768).configure(typestr="uint32", shape=(192,)) for name in memory
    }
    to_device = hip().hipMemcpyKind.hipMemcpyHostToDevice
    call("hipMemcpy", arrays["x"], np.arange(192, dtype=np.uint32), 768, to_device)
    launch(make_artifact(args=args), {**arrays, "o": memory["o"]})
    np.testing.assert_array_equal(memory["o"].numpy(), np.arange(192) + 7)
    with pytest.raises(ConfigError, match="x has the type 'bf16', which is none of numpy's"):
        memory["x"].described = "bf16"
        launch(make_artifact(args=args), memory)
    for array in arrays.values():
        call("hipFree", array)


def test_lds_that_the_descriptor_does_not_ask_for_is_dynamic(
    standin: StandIn, make_artifact: Any
) -> None:
    text = ADD_TEXT.replace(
        "  .amdhsa_user_sgpr_kernarg", "  .amdhsa_group_segment_fixed_size 4096\n  "
        ".amdhsa_user_sgpr_kernarg"
    )  # fmt: skip
    assert text != ADD_TEXT
    resources = {lds: Resources(8, 0, 16, lds, 0, 0, 0) for lds in (1024, 4096, 5120, 163841)}
    for lds, dynamic in ((4096, 0), (5120, 1024)):
        tensors = operands()
        launch(make_artifact(text, resources=resources[lds]), tensors)
        np.testing.assert_array_equal(tensors["o"].numpy(), np.arange(192) + 7)
        assert standin.launches[-1].dynamic_lds == dynamic
    with pytest.raises(LaunchRefused, match="says 1024 bytes of LDS, the code asks for 4096"):
        launch(make_artifact(text, resources=resources[1024]), operands())
    with pytest.raises(LaunchRefused, match="needs 163841 bytes of LDS, 4096 of them static; AMD"):
        launch(make_artifact(text, resources=resources[163841]), operands())


@pytest.mark.parametrize("arch", [b"gfx942:sramecc+:xnack-", b"gfx90a"])
def test_another_gpu_is_refused_by_name(
    standin: StandIn, add_artifact: Artifact, arch: bytes
) -> None:
    standin.machine(arch=arch)
    name = arch.decode().partition(":")[0]
    with pytest.raises(LaunchRefused, match=f"is for gfx950; GPU 0, AMD Stand-in, is a {name}$"):
        launch(add_artifact, operands())
    assert "hipModuleLoadData" not in standin.calls()


@pytest.mark.parametrize(
    ("call_name", "status", "message"),
    [
        ("hipModuleLoadData", 209, "hipModuleLoadData: hipErrorNoBinaryForGpu: the runtime's own"),
        ("hipModuleGetFunction", 500, "hipModuleGetFunction: hipErrorNotFound: the runtime's own"),
        ("hipGetDevicePropertiesR0600", 101, "hipGetDeviceProperties: hipErrorInvalidDevice"),
        (
            "hipModuleLaunchKernel",
            719,
            r"refuses to launch \(3, 1, 1\) workgroups of \(64, 1, 1\) work-items with 0 bytes of "
            "dynamic LDS: hipErrorLaunchFailure: the runtime's own words for 719",
        ),
        ("hipModuleLoadData", 4711, "hipModuleLoadData: 4711 is not a valid hipError_t"),
        ("hipModuleLaunchKernel", 4711, "hipModuleLaunchKernel: 4711 is not a valid hipError_t"),
    ],
)
def test_what_the_runtime_refuses(
    standin: StandIn, add_artifact: Artifact, call_name: str, status: int, message: str
) -> None:
    tensors = operands()
    standin.fail(call_name, status)
    with pytest.raises(LaunchFailed) as caught:
        launch(add_artifact, tensors)
    assert re.search(message, str(caught.value)), str(caught.value)
    assert caught.value.exit_code == 5
    assert standin.last_error == 0  # torch would find it at its next own launch
    assert call("hipGetDevice") == 0
    standin.fail("", 0)
    assert not tensors["o"].numpy().any()


def test_code_of_another_gpu_is_refused_by_the_runtime(
    standin: StandIn, make_artifact: Any
) -> None:
    manifest = make_artifact().manifest
    code = bytearray(make_artifact().code)
    code[48] = 0x4C  # e_flags: gfx942
    with pytest.raises(LaunchFailed, match="hipModuleLoadData: hipErrorNoBinaryForGpu"):
        launch(Artifact(manifest, bytes(code), ""), operands())
    with pytest.raises(LaunchFailed, match="hipModuleLoadData: hipErrorInvalidImage"):
        launch(
            Artifact(manifest, b"no code object, but long enough for a header" * 2, ""), operands()
        )


def test_a_kernel_of_another_name(standin: StandIn, make_artifact: Any) -> None:
    with pytest.raises(LaunchFailed, match="hipModuleGetFunction: hipErrorNotFound"):
        launch(make_artifact(symbol="sub"), operands())


def test_no_gpu(standin: StandIn, add_artifact: Artifact) -> None:
    tensors = operands()
    standin.machine(devices=0)
    with pytest.raises(MissingError, match="does not start: hipErrorNoDevice") as caught:
        launch(add_artifact, tensors)
    assert "/dev/kfd" in str(caught.value)
    standin.machine()
    with pytest.raises(MissingError, match="no GPU 1: this machine has 1"):
        HipLauncher().driver.device(1)


def tensor_at(array: np.ndarray, **more: Any) -> Interface:
    made = Interface(array)
    for name, value in more.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: {"x": np.zeros(192, np.uint32)}, "x is in the host's memory"),
        (lambda: {"x": [1.0]}, "x is a list"),
        (lambda: {"x": Interface(np.zeros(192, np.float32))}, "x is fp32, the kernel takes uint32"),
        (
            lambda: {"x": Interface(np.zeros(192, np.uint32), skip=2)},
            r"x starts at 0x[0-9a-f]+2; the kernel needs a multiple of 4 bytes",
        ),
        (lambda: {"x": Interface(np.zeros((0, 4), np.uint32))}, "x has no elements"),
        (lambda: {"x": tensor_at(np.zeros(8, np.uint32), pointer=64)}, "x at 0x40 is in no GPU's"),
        (
            lambda: {"x": Interface(np.zeros(192, np.uint32), device=1)},
            "o is on GPU 0, the other tensors are on GPU 1",
        ),
        (lambda: {"z": Interface(np.zeros(4, np.uint32))}, "add has no the tensor z"),
    ],
)
def test_tensors_it_cannot_take(
    standin: StandIn, make_artifact: Any, change: Any, message: str
) -> None:
    standin.machine(devices=2)
    args = (
        Arg("x", 0, 8, "pointer", "read", dtype="uint32"),
        Arg("o", 8, 8, "pointer", "write", dtype="uint32"),
        Arg("add", 16, 4, "u32", "value"),
    )
    with pytest.raises(ConfigError, match=message):
        launch(make_artifact(args=args), {**operands(), **change()})
    assert standin.queued == 0


def test_layouts_and_platforms_it_cannot_take(standin: StandIn, add_artifact: Artifact) -> None:
    turned = DLPack(np.zeros((4, 48), np.float32))
    turned.strides = (1, 4)
    with pytest.raises(ConfigError, match=r"x is not contiguous \(shape \(4, 48\), strides \(1, 4"):
        launch(add_artifact, {**operands(), "x": turned})
    of_cuda = DLPack(np.zeros(192, np.float32))
    of_cuda.kind = 2
    with pytest.raises(
        ConfigError, match="x is a tensor of CUDA; the HIP launcher takes those of ROCm"
    ):
        launch(add_artifact, {**operands(), "x": of_cuda})
    of_rocm = DLPack(np.zeros(192, np.float32))
    with pytest.raises(
        ConfigError, match="x is a tensor of ROCm; the CUDA launcher takes those of CUDA"
    ):
        CudaLauncher().launch(
            make_tma_artifact(),
            tensors={"x": of_rocm, "y": of_rocm, "o": of_rocm},
            scalars={"rows": 1, "cols": 1, "alpha": 1.0},
            sizes={"rows": 1, "cols": 1},
        )
    with pytest.raises(ConfigError, match="x is on GPU 0, the launcher is on GPU 1"):
        launch(add_artifact, operands(), HipLauncher(device=1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"proof": Proof("unproved", ("read(V) may overtake copy(V)",))}, "read.V. may overtake"),
        ({"target": "sm_90a"}, "add is for sm_90a; the HIP launcher runs gfx950"),
        ({"block": (128, 1, 1)}, "blocks of 128 threads; its code allows 64"),
        ({"grid": (GridDim("length", 1),)}, r"67108864 workgroups of 64 in x; .* fewer than 2\^32"),
    ],
)
def test_artifacts_it_does_not_launch(
    standin: StandIn, make_artifact: Any, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        launch(make_artifact(**changes), operands(), sizes={"length": 2**26})
    assert standin.queued == 0


def test_wrong_numbers_are_refused(standin: StandIn, add_artifact: Artifact) -> None:
    with pytest.raises(ConfigError, match="add = -1 is no u32"):
        launch(add_artifact, operands(), scalars={"add": -1})
    with pytest.raises(ConfigError, match="the grid needs the size 'length'"):
        launch(add_artifact, operands(), sizes={})


def test_a_fault_of_the_kernel_comes_back_at_the_wait(
    standin: StandIn, add_artifact: Artifact
) -> None:
    tensors = {"x": Interface(np.zeros(64, np.uint32)), "o": Interface(np.zeros(192, np.uint32))}
    launch(add_artifact, tensors)  # reads past x
    (status,) = hip().hipDeviceSynchronize()
    assert status.name == "hipErrorLaunchFailure"
    (error,) = standin.errors
    assert "global-bounds" in str(error)
    standin.errors.clear()


def test_the_launcher_of_a_target() -> None:
    assert isinstance(gpu_launcher("gfx950"), HipLauncher)
    assert isinstance(gpu_launcher("sm_90a"), CudaLauncher)
    with pytest.raises(LaunchRefused, match="no launcher runs gfx942 on a GPU"):
        gpu_launcher("gfx942")
