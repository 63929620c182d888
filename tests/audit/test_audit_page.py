"""docs/ptx_audit.md lists the rules that there are, and a table of figures without a miss."""

import re
from pathlib import Path

from mlagen.audit.ptx import RULES

PAGE = (Path(__file__).parents[2] / "docs" / "ptx_audit.md").read_text()


def between(name):
    return PAGE.split(f"<!-- {name}: begin -->")[1].split(f"<!-- {name}: end -->")[0]


def test_the_page_has_every_rule():
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \| (.+) \|$", between("rules"), re.MULTILINE)
    assert {rule: text for rule, text, _ in rows} == RULES
    assert all(source.strip() for _, _, source in rows)


def test_the_figures_cover_the_kernels_and_miss_nothing():
    rows = [line.split(" | ") for line in between("figures").splitlines() if line[:3] != "| w"]
    rows = [row for row in rows if len(row) == 8 and row[0] not in ("| kernel",)]
    kernels = {path.stem for path in (Path(__file__).parent / "kernels").glob("*.ptx")}
    assert kernels | {"gemm_bf16", "mla_decode_sm90"} <= {row[0].strip("| ") for row in rows}
    for row in rows:
        mutants, reported, equivalent, missed = (int(cell.split()[0]) for cell in row[3:7])
        assert mutants == reported + equivalent and missed == 0
