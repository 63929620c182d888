"""Prefill kernels side by side: the same arrays through each, errors against both oracles, and the
instructions that a tile of keys costs a wave. What `*_prefill_vs_aiter.py` have in common."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from executed import executed_per_unit


@dataclass(frozen=True)
class Run:
    """One launch: O in the inputs' own layout, and what the emulator says."""

    output: Any
    emulation: Any


@dataclass(frozen=True)
class Contestant:
    """A kernel. `problem`: the inputs as its arithmetic has them, for the oracles."""

    name: str
    code: bytes
    problem: Callable[[Any], Any]
    run: Callable[[Any, str, int], Run]


def of_ours(kernel: str, config: Any, knobs: list[str]) -> Contestant:
    """A schedule of ours, built for the problem."""
    from mlagen.app.build import build_artifact
    from mlagen.app.texts import assignments
    from mlagen.launch import EmulatedLauncher
    from mlagen.ops import PrefillKernel, kernel_of

    artifact = build_artifact(kernel, config.to_fields(), assignments("--knob", knobs))

    def run(inputs: Any, mode: Any, seed: int) -> Run:
        callable_ = kernel_of(artifact, EmulatedLauncher(mode=mode, seed=seed))
        assert isinstance(callable_, PrefillKernel)
        done = callable_.run(inputs)
        assert done.report is not None
        return Run(done.output, done.report.emulation)

    return Contestant(artifact.manifest.kernel, artifact.code, lambda inputs: inputs, run)


def cut(inputs: Any, keys: int) -> Any:
    """The same call over its first keys. Causal rows are then those before the last key."""
    start = np.array([keys - len(inputs.q)], np.int32)
    return replace(
        inputs,
        k=inputs.k[:keys],
        v=inputs.v[:keys],
        kv_offsets=np.array([0, keys], np.int32),
        start_pos=np.maximum(start, 0),
    )


def tiles_of(inputs: Any) -> int:
    """Tiles of keys that the workgroups of one head walk."""
    config, rows = inputs.config, len(inputs.q)
    (s,) = inputs.sequences
    return sum(
        len(config.tiles(tile, seq_len=rows, start_pos=s.start_pos, num_keys=s.keys))
        for tile in range(config.q_tiles(rows))
    )


def errors(contestant: Contestant, inputs: Any, run: Run) -> list[dict[str, Any]]:
    """The output against both oracles. `ratio` is in units of the bound; `dB`: signal over noise in
    the mean square."""
    from mlagen.attention.prefill.exact import exact
    from mlagen.attention.prefill.rounded import rounded
    from mlagen.problem.expected import compare

    of = contestant.problem(inputs)
    made = of.output_view(run.output)
    found = []
    for oracle in (exact, rounded):
        expected = oracle(of).output
        c = compare(expected, made)
        noise = np.square(made.astype(np.float64) - expected.values).mean()
        found.append(
            {
                "oracle": c.oracle,
                "error": c.max_error,
                "ratio": c.max_ratio,
                "dB": float(10 * np.log10(np.square(expected.values).mean() / noise)),
                "failures": c.failures,
                "nans": c.nans,
            }
        )
    return found


def measure(contestant: Contestant, inputs: Any, keys: tuple[int, int], options: Any) -> Any:
    """Errors of the longer run, and what the tiles between the two lengths cost a wave each."""
    from mlagen.binary import load_code_object

    calls = [cut(inputs, count) for count in keys]
    runs = [contestant.run(call, options.mode, options.seed) for call in calls]
    config = inputs.config
    tiles = tiles_of(calls[1]) - tiles_of(calls[0])
    units = tiles * config.num_heads * config.num_warps
    kernel = load_code_object(contestant.code).kernel()
    executed = executed_per_unit(
        kernel.instructions, *(run.emulation.executions for run in runs), units
    )
    return {
        "kernel": contestant.name,
        "errors": errors(contestant, calls[1], runs[1]),
        "findings": len(runs[1].emulation.findings),
        "wave instructions": runs[1].emulation.wave_instructions,
        "tiles": tiles,
        "executed": {**asdict(executed), "total": executed.total, "always": executed.always},
    }


