"""What ships: the wheel holds every module, schedule, template and data file; one version."""

from __future__ import annotations

import email.parser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import mlagen

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


SHIPPED = {"mlagen": "mlagen", "schedules": "mlagen/schedules", "templates": "mlagen/templates"}


def files_below(folder: Path) -> list[Path]:
    """What lies there, caches apart, relative to it."""
    found = (p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    return [path for path in found if "__pycache__" not in path.parts]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of this checkout, its sdist and, in `again/`, the wheel of the sdist.
    They are made in a copy: setuptools writes beside the sources."""
    copy, out = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("built")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    for folder in SHIPPED:
        shutil.copytree(ROOT / folder, copy / folder)
    for folder in ("tests", "tests/house", "examples", "benchmarks"):  # packages that must not ship
        (copy / folder).mkdir()
        (copy / folder / "__init__.py").touch()
    _make("wheel", copy, out)
    _make("sdist", copy, out)
    with tarfile.open(next(out.glob("*.tar.gz"))) as packed:
        packed.extractall(out / "unpacked", filter="data")
    (unpacked,) = (out / "unpacked").iterdir()
    _make("wheel", unpacked, out / "again")
    return out


def _make(what: str, sources: Path, out: Path) -> None:
    code = f"import sys, setuptools.build_meta as b; b.build_{what}(sys.argv[1])"
    command = [sys.executable, "-c", code, str(out)]
    done = subprocess.run(command, cwd=sources, capture_output=True, text=True)
    assert done.returncode == 0, f"setuptools {metadata.version('setuptools')}: {done.stderr}"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


def test_the_wheel_holds_all_that_ships_and_nothing_else(wheel: Path) -> None:
    """Modules, schedules, templates and data as in the checkout; no tests, no examples."""
    expected = {
        f"{inside}/{path.as_posix()}"
        for folder, inside in SHIPPED.items()
        for path in files_below(ROOT / folder)
    }
    assert expected >= {
        "mlagen/py.typed",
        "mlagen/inspect/page.html.j2",
        "mlagen/schedules/mha_prefill_v2.py",
        "mlagen/templates/gfx950/kernel.s.j2",
        "mlagen/tune/shipped.json",
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == expected


def test_the_sdist_makes_the_same_wheel(built: Path, wheel: Path) -> None:
    again = zipfile.ZipFile(next((built / "again").glob("*.whl")))
    first = zipfile.ZipFile(wheel)
    assert set(again.namelist()) == set(first.namelist())
    for name in first.namelist():
        assert name.endswith("RECORD") or again.read(name) == first.read(name), name


def test_what_the_package_says_of_itself(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        name = next(name for name in packed.namelist() if name.endswith("METADATA"))
        said = email.parser.Parser().parsestr(packed.read(name).decode())
    assert said["Author"] == "mlagen maintainers"
    assert said["License-Expression"] == "Apache-2.0"
    assert said["Keywords"] and said["Summary"] and said["Description-Content-Type"]
    assert "Programming Language :: Python :: 3.11" in said.get_all("Classifier", [])
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(said.get_all("Provides-Extra", [])) == set(extras)
    # One extra holds all that needs no GPU; Triton is 1 GB, and for tests alone.
    (cpu,) = extras["cpu"]
    named = set(re.findall(r"\w+", cpu.partition("[")[2]))
    assert named == set(extras) - {"cpu", "cuda", "hip", "triton", "dev"}


@pytest.mark.slow
def test_an_installed_wheel_builds_and_verifies(built: Path, tmp_path: Path) -> None:
    """In an environment of its own, from another folder: build, verify. What mlagen depends on is
    taken from this environment, as tests have no network; mlagen itself is not."""
    (again,) = (built / "again").glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    _run([*pip, "install", "-q", "--no-index", "--no-deps", str(again)], tmp_path)
    packages = Path(
        _run([str(python), "-c", "import site; print(site.getsitepackages()[0])"], tmp_path)
    )
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others))
    here = tmp_path / "elsewhere"
    here.mkdir()
    mlagen_command = str(python.parent / "mlagen")
    found = _run([str(python), "-c", "import mlagen.schedules as m; print(m.__file__)"], here)
    assert found == str(packages / "mlagen" / "schedules" / "__init__.py")
    said = _run(
        [mlagen_command, "build", "mla_prefill_reduce", "--set", "num_heads=4", "-o", "k"], here
    )
    assert "proved" in said
    said = _run([mlagen_command, "verify", "k"], here)
    assert "verdict    passed" in said
    assert {path.name for path in here.iterdir()} == {"k"}


def _run(command: list[str], folder: Path) -> str:
    """What the command printed. No checkout is on its path."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_one_version() -> None:
    assert mlagen.__version__ == PROJECT["project"]["version"] == metadata.version("mlagen")


def test_names_in_the_documents_exist() -> None:
    """A path, verb or make target that README or CONTRIBUTING names is there."""
    text = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    paths = set(re.findall(r"`((?:mlagen|schedules|templates|tests)/[\w./]*)`", text))
    assert paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    from mlagen.cli.verbs import VERBS

    assert set(re.findall(r"^    mlagen (\w+)", text, re.MULTILINE)) <= set(VERBS)
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"^    make (\w+)", text, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_ci_runs_make() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "make test" in script.read_text()
    subprocess.run(["bash", "-n", str(script)], check=True)
