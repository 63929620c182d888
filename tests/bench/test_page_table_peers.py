"""What peers with page tables are given: stand-ins in plain torch do what libraries document."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mlagen.attention.latent.order import KEYS_AS_ROWS
from mlagen.bench.torch_arrays import to_host
from mlagen.families.mla_decode.benchmark import DecodeBenchmark as DenseBenchmark
from mlagen.families.mla_decode.benchmark.judge import DecodeJudge
from mlagen.families.mla_decode.benchmark.work import DecodeCase as DenseCase
from mlagen.families.mla_decode.benchmark.work import DecodeWork as DenseWork
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_sparse.benchmark import SparseDecodeBenchmark
from mlagen.families.mla_sparse.benchmark.judge import SparseJudge
from mlagen.families.mla_sparse.benchmark.torch_case import CaseMaker
from mlagen.families.mla_sparse.benchmark.torch_pool import Drawer
from mlagen.families.mla_sparse.benchmark.work import PrefillWork, SparseDecodeWork
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig as Decode
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig as Prefill
from mlagen.family.peers import PeerUnfit

torch = pytest.importorskip("torch")

PREFILL = PrefillWork(config=Prefill(8), rows=5, keys=300, topk=128)
CUT = PrefillWork(config=Prefill(8), rows=5, keys=300, topk=128, least=40)
E4M3 = SparseDecodeWork(config=Decode(16, rows="e4m3", q_len=2), batch=2, keys=200, topk=128)
V32 = SparseDecodeWork(
    config=Decode(16, rows="v32", q_len=2), batch=2, keys=200, topk=128, least=50
)


def attended(q: Any, k: Any, v: Any, scale: float) -> Any:
    """Heads [H, 576] of a query over its keys."""
    weights = (q.float() @ k.float().T * scale).softmax(-1)
    return (weights @ v.float()).to(q.dtype)


def varlen(*, q: Any, k: Any, v: Any, q_v: Any, **named: Any) -> Any:
    """FlashAttention-3: pages of any size, one KV head, one token a sequence, so that a causal mask
    hides nothing."""
    assert named["fa_version"] == 3 and named["max_seqlen_q"] == 1
    lengths, table = named["seqused_k"].tolist(), named["block_table"]
    assert max(lengths) <= named["max_seqlen_k"]
    assert named["cu_seqlens_q"].tolist() == list(range(len(lengths) + 1))
    out = torch.empty(q_v.shape, dtype=q.dtype)
    for one, length in enumerate(lengths):
        own = table[one].long()
        keys, values = (x[own].flatten(0, 2)[:length] for x in (k, v))
        whole = torch.cat([values, keys], dim=-1)
        query = torch.cat([q_v[one], q[one]], dim=-1)
        out[one] = attended(query, whole, values, named["softmax_scale"])
    return out


class Wrapper:
    """FlashInfer's wrapper of paged MLA."""

    def __init__(self, workspace: Any, backend: str) -> None:
        assert backend == "fa3"

    def plan(self, tokens: Any, starts: Any, indices: Any, lengths: Any, heads: int, *rest: Any
             ) -> None:  # fmt: skip
        self.plans = tokens.tolist(), starts.tolist(), indices.long(), lengths.tolist()
        self.latent, self.rope, _, _, self.scale, *_ = rest
        assert (self.latent, self.rope) == (512, 64)

    def run(self, q: Any, q_rope: Any, ckv: Any, kpe: Any, *, out: Any, **scales: Any) -> Any:
        assert set(scales) == ({"ckv_scale", "kpe_scale"} if ckv.itemsize == 1 else set())
        tokens, starts, indices, lengths = self.plans
        rows = torch.cat([ckv.float(), kpe.float()], dim=-1)
        for one, length in enumerate(lengths):
            own = rows[indices[starts[one] : starts[one + 1]]].flatten(0, 1)[:length]
            for token in range(tokens[one], tokens[one + 1]):
                query = torch.cat([q[token], q_rope[token]], dim=-1)
                out[token] = attended(query, own, own[:, :512], self.scale)
        return out


