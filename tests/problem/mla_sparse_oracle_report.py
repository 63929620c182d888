"""Prints the table of docs/oracles_mla_sparse.md: how sharp the bounds of both oracles are.

python tests/problem/mla_sparse_oracle_report.py
"""

from __future__ import annotations

from mla_sparse_simulation import FAULTS, simulate

from mlagen.families.mla_sparse.exact import exact
from mlagen.families.mla_sparse.expected import compare_outputs
from mlagen.families.mla_sparse.made_up import mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rounded import rounded

OUTPUTS = ("o", "max_logits", "lse")


def line(rows: str, data: str, name: str, **options: str) -> str:
    """Errors over bounds, the largest over all elements."""
    config = MlaSparsePrefillConfig(8, rows=rows)
    call = mla_sparse_prefill_inputs(
        config, rows=2, topk=300, data=data, pattern="invalid", sink=[0.5 * n for n in range(8)]
    )
    outputs = simulate(call, **options)
    both = [compare_outputs(call, oracle(call), outputs) for oracle in (exact, rounded)]
    found = [one[output].max_ratio for output in OUTPUTS for one in both]
    shown = [f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}" for ratio in found]
    return f"| {' | '.join([rows, data, name, *shown])} |"


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


if __name__ == "__main__":
    main()
