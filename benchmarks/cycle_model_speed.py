"""How fast the cycle model is: wave-instructions a second on one core, and a variant's loop.

    python benchmarks/cycle_model_speed.py [--aiter FOLDER] [--repeat 5] [--json]

Without `--aiter` the kernel is the first of mlagen's own ladders (MHA prefill, bf16); FOLDER holds
`fmha_v3_fwd/` with AITER's objects, then it is theirs of the same shape. One workgroup of 256
queries and 4096 keys (AITER's: 2048). Seconds are CPU seconds of the process, the better guide on
a busy machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from typing import Any

from cycle_model.ladder import Ladder
from cycle_model.own import KERNELS

from mlagen.timing import Job, machine, simulate
from mlagen.timing.unit import time_unit

SCHEMA = "mlagen.benchmark.timing/1"


def ladder(folder: str | None) -> Ladder:
    """The kernel at two lengths."""
    if folder is None:
        return KERNELS[0].ladder()
    from cycle_model.validation import Library

    return Library(folder).ladder("hd128_bf16")


def best(repeat: int, work: Callable[[], Any]) -> tuple[float, Any]:
    """Least CPU seconds of several runs without the first, which compiles, and a result."""
    result = work()
    times = []
    for _ in range(repeat):
        started = time.process_time()
        result = work()
        times.append(time.process_time() - started)
    return min(times), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--aiter", metavar="FOLDER")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kernel = ladder(options.aiter)
    long = kernel.streams[max(kernel.streams)]
    unit_seconds, unit = best(options.repeat, lambda: time_unit(long, kernel.code, machine()))
    job = Job(kernel.code, (long,), (1, 1, 1), kernel.code.descriptor.lds_bytes)
    loop_seconds, _ = best(options.repeat, lambda: simulate(job, grid=False))
    grid_seconds, _ = best(1, lambda: simulate(job))
    report = {
        "kernel": kernel.code.name,
        "machine": platform.machine(),
        "instructions": unit.instructions,
        "unit_seconds": unit_seconds,
        "instructions_per_second": unit.instructions / unit_seconds,
        "loop_seconds": loop_seconds,
        "grid_seconds": grid_seconds,
    }
    if options.json:
        print(json.dumps({"schema": SCHEMA, **report}, indent=2))
        return
    print(f"{report['kernel']}: {unit.instructions} wave-instructions in {unit_seconds:.3f} s, "
          f"{unit.instructions / unit_seconds / 1e6:.2f} million a second")  # fmt: skip
    print(f"a report of {len(long)} wave-instructions: {loop_seconds:.2f} s; with all corners of "
          f"the grid: {grid_seconds:.2f} s")  # fmt: skip


if __name__ == "__main__":
    main()
