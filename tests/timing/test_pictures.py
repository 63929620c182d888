"""The timeline as a page and as a picture: clusters, a legend of all colours, light and dark."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from test_simulation import WORK, loop, timed

from mlagen.pages import PALETTE, legend, style
from mlagen.timing.cycle_program import UNITS
from mlagen.timing.events import events
from mlagen.timing.model import ScheduleSource
from mlagen.timing.picture import write_picture
from mlagen.timing.trace import write_page

SVG = "{http://www.w3.org/2000/svg}"


def place(offset: int) -> ScheduleSource:
    name = "AB"[offset // 16 % 2]
    return ScheduleSource(f"x.py:{offset}", name, f"do <{name}>({offset // 16})")


def test_the_palette_explains_every_unit_of_the_model() -> None:
    assert set(UNITS) <= set(PALETTE)
    text = legend(["wait", "matrix"])
    assert text.index("matrix:") < text.index("wait:") and "vector" not in text
    css = style()
    light, dark = css.split("@media (prefers-color-scheme: dark)")
    for name, colour in PALETTE.items():
        assert f"--{name}: {colour.light};" in light and f"--{name}: {colour.dark};" in dark


def test_the_page_knows_clusters_and_lines(tmp_path: Path) -> None:
    unit = timed(loop(WORK, 10), waves=2)
    write_page(unit, (0, 500), tmp_path / "t.html", "title", place)
    page = (tmp_path / "t.html").read_text()
    data = json.loads(re.search(r"const data = (.*);\n", page)[1])
    assert sorted(data["clusters"]) == ["A", "B"]
    assert len(data["places"]) == len(data["texts"])
    cluster, where, operation = data["places"][0]
    assert where.startswith("x.py:") and operation == f"do <{data['clusters'][cluster]}>(0)"
    for name in data["units"]:
        assert f"{name}: {PALETTE[name].meaning}" in page
    assert "/*STYLE*/" not in page and "<!--LEGEND-->" not in page and "dark" in page


def test_the_picture_shows_every_cycle_that_its_waves_issue(tmp_path: Path) -> None:
    unit = timed(loop(WORK, 10), waves=2)
    window = (0, unit.cycles)
    write_picture(unit, window, tmp_path / "t.svg", "a < b", place)
    picture = ElementTree.parse(tmp_path / "t.svg").getroot()
    texts = [node.text for node in picture.iter(f"{SVG}text")]
    assert texts[0] == "a < b" and {"A", "B"} <= set(texts)
    assert any("do <A>" in text for text in texts)
    boxes = [node.attrib for node in picture.iter(f"{SVG}rect")]
    _, _, right, _ = map(float, picture.attrib["viewBox"].split())
    assert all(
        float(b["x"]) >= 0 and float(b["x"]) + float(b["width"]) <= right + 0.1 for b in boxes
    )
    scale = max(float(b["x"]) for b in boxes) - min(float(b["x"]) for b in boxes)
    assert scale > 0
    # The matrix unit is drawn as long as it is busy, whichever wave keeps it so.
    busy = sum(
        e.cycles
        for e in events(unit, window, 10**6)
        if e.track.endswith("SIMD 0") and "unit" in e.track
    )
    drawn = [b for b in boxes if b["style"] == "fill:var(--matrix)" and float(b["height"]) == 26.0]
    lowest = max(float(b["y"]) for b in drawn)
    width = sum(float(b["width"]) for b in drawn if float(b["y"]) == lowest)
    assert width / (1120 - 330 - 12) == pytest.approx(busy / unit.cycles, abs=0.02)
    colours = set(re.findall(r"var\(--([\w-]+)\)", (tmp_path / "t.svg").read_text()))
    declared = set(re.findall(r"--([\w-]+):", (tmp_path / "t.svg").read_text()))
    assert colours <= declared
