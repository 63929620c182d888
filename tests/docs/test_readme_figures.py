"""The figures of README's first screen are those of the tables that they are taken from."""

from __future__ import annotations

import re
from math import exp, log

from doc_pages import ROOT

README = (ROOT / "README.md").read_text()
RATIO = re.compile(r"\((\d\.\d\d)\)")


def table(page: str, head: str) -> list[list[str]]:
    """The rows of a page's table whose first cell begins so."""
    lines = (ROOT / "docs" / page).read_text().split("\n")
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {head}"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def said(ratios: list[float]) -> tuple[str, str, str, int]:
    mean = exp(sum(map(log, ratios)) / len(ratios))
    return f"{mean:.2f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}", len(ratios)


def test_few_heads() -> None:
    rows = [row for row in table("mla_decode.md", "sequences x keys") if " x " in row[0]]
    ratios = [float(RATIO.search(cell)[1]) for row in rows for cell in row[1:4]]  # bf16
    mean, least, most, count = said(ratios)
    words = " ".join(README.split())
    assert (
        f"8 to 32 heads {mean} times as fast (geometric mean of {count} calls, {least} to {most}"
        in words
    )
    assert f"8 to 32 heads {mean} ({least} to {most})" in words


def test_many_heads() -> None:
    rows = table("mla_decode_speed.md", "128 heads: keys")
    mean, least, most, count = said(
        [float(RATIO.search(cell)[1]) for row in rows for cell in row[1:]]
    )
    words = " ".join(README.split())
    assert f"{mean} times ({count} calls, {least} to {most}" in words
    assert f"128 heads and few sequences {mean} ({least} to {most})" in words
