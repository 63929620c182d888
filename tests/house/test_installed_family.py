"""A family that an installed package brings, by its entry point: no file of it is named."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mlagen.errors import ConfigError
from mlagen.family import Family, family_named, register

ROOT = Path(__file__).resolve().parents[2]
FUZZ = ROOT / "tests" / "schedule_fuzz" / "schedules"
FAMILY = "vectors"


def wheel_of(folder: Path, files: dict[str, str], entry_points: str) -> Path:
    """A wheel of pure Python as any builder makes it (PyPA, binary distribution format)."""
    info = "vectorlib-1.0.dist-info"
    files = {
        **files,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: vectorlib\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points,
    }
    rows = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        rows.append(f"{name},sha256={digest.decode()},{len(text.encode())}")
    path = folder / "vectorlib-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,", ""]))
    return path


def library() -> str:
    """The vector sums of the schedule fuzzer, as a module that registers nothing by itself."""
    text = (FUZZ / "fuzz_vectors.py").read_text()
    assert "register(VectorFamily())" in text
    return text.replace("register(VectorFamily())", "FAMILY = VectorFamily()")


def run(*arguments: object, site: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernel, built from its schedule's file."""
    out = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "mlagen", "build", FUZZ / "vector_add.py", "-o", out]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def installed(folder: Path, point: str, text: str) -> Path:
    """A site folder with the wheel installed by pip."""
    pytest.importorskip("pip", reason="this environment has no pip to install a wheel with")
    points = f"[mlagen.families]\n{FAMILY} = {point}\n"
    wheel = wheel_of(folder, {"vectorlib.py": text}, points)
    command = ("-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", folder / "site")
    done = run(*command, wheel, site=folder)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def test_an_installed_package_brings_its_family(artifact: Path, tmp_path: Path) -> None:
    verify = ("-m", "mlagen", "verify", artifact, "--shape", "tiles=3", "--mode", "latest")
    unknown = run(*verify, site=tmp_path)
    assert unknown.returncode == 2 and f"of the family {FAMILY!r}" in unknown.stderr
    site = installed(tmp_path, "vectorlib:FAMILY", library())
    known = run(*verify, site=site)
    assert known.returncode == 0, known.stderr
    assert "right by both oracles" in known.stdout


@pytest.mark.parametrize(
    ("point", "text", "code", "told"),
    [
        ("vectorlib:FAMILY", "raise RuntimeError('half installed')", 5, "RuntimeError: half inst"),
        ("vectorlib:FAMILY", "FAMILY = 7", 2, "vectorlib:FAMILY, the entry point of the family"),
    ],
)
def test_a_broken_package_is_told(
    artifact: Path, tmp_path: Path, point: str, text: str, code: int, told: str
) -> None:
    site = installed(tmp_path, point, text)
    done = run("-m", "mlagen", "verify", artifact, "--mode", "latest", site=site)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr and "Traceback" not in done.stderr


def test_a_shipped_family_cannot_be_replaced() -> None:
    class Mine(Family):
        name = "mha_prefill"

    with pytest.raises(ConfigError, match="mha_prefill ships with mlagen and cannot be replaced"):
        register(Mine())
    assert family_named("no_such_family") is None


def test_building_a_kernel_loads_no_other_family_and_no_other_target() -> None:
    """For both problems that the schedule solves with a table of its own and with a shared one."""
    code = (
        "import sys; from mlagen.app.build import build_artifact\n"
        "fields = {'num_heads': 1, 'num_kv_heads': 1, 'dtype': DTYPE}\n"
        "build_artifact('mha_prefill_v2', fields, {})\n"
        "print(*(name for name in sys.modules if name.startswith('mlagen.')))"
    )
    for dtype in ("bf16", "fp8_e4m3"):
        done = subprocess.run(
            [sys.executable, "-c", code.replace("DTYPE", repr(dtype))],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        loaded = done.stdout.split()
        own = [name for name in loaded if name.startswith("mlagen.families.")]
        assert own and all(name.startswith("mlagen.families.mha_prefill") for name in own), own
        targets = [name for name in loaded if name.startswith("mlagen.targets.sm")]
        assert not targets, targets
