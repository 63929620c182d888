"""Tiles of TMEM that products fill, and a region that its reader changes: what is derived, and what
the proof refuses without it."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mlagen.cli.main import run
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.targets.nvidia.codegen.derive import WAITS, looped
from mlagen.targets.nvidia.codegen.proof import prove_pipelines
from mlagen.targets.nvidia.codegen.thin import plan

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "templates" / "sm_100a"
NAME = "mla_sparse_prefill_sm100"
FILES = [ROOT / f"schedules/{name}.py" for name in ("tables/tensor_memory", "mla_sparse_sm100")]
SOFTMAX, FEEDER, MATH = range(3)


@pytest.fixture(scope="module", params=[64, 128])
def made(request: Any) -> Any:
    """With more than 64 heads, of a CTA pair."""
    return schedule_of(load(NAME, None), MlaSparsePrefillConfig(request.param), {})


@pytest.fixture(scope="module")
def loops(made: Any) -> Any:
    return plan(made)[0]


def changed(folder: Path, old: str, new: str) -> str:
    """The kernel, what it imports of other schedules, and the table, of which one is edited, as
    files of a user's."""
    texts = {path.stem: path.read_text() for path in FILES}
    assert sum(text.count(old) for text in texts.values()) == 1
    for stem, text in texts.items():
        for path in FILES:
            module = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            text = text.replace(f"from mlagen.{module} ", f"from {path.stem} ")
        assert "from mlagen.schedules" not in text
        (folder / f"{stem}.py").write_text(text.replace(old, new))
    return f"{folder}/mla_sparse_sm100.py:{NAME}"


def violations(made: Any, loops: Any, at: int, keep: Callable[[Any], bool]) -> Any:
    """Of the schedule without some operations of a role's loop."""
    loop = loops[at]
    steps = [op for op in loop.cluster.operations() if keep(op)]
    tried = looped(made, loop.stream, loop.prologue, steps, loop.epilogue)
    return prove_pipelines(made, [*loops[:at], tried, *loops[at + 1 :]], quick=True).violations


def test_it_is_proved(made: Any, loops: Any) -> None:
    assert not prove_pipelines(made, loops).violations


@pytest.mark.parametrize("at", [SOFTMAX, FEEDER, MATH])
def test_every_derived_wait_is_needed(made: Any, loops: Any, at: int) -> None:
    waits = [op for op in loops[at].cluster.operations() if op.name in WAITS]
    assert waits
    for gone in waits:
        assert violations(made, loops, at, lambda op, gone=gone: op is not gone), (
            f"{gone.name} {gone.uses}"
        )


def test_who_goes_on_in_tensor_memory_fences(loops: Any) -> None:
    """Of scores and P both sides are in TMEM; the keys' producer is not."""
    after = {
        (before.name, before.uses[0].block)
        for loop in loops
        for before, op in pairwise(loop.operations) if op.name == "fence_after"
    }  # fmt: skip
    assert after == {
        ("wait_full", "scores"), ("wait_empty", "scores"),
        ("wait_full", "weights"), ("wait_empty", "weights"),
    }  # fmt: skip
    steps = loops[SOFTMAX].operations
    told = [after.access.target.ring for op, after in pairwise(steps) if op.name == "fence_before"]
    assert told == ["scores", "weights"]


def test_no_fence_of_the_whole_gpu() -> None:
    """ptxas makes one of an arrival that says .release.cluster, and of a wait that says
    .acquire.cluster an invalidation of L1: no template has them."""
    texts = {path: path.read_text() for path in TEMPLATES.rglob("*.j2")}
    assert any("mbarrier.arrive.shared::cluster" in text for text in texts.values())
    scoped = re.compile(r"mbarrier\.[^;]*(release|acquire)[^;]*\.cluster\b")
    assert not [path.name for path, text in texts.items() if scoped.search(text)]


