"""No two modules that tests import share a name. They lie in folders without packages, which pytest
and the tests put on `sys.path`: of two with one name, all of a process get the first."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from test_circles import ROOT

# Each is on `sys.path` in a run of all tests, with its folders.
FOLDERS = ("tests", "benchmarks", "examples")


def imported(path: Path) -> Iterator[str]:
    """First names of the modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def shared(files: Iterable[Path]) -> dict[str, list[Path]]:
    """Files by the name they share. A conftest.py, which pytest loads by its path, may share its
    name, and so may scripts that nothing imports."""
    by_name: dict[str, list[Path]] = defaultdict(list)
    wanted = set()
    for path in files:
        by_name[path.stem].append(path)
        wanted.update(imported(path))
    return {
        name: paths
        for name, paths in by_name.items()
        if (len(paths) > 1 or name in sys.stdlib_module_names)
        and name != "conftest"
        and (name in wanted or name.startswith("test_"))
    }


def test_no_two_share_a_name() -> None:
    assert shared(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")) == {}


def test_it_would_be_seen(tmp_path: Path) -> None:
    def written(name: str, text: str = "") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    scripts = [written(f"{folder}/run.py") for folder in "ab"]
    conftests = [written(f"{folder}/conftest.py") for folder in "ab"]
    tests = [written(f"{folder}/test_sizes.py") for folder in "ab"]
    helpers = [written(f"{folder}/forms.py") for folder in "ab"]
    assert shared([*scripts, *conftests, *tests, *helpers]) == {"test_sizes": tests}
    user = written("a/user.py", "from forms import Form")
    assert shared([*helpers, user]) == {"forms": helpers}
    hidden = written("a/queue.py")
    assert shared([hidden, written("a/other.py", "def f():\n    import queue")]) == {
        "queue": [hidden]
    }
