"""Operand A of products in tensor memory: threads fill it there, products read it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mlagen.cli.main import run

EXAMPLES = Path(__file__).parents[2] / "examples"
OWN = Path(__file__).parent / "through_tmem"


@pytest.fixture
def lifted(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES / "gemm", tmp_path / "gemm")
    shutil.copytree(EXAMPLES / "templates", tmp_path / "templates")
    shutil.copytree(OWN, tmp_path, dirs_exist_ok=True)
    return tmp_path / "lifted.py"


def test_products_of_lifted_rows(lifted: Path, capsys: Any) -> None:
    out = lifted.parent / "out"
    assert run(["build", str(lifted), "-o", str(out)]) == 0
    shape = [x for size in ("m=131", "n=140", "k=328") for x in ("--shape", size)]
    assert run(["verify", str(out), "--problem", str(lifted), *shape]) == 0
    assert "sanitizer  clean" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        # C takes the place of what is lifted, which the next product adds to.
        ("L = s.columns(\"L\", 32, slots=2)", "L = s.columns(\"L\", 32, slots=1, over=(C, 0))",
         "adds to C, in place of which lies L"),
        ("slots=2)\n    lifted", "slots=2, over=(C, 120))\n    lifted",
         "columns 120 to 183 of 'C', which has 128"),
        ('math = s.role("math", warps=1, single=True)', 'math = s.role("math", warps=1)',
         "32 threads would issue each product"),
        ("(), (lifted,))", "(), (lifted,), asynchronous=True)",
         "128 threads would issue each product"),
    ],
)  # fmt: skip
def test_refused(lifted: Path, old: str, new: str, says: str, capsys: Any) -> None:
    text = lifted.read_text()
    assert text.count(old) == 1
    lifted.write_text(text.replace(old, new))
    assert run(["build", str(lifted), "-o", str(lifted.parent / "out")]) != 0
    assert says in " ".join(capsys.readouterr().err.split())
