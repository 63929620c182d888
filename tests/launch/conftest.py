"""The HIP runtime stand-in, compiled once and found by hip-python through $ROCM_PATH."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hip_standin import StandIn, call, compile_standin

from mlagen.launch.hip_library import loaded_runtimes


@pytest.fixture(scope="session")
def rocm_root(tmp_path_factory: pytest.TempPathFactory):
    """The root of a ROCm whose HIP runtime is the stand-in."""
    pytest.importorskip("ziglang", reason="the stand-in is compiled by the ziglang wheel")
    return compile_standin(tmp_path_factory.mktemp("rocm") / "rocm")


@pytest.fixture(scope="session")
def _one_standin(rocm_root) -> Iterator[StandIn]:
    pytest.importorskip("hip", reason="hip-python is not installed: pip install 'mlagen[hip]'")
    if there := loaded_runtimes():
        pytest.skip(f"this process has a real HIP runtime: {there[0]}")
    patch = pytest.MonkeyPatch()
    patch.setenv("ROCM_PATH", str(rocm_root))
    made = StandIn(rocm_root)
    call("hipInit", 0)  # hip-python looks for the runtime at its first call
    patch.undo()
    assert loaded_runtimes() == (made.path,)
    yield made


@pytest.fixture
def standin(_one_standin: StandIn) -> Iterator[StandIn]:
    """The runtime, as new. What went wrong inside a launch is raised at the end."""
    _one_standin.reset()
    yield _one_standin
    errors = list(_one_standin.errors)
    _one_standin.reset()
    call("hipSetDevice", 0)
    call("hipDeviceSynchronize")
    if errors:
        raise errors[0]
