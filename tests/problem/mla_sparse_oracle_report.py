"""Prints the table of docs/oracles_mla_sparse.md: how sharp the bounds of both oracles are.

python tests/problem/mla_sparse_oracle_report.py
"""

from __future__ import annotations

from dataclasses import replace

import e4m3_simulation as of_e4m3
import numpy as np
from mla_sparse_simulation import FAULTS, simulate

from mlagen.attention.latent.order import OF_E4M3
from mlagen.families.mla_sparse.exact import exact
from mlagen.families.mla_sparse.expected import compare_outputs
from mlagen.families.mla_sparse.made_up import SPARSE_KINDS, mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rounded import rounded
from mlagen.problem.expected import Comparison

OUTPUTS = ("o", "max_logits", "lse")


def line(rows: str, data: str, name: str, **options: str) -> str:
    """Errors over bounds, the largest over all elements."""
    config = MlaSparsePrefillConfig(8, rows=rows)
    call = mla_sparse_prefill_inputs(
        config, rows=2, topk=300, data=data, pattern="invalid", sink=[0.5 * n for n in range(8)]
    )
    outputs = simulate(call, **options)
    both = [compare_outputs(call, oracle(call), outputs) for oracle in (exact, rounded)]
    return shown((rows, data, name), both)


def line_of_e4m3(rows: str, data: str, fault: str | None) -> str:
    """The same with products of e4m3, and sinks near the LSE."""
    config = MlaSparsePrefillConfig(4, dtype="fp8_e4m3", rows=rows, compute="fp8")
    call = mla_sparse_prefill_inputs(config, rows=2, topk=330, data=data, pattern="invalid")
    near = exact(call, order=OF_E4M3).lse.values[0, 0, :, 0] + [0.0, -1.0, 2.0, -3.0]
    call = replace(call, sink=near.astype(np.float32))
    outputs = of_e4m3.simulate(call, fault=fault)
    oracles = [oracle(call, order=OF_E4M3) for oracle in (exact, rounded)]
    both = [compare_outputs(call, expected, outputs) for expected in oracles]
    return shown((rows, data, fault or "honest"), both)


def shown(names: tuple[str, ...], both: list[dict[str, Comparison]]) -> str:
    """A line of a table."""
    found = [one[output].max_ratio for output in OUTPUTS for one in both]
    ratios = [f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}" for ratio in found]
    return f"| {' | '.join([*names, *ratios])} |"


def main() -> None:
    columns = [
        f"{output}, {oracle}" for output in ("O", "max", "LSE") for oracle in ("exact", "r.")
    ]
    print(f"| rows | data | kernel | {' | '.join(columns)} |")
    print("|" + "---|" * (len(columns) + 3))
    for rows, data in (("bf16", "realistic"), ("bf16", "peaked"), ("bf16", "diffuse"),
                       ("e4m3_row", "randn"), ("e4m3_block64", "randn"), ("v32", "randn"),
                       ("rope_aware", "randn")):  # fmt: skip
        print(line(rows, data, "honest"))
        print(line(rows, data, "honest, other order", arithmetic="nearest"))
    for rows in ("bf16", "v32"):
        for fault in FAULTS:
            print(line(rows, "randn", fault, fault=fault))
    print(f"\nProducts of e4m3\n\n| rows | data | kernel | {' | '.join(columns)} |")
    print("|" + "---|" * (len(columns) + 3))
    for data in SPARSE_KINDS:
        print(line_of_e4m3("e4m3", data, None))
    print(line_of_e4m3("e4m3_row", "randn", None))
    for fault, data in of_e4m3.FAULTS.items():
        print(line_of_e4m3("e4m3", data, fault))
    for fault, data in of_e4m3.OF_ROWS.items():
        print(line_of_e4m3("e4m3_row", data, fault))


if __name__ == "__main__":
    main()
