"""How fast the PTX emulator is: MLA decode of one block of 64 rows over 8,192 keys, and a loop.

    python benchmarks/emulator_ptx.py [--keys 8192] [--repeat 3] [--compile] [--json]

The decode kernel is what `mla_decode_sm90` generates for 64 heads (bf16, one work item). A
wgmma is one instruction per warp and many thousand products, so decode is also run with the wgmma
taken out of its text: the rest does the same with other numbers. The loop has no matrix
instructions: f32 arithmetic, a predicate, shared memory and a branch in one warp. Figures of both
levels of arithmetic, with and without the sanitizer. `--compile` also times the engine's
compilation into an empty cache, and a start from a full one.

Seconds are processor time, the least of several; on a busy machine they still grow somewhat.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

SCHEMA = "mlagen.benchmark.emulator_ptx/2"
START = """
import resource, time; start = time.perf_counter()
from mlagen.emulator.ptx.starting import STARTER
STARTER.start()
used = resource.getrusage(resource.RUSAGE_SELF)
print(time.perf_counter() - start, used.ru_utime + used.ru_stime)
"""
TURNS = 4000
LOOP = f"""
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k()
{{
.reg .pred %p; .reg .f32 %f<9>; .reg .b32 %r<4>; .shared .align 16 .b8 sh[128];
mov.u32 %r1, %tid.x; shl.b32 %r1, %r1, 2; mov.u32 %r2, sh; add.u32 %r1, %r1, %r2; mov.u32 %r3, 0;
mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f3F000000;
L:
{"mul.f32 %f3, %f1, %f2; fma.rn.f32 %f4, %f3, %f2, %f1; max.f32 %f5, %f4, %f3;" * 8}
st.shared.f32 [%r1], %f5; ld.shared.f32 %f6, [%r1];
add.u32 %r3, %r3, 1; setp.lt.u32 %p, %r3, {TURNS}; @%p bra L;
ret;
}}
"""


class Kept:
    """A launcher that keeps what it is asked for, and launches nothing."""

    launch_: Any = None
    tensors: Mapping[str, Any]

    def launch(self, artifact: Any, **asked: Any) -> Any:
        from mlagen.launch import LaunchReport
        from mlagen.launch.emulated import emulated_launch

        self.tensors, self.launch_ = asked["tensors"], emulated_launch(artifact, **asked)
        return LaunchReport("kept", self.launch_.grid, self.launch_.block, 0.0)


def decode(keys: int) -> tuple[str, Any, Any]:
    """The kernel's text, its launch, and a function that gives the largest error of its output."""
    from mlagen.app.build import build_artifact
    from mlagen.verify import kind_of

    artifact, kept = build_artifact("mla_decode_sm90", {"num_heads": 64}, {}), Kept()
    kind = kind_of(artifact)
    shape = {"lengths": (keys,), "split_keys": -(-keys // 64) * 64}
    trial = kind.trial(kind.made(artifact, data="realistic", seed=0, **shape)).planned(artifact)
    trial.run(artifact, kept)
    out, expected = kept.tensors["o"], np.asarray(trial.oracles()[0].values)

    def error() -> float:
        return float(np.abs(out.astype(np.float64) - expected.reshape(out.shape)).max())

    return artifact.text, kept.launch_, error


class Engine:
    """Times the engine's part of a launch: its machine code, without reading, launch and report."""

    def __init__(self) -> None:
        from mlagen.emulator.ptx.starting import STARTER

        self.run = STARTER.start()
        self.seconds = 0.0

    def timed(self, context: int, budget: int) -> int:
        before = time.process_time()
        code = self.run(context, budget)
        self.seconds += time.process_time() - before
        return int(code)


def least(text: str, launch: Any, settings: Any, repeat: int) -> tuple[int, float, float, int]:
    """Warp instructions, least CPU seconds of the engine and of a launch in `repeat` runs after one
    to warm up, and findings."""
    from mlagen.emulator import emulate
    from mlagen.emulator.ptx.starting import STARTER

    engine = Engine()
    cpu = whole = float("inf")
    with mock.patch.object(STARTER, "start", lambda: engine.timed):
        for _ in range(repeat + 1):
            engine.seconds = 0.0
            before = time.process_time()
            result = emulate(text, launch, settings)
            whole = min(whole, time.process_time() - before)
            cpu = min(cpu, engine.seconds)
    return result.wave_instructions, cpu, whole, len(result.findings)


def measure(text: str, launch: Any, sanitize: bool, exact: bool, repeat: int) -> dict[str, float]:
    """Figures of a kernel, and of what is left when its wgmma are taken out of the text."""
    from mlagen.emulator import Settings

    settings = Settings(sanitize=sanitize, exact=exact, threads=1)
    count, cpu, whole, findings = least(text, launch, settings, repeat)
    if findings:
        raise SystemExit(f"the run has {findings} findings")
    figures = {
        "warp instructions": count,
        "CPU s of the engine": cpu,
        "warp instructions/s in all": count / cpu,
        "CPU s, reading and launch included": whole,
    }
    rest = re.sub(r"wgmma\.mma_async[^;]*;", "", text)
    if rest != text:
        left, cpu, _, _ = least(rest, launch, settings, repeat)
        figures["warp instructions without wgmma"] = left
        figures["CPU s of the engine without them"] = cpu
        figures["warp instructions/s without them"] = left / cpu
    return figures


def reading(text: str) -> float:
    """CPU seconds that it takes to read and translate a text, the least of three."""
    from mlagen.emulator.ptx.program import translate
    from mlagen.ptx import read_ptx

    took = []
    for _ in range(3):
        before = time.process_time()
        module = read_ptx(text)
        translate(module, module.entries[0])
        took.append(time.process_time() - before)
    return min(took)


def right(text: str, launch: Any, error: Any) -> float:
    """The largest error of the output, of a run at the exact level."""
    from mlagen.emulator import Settings, emulate

    emulate(text, launch, Settings())
    return float(error())


def compile_seconds() -> dict[str, float]:
    """Import and start of the engine: into an empty cache, then from the filled one."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        root = str(Path(__file__).parents[1])
        environment["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
        for name in ("first start", "cached start"):
            ran = subprocess.run(
                [sys.executable, "-c", START], env=environment, check=True, capture_output=True
            )
            wall, cpu = (float(number) for number in ran.stdout.split())
            figures[f"{name}, wall s"], figures[f"{name}, CPU s"] = wall, cpu
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--keys", type=int, default=8192)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="time the engine's compilation too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    from mlagen.emulator import Launch

    figures: dict[str, dict[str, float]] = {}
    if options.compile:
        figures["compilation"] = compile_seconds()
    text, launch, error = decode(options.keys)
    figures["decode"] = {
        "CPU s of reading and translating": reading(text),
        "largest error": right(text, launch, error),
    }
    loop = Launch(grid=(1, 1, 1), block=(32, 1, 1), arguments=[])
    for exact in (False, True):
        for sanitize in (False, True):
            name = f"{'exact' if exact else 'fast'}, sanitizer {'on' if sanitize else 'off'}"
            figures[f"decode, {name}"] = measure(text, launch, sanitize, exact, options.repeat)
            found = measure(LOOP, loop, sanitize, exact, options.repeat)
            figures[f"loop without matrix instructions, {name}"] = found
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    if options.json:
        print(json.dumps({"schema": SCHEMA, "machine": machine, "figures": figures}))
        return
    print(f"{options.keys} keys, 64 rows, latest, least of {options.repeat} on {machine}")
    for name, values in figures.items():
        print(f"  {name}")
        for label, value in values.items():
            print(f"    {label:36} {value:14,.{4 if value < 1000 else 0}f}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
