"""Tensor memory and commits of sm_100a: what is derived, and what the proof refuses without it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlagen.cli.main import run
from mlagen.dsl.signature import Signature
from mlagen.targets.nvidia.codegen import derive

EXAMPLES = Path(__file__).parents[2] / "examples"
GEMM = EXAMPLES / "gemm_bf16.py"


def build(path: Path, out: Path) -> int:
    return run(["build", str(path), "--target", "sm_100a", "-o", str(out)])


def changed(folder: Path, old: str, new: str) -> Path:
    """The example with other words."""
    text = GEMM.read_text()
    start = text.index('target="sm_100a"')
    assert text.count(old, start) == 1
    for name in ("gemm", "templates"):
        (folder / name).symlink_to(EXAMPLES / name)
    made = folder / "changed.py"
    made.write_text(text[:start] + text[start:].replace(old, new))
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
        (
            "    stages = s.choice", "    s.cta_cluster(3)\n    stages = s.choice",
            "a CTA cluster of 3",
        ),
        (
            "    stages = s.choice", '    s.persistent = "ahead"\n    stages = s.choice',
            "passes ahead for the next item",
        ),
        (
            'C = s.region("C", tile.n, producer=math.name, consumer=out.name)',
            'C = s.columns("S", tile.n, slots=1)', "nobody gives them back",
        ),
        ("slots=stages)\n    B = s", "slots=3 * stages)\n    B = s", "of 232448"),
        (
            'out = s.role("out", warpgroups=1)\n    '
            'producer = s.role("producer", warps=1, single=True)',
            'producer = s.role("producer", warps=1, single=True)\n    '
            'out = s.role("out", warps=4)',
            "whole warpgroups read TMEM",
        ),
        ('s.role("out", warpgroups=1)', 's.role("out", warps=2)', "operations touch exactly 128"),
    ],
)  # fmt: skip
def test_refused(old: str, new: str, says: str, tmp_path: Path, capsys: Any) -> None:
    assert build(changed(tmp_path, old, new), tmp_path / "out") != 0
    assert says in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_a_release_that_waits_for_no_product(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(derive, "committed", lambda freed, pipeline: freed)
    assert build(GEMM, tmp_path / "out") != 0
    assert "is still read by a matrix group" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("name", "says"),
    [("commit", "error[deadlock]"), ("wait_committed", "uses C before it is full")],
)
def test_sums_that_are_not_waited_for(
    name: str, says: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    whole: Callable[..., Any] = derive.handed_over

    def without(*arguments: Any) -> list[Any]:
        return [op for op in whole(*arguments) if op.name != name]

    monkeypatch.setattr(derive, "handed_over", without)
    assert build(GEMM, tmp_path / "out") != 0
    assert says in " ".join(capsys.readouterr().err.split())


def test_blocks_that_cannot_share_an_sm(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """Three blocks of 256 columns each would wait for each other's columns."""
    whole = Signature.__init__

    def shared(self: Signature, *given: Any, **named: Any) -> None:
        whole(self, *given, **named, resident=3)

    monkeypatch.setattr(Signature, "__init__", shared)
    path = changed(tmp_path, '"stages", 4, 3, 2', '"stages", 1')
    assert build(path, tmp_path / "out") != 0
    said = " ".join(capsys.readouterr().err.split())
    assert "3 blocks an SM with 256 columns of TMEM each; an SM has 512" in said


def test_inspect_prints_the_map(tmp_path: Path, capsys: Any) -> None:
    assert run(["inspect", str(GEMM), "--target", "sm_100a"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "C 0..255 1 256 sums of math for out" in said
    assert "TMEM columns 256 512 256" in said
    assert build(GEMM, tmp_path / "out") == 0
    assert run(["inspect", str(tmp_path / "out")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "C 0..255 1 256 sums of math for out" in said


@pytest.mark.parametrize(
    ("kernel", "name", "says"),
    [
        (GEMM, "fence_after", "reads C without tcgen05.fence::after_thread_sync once mma(i)"),
        ("mla_sparse_prefill_sm100", "fence_before", "fence::before_thread_sync after load_scores"),
        ("mla_sparse_prefill_sm100", "fence_after", "fence::after_thread_sync once"),
    ],
)
def test_a_fence_that_lacks(
    kernel: Path | str, name: str, says: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    whole: Callable[..., Any] = derive.with_fences

    def without(*arguments: Any) -> list[Any]:
        return [op for op in whole(*arguments) if op.name != name]

    monkeypatch.setattr(derive, "with_fences", without)
    more = [] if kernel == GEMM else ["--set", "num_heads=64"]
    out = ["--target", "sm_100a", "-o", str(tmp_path / "out")]
    assert run(["build", str(kernel), *more, *out]) != 0
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_load_that_is_not_waited_for(tmp_path: Path, capsys: Any) -> None:
    own = tmp_path / "own" / "sm_100a" / "gemm"
    own.mkdir(parents=True)
    store = (EXAMPLES / "templates" / "sm_100a" / "gemm" / "store.ptx.j2").read_text()
    wait = "tcgen05.wait::ld.sync.aligned;\n"
    assert store.count(wait) == 1
    (own / "store.ptx.j2").write_text(store.replace(wait, ""))
    out = ["--target", "sm_100a", "-o", str(tmp_path / "out")]
    assert run(["build", str(GEMM), "--templates", str(tmp_path / "own"), *out]) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert "error[tensor-wait]" in said and "tcgen05.wait::ld must follow it" in said


PRODUCT = "{{ product.opcode }} "


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale ", "scales of blocks"),
        ("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X ", "scales of blocks"),
        ("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X ", "scales of blocks"),
        ("tcgen05.mma.sp.cta_group::1.kind::f16 ", "sparse products"),
        ("tcgen05.mma.cta_group::1.kind::f16.ashift ", "operands that are shifted"),
        (
            "tcgen05.shift.cta_group::1.down [{{ tmem }}];\n" + PRODUCT,
            "rows that are shifted in tensor memory",
        ),
    ],
)
def test_what_is_not_in_the_language(line: str, says: str, tmp_path: Path, capsys: Any) -> None:
    own = tmp_path / "own" / "sm_100a" / "gemm"
    own.mkdir(parents=True)
    mma = (EXAMPLES / "templates" / "sm_100a" / "gemm" / "mma.ptx.j2").read_text()
    assert mma.count(PRODUCT) == 1
    (own / "mma.ptx.j2").write_text(mma.replace(PRODUCT, line))
    out = ["--target", "sm_100a", "-o", str(tmp_path / "out")]
    assert run(["build", str(GEMM), "--templates", str(tmp_path / "own"), *out]) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert "error[not-in-language]" in said and "are not in the language" in said and says in said
    assert not (tmp_path / "out").exists()


def test_around_the_allocation(tmp_path: Path) -> None:
    """What no run shows: the permit is given up, and fences stand on both sides of the barriers
    behind the allocation and before its end."""
    assert build(GEMM, tmp_path / "out") == 0
    text = " ".join((tmp_path / "out" / "kernel.ptx").read_text().split())
    before, after = (f"tcgen05.fence::{when}_thread_sync;" for when in ("before", "after"))
    permit = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
    assert f"{permit} ALLOCATED: {before} bar.sync 0; {after} ld.shared.b32 %tmem" in text
    assert re.search(rf"{before} bar\.sync \d+, 128; {after} .{{1,99}} tcgen05.dealloc", text)
