"""Machines that cannot launch on AMD GPUs say so; a process has one HIP runtime."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlagen.extras import install
from mlagen.launch.hip_library import NAME

pytest.importorskip("hip", reason="hip-python is not installed: pip install 'mlagen[hip]'")

START = """
from mlagen.errors import MlagenError
from mlagen.launch.hip_driver import HipDriver
try:
    print("started", HipDriver.load().device(0).arch)
except MlagenError as error:
    print(type(error).__name__, error.exit_code, error)
"""
LOADED = "from mlagen.launch.hip_library import loaded_runtimes; print(*loaded_runtimes())\n"


def run(code: str, rocm: Path | str = "", **more: str) -> str:
    """Runs Python code in a process of its own, with the ROCm at `rocm`."""
    environment = {k: v for k, v in os.environ.items() if k not in ("ROCM_PATH", "ROCM_HOME")}
    environment.update(more, **({"ROCM_PATH": str(rocm)} if rocm else {}))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_with_a_runtime_it_starts(rocm_root: Path) -> None:
    assert run(START, rocm_root) == "started gfx950\n"
    found = run(LOADED + START, "", LD_LIBRARY_PATH=str(rocm_root / "lib"))
    assert found.endswith("started gfx950\n")


def test_without_the_runtime(tmp_path: Path) -> None:
    out = run(START, tmp_path)
    assert out.startswith(
        "MissingError 5 no HIP runtime on this machine: failed to dlopen 'b'libamdhip64.so''"
    )
    assert "cannot open shared object file" in out
    assert "hint: ROCm 7 or newer; where it is not in /opt/rocm, $ROCM_PATH names the" in out


def test_a_runtime_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / NAME).write_bytes(b"not a library")
    out = run(START, tmp_path)
    assert out.startswith("MissingError 5 no HIP runtime on this machine: ")
    assert "invalid ELF header" in out or "too short" in out


def test_without_the_package(tmp_path: Path) -> None:
    (tmp_path / "hip.py").write_text("raise ImportError('hip')\n")
    out = run(START, "", PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert out == (
        "MissingError 5 launching on an AMD GPU needs the package hip-python\n"
        f"  hint: {install('hip')}\n"
    )


def test_a_runtime_without_a_function_that_is_needed(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    (tmp_path / "lib").mkdir()
    source = tmp_path / "old.c"
    source.write_text(
        "int hipInit(unsigned f) { (void)f; return 0; }\n"
        "int hipGetDeviceCount(int *n) { *n = 1; return 0; }\n"
    )
    command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O1", str(source)]
    subprocess.run([*command, "-o", str(tmp_path / "lib" / NAME)], check=True)
    out = run(START, tmp_path)
    assert out.startswith("MissingError 5 this HIP runtime does not have what a launch needs: ")
    assert "hipGetDevicePropertiesR0600" in out


@pytest.fixture
def torch_lib(rocm_root: Path, tmp_path: Path) -> Path:
    """Another copy of the runtime, as torch brings it."""
    other = tmp_path / "torch" / "lib" / f"{NAME}.7"
    other.parent.mkdir(parents=True)
    shutil.copy(rocm_root / "lib" / NAME, other)
    return other


def test_the_runtime_that_is_already_there_is_taken(rocm_root: Path, torch_lib: Path) -> None:
    load = f"import ctypes; ctypes.CDLL({str(torch_lib)!r})\n"
    out = run(load + START + LOADED, rocm_root)
    assert out == f"started gfx950\n{torch_lib}\n"
    # Without that, hip-python opens the one of $ROCM_PATH beside it.
    alone = "from hip import hip; hip.hipInit(0)\n"
    assert len(run(load + alone + LOADED, rocm_root).split()) == 2


def test_two_runtimes_are_refused(rocm_root: Path, torch_lib: Path) -> None:
    both = (
        "from hip import hip; hip.hipInit(0)\n"
        f"import ctypes; ctypes.CDLL({str(torch_lib)!r})\n"
    )  # fmt: skip
    out = run(both + START, rocm_root)
    assert out.startswith("LaunchRefused 2 2 HIP runtimes are loaded in this process, and one does")
    assert str(torch_lib) in out and str(rocm_root / "lib" / NAME) in out
    assert f"the folder whose lib/{NAME} all use" in out


def test_importing_the_launchers_loads_no_hip() -> None:
    code = "import sys, mlagen.launch; print(*(n in sys.modules for n in ('hip', 'rocm', 'torch')))"
    assert run(code).split() == ["False"] * 3
