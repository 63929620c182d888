"""Runs bundles of compilers' kernels in the emulator, judges them, and keeps the bits.

    python tests/compilers/bundle.py FOLDER          # where Triton is
    python tests/compilers/emulate_bundles.py FOLDER --out OUT [CASE …]

Each case is run in the modes latest, earliest and, with two seeds, random, at the exact level and
with the sanitizer. Writes OUT/bits.npz and OUT/report.json in the form of
tests/gpu/run_bundles.py: the bits are those of the mode latest, or, of a case with a flaw, which
only that mode's timing shows, of earliest. The report has the processor seconds of a case, and the
findings. Ends with 1 where a case is not what it should be.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from judging import Bundle, bits, judged, passed

from mlagen.emulator import PtxFinding, Settings
from mlagen.emulator.launching import read_launch_file, run_launch

# Exact, with the sanitizer: what `Settings` says by itself. No case executes a tenth of the limit.
MOST = 1_000_000
MODES = {
    "latest": Settings(mode="latest", max_instructions=MOST),
    "earliest": Settings(mode="earliest", max_instructions=MOST),
    "random 1": Settings(mode="random", seed=1, max_instructions=MOST),
    "random 2": Settings(mode="random", seed=2, max_instructions=MOST),
}


@dataclass(frozen=True)
class Emulated:
    """A run of a bundle. `damage`: what the kernel wrote beside its buffers."""

    outputs: dict[str, np.ndarray]
    findings: tuple[PtxFinding, ...]
    damage: tuple[str, ...]
    warp_instructions: int


def emulated(bundle: Bundle, settings: Settings) -> Emulated:
    """One launch on fresh buffers. Errors are those of `run_launch`."""
    text = (bundle.folder / "kernel.ptx").read_text()
    run = run_launch(text, read_launch_file(bundle.folder / "launch.toml"), settings)
    findings = tuple(f for f in run.result.findings if isinstance(f, PtxFinding))
    assert len(findings) == len(run.result.findings)
    return Emulated(
        {
            name: run.arrays[name].reshape(bundle.buffers[name].shape)
            for name in bundle.about["outputs"]
        },
        findings,
        tuple(map(str, run.damage)),
        run.result.wave_instructions,
    )


def in_all_modes(bundle: Bundle) -> dict[str, Emulated]:
    """Of a case whose text is flawed: the modes in which the flaw does nothing."""
    modes = ["earliest"] if bundle.about["flaw"] else list(MODES)
    return {mode: emulated(bundle, MODES[mode]) for mode in modes}


def grave(runs: dict[str, Emulated]) -> list[str]:
    """Errors, each once, and damage."""
    found = [f"{f.kind} at line {f.line}" for run in runs.values() for f in run.findings
             if f.severity == "error"]  # fmt: skip
    found += [text for run in runs.values() for text in run.damage]
    return list(dict.fromkeys(found))


def reported(bundle: Bundle, runs: dict[str, Emulated], seconds: float) -> dict[str, Any]:
    """`judged`, and what only an emulator says."""
    report = judged(bundle, [run.outputs for run in runs.values()])
    letters = {(f.kind, f.line) for run in runs.values() for f in run.findings
               if f.severity == "letter"}  # fmt: skip
    return report | {
        "grave": grave(runs),
        "letter": [f"{kind} at line {line}" for kind, line in sorted(letters)],
        "warp_instructions": next(iter(runs.values())).warp_instructions,
        "seconds": round(seconds, 2),
    }


def good(bundle: Bundle, report: dict[str, Any]) -> bool:
    """Whether results are right, and findings there where there is a flaw and nowhere else."""
    return passed(report) and bool(report["grave"]) == bool(bundle.about["flaw"])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("cases", nargs="*")
    told = parser.parse_args()
    names = told.cases or sorted(path.parent.name for path in told.folder.glob("*/launch.toml"))
    kept: dict[str, np.ndarray] = {}
    reports: dict[str, Any] = {}
    wrong = []
    for name in names:
        bundle = Bundle.read(told.folder / name)
        started = time.process_time()
        runs = in_all_modes(bundle)
        reports[name] = reported(bundle, runs, time.process_time() - started)
        first = next(iter(runs.values()))
        kept |= {f"{name}/{output}": bits(array) for output, array in first.outputs.items()}
        if not good(bundle, reports[name]):
            wrong.append(name)
        print(name, "FAILED" if name in wrong else "passed", reports[name], flush=True)
    told.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(told.out / "bits.npz", **kept)
    about = {"device": "mlagen's emulator", "driver": "", "cases": reports}
    (told.out / "report.json").write_text(json.dumps(about, indent=1) + "\n")
    print(f"{len(reports) - len(wrong)} of {len(reports)} passed in the emulator", *wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
