"""Variants that `mlagen tune` judges in a minute without a GPU, build and verification included.

    python benchmarks/tuning.py [--trials 24] [--jobs 2] [--json] [KERNEL ...]

A new store for each kernel, one head, 256 rows, 2048 keys, nothing masked. The time is that of the
search: describing the schedule and starting the processes are told apart. `passed` variants went
through everything; refused ones cost a build at most, so both rates are given. Stages are means
over the trials that reached them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCHEMA = "mlagen.benchmark.tuning/1"
KERNELS = ("mla_prefill_v2", "mha_prefill_v2")
FIELDS = {"num_heads": "1", "num_kv_heads": "1", "mask": "null"}
SHAPES = ("seq_len=256", "num_keys=2048")


def measure(kernel: str, trials: int, jobs: int) -> dict[str, Any]:
    """Judge `trials` variants of one kernel."""
    from mlagen.tune import TuneRequest, open_store, tune

    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "tuning.sqlite")
        request = TuneRequest(kernel, FIELDS, SHAPES, target="gfx950", trials=trials, jobs=jobs)
        result = tune(request, store)
        store.close()
    progress = result.progress
    verdicts = Counter(trial.outcome.verdict for trial in result.trials)
    stages: dict[str, list[float]] = {}
    for trial in result.trials:
        for name, seconds in trial.outcome.seconds.items():
            stages.setdefault(name, []).append(seconds)
    return {
        "kernel": kernel,
        "space": result.described.space.size,
        "judged": progress.judged,
        "verdicts": dict(verdicts),
        "search_seconds": progress.seconds,
        "whole_seconds": time.perf_counter() - started,
        "judged_per_minute": 60 * progress.judged / progress.seconds,
        "passed_per_minute": 60 * verdicts["passed"] / progress.seconds,
        "stage_seconds": {name: statistics.fmean(found) for name, found in stages.items()},
        "gain": progress.gain,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", nargs="*", default=KERNELS, metavar="KERNEL")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [measure(kernel, options.trials, options.jobs) for kernel in options.kernels]
    if options.json:
        machine = f"{platform.machine()}, {os.cpu_count()} cores"
        print(json.dumps({"schema": SCHEMA, "machine": machine, "rows": rows}, indent=2))
        return
    for row in rows:
        told = ", ".join(f"{count} {name}" for name, count in sorted(row["verdicts"].items()))
        stages = ", ".join(f"{name} {found:.2f} s" for name, found in row["stage_seconds"].items())
        print(
            f"{row['kernel']}: {row['judged_per_minute']:.1f} judged a minute, "
            f"{row['passed_per_minute']:.1f} of them passed ({told}; {options.jobs} jobs, "
            f"{row['search_seconds']:.0f} s, {row['whole_seconds']:.0f} s in all); {stages}"
        )


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
