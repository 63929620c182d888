"""The kernel that is mutated, built once a process."""

from __future__ import annotations

from functools import cache

from mlagen.artifact import Artifact
from mlagen.codegen import build
from mlagen.mutation import read_listing
from mlagen.problem import MhaConfig

SYMBOL = "mha_prefill_v2"


@cache
def prefill() -> Artifact:
    return build(SYMBOL, MhaConfig(num_heads=1, num_kv_heads=1, depth=128, mask="null"))


LISTING = read_listing(prefill().text, SYMBOL)
