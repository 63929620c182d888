"""Tensor memory and commits of sm_100a: what is derived, and what the proof refuses without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlagen.cli.main import run
from mlagen.targets.nvidia.codegen import derive

EXAMPLES = Path(__file__).parents[2] / "examples"
GEMM = EXAMPLES / "gemm_bf16.py"


def build(path: Path, out: Path) -> int:
    return run(["build", str(path), "--target", "sm_100a", "-o", str(out)])


def changed(folder: Path, old: str, new: str) -> Path:
    """The example with other words."""
    text = GEMM.read_text()
    assert text.count(old) == 1
    for name in ("gemm", "templates"):
        (folder / name).symlink_to(EXAMPLES / name)
    made = folder / "changed.py"
    made.write_text(text.replace(old, new))
    return made


def test_the_product_is_right_and_every_instruction_reached(tmp_path: Path, capsys: Any) -> None:
    assert build(GEMM, tmp_path / "out") == 0
    text = (tmp_path / "out" / "kernel.ptx").read_text()
    assert "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%tmem], 256;" in text
    assert text.count("tcgen05.dealloc") == 1
    shape = [x for size in ("m=131", "n=331", "k=328") for x in ("--shape", size)]
    assert run(["verify", str(tmp_path / "out"), "--problem", str(GEMM), *shape]) == 0
    assert "sanitizer  clean" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('s.region("C", tile.n,', 's.region("C", 600,', "600 of 512"),
        (
            'math = s.role("math", warps=1,', 'math = s.role("math", warps=1, registers=40,',
            "setmaxnreg is for whole warpgroups",
        ),
        (
            "        gemm.mma(i)\n        release(feed, i)\n",
            "        release(feed, i)\n        gemm.mma(i)\n",
            "was released before",
        ),
        (
            "        gemm.mma(i)\n        release(feed, i)\n", "        gemm.mma(i)\n",
            "is missing in the tile loop",
        ),
        ('s.role("out", warpgroups=1)', 's.role("out", warps=2)', "whole warpgroups read TMEM"),
    ],
)  # fmt: skip
def test_refused(old: str, new: str, says: str, tmp_path: Path, capsys: Any) -> None:
    assert build(changed(tmp_path, old, new), tmp_path / "out") != 0
    assert says in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_a_release_that_waits_for_no_product(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(derive, "_committed", lambda schedule, freed, pipeline: freed)
    assert build(GEMM, tmp_path / "out") != 0
    assert "is still read by a matrix group" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("name", "says"),
    [("commit", "error[deadlock]"), ("wait_committed", "uses C before it is full")],
)
def test_sums_that_are_not_waited_for(
    name: str, says: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    whole: Callable[..., Any] = derive._region

    def without(*arguments: Any) -> list[Any]:
        return [op for op in whole(*arguments) if op.name != name]

    monkeypatch.setattr(derive, "_region", without)
    assert build(GEMM, tmp_path / "out") != 0
    assert says in " ".join(capsys.readouterr().err.split())
