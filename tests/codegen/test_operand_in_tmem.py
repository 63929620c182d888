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


@pytest.mark.parametrize("kernel", ["lifted", "copied"])
def test_products_of_rows_in_tmem(kernel: str, lifted: Path, capsys: Any) -> None:
    out, path = lifted.parent / "out", lifted.with_stem(kernel)
    assert run(["build", str(path), "-o", str(out)]) == 0
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


def test_a_copy_over_what_a_product_reads(lifted: Path, capsys: Any) -> None:
    """The next copy knows of what was before the release of the rows that it copies."""
    path, early = lifted.with_stem("copied"), "            release(rows, i + n)\n"
    text = path.read_text()
    product = text.index('            g.step("mma"')
    assert text.count(early) == 1 and text.index(early) > product
    text = text.replace(early, "")
    path.write_text(text[:product] + early + text[product:])
    assert run(["build", str(path), "-o", str(lifted.parent / "out")]) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert "while the tensor pipe may still read L0" in said


def test_an_operand_that_products_fill(lifted: Path, capsys: Any) -> None:
    templates = lifted.parent / "templates" / "sm_100a" / "lifted"
    shutil.copy(templates / "mma.ptx.j2", templates / "copy.ptx.j2")
    path = lifted.with_stem("copied")
    assert run(["build", str(path), "-o", str(lifted.parent / "out")]) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert "an operand of its own role, with products: tcgen05.cp does" in said
