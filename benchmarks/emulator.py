"""How fast the gfx950 emulator is: one workgroup of attention, 256 queries, 4096 keys, one head.

    python benchmarks/emulator.py [--aiter FOLDER] [--mode latest] [--repeat 5] [--threads N ...]
                                  [--compile] [--json]

Without `--aiter` the kernel is the one that `mha_prefill_v2` generates (bf16, two workgroups).
FOLDER holds `mla/` with AITER's gfx950 objects; then it is the fp8 prefill kernel of 8 waves that
AITER wrote. No figure is printed before the result was compared with attention in float64.
`--compile` also times the engine's compilation into an empty cache, and a start from a full one.

Figures are of this machine, whatever else it is doing. CPU seconds are those of the process: with
several host threads more than the wall's, on a busy machine the better guide.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

SCHEMA = "mlagen.benchmark.emulator/1"
OBJECT = "mla/mla_pfl_qh192_vh128_m32x8_n128x1_causal0.co"
QUERIES, KEYS = 256, 4096
BOUND = 5e-2  # fp8 P and bf16 O: AITER's own tests allow as much; the outputs here are below 1

Run = Callable[[bool, int, str], Any]  # (sanitize, threads, mode) -> EmulationResult
START = """
import time; start = time.perf_counter()
from mlagen.emulator.gfx950 import layout
from mlagen.emulator.gfx950.starting import STARTER
import numpy as np
waves = np.full(layout.W_SIZE, layout.ENDED, dtype=np.int64)
context = np.zeros(layout.C_SIZE, dtype=np.int64)
context[layout.C_WAVE], context[layout.C_WAVES] = waves.ctypes.data, 1
assert STARTER.start()(context.ctypes.data, 1) == layout.R_DONE
print(time.perf_counter() - start)
"""


@dataclass(frozen=True)
class Case:
    """A launch, and how far its last output is from the reference (all of it finite, or inf)."""

    name: str
    run: Run
    error: Callable[[], float]


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    """softmax(Q K^T * scale) V in float64."""
    scores = q.astype(np.float64) @ k.astype(np.float64).T * scale
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v.astype(np.float64)


def _distance(out: np.ndarray, reference: np.ndarray) -> float:
    wide = out.astype(np.float64)
    return float(np.abs(wide - reference).max()) if np.isfinite(wide).all() else float("inf")


def prefill_by_others(folder: Path) -> Case:
    """AITER's fp8 MLA prefill: one work item, written whole (no partial output)."""
    from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate

    code = (folder / OBJECT).read_bytes()
    rng = np.random.default_rng(1)
    fp8 = ml_dtypes.float8_e4m3fn
    q = rng.standard_normal((QUERIES, 192)).astype(fp8)
    k = rng.standard_normal((KEYS, 192)).astype(fp8)
    v = rng.standard_normal((KEYS, 128)).astype(fp8)
    out = np.empty((QUERIES, 128), ml_dtypes.bfloat16)
    scale = 192**-0.5
    one = np.ones(1, np.float32)
    inputs = {
        0x00: q,
        0x10: k,
        0x20: v,
        0x60: np.array([0, 1], np.int32),  # work items of each workgroup
        0x70: np.array([0, -1, 0, QUERIES, 0, KEYS, 0, 1 << 16], np.int32),
        0x80: np.array([0, QUERIES], np.int32),
        0x90: np.array([0, KEYS], np.int32),
        0xA0: np.arange(KEYS, dtype=np.int32),
        0xB0: one,
        0xC0: one.copy(),
        0xD0: one.copy(),
    }
    outputs = {
        0x30: out,
        0x40: np.zeros((QUERIES, 128), np.float32),
        0x50: np.zeros(QUERIES, np.float32),
    }
    numbers = (np.float32(scale), QUERIES, 1, KEYS, KEYS)
    scalars = [
        Argument(0xE0 + 16 * i, number if i == 0 else np.uint32(number))
        for i, number in enumerate(numbers)
    ]
    arguments = [Argument(at, Buffer(f"in{at:#x}", array, "read")) for at, array in inputs.items()]
    arguments += [Argument(at, Buffer(f"out{at:#x}", array)) for at, array in outputs.items()]

    def run(sanitize: bool, threads: int, mode: Any) -> Any:
        out.fill(np.nan)
        return emulate(
            code,
            Launch(grid=(1, 1, 1), block=(512, 1, 1), arguments=arguments + scalars),
            Settings(sanitize=sanitize, threads=threads, mode=mode),
        )

    reference = attention(q, k, v, scale)
    return Case(OBJECT, run, lambda: _distance(out, reference))


