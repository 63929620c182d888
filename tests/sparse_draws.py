"""Calls of sparse MLA that hypothesis draws, on a GPU and, small ones, in the emulator."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.inputs import MlaSparseInputs
from mlagen.families.mla_sparse.made_up import (
    MIXED,
    PATTERNS,
    SPARSE_KINDS,
    mla_sparse_decode_inputs,
    mla_sparse_prefill_inputs,
)
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rows import FORMATS

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

TUNED_HEADS = (1, 8, 16, 17, 32, 33, 64, 65, 128)
SINKS = (0.0, 1.5, -4.0, 20.0, -1e38, float("inf"), float("-inf"))
PAGE_SIZES = (1, 2, 3, 16, 48, 64, 192)
TILE = 64


@dataclass(frozen=True)
class Most:
    """The largest sizes that are drawn: of a list, of the pool, of queries (times the tokens of
    each in decode)."""

    topk: int
    pages: int
    queries: int


GPU, EMULATED = Most(topk=900, pages=60, queries=12), Most(topk=140, pages=8, queries=2)


def drawing(few: int) -> Callable[[Any], Any]:
    """Settings: `few` examples, the same each time; MLAGEN_SWEEP=100 draws that many, anew each
    time. A failing example is not made smaller: that would build kernels for minutes."""
    return hypothesis.settings(
        max_examples=int(os.environ.get("MLAGEN_SWEEP", few)),
        derandomize="MLAGEN_SWEEP" not in os.environ,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )


@st.composite
def problems(draw: Any) -> tuple[str, dict[str, Any]]:
    """`prefill` or `decode`, and the fields of a problem."""
    which = draw(st.sampled_from(["prefill", "decode"]))
    row = draw(st.sampled_from(list(FORMATS.values())))
    fields = {
        "num_heads": draw(st.one_of(st.sampled_from(TUNED_HEADS), st.integers(1, 128))),
        "rows": row.name,
        "d_qk": draw(st.sampled_from(row.widths)),
    }
    if which == "decode":
        fields["q_len"] = draw(st.integers(1, 8))
        fields |= {name: draw(st.booleans()) for name in ("shared_list", "extra", "causal")}
    return which, fields


@dataclass(frozen=True, eq=False)
class Drawn:
    """A call: its inputs and what is given besides."""

    inputs: MlaSparseInputs
    given: dict[str, Any]


@st.composite
def calls(draw: Any, config: Any, most: Most) -> Drawn:
    """A call of a problem."""
    page_size = draw(st.sampled_from(PAGE_SIZES))
    shape: dict[str, Any] = {
        "page_size": page_size,
        "cache_rows": page_size * draw(st.integers(1, most.pages)),
        "layers": draw(st.integers(1, 3)),
        "room": draw(st.sampled_from([0, 16, 64])),
        "data": draw(st.sampled_from(sorted(SPARSE_KINDS))),
        "pattern": draw(st.sampled_from([MIXED, *PATTERNS])),
        "seed": draw(st.integers(0, 99)),
    }
    topk = shape["topk"] = draw(_sizes(most.topk))
    if draw(st.booleans()):
        few = draw(st.lists(st.sampled_from(SINKS), min_size=1, max_size=5))
        shape["sink"] = (few * config.num_heads)[: config.num_heads]
    given = {"empty_lse": draw(st.sampled_from(["-inf", "+inf"]))}
    gap = draw(st.sampled_from([0, 0, 3, 64]))
    if isinstance(config, MlaSparsePrefillConfig):
        rows = shape["rows"] = draw(st.integers(1, most.queries))
        shape["lengths"] = draw(_lengths(rows, topk))
        return Drawn(apart(mla_sparse_prefill_inputs(config, **shape), gap), given)
    assert isinstance(config, MlaSparseDecodeConfig)
    batch = shape["batch"] = draw(st.integers(1, max(1, most.queries // config.q_len)))
    shape["lengths"] = draw(_lengths(batch, topk))
    tiles = -(-topk // TILE)
    if config.extra:
        extra = shape["extra_topk"] = draw(_sizes(most.topk))
        shape["extra_lengths"] = draw(_lengths(batch, extra))
        tiles += -(-extra // TILE)
    given["splits"] = draw(st.one_of(st.none(), st.just(1), st.integers(1, tiles)))
    return Drawn(apart(mla_sparse_decode_inputs(config, **shape), gap), given)


def apart(inputs: Any, gap: int) -> Any:
    """The same call with so many numbers between its lists, each the first row's."""
    found = {}
    for name in ("indices", "positions", "extra_indices"):
        lists = getattr(inputs, name, None)
        if lists is not None:
            wide = np.zeros((*lists.shape[:-1], lists.shape[-1] + gap), np.int32)
            wide[..., : lists.shape[-1]] = lists
            found[name] = wide[..., : lists.shape[-1]]
    return replace(inputs, **found)


def _sizes(most: int) -> Any:
    """Lengths of lists: any, around a tile of 64 keys, or one."""
    around = [n for n in (1, 63, 64, 65, 127, 128, 129, 192, 256) if n <= most]
    return st.one_of(st.sampled_from(around), st.integers(1, most))


def _lengths(count: int, topk: int) -> Any:
    """None, or a length for each of so many lists, some below 0 or beyond the list."""
    each = st.one_of(st.sampled_from([0, 1, TILE, topk]), st.integers(-2, topk + 70))
    return st.one_of(st.none(), st.lists(each, min_size=count, max_size=count))
