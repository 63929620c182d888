"""Prints the tables of docs/oracles_mla_prefill.md and docs/oracles_mha.md on fp8: what it costs,
and how sharp the bounds are.

python tests/problem/mla_prefill_oracle_report.py
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from mla_prefill_simulation import FAULTS, simulate

from mlagen.attention.prefill.exact import exact
from mlagen.attention.prefill.rounded import rounded
from mlagen.families.mha_prefill.made_up import mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.families.mla_prefill.made_up import mla_prefill_inputs
from mlagen.families.mla_prefill.problem import MlaConfigV2
from mlagen.problem.expected import compare

SHAPE = {"seq_len": 256, "num_keys": 1024, "start_pos": 768}


def decibels(error: np.ndarray, signal: np.ndarray) -> str:
    """Signal to noise; infinite where there is no error."""
    noise = float(np.square(error).sum())
    return f"{10 * np.log10(np.square(signal).sum() / noise):.1f}" if noise else "inf"


def budget(data: str, bf16: MhaConfigV2 | MlaConfigV2) -> str:
    """Rounding the inputs, rounding P, and both, in dB of the exact output of unrounded inputs.

    "Unrounded" is bf16, which the same numbers are given in.
    """
    make = mha_inputs if isinstance(bf16, MhaConfigV2) else mla_prefill_inputs
    fine = make(bf16, data=data, **SHAPE)
    config = replace(bf16, dtype="fp8_e4m3")
    coarse = make(config, data=data, quantise=True, **SHAPE)
    signal = exact(fine).output.values
    inputs = exact(coarse).output.values
    p = rounded(coarse).output.values
    shown = [decibels(inputs - signal, signal), decibels(p - inputs, inputs)]
    shown += [decibels(p - signal, signal)]
    bound = exact(coarse).output.bounds
    shown.append(f"{np.abs(p - inputs).max() / np.abs(inputs).max():.2g}")
    shown.append(f"{np.median(bound) / np.sqrt(np.square(inputs).mean()):.2g}")
    return f"| {' | '.join([data, *shown])} |"


def sharpness(data: str, name: str, **options: str) -> str:
    """One line of errors over bounds."""
    config = MlaConfigV2(2, 2, dtype="fp8_e4m3", lse=True)
    shape = {"seq_len": 200, "num_keys": 300, "start_pos": 100}
    inputs = mla_prefill_inputs(config, data=data, quantise=True, **shape)
    out, lse = simulate(inputs, **options)
    found = []
    for view, which in ((inputs.output_view(out), "output"), (inputs.lse_view(lse), "lse")):
        for oracle in (exact, rounded):
            found.append(compare(getattr(oracle(inputs), which), view).max_ratio)
    shown = [f"{r:.2g}" if r < 10 else f"{r:.0f}" for r in found]
    return f"| {' | '.join([data, name, *shown])} |"


def main() -> None:
    columns = "| data | inputs, dB | P, dB | both, dB | P, largest / largest O | bound / rms O |"
    print("MLA prefill")
    print(columns)
    print("|---|---|---|---|---|---|")
    for data in ("half", "randn", "peaked", "realistic", "constant"):
        print(budget(data, MlaConfigV2(2, 2)))
    print()
    for sink in (False, True):
        print(f"MHA, depth 128, {'with' if sink else 'without'} sinks")
        print(columns)
        print("|---|---|---|---|---|---|")
        for data in ("randn", "realistic", "late_max", "jumps"):
            print(budget(data, MhaConfigV2(2, 2, sink=sink)))
    print()
    print("| data | kernel | O, exact | O, rounding | LSE, exact | LSE, rounding |")
    print("|---|---|---|---|---|---|")
    for data in ("half", "randn", "realistic", "late_max", "jumps"):
        print(sharpness(data, "honest"))
        print(sharpness(data, "honest, unfused", style="unfused"))
    for fault in FAULTS:
        print(sharpness("late_max" if fault == "stale rescale" else "randn", fault, fault=fault))


if __name__ == "__main__":
    main()
