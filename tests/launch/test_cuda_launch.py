"""The CUDA launcher without a GPU: what it tells the driver, and what it refuses before."""

from __future__ import annotations

import builtins
import re
import struct
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
from fake_cuda import CUresult, DLPack, FakeApi, Interface, TorchTensor
from tma_kernel import ARGS, SMEM_BYTES, make_tma_artifact

from mlagen.artifact import Arg, GridDim, Proof, Resources, TensorMapSpec
from mlagen.errors import ConfigError, MissingError
from mlagen.launch import (
    CudaLauncher,
    EmulatedLauncher,
    LaunchFailed,
    LaunchRefused,
    gpu_launcher,
    is_on_gpu,
)
from mlagen.launch.cuda_driver import CudaDriver
from mlagen.launch.gpu import stream_handle

ROWS, COLS = 100, 136
X, Y, O = 0x10000, 0x20000, 0x30000  # noqa: E741
SCALARS = {"rows": ROWS, "cols": COLS, "alpha": 0.5}
SIZES = {"rows": ROWS, "cols": COLS}


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


def launcher_on(api: FakeApi, **options: Any) -> CudaLauncher:
    launcher = CudaLauncher(**options)
    launcher.driver = CudaDriver.start(api)
    return launcher


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stand-in for torch whose current stream is `torch.now`."""
    module = SimpleNamespace(Tensor=TorchTensor, now=77)
    module.cuda = SimpleNamespace(
        current_stream=lambda device: SimpleNamespace(cuda_stream=module.now + device)
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def tensors(**changes: Any) -> dict[str, Any]:
    made = {
        "x": TorchTensor((ROWS, COLS), "bfloat16", X),
        "y": TorchTensor((ROWS, COLS), "float32", Y),
        "o": TorchTensor((ROWS, COLS), "float32", O),
    }
    return {**made, **changes}


def launch(launcher: CudaLauncher, given: dict[str, Any], **changes: Any) -> Any:
    artifact = changes.pop("artifact", None) or make_tma_artifact()
    arguments = {"tensors": given, "scalars": SCALARS, "sizes": SIZES, **changes}
    return launcher.launch(artifact, **arguments)


def test_the_driver_is_told_what_the_manifest_says(api: FakeApi, torch: SimpleNamespace) -> None:
    report = launch(launcher_on(api), tensors())
    assert (report.launcher, report.grid, report.block) == ("cuda", (3, 2, 1), (128, 1, 1))
    (told,) = api.launches
    assert told["grid"] == (3, 2, 1)
    assert told["block"] == (128, 1, 1)
    assert told["smem"] == SMEM_BYTES
    assert api.smem == [SMEM_BYTES]
    assert told["stream"] == 77
    assert told["context"] == 1000
    assert api.contexts == [0]  # the one that was current is so again
    assert told["aligned"]
    assert told["arguments"] == [
        b"\x01" * 128,
        struct.pack("<Q", Y),
        struct.pack("<Q", O),
        struct.pack("<I", ROWS),
        struct.pack("<I", COLS),
        struct.pack("<f", 0.5),
    ]
    (encoded,) = api.maps
    assert encoded == (
        "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16",
        2,
        X,
        [COLS, ROWS],
        [2 * COLS],
        [64, 64],
        [1, 1],
        "CU_TENSOR_MAP_INTERLEAVE_NONE",
        "CU_TENSOR_MAP_SWIZZLE_128B",
        "CU_TENSOR_MAP_L2_PROMOTION_L2_128B",
        "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE",
    )


def test_a_prepared_launch_only_launches(api: FakeApi, torch: SimpleNamespace) -> None:
    prepared = launcher_on(api).prepare(
        make_tma_artifact(), tensors=tensors(), scalars=SCALARS, sizes=SIZES
    )
    assert api.launches == []
    api.calls.clear()
    prepared()
    torch.now = 200  # another current stream: the next launch goes there
    prepared()
    assert [told["stream"] for told in api.launches] == [77, 200]
    assert set(api.calls) <= {
        "cuCtxGetCurrent",
        "cuCtxPushCurrent",
        "cuCtxPopCurrent",
        "cuLaunchKernelEx",
    }


def test_a_dependent_kernel_may_start_early(api: FakeApi, torch: SimpleNamespace) -> None:
    prepared = launcher_on(api).prepare(
        make_tma_artifact(dependent=("x",)), tensors=tensors(), scalars=SCALARS, sizes=SIZES
    )
    prepared()
    torch.now = 200
    prepared()
    first, second = api.launches
    assert (first["stream"], second["stream"]) == (77, 200)
    assert first["grid"] == prepared.grid and first["aligned"]
    (attribute,) = first["attributes"]
    assert attribute.id == "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
    assert attribute.value.programmaticStreamSerializationAllowed == 1


def test_modules_and_maps_are_made_once(api: FakeApi, torch: SimpleNamespace) -> None:
    launcher = launcher_on(api)
    for _ in range(3):
        launch(launcher, tensors())
    assert api.calls.count("cuModuleLoadData") == 1
    assert api.calls.count("cuFuncSetAttribute") == 1
    assert len(api.maps) == 1
    launch(launcher, tensors(x=TorchTensor((ROWS, COLS), "bfloat16", X + 256)))
    launch(launcher, tensors(x=TorchTensor((2 * ROWS, COLS), "bfloat16", X)))
    assert len(api.maps) == 3
    assert len(api.launches) == 5


def test_a_pitch_shows_the_first_columns_of_each_row(api: FakeApi, torch: SimpleNamespace) -> None:
    spec = TensorMapSpec("x", "bf16", 64, 64, 64, 128, pitch="cols")
    seen = Arg("x_map", 0, 128, "tensor_map", "read", tensor_map=spec)
    launch(launcher_on(api), tensors(), artifact=make_tma_artifact(args=(seen, *ARGS[1:])))
    assert api.maps[0][3:5] == ([64, ROWS], [2 * COLS])


def test_the_tensors_gpu_is_taken_and_its_context_used(
    api: FakeApi, torch: SimpleNamespace
) -> None:
    given = {
        name: TorchTensor((ROWS, COLS), dtype, pointer, device=1)
        for name, dtype, pointer in (("x", "bfloat16", X), ("y", "float32", Y), ("o", "float32", O))
    }
    launch(launcher_on(api), given)
    assert api.launches[0]["context"] == 1001
    assert api.launches[0]["stream"] == 78
    with pytest.raises(ConfigError, match="x is on GPU 1, the launcher is on GPU 0"):
        launch(launcher_on(api, device=0), given)
    with pytest.raises(ConfigError, match="y is on GPU 0, the other tensors are on GPU 1"):
        launch(launcher_on(api), {**given, "y": tensors()["y"]})
    assert len(api.launches) == 1


def test_other_libraries_tensors(api: FakeApi) -> None:
    array = np.zeros((ROWS, COLS), np.float32)
    packed = DLPack(array)
    given = {
        "x": Interface((ROWS, 2 * COLS), "|u1", X, stream=5),
        "y": packed,
        "o": Interface((ROWS, COLS), "<f4", O, strides=(4 * COLS, 4), stream=5),
    }
    spec = TensorMapSpec("x", "uint8", "cols", 128, 64, 128)
    seen = Arg("x_map", 0, 128, "tensor_map", "read", tensor_map=spec)
    bytes_map = make_tma_artifact(args=(seen, *ARGS[1:]))
    sizes = {"rows": ROWS, "cols": 2 * COLS}
    launch(launcher_on(api), given, artifact=bytes_map, sizes=sizes)
    told = api.launches[0]
    assert told["stream"] == 5
    assert packed.streams == [5]  # its maker was told where it will be used
    assert told["arguments"][1:3] == [struct.pack("<Q", p) for p in (array.ctypes.data, O)]
    given["o"] = Interface((ROWS, COLS), "<f4", O, stream=6)
    with pytest.raises(ConfigError, match="ready in 2 different streams"):
        launch(launcher_on(api), given, artifact=bytes_map, sizes=sizes)
    launch(launcher_on(api, stream=9), given, artifact=bytes_map, sizes=sizes)
    assert api.launches[-1]["stream"] == 9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.zeros((ROWS, COLS), ml_dtypes.bfloat16)}, "x is in the host's memory"),
        (
            {"y": TorchTensor((ROWS, COLS), "float32", Y, is_cuda=False)},
            "y is in the host's memory",
        ),
        ({"y": DLPack(np.zeros(4, np.float32), (1, 0))}, "y is in the host's memory"),
        ({"y": [1.0]}, "y is a list"),
        ({"x": TorchTensor((ROWS, COLS), "float16", X)}, "x is fp16, the kernel takes bf16"),
        ({"y": TorchTensor((ROWS, COLS), "float64", Y)}, "y is float64, the kernel takes fp32"),
        ({"y": DLPack(np.zeros((4, 4), np.complex64))}, "y is DLPack type 5, 64 bits"),
        (
            {"x": TorchTensor((ROWS, COLS), "bfloat16", X, strides=(1, ROWS))},
            r"x is not contiguous \(shape \(100, 136\), strides \(1, 100\)\)",
        ),
        ({"x": TorchTensor((ROWS, COLS), "bfloat16", X + 2)}, "multiple of 16 bytes"),
        ({"o": TorchTensor((ROWS, COLS), "float32", O + 2)}, "o starts at 0x30002; .* of 4 bytes"),
        ({"o": Interface((ROWS, COLS), "<f4", O, read_only=True)}, "o is written to, but it is re"),
        ({"o": TorchTensor((0, COLS), "float32", 0)}, "o has no elements"),
        ({"x": TorchTensor((ROWS, 100), "bfloat16", X)}, "not a number of whole rows"),
        ({"z": 1}, "tma_add has no the tensor z"),
    ],
)
def test_tensors_it_cannot_take(
    api: FakeApi, torch: SimpleNamespace, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        launch(launcher_on(api), tensors(**changes))
    assert api.launches == []


@pytest.mark.parametrize(
    ("machine", "error", "message"),
    [
        ({"capability": (8, 0)}, LaunchRefused, r"sm_90a .* GPU 0, NVIDIA Fake, has 8\.0"),
        ({"capability": (10, 0)}, LaunchRefused, r"has 10\.0"),
        (
            {"version": 12080},
            MissingError,
            r"ptxas 13\.0\.88; this driver is for CUDA 12\.8\n.*a driver for CUDA 13\.0",
        ),
        (
            {"cuModuleLoadData": CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU},
            LaunchFailed,
            "cuModuleLoadData: CUDA_ERROR_NO_BINARY_FOR_GPU: the driver's own words",
        ),
        ({"devices": 0}, MissingError, "no GPU 0: this machine has 0"),
        (
            {"cuLaunchKernelEx": CUresult.CUDA_ERROR_INVALID_VALUE},
            LaunchFailed,
            r"refuses to launch \(3, 2, 1\) blocks of \(128, 1, 1\) threads .*INVALID_VALUE",
        ),
    ],
)
def test_machines_it_cannot_use(
    torch: SimpleNamespace, machine: dict[str, Any], error: type[Exception], message: str
) -> None:
    api = FakeApi(**machine)
    with pytest.raises(error) as caught:
        launch(launcher_on(api), tensors())
    assert re.search(message, str(caught.value)), str(caught.value)
    assert api.launches == []
    assert api.contexts == [0]


def test_a_cta_pair_of_blackwell(torch: SimpleNamespace) -> None:
    """Its blocks are a whole number of clusters, whose size is in the code: the launch names none.
    Boxes of one row are those that gather4 takes."""
    api = FakeApi(capability=(10, 0))
    spec = TensorMapSpec("x", "bf16", "cols", 64, 1, 128)
    artifact = make_tma_artifact(
        target="sm_100a", grid=(GridDim("rows", 64, clusters=2),),
        args=(Arg("x_map", 0, 128, "tensor_map", "read", tensor_map=spec), *ARGS[1:]),
    )  # fmt: skip
    grids = [
        launch(launcher_on(api), tensors(), artifact=artifact, sizes={**SIZES, "rows": rows}).grid
        for rows in (64, 128, 129)
    ]
    assert grids == [(2, 1, 1), (2, 1, 1), (4, 1, 1)]
    assert [told["grid"] for told in api.launches] == grids
    assert not any(told["attributes"] for told in api.launches)
    assert all(encoded[5] == [64, 1] for encoded in api.maps)


@pytest.mark.parametrize("capability", [(9, 0), (10, 3), (12, 0)])
def test_code_for_blackwell_runs_on_10_0_alone(
    torch: SimpleNamespace, capability: tuple[int, int]
) -> None:
    """Another GPU is refused before the driver is given the code."""
    api = FakeApi(capability=capability)
    with pytest.raises(LaunchRefused) as caught:
        launch(launcher_on(api), tensors(), artifact=make_tma_artifact(target="sm_100a"))
    assert str(caught.value) == (
        "tma_add is for sm_100a (compute capability 10.0); GPU 0, NVIDIA Fake, has "
        f"{capability[0]}.{capability[1]}\n"
        "  hint: code for sm_100a runs on compute capability 10.0 alone: the a in its name says "
        "that it has instructions of one architecture"
    )
    assert api.launches == [] and "cuModuleLoadData" not in api.calls


def test_which_launcher_runs_a_target() -> None:
    assert isinstance(gpu_launcher("sm_100a"), CudaLauncher)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"proof": Proof("unproved", ("a slot may be refilled early",))}, "refilled early"),
        ({"target": "gfx950"}, "tma_add is for gfx950; the CUDA launcher runs sm_90a"),
        ({"resources": Resources(32, 0, 0, 232449, 0, 0, 0)}, "needs 232449 bytes of shared"),
        ({"block": (1024, 1, 1)}, "blocks of 1024 threads; its code allows 512"),
        ({"args": ARGS[:-1]}, "no the scalar alpha"),
        (
            {"args": (*ARGS[:-1], Arg("alpha", 152, 8, "f32", "value"))},
            r"4, 8\) bytes, the code's of .* 4, 4\)",
        ),
    ],
)
def test_artifacts_it_does_not_launch(
    api: FakeApi, torch: SimpleNamespace, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        launch(launcher_on(api), tensors(), artifact=make_tma_artifact(**changes))
    assert api.launches == []


def test_a_grid_that_is_too_large(api: FakeApi, torch: SimpleNamespace) -> None:
    with pytest.raises(ConfigError, match="65536 blocks in y; a grid has at most 65535"):
        launch(launcher_on(api), tensors(), sizes={"rows": 64 * 65536, "cols": COLS})
    with pytest.raises(ConfigError, match="the grid needs the size 'cols'"):
        launch(launcher_on(api), tensors(), sizes={"rows": ROWS})


def test_a_pitch_that_tma_cannot_walk(api: FakeApi, torch: SimpleNamespace) -> None:
    odd = {
        "x": TorchTensor((ROWS, 12), "bfloat16", X),
        "y": TorchTensor((ROWS, 12), "float32", Y),
        "o": TorchTensor((ROWS, 12), "float32", O),
    }
    with pytest.raises(ConfigError, match="24 bytes from row to row; TMA needs a multiple of 16"):
        launch(launcher_on(api), odd, sizes={"rows": ROWS, "cols": 12})


class NoLibrary(FakeApi):
    def cuInit(self, flags: int) -> Any:
        raise RuntimeError("libcuda.so.1: cannot open shared object file")


def test_without_a_driver() -> None:
    with pytest.raises(MissingError, match="no NVIDIA driver on this machine") as caught:
        CudaDriver.start(NoLibrary())
    assert caught.value.exit_code == 5
    with pytest.raises(MissingError, match="does not start: CUDA_ERROR_NO_DEVICE"):
        CudaDriver.start(FakeApi(cuInit=CUresult.CUDA_ERROR_NO_DEVICE))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, torch: SimpleNamespace) -> None:
    found = builtins.__import__

    def without_cuda(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "cuda":
            raise ImportError(name)
        return found(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_cuda)
    with pytest.raises(MissingError, match="pip install 'cuda-bindings"):
        launch(CudaLauncher(), tensors())


def test_streams_by_handle_and_by_object() -> None:
    assert stream_handle(3) == 3
    assert stream_handle(SimpleNamespace(cuda_stream=4)) == 4
    assert stream_handle(SimpleNamespace(ptr=5)) == 5

    class Stream:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 6

    assert stream_handle(Stream()) == 6
    with pytest.raises(ConfigError, match="a str is no stream of a GPU"):
        stream_handle("default")


def test_what_is_on_a_gpu(torch: SimpleNamespace) -> None:
    assert is_on_gpu(TorchTensor((4,), "float32", X))
    assert not is_on_gpu(TorchTensor((4,), "float32", X, is_cuda=False))
    assert is_on_gpu(Interface((4,), "<f4", X))
    assert is_on_gpu(DLPack(np.zeros(4)))
    assert is_on_gpu(DLPack(np.zeros(4), (10, 0)))  # ROCm
    assert not is_on_gpu(DLPack(np.zeros(4), (11, 0)))  # ROCm's pinned memory of the host
    assert not is_on_gpu(np.zeros(4))
    assert not is_on_gpu(3)


def test_whose_gpu_a_torch_tensor_is_on(api: FakeApi, torch: SimpleNamespace) -> None:
    torch.version = SimpleNamespace(hip=None)
    launch(launcher_on(api), tensors())
    torch.version.hip = "7.2.0"
    with pytest.raises(
        ConfigError, match="x is a tensor of ROCm; the CUDA launcher takes those of"
    ):
        launch(launcher_on(api), tensors())
    assert len(api.launches) == 1


def test_the_emulator_refuses_another_machine() -> None:
    artifact = make_tma_artifact()
    later = msgspec.structs.replace(artifact.manifest, target="sm_120a")
    with pytest.raises(LaunchRefused, match="tma_add is for sm_120a; the emulator runs gfx950, sm"):
        EmulatedLauncher().launch(
            replace(artifact, manifest=later), tensors={}, scalars={}, sizes={}
        )


def test_importing_the_launchers_imports_no_cuda() -> None:
    code = "import sys, mlagen.launch; print('cuda' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