def test_slots_of_tensor_memory_that_are_released(loops: Any) -> None:
    """Other waits do not say that scores are loaded: products wait for their slot."""
    names = [op.name for op in loops[MATH].operations]
    (wait,) = [n for n, op in enumerate(loops[MATH].operations)
               if op.name == "wait_empty" and op.uses[0].block == "scores"]  # fmt: skip
    (freed,) = [op for op in loops[SOFTMAX].operations if op.name == "release"]
    assert freed.template == "pipeline/release.ptx.j2"
    assert names.index("keep_queries") < names.index("qk") and wait < names.index("qk")


CONVERTED = [
    ('"warpgroups": threads // 128', '"warpgroups": 1', "of 4 warps"),
    ("else Budget(160, 112)", "else Budget(168, 112)",
     "a block of 416 threads has 53248"),
    ("                mla.storage.fetch(part, i + 1)\n"
     "                mla.storage.look_up(part, i + 2)\n",
     "                mla.storage.look_up(part, i + 2)\n"
     "                mla.storage.fetch(part, i + 1)\n", "fetch"),
    ("                copy(part, i)\n                mla.queries.load_item(role, i)\n"
     "                mla.storage.fetch(part, i + 1)\n",
     "                mla.storage.fetch(part, i + 1)\n                copy(part, i)\n", "copy"),
    ("        mla.rows.load_scales(i + 1)\n", "",
     "'load_scales' of role softmax is missing"),
    ("        mla.rows.load_list(i + 1)\n",
     "        mla.rows.load_scales(i + 1)\n        mla.rows.load_list(i + 1)\n", "load_scales"),
]  # fmt: skip
REFUSED = [
    ("        acquire(weights, i)\n        mla.softmax.rescale(i)\n",
     "        mla.softmax.rescale(i)\n        acquire(weights, i)\n",
     "uses O of tile 1 before it is full"),
    ("        mla.softmax.rescale(i)\n        copy(weights, i)\n",
     "        copy(weights, i)\n        mla.softmax.rescale(i)\n", "rescale"),
    ("        acquire(weights, i)\n", "        acquire(weights, i)\n        acquire(weights, i)\n",
     "is waited for 2 times"),
    ("        mla.softmax.rescale(i)\n",
     "        acquire(weights, i - 1)\n        mla.softmax.rescale(i)\n", "is waited for 2 times"),
    ('"warpgroups": threads // 128', '"warpgroups": 2', "of 8 warps"),
    ("        mla.products.qk(i)\n", "", "'qk' of role math is missing"),
    ("        release(weights, i - 1)\n", "", "is missing in the tile loop"),
    ('s.columns("S", 32, slots=1)', 's.columns("S", 64, slots=1)', "224 columns on top of 320"),
    ('s.columns("S", 32, slots=1)', 's.columns("S", 32, slots=0)', "a ring has 1 or more"),
    ('"scores", S, producer', '"scores", S, tile["K"][0], producer', "K0 in SMEM, S in TMEM"),
    ('s.region("Q", 32 * min(columns, 7),', 's.region("Q", 40,', "40 columns of TMEM for Q"),
    ("        mla.products.keep_queries(i)\n", "", "'keep_queries' of role math is missing"),
    ("        mla.products.keep_queries(i)\n        mla.products.qk(i)\n",
     "        mla.products.qk(i)\n        mla.products.keep_queries(i)\n",
     "uses Q before it is full"),
    ("        mla.softmax.load_scores(i)\n        release(scores, i)\n",
     "        release(scores, i)\n        mla.softmax.load_scores(i)\n",
     "the slot of 'scores' was released"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "says"), REFUSED)
def test_refused(old: str, new: str, says: str, tmp_path: Path, capsys: Any) -> None:
    path = changed(tmp_path, old, new)
    assert run(["build", path, "--set", "num_heads=64", "-o", str(tmp_path / "out")]) != 0
    assert says in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("old", "new", "says"), CONVERTED)
def test_refused_where_rows_are_converted(
    old: str, new: str, says: str, tmp_path: Path, capsys: Any
) -> None:
    path = changed(tmp_path, old, new)
    assert run(["build", path, "--set", "num_heads=64", "--set", "rows=e4m3_row"]) != 0
    assert says in " ".join(capsys.readouterr().err.split())
