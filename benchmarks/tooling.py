"""How long the tools take: building each shipped kernel, and emulating the demo.

The emulation is with the sanitizer on and off.

    python benchmarks/tooling.py [--repeat 3] [--match TEXT] [--json]

Builds are told by the processor time of Python (start, imports, derivation, proof, text) and of the
assembler, the least of `--repeat` runs each; `--match` takes those with TEXT in their name, and no
emulation. Figures are of this machine, whatever else it is doing: take them on an idle one.
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
from pathlib import Path

SCHEMA = "mlagen.benchmark.tooling/2"
ROOT = Path(__file__).resolve().parents[1]
PREFILL = ("num_heads=8", "num_kv_heads=2")
LATENT = ("num_heads=16", "num_kv_heads=16")
FP8 = "dtype=fp8_e4m3"
GEMM = str(ROOT / "examples" / "gemm_bf16.py")
# What is built: kernel, fields; "+name=value" is a knob, "@name" a target.
BUILDS: dict[str, tuple[str, ...]] = {
    "MHA prefill, bf16": ("mha_prefill_v2", *PREFILL),
    "MHA prefill, fp8": ("mha_prefill_v2", *PREFILL, FP8),
    "MLA prefill, bf16": ("mla_prefill_v2", *LATENT),
    "MLA prefill, fp8": ("mla_prefill_v2", *LATENT, FP8),
    "MLA prefill, bf16, persistent": ("mla_prefill_v2", *LATENT, "ragged=true", "+grid=persistent"),
    "MLA prefill's reduce": ("mla_prefill_reduce", "num_heads=16"),
    "MLA decode": ("mla_decode_sm90", "num_heads=128"),
    "MLA decode, e4m3": ("mla_decode_sm90", "num_heads=128", "cache_dtype=fp8_e4m3"),
    "MLA decode, rope-aware fp8": (
        "mla_decode_sm90",
        "num_heads=128",
        "cache_dtype=fp8_rope_aware",
    ),
    "MLA decode, persistent": ("mla_decode_sm90", "num_heads=128", "+persistent=1"),
    "MLA decode's merge": ("mla_decode_merge_sm90", "num_heads=128"),
    "GEMM, gfx950": (GEMM, "@gfx950"),
    "GEMM, sm_90a": (GEMM, "@sm_90a"),
}
# `mlagen build` that tells at its end what it and the assembler took.
_TIMED = """
import atexit, json, resource, runpy, sys

def tell():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps([x.ru_utime + x.ru_stime for x in used]), file=sys.stderr)

atexit.register(tell)
runpy.run_module("mlagen", run_name="__main__", alter_sys=True)
"""


def build_seconds(kernel: str, *options: str) -> tuple[float, float, float]:
    """Process time of Python and of the assembler, and wall time, of a build in a new process."""
    flags = {"+": "--knob", "@": "--target"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _TIMED, "build", kernel, "-o", f"{folder}/k"]
        for option in options:
            command += [flags.get(option[0], "--set"), option.lstrip("+@")]
        start = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        wall = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(done.stderr)
    python, assembler = json.loads(done.stderr.splitlines()[-1])
    return python, assembler, wall


def emulation(repeat: int) -> dict[str, float]:
    """Seconds and wave instructions a second of the demo shape, after one run to warm up."""
    from mlagen.codegen import build
    from mlagen.families.mha_prefill.kernel import MhaKernel
    from mlagen.families.mha_prefill.made_up import mha_inputs
    from mlagen.families.mha_prefill.problem import MhaConfigV2
    from mlagen.launch import EmulatedLauncher

    config = MhaConfigV2(num_heads=8, num_kv_heads=2)
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
    parser.add_argument("--match", default="", help="builds with this in their name, alone")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    for name in (name for name in BUILDS if options.match in name):
        runs = [build_seconds(*BUILDS[name]) for _ in range(options.repeat)]
        for what, times in zip(
            ("Python", "assembler", "wall"), zip(*runs, strict=True), strict=True
        ):
            figures[f"build of {name}: {what} s"] = min(times)
    if not options.match:
        figures |= emulation(options.repeat)
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    if options.json:
        print(json.dumps({"schema": SCHEMA, "machine": machine, "figures": figures}))
        return
    print(f"best of {options.repeat} on {machine}")
    for name, value in figures.items():
        print(f"  {name:60} {value:12.3f}" if value < 1000 else f"  {name:60} {value:12,.0f}")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
