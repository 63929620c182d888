"""Prefill kernels in the tables of the cycle model."""

from __future__ import annotations

from collections.abc import Mapping

from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.family import LadderCase

# Tokens of the two runs of a ladder. 3072 apart: whole iterations of any number of LDS slots.
_LENGTHS = (1024, 4096)


def prefill_ladders(
    kernel: str, config_type: type[PrefillConfig], beside: Mapping[str, str]
) -> tuple[LadderCase, ...]:
    """One head, nothing masked. `beside`: for each dtype the measured kernel of this problem."""
    cases = []
    for dtype, other in beside.items():
        fields = {"num_heads": 1, "num_kv_heads": 1, "mask": "null", "dtype": dtype}
        config = config_type.from_fields(fields)
        cases.append(
            LadderCase(
                kernel if dtype == "bf16" else f"{kernel} {dtype.partition('_')[0]}",
                kernel,
                fields,
                {n: {"batch": 1, "seq_len": n, "num_keys": n} for n in _LENGTHS},
                (config.q_tile, config.kv_block),
                (config.qk_width, config.v_width),
                other,
            )
        )
    return tuple(cases)
