"""How long the tools take: building one variant, and emulating the demo with the sanitizer on.

    python benchmarks/tooling.py [--repeat 3] [--json]

Figures are of this machine, whatever else it is doing: take them on an idle one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCHEMA = "mlagen.benchmark.tooling/1"
FIELDS = ("num_heads=8", "num_kv_heads=2", "depth=128", "mask=causal")


def build_seconds() -> tuple[float, float]:
    """(process time, wall time) of one `mlagen build` in a process of its own, tools included."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "mlagen", "build", "mha_prefill_v2", "-o", folder]
        for field in FIELDS:
            command += ["--set", field]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def emulation(repeat: int) -> dict[str, float]:
    """Seconds and wave instructions a second of the demo shape, after one run to warm up."""
    from mlagen.codegen import build
    from mlagen.families.mha_prefill.kernel import MhaKernel
    from mlagen.families.mha_prefill.made_up import mha_inputs
    from mlagen.families.mha_prefill.problem import MhaConfig
    from mlagen.launch import EmulatedLauncher

    config = MhaConfig(num_heads=8, num_kv_heads=2)
    artifact = build("mha_prefill_v2", config)
    inputs = mha_inputs(config, seq_len=512)
    result: dict[str, float] = {}
    for sanitize in (True, False):
        kernel = MhaKernel(artifact, EmulatedLauncher(sanitize=sanitize))
        best, instructions = float("inf"), 0
        for _ in range(repeat + 1):
            report = kernel.run(inputs).report
            assert report.emulation is not None
            best = min(best, report.seconds)
            instructions = report.emulation.wave_instructions
        name = "sanitizer on" if sanitize else "sanitizer off"
        result[f"demo, {name}: s"] = best
        result[f"demo, {name}: wave instructions/s"] = instructions / best
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    builds = [build_seconds() for _ in range(options.repeat)]
    figures = {
        "build: process s": min(process for process, _ in builds),
        "build: wall s": min(wall for _, wall in builds),
        **emulation(options.repeat),
    }
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    if options.json:
        print(json.dumps({"schema": SCHEMA, "machine": machine, "figures": figures}))
        return
    print(f"best of {options.repeat} on {machine}")
    for name, value in figures.items():
        print(f"  {name:48} {value:12.3f}" if value < 1000 else f"  {name:48} {value:12,.0f}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
