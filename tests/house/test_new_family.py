"""What a new family takes: its folder, its schedule, its templates, and no other file edited.

The package as it ships is laid out anew from links to its own files, with one family more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VECTORS = ROOT / "tests" / "schedule_fuzz" / "schedules"

FAMILY = '''"""Sums of vectors."""

from mlagen.family import Family


class VectorFamily(Family):
    """z = x + y."""

    name = "vectors"

    def kind(self, problem_type):
        """Of `Vectors`."""
        from mlagen.families.vectors.everything import VectorKind

        return VectorKind()


FAMILY = VectorFamily()
'''

# Runs commands in one process, and says of each what it returned and which families were loaded.
RUNNER = """
import contextlib, io, json, sys
import mlagen
from mlagen.cli.main import run
told = []
for arguments in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run(arguments)
    loaded = {name.split(".")[2] for name in sys.modules if name.startswith("mlagen.families.")}
    told.append((code, out.getvalue(), sorted(loaded)))
print(json.dumps([mlagen.__file__, told]))
"""


def new_files() -> dict[str, str]:
    """The family's files in the package, each with its text."""
    everything = (VECTORS / "fuzz_vectors.py").read_text()
    kept, _, own_family = everything.partition("class VectorFamily")
    assert "register(VectorFamily())" in own_family
    schedule = (VECTORS / "vector_add.py").read_text()
    files = {
        "families/vectors/__init__.py": FAMILY,
        "families/vectors/everything.py": kept,
        "schedules/vector_add.py": schedule.replace(
            "fuzz_vectors", "mlagen.families.vectors.everything"
        ).replace(', templates="templates"', ""),
    }
    for path in (VECTORS / "templates" / "gfx950" / "vectors").iterdir():
        files[f"templates/gfx950/vectors/{path.name}"] = path.read_text()
    return files


def lay_out(package: Path) -> None:
    """The package in a folder of links, so that files can be added to it."""
    opened = {
        ROOT / "mlagen" / "families": "families",
        ROOT / "schedules": "schedules",
        ROOT / "templates": "templates",
        ROOT / "templates" / "gfx950": "templates/gfx950",
    }
    package.mkdir()
    for own in (ROOT / "mlagen").iterdir():
        if own not in opened and own.name not in ("schedules", "templates"):
            (package / own.name).symlink_to(own)
    for folder, name in opened.items():
        (package / name).mkdir(exist_ok=True)
        for own in folder.iterdir():
            if own not in opened and own.name != "__pycache__":
                (package / name / own.name).symlink_to(own)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    package = tmp_path_factory.mktemp("shipped") / "mlagen"
    lay_out(package)
    for name, text in new_files().items():
        (package / name).parent.mkdir(exist_ok=True)
        assert not (package / name).exists()
        (package / name).write_text(text)
    return package.parent


def told(tree: Path, *commands: list[str]) -> list[tuple[int, str, list[str]]]:
    """Exit code, output and loaded families of each command."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, json.dumps(commands)],
        env={**os.environ, "PYTHONPATH": str(tree), "MLAGEN_CACHE_DIR": str(tree / "cache")},
        capture_output=True, text=True, cwd=tree,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    where, found = json.loads(done.stdout.splitlines()[-1])
    assert Path(where).parent == tree / "mlagen"
    return [tuple(each) for each in found]


def test_a_family_is_its_folder_its_schedule_and_its_templates(tree: Path) -> None:
    places = {name.rpartition("/")[0] for name in new_files()}
    assert places == {"families/vectors", "schedules", "templates/gfx950/vectors"}
    build, verify, mutate, listed = told(
        tree,
        ["build", "vector_add", "-o", str(tree / "out")],
        ["verify", "vector_add", "--shape", "tiles=5"],
        ["mutate", "vector_add", "--processes", "1", "--sample", "4"],
        ["list"],
    )
    assert build[0] == 0 and "proved" in build[1]
    assert set(build[2]) <= {"vectors"}  # no module of another family
    assert verify[0] == 0 and "verdict    passed" in verify[1]
    assert mutate[0] == 0 and "missed                 0" in mutate[1]
    assert verify[2] == mutate[2] == ["vectors"]
    assert listed[0] == 0 and "vector_add" in listed[1] and "Vectors" in listed[1]