def tilelang(q: Any, kv: Any, lists: Any, first: int, stride: int, **named: Any) -> Any:
    """TileLang's example: queries see rows up to their own position."""
    assert named["return_kernel"] and first > stride == 1 and lists.is_contiguous()

    def kernel(q: Any, kv: Any, lists: Any, start: Any) -> Any:
        out = torch.empty((*q.shape[:3], 512), dtype=q.dtype)
        for one in range(q.shape[1]):
            own = lists[0, one, 0].long()
            own = kv[0, own[own <= int(start) + one], 0]
            out[0, one] = attended(q[0, one], own, own[:, :512], named["sm_scale"])
        return out, None

    return kernel


def peer(benchmark: Any, name: str) -> Any:
    one = benchmark.peer(name)
    if name == "fa3_vllm":
        one.library = SimpleNamespace(flash_attn_varlen_func=varlen)
    elif name == "flashinfer":
        one.wrapper, one.workspace = Wrapper, torch.empty(0)
    else:
        one.example = SimpleNamespace(sparse_mla_fwd_interface=tilelang)
    return one


@pytest.mark.parametrize(
    ("name", "work", "how"),
    [
        ("fa3_vllm", PREFILL, ""), ("fa3_vllm", CUT, ""), ("fa3_vllm", E4M3, "bf16 rows"),
        ("fa3_vllm", V32, "bf16 rows"), ("flashinfer", PREFILL, ""), ("flashinfer", CUT, ""),
        ("flashinfer", E4M3, ""), ("flashinfer", V32, "bf16 rows"),
        ("tilelang", PREFILL, "64 heads"), ("tilelang", E4M3, "64 heads, bf16 rows"),
    ],
)  # fmt: skip
def test_lists_are_page_tables_of_single_rows(name: str, work: Any, how: str) -> None:
    made = torch.Generator().manual_seed(0)
    make = Drawer(torch, made, lambda shape: torch.empty(shape, dtype=torch.uint8))
    case = CaseMaker(work, make).case()
    call = peer(SparseDecodeBenchmark(), name).prepare(case)
    assert getattr(call, "how", "") == how
    verdict = SparseJudge(case, to_host, KEYS_AS_ROWS).peer(call())
    assert verdict.wrong == "" and verdict.error < 2.0**-7


def test_what_page_tables_cannot_say() -> None:
    made = torch.Generator().manual_seed(0)
    make = Drawer(torch, made, lambda shape: torch.empty(shape, dtype=torch.uint8))
    holes = PrefillWork(config=Prefill(8), rows=2, keys=64, topk=64, invalid=10)
    narrow = PrefillWork(config=Prefill(8, d_qk=512), rows=2, keys=64, topk=64)
    odd = PrefillWork(config=Prefill(8), rows=2, keys=64, topk=64)
    for work, names, words in (
        (holes, ("fa3_vllm", "flashinfer", "tilelang"), "name no row"),
        (narrow, ("fa3_vllm", "flashinfer", "tilelang"), "576 numbers"),
        (CUT, ("tilelang",), "full lists"),
        (odd, ("tilelang",), "multiples of 128"),
    ):
        for name in names:
            with pytest.raises(PeerUnfit, match=words):
                peer(SparseDecodeBenchmark(), name).prepare(CaseMaker(work, make).case())


@pytest.mark.parametrize("name", ["fa3_vllm", "flashinfer"])
def test_dense_decode_has_pages(name: str) -> None:
    work = DenseWork(MlaDecodeConfig(4), batch=3, keys=200, least=60)
    made = torch.Generator().manual_seed(0)
    cache = torch.randn((12, 64, 1, 576), generator=made).bfloat16()
    table = torch.randperm(12, generator=made).int().view(3, 4)
    q = torch.randn((3, 1, 4, 576), generator=made).bfloat16()
    case = DenseCase(work, q, cache, table, torch.tensor(work.lengths, dtype=torch.int32))
    call = peer(DenseBenchmark(), name).prepare(case)
    assert DecodeJudge(case, to_host).peer(call()).wrong == ""
