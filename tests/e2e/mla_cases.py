"""mla_prefill_v2 built once a problem, and what it must pass."""

from functools import lru_cache

import draws
from draws import verified

from mlagen.codegen import build
from mlagen.families.mla_prefill.problem import MlaConfigV2

KERNEL = "mla_prefill_v2"
TILE = 128


@lru_cache(maxsize=64)
def built(config, **knobs):
    return build(KERNEL, config, knobs=knobs)


def artifact(heads=(1, 1), **fields):
    """fp8 where `fields` say nothing else."""
    return built(MlaConfigV2(*heads, **{"dtype": "fp8_e4m3", **fields}))


check = verified


def keys_of(tiles, tail):
    """Keys of so many tiles, of which the last holds `tail`; 0: it is full."""
    return draws.keys_of(TILE, tiles, tail)
