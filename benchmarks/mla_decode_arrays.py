"""MLA decode of ours and AITER's binary on the same arrays: errors, executed instructions.

    python benchmarks/mla_decode_arrays.py --aiter FOLDER [--heads 16 32 64 128]
        [--formats bf16 e4m3 fp8] [--keys 512 1536] [--data realistic] [--json]

FOLDER holds `mla/` with AITER's gfx950 objects. One sequence in pages of one key, one new token,
one workgroup, nothing split. Errors are those of the longer call against exact fp64 attention, and
against the oracle that rounds where our kernel does (ours only). Instructions are what 64 more keys
cost a wave: both have four.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from executed import executed_per_unit
from mla_decode_vs_aiter import FORMATS, KERNEL, THEIRS

SCHEMA = "mlagen.benchmark.mla_decode_arrays/1"
WAVES, TILE = 4, 64


def made_up(form: str, heads: int, keys: int, options: argparse.Namespace) -> Any:
    """One call; what is no key is zero, as AITER's objects read some of it."""
    from mlagen.families.mla_decode.made_up import mla_decode_inputs
    from mlagen.families.mla_decode.problem import MlaDecodeConfig

    config = MlaDecodeConfig(num_heads=heads, page_size=1, **FORMATS[form])
    inputs = mla_decode_inputs(config, lengths=[keys], data=options.data, seed=options.seed)
    known = np.isfinite(inputs.cache.astype(np.float32))
    return replace(inputs, cache=np.where(known, inputs.cache, inputs.cache.dtype.type(0)))


def first(inputs: Any, keys: int) -> Any:
    """The same call over its first keys."""
    return replace(inputs, cache_lengths=np.array([keys], np.int32))


def against(oracle: Any, output: Any) -> dict[str, Any]:
    """Errors of O. `ratio` is in units of the bound; `dB`: signal over noise in the mean square."""
    from mlagen.problem.expected import compare

    found = compare(oracle, output)
    noise = np.square(output.astype(np.float64) - oracle.values).mean()
    return {
        "oracle": found.oracle,
        "error": found.max_error,
        "ratio": found.max_ratio,
        "dB": float(10 * np.log10(np.square(oracle.values).mean() / noise)),
        "failures": found.failures,
    }


def of_ours(form: str, heads: int, calls: list[Any]) -> dict[str, Any]:
    """Our kernel on both calls."""
    from mlagen.app.build import build_artifact
    from mlagen.binary import load_code_object
    from mlagen.families.mla_decode.verification import (
        UNSPLIT,
        DividedInputs,
        MlaDecodeTrial,
    )
    from mlagen.launch import EmulatedLauncher

    fields = {"num_heads": heads, "page_size": 1, **FORMATS[form]}
    artifact = build_artifact(KERNEL, fields, {})
    runs, trial = [], None
    for call in calls:
        trial = MlaDecodeTrial(DividedInputs(call, split_keys=UNSPLIT)).planned(artifact)
        runs.append(trial.run(artifact, EmulatedLauncher(sanitize=False)))
    assert trial is not None
    output = runs[1][0]["o"]
    errors = [against(o, output) for o in trial.oracles() if o.output != "lse"]
    counts = [report.emulation.executions for _, report in runs if report.emulation]
    groups = len(trial.work.items)
    code = load_code_object(artifact.code).kernel(artifact.manifest.symbol)
    return report_of(KERNEL, code, counts, calls, errors, groups)


def of_aiter(form: str, heads: int, calls: list[Any], folder: Path) -> Iterator[dict[str, Any]]:
    """AITER's objects on both calls."""
    from cycle_model.aiter_decode import D_V, DECODE, Call, execute_decode
    from cycle_model.aiter_prefill import load

    from mlagen.families.mla_decode.exact import exact
    from mlagen.problem.formats import BF16

    bits = np.uint16 if form == "bf16" else np.uint8
    for name in THEIRS["bf16" if form == "bf16" else "e4m3", heads]:
        kernel, counts = DECODE[name], []
        code = load(folder / kernel.path)
        out = np.zeros((heads, D_V), np.uint16)
        for inputs in calls:
            pages = inputs.block_table[0, : int(inputs.cache_lengths[0])]
            call = Call(
                np.ascontiguousarray(inputs.q[0, 0]).view(bits),
                np.ascontiguousarray(inputs.cache[:, 0, 0]).view(bits),
                np.ascontiguousarray(pages),
                inputs.scale,
                out,
                inputs.q_scale,
                inputs.kv_scale,
            )
            counts.append(execute_decode(code, kernel, call).executions)
        errors = []
        if kernel.persistent:  # others leave fp32 parts to a second launch
            errors = [against(exact(calls[1]).output, out.view(BF16)[None, None])]
        yield report_of(name, code.kernel(), counts, calls, errors, -(-heads // kernel.rows))


def report_of(
    name: str, code: Any, counts: list[Any], calls: list[Any], errors: list[Any], groups: int
) -> dict[str, Any]:
    """A kernel's errors, and what 64 keys cost a wave by class."""
    keys = [int(call.cache_lengths[0]) for call in calls]
    units = (keys[1] - keys[0]) / TILE * WAVES * groups
    done = executed_per_unit(code.instructions, *counts, units)
    return {"kernel": name, "errors": errors, "total": done.total, "pipes": dict(done.pipes)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--aiter", type=Path, metavar="FOLDER", required=True)
    parser.add_argument("--heads", type=int, nargs="+", default=[16, 32, 64, 128])
    parser.add_argument("--formats", choices=FORMATS, nargs="+", default=list(FORMATS))
    parser.add_argument("--keys", type=int, nargs=2, default=[512, 1536])
    parser.add_argument("--data", default="realistic")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    from mlagen.errors import MlagenError

    reports = []
    for form in options.formats:
        for heads in options.heads:
            whole = made_up(form, heads, max(options.keys), options)
            calls = [first(whole, keys) for keys in sorted(options.keys)]
            try:
                reports.append((form, heads, of_ours(form, heads, calls)))
            except MlagenError as error:
                print(f"{form}, {heads} heads: {error.message}", file=sys.stderr)
            reports += [(form, heads, r) for r in of_aiter(form, heads, calls, options.aiter)]
    if options.json:
        print(json.dumps({"schema": SCHEMA, "reports": reports}))
        return
    for form, heads, report in reports:
        print(f"\n{form}, {heads} heads: {report['kernel']}")
        for e in report["errors"]:
            print(
                f"  {e['oracle']:9} largest error {e['error']:.3g}, {e['ratio']:.3g} of its "
                f"bound, {e['dB']:.1f} dB, {e['failures']} failures"
            )
        each = ", ".join(f"{pipe} {count:.1f}" for pipe, count in report["pipes"].items())
        print(f"  64 keys cost a wave {report['total']:.1f} instructions: {each}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
