"""Published shapes of sparse prefill and decode on gfx950, in the emulator."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
from sparse_acceptance import check_decode, check_prefill
from sparse_published import DECODE_EXTRA, DECODE_LISTS, HEADS, TOPK

from mlagen.app.build import build_artifact
from mlagen.artifact import Artifact

pytestmark = pytest.mark.acceptance


@lru_cache(maxsize=2)
def kernel(which: str, **fields: Any) -> Artifact:
    return build_artifact(f"mla_sparse_{which}_gfx950", fields, {})


@pytest.mark.parametrize("topk", TOPK)
@pytest.mark.parametrize("heads", HEADS)
def test_prefill(heads: int, topk: int) -> None:
    check_prefill(kernel("prefill", num_heads=heads), topk)


@pytest.mark.parametrize("q_len", [1, 2, 4, 8])
@pytest.mark.parametrize("extra_topk", DECODE_EXTRA)
@pytest.mark.parametrize(("topk", "keys"), DECODE_LISTS)
@pytest.mark.parametrize("rows", ["bf16", "e4m3_block128"])
@pytest.mark.parametrize("heads", [16, 64])
def test_decode(heads: int, rows: str, topk: int, keys: int, extra_topk: int, q_len: int) -> None:
    fields = {"num_heads": heads, "rows": rows, "q_len": q_len, "extra": extra_topk > 0}
    check_decode(kernel("decode", **fields), topk, keys, extra_topk)
