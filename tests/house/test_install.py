"""What the documents say of installing: it names what exists, and runs in an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md",
         *sorted((ROOT / "docs").glob("*.md"))]  # fmt: skip
INSTALL = re.compile(r"pip install ((?:-\S+ )*'[^']*'|[^\s`;,.#]+)")
SENTENCES = re.findall(r"^pip install '(\.\[[\w,]+\])'", (ROOT / "README.md").read_text(), re.M)


def test_nothing_is_installed_by_the_name_of_mlagen_from_an_index() -> None:
    """The name is nobody's there, or anybody's: a page that used it would install that."""
    sources = [*PAGES, *(ROOT / "mlagen").rglob("*.py"), ROOT / "Makefile"]
    named = re.compile(r"(?:pip|uv pip) install (?:-\S+ )*['\"]?mlagen\b")
    found = [path.name for path in sources if named.search(path.read_text())]
    assert not found


def test_each_sentence_of_the_pages_names_extras_that_exist() -> None:
    assert len(SENTENCES) == 3
    extras = PROJECT["optional-dependencies"]
    for page in PAGES:
        for what in INSTALL.findall(page.read_text()):
            for named in re.findall(r"^'\.\[([\w,]+)\]'$", what):
                assert set(named.split(",")) <= set(extras), f"{page.name}: {what}"


def test_the_pages_name_system_python_and_driver() -> None:
    least = PROJECT["requires-python"].removeprefix(">=")
    for name in ("README.md", "docs/decode_in_an_engine.md", "docs/launching.md"):
        text = (ROOT / name).read_text()
        for word in ("Linux", "x86-64", f"Python {least}", "CUDA 13"):
            assert word in text, f"{name}: {word}"


@pytest.mark.slow
@pytest.mark.parametrize("sentence", SENTENCES)
def test_each_sentence_of_the_readme_runs_in_an_empty_environment(
    sentence: str, tmp_path: Path
) -> None:
    """Word by word, in a copy of the clone. What this environment has already is not fetched."""
    copy = tmp_path / "clone"
    copy.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    for folder in ("mlagen", "schedules", "templates"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    packages = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    # This environment's packages, but for mlagen's own: a .pth takes a folder as it is.
    others = packages.parent / "others"
    others.mkdir()
    for folder in [Path(path) for path in sys.path if path.endswith("site-packages")]:
        for each in folder.iterdir():
            if "mlagen" not in each.name and not (others / each.name).exists():
                (others / each.name).symlink_to(each)
    (packages / "others.pth").write_text(str(others))
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    variables["PIP_NO_BUILD_ISOLATION"] = "0"  # pip's way to say: take setuptools from here
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check",
         "install", sentence],
        cwd=copy, env=variables, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode and "Could not find a version" in done.stderr and "retry" in done.stderr:
        pytest.skip("no package index is reached from here")
    assert done.returncode == 0, done.stdout + done.stderr
    said = subprocess.run(
        [str(python.parent / "mlagen"), "list"],
        cwd=tmp_path, env=variables, capture_output=True, text=True,
    )  # fmt: skip
    assert said.returncode == 0 and "mla_decode_sm90" in said.stdout, said.stderr