def show(report: dict[str, Any], mnemonics: int) -> None:
    """One kernel's report as text."""
    print(f"\n{report['kernel']}")
    for error in report["errors"]:
        print(
            f"  {error['oracle']:9} largest error {error['error']:.3g}, {error['ratio']:.3g} of "
            f"its bound, {error['dB']:.1f} dB, {error['failures']} failures, {error['nans']} NaN"
        )
    print(f"  {report['findings']} findings, {report['wave instructions']:,} wave-instructions")
    executed = report["executed"]
    print(f"  a tile and wave, mean of {report['tiles']} tiles: {executed['total']:.2f}")
    print(f"    {'':16} {'mean':>8} {'always':>8}")
    for pipe, count in executed["pipes"]:
        print(f"    {pipe:16} {count:8.2f} {executed['always'][pipe]:8.2f}")
    waits = ", ".join(f"{text} {count:.2f}" for text, count in executed["waits"].items())
    print(f"    waits that leave operations outstanding: {executed['slack']:.2f}; {waits}")
    most = list(executed["mnemonics"].items())[:mnemonics]
    print("    " + ", ".join(f"{name} {count:.2f}" for name, count in most))
    if not executed["skipped"]:
        print("    no code that a branch skips: every tile takes one path, whatever its maxima")
    for code in executed["skipped"]:
        mix = ", ".join(f"{pipe} {count}" for pipe, count in code["pipes"])
        names = ", ".join(f"{name} {count}" for name, count in code["mnemonics"][:4])
        at = ", ".join(f"{first:#x}" for first, _ in code["places"][:2])
        print(
            f"    skipped or not, at {at}{', …' if len(code['places']) > 2 else ''}: entered "
            f"{code['entered']:.3f} of {code['reached']:.2f} times; {mix} ({names})"
        )


def options_of(doc: str | None, objects: str) -> argparse.ArgumentParser:
    """The options that both benchmarks have. `objects`: what FOLDER holds."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else "")
    parser.add_argument("--aiter", type=Path, metavar="FOLDER", help=f"folder with {objects}")
    parser.add_argument("--knob", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--mask", choices=["null", "causal"], default="null")
    parser.add_argument("--data", default="realistic")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--keys", type=int, nargs=2, default=[512, 2560])
    parser.add_argument("--mode", choices=["latest", "earliest", "random"], default="earliest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mnemonics", type=int, default=14, help="how many are printed")
    parser.add_argument("--json", action="store_true")
    return parser


def lengths_of(options: argparse.Namespace) -> tuple[int, int]:
    """The two numbers of keys between which tiles are counted. SystemExit where they are none."""
    fewer, more = sorted(options.keys)
    if not options.rows <= fewer < more:
        raise SystemExit(f"--keys {fewer} {more}: two lengths, neither below --rows {options.rows}")
    return fewer, more


def sizes_of(options: argparse.Namespace) -> dict[str, Any]:
    """The call of the longer run: one sequence whose rows stand at its last keys, quantised."""
    _, more = lengths_of(options)
    return {
        "lengths": [options.rows],
        "num_keys": more,
        "start_pos": more - options.rows,
        "data": options.data,
        "seed": options.seed,
        "quantise": True,
    }


def tell(
    reports: list[Any], options: argparse.Namespace, schema: str, names: Iterable[str]
) -> None:
    """Prints the reports, with the options of these names."""
    fewer, more = lengths_of(options)
    call = {name: getattr(options, name) for name in names}
    if options.json:
        print(json.dumps({"schema": schema, "keys": [fewer, more], **call, "kernels": reports}))
        return
    shown = ", ".join(f"{name} {value}" for name, value in call.items())
    print(f"{shown}, keys {more} (per tile: from {fewer} on), mode {options.mode}")
    for report in reports:
        show(report, options.mnemonics)
