"""Artifacts by config, built once a session."""

import pytest

from mlagen.codegen import build
from mlagen.families.mha_prefill.problem import MhaConfigV2


@pytest.fixture(scope="session")
def prefill():
    """`prefill(num_heads=..., ...)`: the artifact of mha_prefill_v2 for these fields."""
    made = {}

    def get(**fields):
        config = MhaConfigV2(**{"num_heads": 2, "num_kv_heads": 1, **fields})
        if config not in made:
            made[config] = build("mha_prefill_v2", config)
        return made[config]

    return get
