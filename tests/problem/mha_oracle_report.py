"""Prints how near a simulated prefill kernel comes to the oracles' bounds, and how far each defect
lies beyond them: the table of docs/oracles_mha.md.

    python tests/problem/mha_oracle_report.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mha_simulation import (
    FAULTS,
    PAGE_FAULT,
    SINK_FAULTS,
    WINDOW_FAULTS,
    simulate_inputs,
)

from mlagen.attention.prefill.exact import exact
from mlagen.attention.prefill.rounded import rounded
from mlagen.families.mha_prefill.made_up import mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.problem.expected import compare

FORM = {"ragged": True, "page_size": 32, "sink": True, "lse": True}
SHAPE = {"lengths": [300, 0, 1, 65], "num_keys": [300, 70, 0, 200], "start_pos": [0, 3, 5, 137]}
HONEST = ("realistic", "randn", "late_max", "jumps")


def row(data: str, mask: str, name: str, **options: str) -> str:
    """One line of the table."""
    inputs = mha_inputs(MhaConfigV2(8, 2, mask=mask, **FORM), data=data, **SHAPE)
    out, lse = simulate_inputs(inputs, **options)
    both = exact(inputs), rounded(inputs)
    ratios = [compare(e.output, inputs.output_view(out)).max_ratio for e in both]
    ratios += [compare(e.lse, inputs.lse_view(lse)).max_ratio for e in both]
    shown = [f"{r:.3g}" if r < 10 else f"{r:.0f}" for r in ratios]
    return f"| {' | '.join([data, mask, name, *shown])} |"


def main() -> None:
    print("| data | mask | kernel | O, exact | O, rounding | LSE, exact | LSE, rounding |")
    print("|---|---|---|---|---|---|---|")
    for data in HONEST:
        print(row(data, "causal", "honest"))
        print(row(data, "causal", "honest, other order", order="descending"))
    for fault in (*FAULTS, *SINK_FAULTS, PAGE_FAULT):
        data = "late_max" if fault == "stale rescale" else "realistic"
        print(row(data, "causal", fault, fault=fault))
    for fault in WINDOW_FAULTS:
        print(row("realistic", "sliding_window_causal[70]", fault, fault=fault))


if __name__ == "__main__":
    main()
