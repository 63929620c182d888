"""The CUDA launcher on a real Hopper GPU: results, streams, graphs, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tma_kernel import ARGS, TEXT, make_tma_artifact

from mlagen.artifact import Arg, Artifact, Resources
from mlagen.errors import ConfigError
from mlagen.launch import CudaLauncher, LaunchRefused
from mlagen.targets.nvidia.ptxas import assemble_ptx, find_ptxas
from mlagen.targets.sm_90a.limits import SM_90A


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    result = assemble_ptx(
        TEXT, file_name="tma_add.ptx", source_lines={}, schedule_file="schedules/tma_add.py"
    )
    return make_tma_artifact(result.cubin, dict(find_ptxas("sm_90a").versions)["ptxas"])


@pytest.fixture
def launcher() -> Iterator[CudaLauncher]:
    import torch

    yield CudaLauncher()
    torch.cuda.synchronize()  # an error of this test's kernel belongs to this test


def operands(rows: int = 100, cols: int = 136) -> dict[str, Any]:
    import torch

    made = torch.Generator("cuda").manual_seed(rows)
    return {
        "x": torch.randn(rows, cols, device="cuda", generator=made).to(torch.bfloat16),
        "y": torch.randn(rows, cols, device="cuda", generator=made),
        "o": torch.full((rows, cols), float("nan"), device="cuda"),
    }


def arguments(tensors: dict[str, Any], alpha: float = 0.5) -> dict[str, Any]:
    rows, cols = tensors["x"].shape
    return {
        "tensors": tensors,
        "scalars": {"rows": rows, "cols": cols, "alpha": alpha},
        "sizes": {"rows": rows, "cols": cols},
    }


def expected(tensors: dict[str, Any], alpha: float = 0.5) -> Any:
    import torch

    x, y = tensors["x"].double(), tensors["y"].double()
    return (x + alpha * y).to(torch.float32)  # one fused operation: rounded once


@pytest.mark.parametrize(("rows", "cols"), [(1, 8), (64, 64), (65, 72), (100, 136), (1000, 520)])
def test_results_are_right_at_the_edges(
    artifact: Artifact, launcher: CudaLauncher, rows: int, cols: int
) -> None:
    import torch

    tensors = operands(rows, cols)
    report = launcher.launch(artifact, **arguments(tensors))
    assert report.launcher == "cuda"
    assert report.grid == (-(-cols // 64), -(-rows // 64), 1)
    assert torch.equal(tensors["o"], expected(tensors))


def test_all_shared_memory_of_a_block_can_be_asked_for(launcher: CudaLauncher) -> None:
    import torch

    result = assemble_ptx(TEXT, file_name="k.ptx", source_lines={}, schedule_file="k.py")
    most = make_tma_artifact(
        result.cubin, resources=Resources(32, 0, 0, SM_90A.smem_bytes, 0, 0, 0)
    )
    tensors = operands()
    launcher.launch(most, **arguments(tensors))
    assert torch.equal(tensors["o"], expected(tensors))
    more = make_tma_artifact(
        result.cubin, resources=Resources(32, 0, 0, SM_90A.smem_bytes + 16, 0, 0, 0)
    )
    with pytest.raises(
        LaunchRefused, match="needs 232464 bytes of shared memory, 0 of them static"
    ):
        launcher.launch(more, **arguments(tensors))


def test_a_prepared_launch_follows_torchs_stream_and_allocates_nothing(
    artifact: Artifact, launcher: CudaLauncher
) -> None:
    import torch

    tensors = operands()
    prepared = launcher.prepare(artifact, **arguments(tensors))
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # tens of milliseconds: a launch that waited would show it
        prepared()
        assert not side.query()
        assert torch.cuda.default_stream().query()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    side.synchronize()
    assert torch.equal(tensors["o"], expected(tensors))


def test_a_prepared_launch_is_captured_into_a_graph(
    artifact: Artifact, launcher: CudaLauncher
) -> None:
    import torch

    tensors = operands()
    prepared = launcher.prepare(artifact, **arguments(tensors))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        prepared()
    torch.cuda.synchronize()
    assert tensors["o"].isnan().all()  # captured, not run
    for _ in range(2):
        tensors["y"].add_(1)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(tensors["o"], expected(tensors))


def test_a_stream_of_ones_own(artifact: Artifact) -> None:
    import torch

    side = torch.cuda.Stream()
    tensors = operands()
    side.wait_stream(torch.cuda.current_stream())
    CudaLauncher(stream=side).launch(artifact, **arguments(tensors))
    side.synchronize()
    assert torch.equal(tensors["o"], expected(tensors))


class OnlyDLPack:
    """A tensor of a library that offers DLPack and nothing else."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        return self.tensor.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self.tensor.__dlpack_device__()
        return int(kind), number


class OnlyInterface:
    """A tensor of a library that offers the CUDA array interface and nothing else."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self.tensor.__cuda_array_interface__)


def test_tensors_of_other_libraries(artifact: Artifact, launcher: CudaLauncher) -> None:
    import torch

    tensors = operands()
    torch.cuda.synchronize()
    foreign = {
        "x": OnlyDLPack(tensors["x"]),
        "y": OnlyInterface(tensors["y"]),
        "o": OnlyInterface(tensors["o"]),
    }
    rows, cols = tensors["x"].shape
    launcher.launch(
        artifact,
        tensors=foreign,
        scalars={"rows": rows, "cols": cols, "alpha": 0.5},
        sizes={"rows": rows, "cols": cols},
    )
    torch.cuda.synchronize()
    assert torch.equal(tensors["o"], expected(tensors))


def test_bad_tensors_are_refused_and_nothing_is_launched(
    artifact: Artifact, launcher: CudaLauncher
) -> None:
    import torch

    good = operands(64, 64)
    flat = torch.zeros(64 * 64 + 1, device="cuda", dtype=torch.bfloat16)
    square = torch.zeros(64, 64, device="cuda", dtype=torch.bfloat16)
    for name, bad, message in (
        ("x", good["x"].cpu(), "x is in the host's memory"),
        ("x", good["x"].float(), "x is fp32, the kernel takes bf16"),
        ("y", good["y"].double(), "y is float64, the kernel takes fp32"),
        ("x", square.t(), "x is not contiguous"),
        ("x", flat[1:].view(64, 64), "needs a multiple of 16 bytes"),
        ("o", good["o"][:, :0], "o has no elements"),
    ):
        with pytest.raises(ConfigError, match=message):
            launcher.launch(artifact, **{**arguments(good), "tensors": {**good, name: bad}})
    torch.cuda.synchronize()
    assert good["o"].isnan().all()


def test_code_that_does_not_fit_its_manifest_is_refused(
    artifact: Artifact, launcher: CudaLauncher
) -> None:
    tensors = operands()
    longer = Arg("alpha", 152, 8, "f32", "value")
    for changes, message in (
        ({"args": (*ARGS[:-1], longer)}, r"\(.*, 4, 8\) bytes, the code's of \(.*, 4, 4\)"),
        ({"block": (1056, 1, 1)}, r"blocks of 1056 threads; its code allows \d+"),
    ):
        wrong = make_tma_artifact(artifact.code, **changes)
        with pytest.raises(LaunchRefused, match=message):
            launcher.launch(wrong, **arguments(tensors))
