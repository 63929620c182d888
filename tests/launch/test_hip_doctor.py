"""What `mlagen doctor` says of AMD GPUs, without opening one."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

import pytest

from mlagen.app import doctor
from mlagen.app.doctor import Check, examine
from mlagen.extras import install
from mlagen.launch.hip_library import NAME


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The amdgpu driver's list: a CPU and nothing else."""
    folder = tmp_path / "nodes"
    monkeypatch.setattr(doctor, "KFD_NODES", folder)
    for name in ("ROCM_PATH", "ROCM_HOME", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    add_node(folder, 0, 0)
    return folder


def add_node(folder: Path, number: int, version: int) -> None:
    (folder / str(number)).mkdir(parents=True)
    (folder / str(number) / "properties").write_text(
        f"cpu_cores_count 0\nsimd_count 1024\ngfx_target_version {version}\nvendor_id 4098\n"
    )


def check(name: str) -> Check:
    found = [c for group in examine().groups for c in group.checks if c.name == name]
    (only,) = found
    return only


def test_gpus_are_named_by_their_processors(nodes: Path) -> None:
    assert not check("AMD GPUs").found
    add_node(nodes, 2, 90402)
    add_node(nodes, 3, 90010)
    report = check("AMD GPUs")
    assert (report.version, report.detail) == ("1 gfx942, 1 gfx90a", "kernels need gfx950")
    for number in (4, 10):
        add_node(nodes, number, 90500)
    report = check("AMD GPUs")
    assert (report.version, report.detail) == ("1 gfx942, 1 gfx90a, 2 gfx950", str(nodes))


def put_runtime(root: Path) -> Path:
    """A ROCm whose runtime is a file: doctor must not load it."""
    (root / "lib").mkdir(parents=True)
    (root / "lib" / f"{NAME}.7.2.70200").write_bytes(b"not a library")
    (root / "lib" / NAME).symlink_to(f"{NAME}.7.2.70200")
    return root / "lib" / NAME


@pytest.mark.parametrize("variable", ["ROCM_PATH", "LD_LIBRARY_PATH"])
def test_the_runtime_is_found_where_hip_python_finds_it(
    nodes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    pytest.importorskip("hip")
    monkeypatch.setattr("mlagen.launch.hip_library.loaded_runtimes", lambda: ())
    if not Path("/opt/rocm/lib", NAME).exists():
        missing = check("HIP runtime")
        assert not missing.found and f"no {NAME} in $ROCM_PATH/lib, /opt/rocm" in missing.detail
    path = put_runtime(tmp_path / "rocm")
    value = path.parent.parent if variable == "ROCM_PATH" else path.parent
    monkeypatch.setenv(variable, f"{value}{os.pathsep if variable != 'ROCM_PATH' else ''}")
    found = check("HIP runtime")
    assert (found.found, found.version, found.detail) == (True, "7.2.70200", str(path))


def test_what_a_launch_misses_is_said_where_there_is_a_gpu_for_it(
    nodes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "runtime_path", lambda: "")
    find = importlib.metadata.distribution

    def without_hip(name: str) -> importlib.metadata.Distribution:
        if name == "hip-python":
            raise importlib.metadata.PackageNotFoundError(name)
        return find(name)

    monkeypatch.setattr(importlib.metadata, "distribution", without_hip)
    assert not [line for line in examine().advice if "to launch on" in line]
    add_node(nodes, 1, 90500)
    assert [line for line in examine().advice if "to launch on" in line] == [
        f"missing hip-python to launch on the gfx950: {install('hip')}",
        "no HIP runtime to launch on the gfx950: amdgpu-install --usecase=dkms,hip",
    ]
