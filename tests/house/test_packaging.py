"""What ships: every package is named, the templates are data, one version."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib import metadata, resources
from pathlib import Path

import mlagen

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_is_named() -> None:
    inside = {
        ".".join(p.parent.relative_to(ROOT).parts) for p in ROOT.glob("mlagen/**/__init__.py")
    }
    named = set(PROJECT["tool"]["setuptools"]["packages"])
    assert named == inside | {"mlagen.schedules", "mlagen.templates"}


def test_one_version() -> None:
    assert mlagen.__version__ == PROJECT["project"]["version"] == metadata.version("mlagen")


def test_templates_are_found_through_the_package() -> None:
    folder = resources.files("mlagen.templates") / "gfx950"
    assert (folder / "kernel.s.j2").is_file()
    assert list((ROOT / "templates").rglob("*.j2"))


def test_pages_of_inspections_ship_with_their_package() -> None:
    """Every template beside a module is package data of that package, and found through it."""
    data = PROJECT["tool"]["setuptools"]["package-data"]
    beside = sorted((ROOT / "mlagen").rglob("*.j2"))
    beside = [
        p for p in beside if not {"schedules", "templates"} & {part.name for part in p.parents}
    ]
    assert {p.name for p in beside} >= {"page.html.j2", "diff.html.j2", "style.css.j2"}
    for path in beside:
        package = ".".join(path.parent.relative_to(ROOT).parts)
        assert any(path.match(pattern) for pattern in data.get(package, [])), path
        assert (resources.files(package) / path.name).is_file()


def test_names_in_the_documents_exist() -> None:
    """A path, verb or make target that README or CONTRIBUTING names is there."""
    text = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    paths = set(re.findall(r"`((?:mlagen|schedules|templates|tests)/[\w./]*)`", text))
    assert paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    from mlagen.cli.main import VERBS

    assert set(re.findall(r"^    mlagen (\w+)", text, re.MULTILINE)) <= set(VERBS)
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"^    make (\w+)", text, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_ci_runs_make() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "make test" in script.read_text()
    subprocess.run(["bash", "-n", str(script)], check=True)
