"""What manifests state that kernels round: the same for all numbers of heads of a problem,
or what is in the table `OTHERWISE`."""

from __future__ import annotations

from typing import Any

import pytest

from mlagen.app.build import written_schedule
from mlagen.families.mla_sparse.rows import FORMATS

HEADS = (8, 16, 24, 32, 40, 64, 128)
TARGETS = ("sm90", "sm100", "gfx950")
# On Hopper, where schedules of more heads are others: what kernels of up to so many heads state.
OTHERWISE = {
    ("sparse", "sm90", "v32"): {
        16: "Q to f16, P to f16", 128: "rows to f16, Q to f16, P to f16",
    },
    ("decode", "sm90", "fp8_e4m3"): {32: "Q to f16, P to f16", 128: "P to bf16"},
    ("decode", "sm90", "fp8_rope_aware"): {32: "Q to f16, P to bf16", 128: "P to bf16"},
}  # fmt: skip


def stated(name: str, **fields: Any) -> str:
    """What the manifest of a kernel states, without making one."""
    made = written_schedule(name, fields, {}).schedule
    return ", ".join(
        f"{one.name} to {one.to}" for one in made.problem.roundings(made.facts) if one.name != "M"
    )


def agree(found: dict[int, str], *form: str) -> None:
    """Holds what is stated by number of heads against the table."""
    if form not in OTHERWISE:
        assert len(set(found.values())) == 1, found
        return
    table = OTHERWISE[form]
    assert found == {heads: table[min(n for n in table if heads <= n)] for heads in found}


@pytest.mark.parametrize("rows", FORMATS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("which", ["prefill", "decode"])
def test_sparse_kernels_state_the_same(which: str, target: str, rows: str) -> None:
    fields = {"rows": rows, "d_qk": FORMATS[rows].widths[0]}
    name = f"mla_sparse_{which}_{target}"
    agree({n: stated(name, num_heads=n, **fields) for n in HEADS}, "sparse", target, rows)


@pytest.mark.parametrize("cache", ["bf16", "fp8_e4m3", "fp8_rope_aware"])
@pytest.mark.parametrize("target", TARGETS)
def test_decode_kernels_state_the_same(target: str, cache: str) -> None:
    name = "mla_decode_gfx950" if target == "gfx950" else f"mla_decode_{target}"
    found = {n: stated(name, num_heads=n, cache_dtype=cache) for n in HEADS}
    agree(found, "decode", target, cache)
