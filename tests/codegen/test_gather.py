"""Rows that are fetched by their numbers: A of the GEMM example, whose rows a warp numbers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mlagen.cli.main import run
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import Smem, WarpRole
from mlagen.targets.nvidia.limits import Nvidia
from mlagen.targets.sm_100a.dsl import gather4

EXAMPLES = Path(__file__).parents[2] / "examples"
NUMBERS = """{% for n in range(4) %}
mad.lo.u32 %rows{{ n }}, %lane, 4, {{ row }};
add.u32 %rows{{ n }}, %rows{{ n }}, {{ n }};
{% endfor %}
"""


@pytest.fixture
def gathering(tmp_path: Path) -> Path:
    """The example with a warp that fetches A row by row."""
    shutil.copytree(EXAMPLES / "gemm", tmp_path / "gemm")
    shutil.copytree(EXAMPLES / "templates", tmp_path / "templates")
    text = (EXAMPLES / "gemm" / "sm_100a.py").read_text()
    for old, new in (
        ('"k", tile.k, tile.m)', '"k", tile.k, 1)'),
        (
            "        boxes = [",
            "        if kind == 'copy':\n"
            "            a, b = self.feed.tiles\n"
            "            return gather4(self.feed, tile, self.producer, self.rows,\n"
            "                           [(a, self.maps[0], self.column)],\n"
            "                           [(b, self.maps[1], self.column, self.b_row)],\n"
            "                           [(self.column, self.tile.k)])\n"
            "        boxes = [",
        ),
        ("        self.maps =", "        self.rows = s.named('rows', '.b32', 4, 'rows of A')\n"
         "        self.maps ="),
        ("import Product,", "import Product, gather4,"),
    ):  # fmt: skip
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (tmp_path / "gathered.py").write_text(text)
    setup = tmp_path / "templates" / "sm_100a" / "gemm" / "setup.ptx.j2"
    setup.write_text(setup.read_text() + NUMBERS)
    made = tmp_path / "gathering.py"
    text = (EXAMPLES / "gemm_bf16.py").read_text()
    for old, new in (
        ('s.role("producer", warps=1, single=True)', 's.role("producer", warps=1)'),
        ("from gemm.sm_100a import", "from gathered import"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    made.write_text(text)
    return made


@pytest.mark.parametrize("ctas", [1, 2])
def test_rows_by_number(ctas: int, gathering: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    knobs = ["--target", "sm_100a", "--knob", f"ctas={ctas}"]
    assert run(["build", str(gathering), *knobs, "-o", str(out)]) == 0
    assert "tile::gather4" in (out / "kernel.ptx").read_text()
    shape = [x for size in ("m=131", "n=70", "k=328") for x in ("--shape", size)]
    assert run(["verify", str(out), "--problem", str(gathering), *shape]) == 0
    assert "sanitizer  clean" in capsys.readouterr().out


def test_more_rows_than_a_warp_has_lanes_for() -> None:
    smem = Smem(Nvidia.smem_bytes)
    tile = smem.tile("A", "a", rows=136, row_bytes=128, slots=1)
    feed = smem.pipeline("feed", tile, producer="one", consumer="two")
    one = WarpRole("one", range(1), 0, single=False, barrier=1)
    rows = [f"%r{n}" for n in range(4)]
    with pytest.raises(ScheduleError, match="136 rows; a warp gathers 128"):
        gather4(feed, None, one, rows, [(tile, "%map", 0)])  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="3 row numbers a lane"):
        gather4(feed, None, one, rows[:3], [(tile, "%map", 0)])  # type: ignore[arg-type]