def prefill_of_ours() -> Case:
    """The generated bf16 kernel on the same shape."""
    from mlagen.codegen import build
    from mlagen.families.mha_prefill.kernel import MhaKernel
    from mlagen.families.mha_prefill.made_up import mha_inputs
    from mlagen.families.mha_prefill.problem import MhaConfigV2
    from mlagen.launch import EmulatedLauncher

    config = MhaConfigV2(num_heads=1, num_kv_heads=1, mask="null")
    artifact = build("mha_prefill_v2", config)
    inputs = mha_inputs(config, seq_len=QUERIES, num_keys=KEYS, data="randn")
    last: list[np.ndarray] = []

    def run(sanitize: bool, threads: int, mode: Any) -> Any:
        launcher = EmulatedLauncher(sanitize=sanitize, threads=threads, mode=mode)
        kernel = MhaKernel(artifact, launcher)
        result = kernel.run(inputs)
        last[:] = [np.asarray(result.output)]
        return result.report.emulation

    q, k, v = (np.asarray(x).reshape(-1, config.depth) for x in (inputs.q, inputs.k, inputs.v))
    reference = attention(q, k, v, inputs.scale)
    shape = reference.shape
    return Case("mha_prefill_v2", run, lambda: _distance(last[0].reshape(shape), reference))


def measure(case: Case, sanitize: bool, threads: int, mode: str, repeat: int) -> dict[str, float]:
    """Best wall and CPU seconds of `repeat` runs after one to warm up, and the rate of the wall."""
    best = cpu = float("inf")
    for _ in range(repeat + 1):
        before = time.process_time()
        result = case.run(sanitize, threads, mode)
        cpu = min(cpu, time.process_time() - before)
        best = min(best, result.seconds)
        error = case.error()
        if not error < BOUND:
            raise SystemExit(f"{case.name}: the output is {error} away from the reference")
    return {
        "wave instructions": result.wave_instructions,
        "wall s": best,
        "CPU s, launch included": cpu,
        "wave instructions/s": result.wave_instructions / best,
        "wave instructions/CPU s": result.wave_instructions / cpu,
        "largest error": error,
        "findings": len(result.findings),
    }


def compile_seconds() -> dict[str, float]:
    """Import and first call of the engine: into an empty cache, then from the filled one."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        root = str(Path(__file__).parents[1])
        environment["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-c", START]
        runs = [
            float(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
            for _ in range(2)
        ]
    return {"first start s": runs[0], "cached start s": runs[1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--aiter", type=Path, metavar="FOLDER", help="folder with mla/*.co")
    parser.add_argument("--mode", choices=["latest", "earliest", "random"], default="latest")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--compile", action="store_true", help="time the engine's compilation too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    if options.compile:
        figures["compilation"] = compile_seconds()
    case = prefill_by_others(options.aiter) if options.aiter else prefill_of_ours()
    for sanitize in (True, False):
        for threads in dict.fromkeys(options.threads):
            name = f"sanitizer {'on' if sanitize else 'off'}, threads {threads}"
            figures[name] = measure(case, sanitize, threads, options.mode, options.repeat)
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    if options.json:
        report = {
            "schema": SCHEMA,
            "machine": machine,
            "kernel": case.name,
            "mode": options.mode,
            "figures": figures,
        }
        print(json.dumps(report))
        return
    print(f"{case.name}, {QUERIES} x {KEYS}, {options.mode}, best of {options.repeat} on {machine}")
    for name, values in figures.items():
        print(f"  {name}")
        for label, value in values.items():
            print(f"    {label:24} {value:14,.{4 if value < 1000 else 0}f}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
