"""Brings the figures of `docs/mutation.md` up to date from the report of a full run.

    mlagen mutate mha_prefill_v2 --set num_heads=1 --set num_kv_heads=1 --set mask=null -o out/m
    python tests/mutation/mutation_report.py out/m/mutate.json --write

Without `--write` the text is printed.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "mutation.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
CONTROL = ("waits", "barriers", "nops")  # a finding is wanted, whatever the values
COLUMNS = ("class", "mutation", "mutants", "killed", "by a finding", "at the place", "equivalent",
           "missed")  # fmt: skip

Verdict = dict[str, Any]


def figures(report: dict[str, Any]) -> str:
    """The part of the page between its markers."""
    verdicts: list[Verdict] = report["verdicts"]
    rows = []
    for kind in dict.fromkeys(v["mutant"]["kind"] for v in verdicts):
        own = [v for v in verdicts if v["mutant"]["kind"] == kind]
        for operator in dict.fromkeys(v["mutant"]["operator"] for v in own):
            rows.append(
                _row(kind, operator, [v for v in own if v["mutant"]["operator"] == operator])
            )
        rows.append(_row(f"**{kind}**", "", own))
    rows.append(_row("**all**", "", verdicts))
    killed = Counter(v["by"] for v in verdicts if v["outcome"] == "killed")
    control = [v for v in verdicts if v["mutant"]["kind"] in CONTROL]
    changing = [v for v in control if v["outcome"] != "equivalent"]
    found = sum(_by_finding(v) for v in changing)
    named = ", ".join(f"{kind} {count}" for kind, count in killed.most_common())
    minutes = f"{report['seconds'] / 60:.0f} minutes on {report['processes']} processes"
    return "\n".join(
        [
            f"`{report['kernel']}`: {report['problem']}; {minutes}.",
            "",
            _table(COLUMNS, rows),
            "",
            f"**Recall: {found} of {len(changing)}** mutants of waits, barriers and nops that are "
            f"not equivalent have a finding of the sanitizer. Missed: {report['missed']}.",
            "",
            f"What killed: {named}.",
            "",
            "### Equivalents",
            "",
            *_equivalents([v for v in verdicts if v["outcome"] == "equivalent"]),
        ]
    )


# By whom a mutant was found equivalent, and what that says.
REASONS = {
    "order": "it moves over a cluster without memory operations and waits: no access, wait or "
    "barrier comes in another order",
    "runs": "the order that remains is enough: every run is free of findings and has the same bits",
    "letter": "found by the letter of the ISA alone: LLVM's code, or shipped kernels, do without",
}


def _equivalents(verdicts: list[Verdict]) -> list[str]:
    """One row a class, mutation and reason."""
    counts = Counter((v["mutant"]["kind"], v["mutant"]["operator"], v["by"]) for v in verdicts)
    rows = [(kind, operator, REASONS[by], str(n)) for (kind, operator, by), n in counts.items()]
    return [_table(("class", "mutation", "why it is no defect", "mutants"), rows), ""]


def _row(kind: str, operator: str, verdicts: list[Verdict]) -> tuple[str, ...]:
    outcomes = Counter(v["outcome"] for v in verdicts)
    numbers = (
        len(verdicts),
        outcomes["killed"],
        sum(_by_finding(v) for v in verdicts),
        sum(v["located"] for v in verdicts if v["outcome"] == "killed"),
        outcomes["equivalent"],
        outcomes["missed"],
    )
    return (kind, operator, *map(str, numbers))


def _by_finding(verdict: Verdict) -> bool:
    return verdict["outcome"] == "killed" and verdict["by"] not in ("values", "no end")


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main(arguments: list[str]) -> None:
    paths = [a for a in arguments if a != "--write"]
    if len(paths) != 1:
        sys.exit("usage: mutation_report.py MUTATE.JSON [--write]")
    text = figures(json.loads(Path(paths[0]).read_text()))
    if "--write" not in arguments:
        print(text)
        return
    page = DOCUMENT.read_text()
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    DOCUMENT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


if __name__ == "__main__":
    main(sys.argv[1:])
