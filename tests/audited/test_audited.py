"""The list of audited kernels is whole, its page has a row of each, and ours are audited here.

Kernels of other repositories are audited by `audit_list.py`, which fetches them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import audit_list
import pytest
from audit_list import Row, audit, row_of
from listed import LIST, Listed, read_list
from making import Made

LISTING = read_list()
PAGE = Path(__file__).parents[2] / "docs" / "foreign_audit.md"
OURS = [kernel for kernel in LISTING.kernels if kernel.kind == "ours"]
CASES = [kernel for kernel in LISTING.kernels if kernel.kind == "case"]


def test_foreign_kernels_are_named_by_source_commit_and_hash() -> None:
    foreign = [kernel for kernel in LISTING.kernels if not kernel.from_pypi]
    assert len(foreign) >= 40
    assert all(re.fullmatch("[0-9a-f]{40}", one.commit) for one in LISTING.sources.values())
    without = [kernel.name for kernel in foreign if not re.fullmatch("[0-9a-f]{64}", kernel.sha256)]
    assert without == []
    for kernel in foreign:
        assert kernel.source or kernel.headers


def test_the_page_has_a_row_of_each_and_judges_each_error() -> None:
    text = PAGE.read_text()
    rows = [
        Row.told(line) for line in re.findall(r"^\| \S+ \| (?:sm_\d+a|gfx950) \|.*$", text, re.M)
    ]
    assert [row.name for row in rows] == [kernel.name for kernel in LISTING.kernels]
    for row in rows:
        assert f"\n* {row.at}: " in text
    for kernel in LISTING.kernels:
        assert kernel.reason in text
        for rule in kernel.judged:
            assert f"`{rule}`" in text


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('target = "sm_80"', "sm_80"),
        ('target = "gfx950"', "neither file"),
        ('target = "gfx950"\nfile = "a.co"\nsource = "nowhere"', "no source nowhere"),
        ('target = "gfx950"\nfile = "a.co"\ncolour = "red"', "unknown colour"),
    ],
)
def test_a_list_that_is_wrong_is_refused(tmp_path: Path, line: str, says: str) -> None:
    text = LIST.read_text().partition("[[kernels]]")[0]
    path = tmp_path / "kernels.toml"
    path.write_text(f'{text}\n[[kernels]]\nname = "x"\nfamily = "f"\n{line}\n')
    with pytest.raises(ValueError, match=says):
        read_list(path)


@pytest.mark.parametrize("kernel", OURS, ids=lambda kernel: kernel.name)
def test_ours_have_no_error_and_a_reason_for_what_is_left_out(
    kernel: Listed, tmp_path: Path
) -> None:
    row = row_of(kernel, LISTING, tmp_path)
    assert (row.missing, row.wrong, row.errors) == ("", "", 0)
    assert row.seconds < audit_list.MOST


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton (mlagen[triton]) is not installed")
@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.name)
def test_cases_of_triton_and_gluon(kernel: Listed, tmp_path: Path) -> None:
    row = row_of(kernel, LISTING, tmp_path)
    assert (row.missing, row.wrong) == ("", "")
    assert row.seconds < audit_list.MOST


def _merge(folder: Path) -> Made:
    (kernel,) = (one for one in OURS if one.name == "mla_decode_merge_sm90")
    return audit_list.make(kernel, LISTING, folder)


def test_a_fault_and_a_changed_file_fail_their_row(tmp_path: Path) -> None:
    """Without its barriers a merge reads shared memory that no thread may have written."""
    made = _merge(tmp_path)
    kernel = Listed("merge", "sm_90a", "ours", file="kernel.ptx", sha256="0" * 64)
    text = made.path.read_text()
    assert audit(kernel, made).wrong == f"another file than the list's: {made.sha256}"
    made.path.write_text(re.sub(r"^.*bar\.sync.*$", "", text, flags=re.M))
    row = audit(kernel, Made(made.path, kernel.sha256))
    assert row.errors and row.wrong.startswith("errors that nobody judged: ")
    assert audit(kernel, Made(tmp_path / "none.ptx", "")).wrong.startswith("no verdict: exit code")


def test_an_audit_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_list, "_WALL", 0.2)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    code, seconds = audit_list._waited(process)
    assert code < 0 and seconds < 10


def _page(folder: Path, table: str) -> Path:
    page = folder / "page.md"
    page.write_text(f"before\n<!-- list: begin -->\n{table}\n<!-- list: end -->\nafter\n")
    return page


def test_rows_are_written_between_the_marks(tmp_path: Path) -> None:
    """Rows of other runs stay, with what is told of their commit; what was not had changes none."""
    page = _page(
        tmp_path,
        "9 kernels\n\n* aaaa: one day, 2 cores\n* bbbb: another day\n\n"
        "| two | sm_90a | 1 | 2 | 3 | 4 | 9 paths | 2.5 | aaaa |\n"
        "| one | gfx950 | 0 | 0 | 0 | 7 | part | 9.5 | bbbb |\n"
        "| gone | gfx950 | 0 | 0 | 0 | 7 | part | 9.5 | bbbb |",
    )
    listed = [Listed(name, "gfx950", "f") for name in ("one", "two", "three")]
    rows = [
        Row("one", "f", "gfx950", errors=2, unchecked=1, followed="part", seconds=1.5, at="cccc+"),
        Row("two", "f", "sm_90a", missing="no clone"),
    ]
    audit_list.write_page(page, rows, listed, "today")
    text = page.read_text()
    assert text.startswith("before\n<!--") and text.endswith("<!-- list: end -->\nafter\n")
    assert "* aaaa: one day, 2 cores\n* cccc+: today\n" in text and "bbbb" not in text
    told = [line for line in text.splitlines() if re.match(r"\| (one|two|gone) ", line)]
    assert told == [
        "| one | gfx950 | 2 | 0 | 0 | 1 | part | 1.5 | cccc+ |",
        "| two | sm_90a | 1 | 2 | 3 | 4 | 9 paths | 2.5 | aaaa |",
    ]
    assert "2 kernels: 3 errors in 2, 2 unproved, 5 unchecked; median 2.0 s" in text
    again = text
    audit_list.write_page(page, rows, listed, "today")
    assert page.read_text() == again


def test_a_page_that_has_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no row of an audit"):
        audit_list.write_page(_page(tmp_path, "| one | gfx950 | 2 | part |"), [], [], "")
    page = tmp_path / "other.md"
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="list: begin"):
        audit_list.write_page(page, [], [], "")
