"""Forms of dense and sparse decode are built with default knobs: ptxas keeps all registers.

Some are drawn, others when the sources have changed; those that once spilled are always built."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sources import sources

from mlagen.app.build import build_artifact

DRAWN = 3
HEADS = (8, 12, 16, 24, 32, 40, 64, 128)
SPILLED = (
    {"num_heads": 34, "q_len": 2, "mask": "sliding_window_causal[99]",
     "cache_dtype": "fp8_rope_aware"},
    {"num_heads": 4, "q_len": 6, "mask": "sliding_window_causal[99]",
     "cache_dtype": "fp8_rope_aware"},
)  # fmt: skip
SPARSE_SPILLED = (
    {"num_heads": 16, "rows": "v32", "causal": True},
    {"num_heads": 16, "rows": "v32", "causal": True, "extra": True, "q_len": 4},
    {"num_heads": 16, "rows": "v32", "causal": True, "extra": True, "q_len": 8,
     "shared_list": True},
)  # fmt: skip


def drawn(number: int) -> dict[str, Any]:
    """Any legal problem of MLA decode."""
    rng = random.Random(f"{sources('mlagen', 'schedules', 'templates')} {number}")
    heads = rng.choice([rng.choice(HEADS), rng.randint(1, 128)])
    cache = rng.choice(["bf16", "fp8_e4m3", "fp8_rope_aware"])
    rope_aware = cache == "fp8_rope_aware"
    divisors = [n for n in range(1, 9) if heads % n == 0 and (n == 1 or not rope_aware)]
    window = f"sliding_window_causal[{rng.randint(1, 400)}]"
    return {
        "num_heads": heads,
        "num_kv_heads": rng.choice([1, rng.choice(divisors)]),
        "q_len": rng.randint(1, 8),
        "page_size": rng.choice([1, 16, 32, 64, 128, 192, 320]),
        "mask": rng.choice(["causal", "null", window]),
        "dtype": rng.choice(["bf16", "fp8_e4m3", *(["fp8_rope_aware"] if rope_aware else [])]),
        "cache_dtype": cache,
    }


FORMS = [
    *((kernel, fields) for kernel in ("mla_decode_sm90", "mla_decode_sm100")
      for fields in (*SPILLED, *map(drawn, range(DRAWN)))),
    *(("mla_sparse_decode_sm90", fields) for fields in SPARSE_SPILLED),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "fields"), FORMS, ids=str)
def test_a_form_is_built(kernel: str, fields: dict[str, Any]) -> None:
    artifact = build_artifact(kernel, fields, {})
    assert artifact.manifest.proved
    assert artifact.manifest.resources.scratch_bytes == 0
