"""What ships: the wheel holds every module, schedule, template and data file; one version."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built in a copy: setuptools writes beside the sources."""
    copy = tmp_path_factory.mktemp("project")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    for folder in SHIPPED:
        shutil.copytree(ROOT / folder, copy / folder)
    for folder in ("tests", "tests/house", "examples", "benchmarks"):  # packages that must not ship
        (copy / folder).mkdir()
        (copy / folder / "__init__.py").touch()
    code = "import sys, setuptools.build_meta as b; b.build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", code, str(copy / "out")]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, f"setuptools {metadata.version('setuptools')}: {done.stderr}"
    (built,) = (copy / "out").glob("*.whl")
    return built


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


def test_the_wheel_builds_a_kernel_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """The wheel alone on the path, from another folder: schedules and templates are found in it."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import mlagen.schedules, mlagen.request as r;"
        "assert mlagen.schedules.__file__.startswith(sys.argv[1]), mlagen.schedules.__file__;"
        "print(r.build_artifact('mla_prefill_reduce', {'num_heads': 4}, {}).manifest.proof.status)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "proved", done.stderr


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
