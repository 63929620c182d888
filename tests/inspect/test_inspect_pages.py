"""The pages: whole, well formed, nothing from outside, and everything in them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from small_kernel import LOAD_LINE

from mlagen.artifact import SourceLine, write_artifact
from mlagen.errors import WriteError
from mlagen.inspect import compare, inspect_path
from mlagen.inspect.page import render_diff, render_page, write_page

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Checked(HTMLParser):
    """Every tag is closed in order; collects text, attributes and script data."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> in {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] in ("script", "style"):
            if self.open[-1] == "script":
                self.scripts.append(data)
            return
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def check_self_contained(text: str, page: Checked) -> None:
    assert text.startswith("<!doctype html>") or text.lstrip().startswith("<!doctype html>")
    for _, name, value in page.attributes:
        assert name not in ("src", "srcset", "data")
        assert name != "href" or value.startswith("#")
        assert not value.startswith(("http:", "https:", "//"))
    assert not re.search(r"url\(|@import|https?://", text)
    assert "prefers-color-scheme: dark" in text


def test_a_broken_page_would_be_seen():
    with pytest.raises(AssertionError):
        Checked("<p><b>text</p></b>")


@pytest.mark.parametrize("which", ["mha", "hopper", "bare"])
def test_the_page_shows_everything(which, request, tmp_path):
    if which == "bare":
        path = tmp_path / "bare.co"
        path.write_bytes((request.getfixturevalue("mha") / "kernel.co").read_bytes())
    else:
        path = request.getfixturevalue(which)
    report = inspect_path(path)
    text = render_page(report)
    page = Checked(text)
    check_self_contained(text, page)
    marked = {value for _, name, value in page.attributes if name == "data-c"}
    assert marked == {cluster.id for cluster in report.clusters}
    for cluster in report.clusters:
        assert cluster.kind in page.text
        for wait in cluster.waits:
            assert " ".join(wait.text.split()) in page.text
    for block in report.blocks:
        assert block.name in page.text and block.registers in page.text
    for area in report.memory:
        assert area.name in page.text
    for role in report.roles:
        assert role.name in page.text
    for handoff in report.handoffs:
        assert handoff.barrier in page.text
    for limit in report.limits:
        assert limit in page.text
    # The code lines of every cluster, for the panel.
    data = json.loads(page.scripts[0])
    assert {id: len(rows) for id, rows in data["code"].items()} == {
        c.id: len(c.lines) for c in report.clusters
    }
    line = next(c for c in report.clusters if c.count("matrix")).lines[0]
    row = data["code"][next(c for c in report.clusters if c.count("matrix")).id][0]
    assert row[1] == line.text and row[5] == line.schedule_line
    assert data["names"][row[3]] == line.operation
    assert data["pipes"][row[2]] == line.pipe


def test_banks_and_lifetimes_are_drawn(mha_report):
    text = render_page(mha_report)
    page = Checked(text)
    classes = [value for tag, name, value in page.attributes if tag == "rect" and name == "class"]
    grids = sum(len(phase) for use in mha_report.lds for phase in use.banks)
    assert sum(kind.startswith("bank-") for kind in classes) == grids > 0
    for touch in ("write", "read", "both", "through"):
        assert f"t-{touch}" in classes
    assert "K slot 1" in page.text
    # Boxes stay inside their drawing.
    for view in re.findall(r"<svg viewBox=\"0 0 ([\d.]+) ([\d.]+)\".*?</svg>", text, re.DOTALL):
        assert float(view[0]) > 0 and float(view[1]) > 0


def test_the_timeline_stands_side_by_side(mha_report):
    text = render_page(mha_report)
    head = text.index("Timeline of the loop")
    rows = text[head : text.index("<h2>Clusters")].split("<tr>")[2:]
    assert len(rows) == 8
    assert all(row.count('class="chip') == 2 for row in rows)


def test_what_a_user_named_is_no_markup(make_artifact, tmp_path):
    row = SourceLine(LOAD_LINE, "loop", "A", "all", "add/load.s.j2", 3, 21, "</script><b>bold")
    artifact = make_artifact(knobs={"pattern": "</script><b>bold</b> & 'more'"}, source=(row,))
    report = inspect_path(write_artifact(artifact, tmp_path / "<k>"))
    text = render_page(report)
    page = Checked(text)
    assert "<b>bold" not in text
    names = json.loads(page.scripts[0])["names"]
    assert "</script><b>bold" in names
    assert "pattern=</script><b>bold</b> & 'more'" in page.text


def test_the_diff_page(mha_report, mha_apart):
    report = compare(mha_report, inspect_path(mha_apart))
    text = render_diff(report)
    page = Checked(text)
    check_self_contained(text, page)
    for pair in report.pairs:
        assert pair.a in page.text and pair.b in page.text
    assert "knob pv_priority" in page.text and "scalar -2" in page.text
    same = Checked(render_diff(compare(mha_report, mha_report)))
    assert "Everything that is told here is equal." in same.text


def test_pages_are_reproducible(mha_report):
    assert render_page(mha_report) == render_page(mha_report)


def test_a_page_that_cannot_be_written_is_refused(mha_report, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=r"page\.html cannot be written: .*file is a file"):
        write_page(mha_report, tmp_path / "file" / "page.html")
    assert [p.name for p in Path(tmp_path).iterdir()] == ["file"]
