"""Runs AITER's objects on the emulator and prints a Markdown table of errors and findings.

    MLAGEN_AITER=.../hsa/gfx950 python tests/foreign/foreign_report.py aiter_fmha
        [--match TEXT] [--mode latest|earliest|random|all] [--seed N] [--findings] [--summary]

A module such as `aiter_fmha` has its launches in `CASES`. `--findings` lists every finding below
the table, with the instructions around both of its places; `--summary` gives one row an object and
mode instead of one a launch.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from aiter import MODES, Case, Outcome, missing, object_file

from mlagen.binary import MachineInstruction, load_code_object
from mlagen.emulator import SanitizerFinding
from mlagen.errors import MlagenError

COLUMNS = ("object", "launch", "mode", "output: max error (of its bound)", "findings",
           "wave-instructions", "seconds")  # fmt: skip


def row(case: Case, mode: str, outcome: Outcome) -> tuple[str, ...]:
    """The table's row of one run."""
    errors = "; ".join(
        f"{e.output}: {e.error:.2g} ({e.ratio:.2f}){f', {e.nans} NaN' if e.nans else ''}"
        for e in outcome.errors
    )
    kinds = Counter(f.kind for f in outcome.findings)
    found = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
    verdict = "" if outcome.right else "**wrong** "
    return (
        f"`{Path(case.path).stem}`",
        case.label,
        mode,
        verdict + errors,
        found,
        f"{outcome.wave_instructions:,}",
        f"{outcome.seconds:.1f}",
    )


SUMMARY = ("object", "mode", "launches", "right", "worst error / bound", "wave-instructions",
           "seconds")  # fmt: skip


def summary(path: str, mode: str, outcomes: list[Outcome]) -> tuple[str, ...]:
    """The row of all launches of an object in one mode."""
    worst: dict[str, float] = {}
    for error in (e for o in outcomes for e in o.errors):
        worst[error.output] = max(worst.get(error.output, 0.0), error.ratio)
    return (
        f"`{Path(path).stem}`",
        mode,
        str(len(outcomes)),
        str(sum(o.right for o in outcomes)),
        ", ".join(f"{name} {ratio:.2f}" for name, ratio in worst.items()),
        f"{sum(o.wave_instructions for o in outcomes):,}",
        f"{sum(o.seconds for o in outcomes):.1f}",
    )


def around(instructions: tuple[MachineInstruction, ...], pc: int, width: int = 3) -> list[str]:
    """The instructions around a place, which is marked."""
    at = next(i for i, ins in enumerate(instructions) if ins.offset == pc)
    return [
        f"{'>' if ins.offset == pc else ' '} {ins.offset:#07x}  {ins}"
        for ins in instructions[max(0, at - width) : at + width + 1]
    ]


def listing(file: Path, findings: tuple[SanitizerFinding, ...]) -> list[str]:
    """Every finding with its disassembly."""
    instructions = tuple(load_code_object(file.read_bytes()).kernel().instructions)
    lines: list[str] = []
    for finding in findings:
        lines += [f"* {finding} ({finding.count} times)", "", "```"]
        if finding.other_pc is not None:
            lines += [*around(instructions, finding.other_pc), "..."]
        lines += [*around(instructions, finding.pc), "```", ""]
    return lines


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("modules", nargs="+")
    parser.add_argument("--match", default="")
    parser.add_argument("--mode", default="all", choices=(*MODES, "all"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--findings", action="store_true")
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args(arguments)
    why = missing()
    if why is not None:
        sys.exit(why)
    cases: list[Case] = [c for m in options.modules for c in importlib.import_module(m).CASES]
    columns = SUMMARY if options.summary else COLUMNS
    print(_line(columns), _line(tuple("---" for _ in columns)), sep="\n")
    details: list[str] = []
    done: dict[tuple[str, str], list[Outcome]] = {}
    for case in cases:
        if options.match not in case.name:
            continue
        for mode in MODES:
            if options.mode not in (mode, "all"):
                continue
            try:
                outcome = case.run(mode, options.seed)
            except MlagenError as error:
                print(_line((f"`{Path(case.path).stem}`", case.label, mode, f"refused: {error}",
                             "", "", "")), flush=True)  # fmt: skip
                continue
            done.setdefault((case.path, mode), []).append(outcome)
            if not options.summary:
                print(_line(row(case, mode, outcome)), flush=True)
            if options.findings and outcome.findings:
                details += ["", f"### {case.name}, {mode}", ""]
                details += listing(object_file(case.path), outcome.findings)
    if options.summary:
        for (path, mode), outcomes in done.items():
            print(_line(summary(path, mode, outcomes)))
    print("\n".join(details))


if __name__ == "__main__":
    main(sys.argv[1:])
