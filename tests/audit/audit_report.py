"""The recall table of docs/ptx_audit.md.

    mlagen build examples/gemm_bf16.py --target sm_90a -o out/gemm_bf16
    mlagen build mla_decode_sm90 --set num_heads=128 -o out/mla_decode_sm90
    python tests/audit/audit_report.py --write out/gemm_bf16 out/mla_decode_sm90

The kernels of tests/audit/kernels come first, then the artifacts that are named; of a kernel with
more mutants than that, 250 are taken at random. Seconds are those of one core.
"""

import argparse
import re
import time
from pathlib import Path

from mlagen.audit.ptx import Beside, Given, audit_ptx, mutate, read_manifest
from mlagen.audit.ptx.changes import changes
from mlagen.ptx import read_ptx
from mlagen.severity import ERROR, LETTER, of

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "ptx_audit.md"
BOXES = {"gemm_persistent": {"map_c": 32768}}
SAMPLE = 250
HEAD = """| kernel | audit, s | paths | mutants | reported | equivalent | missed | mutants, s |
|---|---|---|---|---|---|---|---|
"""


def row(name, text, beside, boxes):
    start = time.process_time()
    report = audit_ptx(text, Given(boxes, beside=beside))
    audited = time.process_time() - start
    assert not of(report.findings, ERROR, LETTER), report.findings[0].render()
    start = time.process_time()
    mutants = mutate(text, Given(boxes, beside=beside), sample=SAMPLE, seed=1)
    mutated = time.process_time() - start
    paths = sum(entry.facts["paths"] for entry in report.entries)
    counts = [mutants.count(outcome) for outcome in ("reported", "equivalent", "MISSED")]
    whole = sum(len(list(changes(entry, text))) for entry in read_ptx(text).entries)
    made = f"{SAMPLE} of {whole}" if whole > SAMPLE else whole
    cells = (f"{audited:.1f}", paths, made, *counts, f"{mutated:.0f}")
    reasons = {}
    for mutant in mutants.mutants:
        if mutant.outcome == "equivalent":
            reasons.setdefault(re.sub(r"\d+ paths", "paths", mutant.excuse), []).append(mutant)
    return f"| {name} | {' | '.join(map(str, cells))} |\n", reasons


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("artifacts", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    table, reasons = HEAD, {}
    work = [(path.stem, path, Beside()) for path in sorted((HERE / "kernels").glob("*.ptx"))]
    for folder in options.artifacts:
        beside = read_manifest(folder / "manifest.json")
        work.append((folder.name, folder / "kernel.ptx", beside))
    for name, path, beside in work:
        line, found = row(name, path.read_text(), beside, BOXES.get(name, {}))
        print(line, end="", flush=True)
        table += line
        for reason, mutants in found.items():
            reasons.setdefault(reason, []).extend((name, mutant.change) for mutant in mutants)
    table += "\n| why equivalent | mutants | what they are |\n|---|---|---|\n"
    for reason, mutants in sorted(reasons.items()):
        kinds = sorted({re.sub(r" [+-]?\d+$", "", change) for _, change in mutants})
        table += f"| {reason} | {len(mutants)} | {', '.join(kinds)} |\n"
    if options.write:
        page = PAGE.read_text()
        marked = re.compile(r"(<!-- figures: begin -->\n).*?(<!-- figures: end -->)", re.DOTALL)
        PAGE.write_text(marked.sub(lambda m: m.group(1) + table + m.group(2), page))
    else:
        print(table)


if __name__ == "__main__":
    main()
