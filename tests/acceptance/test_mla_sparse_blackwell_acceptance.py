"""Published shapes of sparse prefill on Blackwell, in the emulator."""

from __future__ import annotations

from functools import lru_cache

import pytest
from sparse_acceptance import check_prefill
from sparse_published import HEADS, TOPK

from mlagen.artifact import Artifact
from mlagen.codegen import build
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig

pytestmark = pytest.mark.acceptance


@lru_cache(maxsize=2)
def kernel(heads: int) -> Artifact:
    return build("mla_sparse_prefill_sm100", MlaSparsePrefillConfig(heads))


@pytest.mark.parametrize("topk", TOPK)
@pytest.mark.parametrize("heads", HEADS)
def test_prefill(heads: int, topk: int) -> None:
    check_prefill(kernel(heads), topk)
