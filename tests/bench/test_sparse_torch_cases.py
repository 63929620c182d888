"""Caches and lists that torch draws, on the CPU, against the host's reading of the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlagen.attention.latent.order import KEYS_AS_ROWS
from mlagen.bench.torch_arrays import to_host
from mlagen.families.mla_sparse.benchmark import SparseDecodeBenchmark, torch_pool
from mlagen.families.mla_sparse.benchmark.judge import SparseJudge
from mlagen.families.mla_sparse.benchmark.torch_case import CaseMaker
from mlagen.families.mla_sparse.benchmark.torch_pool import Drawer
from mlagen.families.mla_sparse.benchmark.work import PrefillWork, SparseDecodeWork
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig as Decode
from mlagen.families.mla_sparse.pool import Pool
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig as Prefill
from mlagen.families.mla_sparse.rows import FORMATS

torch = pytest.importorskip("torch")
SIZES: dict[str, Any] = {"batch": 3, "keys": 333, "topk": 150}
EXTRA = SparseDecodeWork(
    config=Decode(13, rows="v32", q_len=2, extra=True), extra_keys=200, extra_topk=64, invalid=3,
    page_size=16, **SIZES,
)  # fmt: skip
SHARED = SparseDecodeWork(
    config=Decode(13, q_len=2, causal=True, shared_list=True), least=100, sorted=1, **SIZES
)
ROWS = PrefillWork(config=Prefill(8), rows=9, keys=333, topk=150, least=20, invalid=10)


@pytest.fixture(autouse=True)
def _several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_pool, "AT_ONCE", 1 << 14)


def drawn(work: Any) -> Any:
    made = torch.Generator().manual_seed(work.seed)
    make = lambda shape: torch.full(shape, 0xFF, dtype=torch.uint8)  # noqa: E731
    return CaseMaker(work, Drawer(torch, made, make)).case()


@pytest.mark.parametrize(
    ("name", "d_qk"), [(name, d) for name, row in FORMATS.items() for d in row.widths]
)
def test_rows_are_what_the_host_reads(name: str, d_qk: int) -> None:
    case = drawn(SparseDecodeWork(config=Decode(8, d_qk=d_qk, rows=name), page_size=24, **SIZES))
    pool = case.pool
    scales = None if pool.scales is None else to_host(pool.scales)
    memory, (pages, page_size, columns) = pool.memory.numpy(), pool.cache.shape
    host_cache = np.lib.stride_tricks.as_strided(
        memory.view(to_host(pool.cache[:1]).dtype), (pages, page_size, columns),
        tuple(stride * pool.cache.element_size() for stride in pool.cache.stride()),
    )  # fmt: skip
    host = Pool(pool.row, d_qk, host_cache, scales)
    rows = np.arange(pool.count)
    for found, wanted in zip(pool.stored(rows), host.stored(rows), strict=True):
        if wanted is None:
            assert found is None
        else:
            assert (found.view(np.uint8) == np.ascontiguousarray(wanted).view(np.uint8)).all()
    numbers = host.numbers(rows)
    wanted = numbers.bf16 * numbers.scales[:, None]
    assert np.isfinite(wanted).all() and 0.5 < wanted.std() < 2.0
    found = to_host(pool.bf16()).astype(np.float64)
    assert (np.abs(found - wanted) <= 2.0**-8 * np.abs(wanted)).all()


@pytest.mark.parametrize("work", [ROWS, EXTRA, SHARED], ids=str)
def test_lists(work: Any) -> None:
    case = drawn(work)
    lists = case.lists.numpy()
    assert lists.shape == (work.queries, work.topk)
    keys = int((lists >= 0).sum())
    for own in lists:
        named = own[own >= 0]
        assert len(np.unique(named)) == len(named) and named.max() < case.pool.count
    if case.lengths is not None:
        past = np.arange(work.topk) >= case.lengths.numpy()[:, None]
        assert (lists[past] == -1).all()
    if case.extra_indices is not None:
        keys += int((case.extra_indices >= 0).sum())
    assert keys == work.read
    if isinstance(work, SparseDecodeWork):  # each sequence has pages of its own
        pages = [set((own[own >= 0] // work.page_size).tolist()) for own in case.indices.numpy()]
        assert not pages[0] & pages[1] and not pages[1] & pages[2]
    assert (drawn(work).lists == case.lists).all()


def test_ascending_lists_are_in_the_order_of_positions() -> None:
    case = drawn(SHARED)
    assert (case.positions.diff(dim=-1) > 0).all()
    assert case.first_position.tolist() == [331] * 3


@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3"])
@pytest.mark.parametrize("rows", ["bf16", "v32", "rope_aware"])
def test_a_library_on_what_was_drawn_is_right(rows: str, dtype: str) -> None:
    case = drawn(SparseDecodeWork(config=Decode(13, dtype=dtype, rows=rows, q_len=2), **SIZES))
    one = SparseDecodeBenchmark().peer("torch_sdpa")
    one.load()
    judge = SparseJudge(case, to_host, KEYS_AS_ROWS)
    call = one.prepare(case)
    assert judge.peer(call()).wrong == ""
    changed = ["bf16 rows"] * (rows != "bf16") + ["bf16 queries"] * (dtype != "bf16")
    assert getattr(call, "how", "") == ", ".join(changed)
    assert judge.peer(call() * 1.25).wrong
