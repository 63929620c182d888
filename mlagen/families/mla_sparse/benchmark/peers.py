"""Other libraries that attend to listed rows. Each is imported when it is asked for.

What a library does not take is made to fit beforehand, which is not timed, and said behind its
name: heads of zeros besides ours, places of -1 besides a list's, the same numbers in bf16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlagen.attention.latent.libraries import (
    FlashInferPackage,
    FlashMlaPackage,
    VllmFlashAttention,
)
from mlagen.attention.latent.order import D_V
from mlagen.families.mla_sparse.benchmark.case import SparseCase
from mlagen.families.mla_sparse.benchmark.work import SparseDecodeWork
from mlagen.family.peers import Adapted, Peer, imported, require, version

Call = Callable[[], Any]
ROWS_OF_PACKAGE = ("v32", "model1")  # that FlashMLA's decoding reads
MOST_GATHERED = 1 << 31  # numbers that torch gathers beforehand


class Fitted:
    """A case's tensors as a library takes them; `how` collects what was changed."""

    def __init__(self, case: SparseCase) -> None:
        self.case = case
        self.how: list[str] = []

    def call(self, call: Call) -> Call:
        """The call, with what was changed."""
        return Adapted(call, ", ".join(self.how)) if self.how else call

    def queries(self) -> Any:
        """Queries of bf16."""
        if self.case.work.config.dtype != "bf16":
            self.how.append("bf16 queries")
        return self.case.bf16_q

    def q(self, legal: tuple[int, ...]) -> Any:
        """The same with as many heads as the next of `legal`. PeerUnfit: there is none."""
        q, heads = self.queries(), self.case.work.config.num_heads
        wanted = next((n for n in legal if n >= heads), None)
        require(wanted is not None, f"at most {legal[-1]} heads")
        assert wanted is not None
        if wanted == heads:
            return q
        self.how.append(f"{wanted} heads")
        wide = q.new_zeros((*q.shape[:-2], wanted, q.shape[-1]))
        wide[..., :heads, :] = q
        return wide

    def flat_q(self, legal: tuple[int, ...]) -> Any:
        """The same, [query rows, heads, d_qk]."""
        q = self.q(legal)
        return q.reshape(-1, *q.shape[-2:])

    def rows(self) -> Any:
        """All rows of the first cache, bf16 [rows, d_qk]."""
        if self.case.work.config.rows != "bf16":
            self.how.append("bf16 rows")
        return self.case.bf16_rows

    def lists(self, lists: Any, multiple: int) -> Any:
        """Lists whose places are a multiple of so many."""
        over = -lists.shape[-1] % multiple
        if not over:
            return lists
        self.how.append(f"lists of {lists.shape[-1] + over}")
        wide = lists.new_full((*lists.shape[:-1], lists.shape[-1] + over), -1)
        wide[..., : lists.shape[-1]] = lists
        return wide


def require_one_cache(case: SparseCase) -> None:
    """PeerUnfit for a second cache, and for positions."""
    require(case.extra_pool is None, "one cache only")
    require(case.positions is None, "no positions")


def require_page_table(case: SparseCase) -> None:
    """PeerUnfit unless lists can be page tables of pages of one row."""
    require_one_cache(case)
    require(case.work.config.d_qk == 576, "rows of 576 numbers only")
    require(not case.work.invalid, "lists without places that name no row")


def list_lengths(case: SparseCase) -> Any:
    """Of `case.lists`, where they are full too."""
    if case.lengths is not None:
        return case.lengths
    return case.lists.new_full((case.work.queries,), case.work.topk)


class _FlashMlaKernels:
    """FlashMLA's two kernels: prefill over bf16 rows, which does decode over such rows, too, and
    decode over its own formats."""

    prefill_heads: tuple[int, ...] = (64, 128)
    decode_heads: tuple[int, ...] = (64, 128)

    def prefill_call(self, q: Any, kv: Any, lists: Any, case: SparseCase) -> Call:
        """A call that returns O [query rows, heads, 512]. `q` [query rows, heads, d_qk], `kv`
        [rows, 1, d_qk], `lists` [query rows, 1, topk]."""
        raise NotImplementedError

    def decode_call(self, q: Any, lists: Any, extra: Any, case: SparseCase) -> Call:
        """A call that returns O [batch, q_len, heads, 512]. `lists`, `extra` [batch, q_len,
        topk]."""
        raise NotImplementedError

    def prepare(self, case: SparseCase) -> Call:
        work, fitted = case.work, Fitted(case)
        if isinstance(work, SparseDecodeWork) and work.config.rows in ROWS_OF_PACKAGE:
            require(not work.config.shared_list, "a list for each token only")
            return self._decode(case, fitted)
        require_one_cache(case)
        q = fitted.flat_q(self.prefill_heads)
        kv = fitted.rows()[:, None]
        run = self.prefill_call(q, kv, fitted.lists(case.lists, 128)[:, None], case)
        return fitted.call(lambda: case.shaped(run()))

    def _decode(self, case: SparseCase, fitted: Fitted) -> Call:
        require(case.positions is None, "no positions")
        q = fitted.q(self.decode_heads)
        extra = None
        if case.extra_indices is not None:
            extra = fitted.lists(case.extra_indices, 64)
        run = self.decode_call(q, fitted.lists(case.indices, 64), extra, case)
        return fitted.call(lambda: case.shaped(run()))


def _one_head(pool: Any) -> Any:
    """A cache [pages, page_size, 1, columns]; None without a pool."""
    return None if pool is None else pool.cache[:, :, None]


class SparseFlashMla(FlashMlaPackage, _FlashMlaKernels):
    """FlashMLA's sparse kernels."""

    def prefill_call(self, q: Any, kv: Any, lists: Any, case: SparseCase) -> Call:
        forward = self.library.flash_mla_sparse_fwd

        def call() -> Any:
            return forward(q, kv, lists, case.scale, D_V, None, case.lengths)[0]

        return call

    def decode_call(self, q: Any, lists: Any, extra: Any, case: SparseCase) -> Call:
        meta, _ = self.library.get_mla_metadata()
        decode = self.library.flash_mla_with_kvcache
        cache, extra_cache = _one_head(case.pool), _one_head(case.extra_pool)

        def call() -> Any:
            return decode(
                q, cache, None, None, D_V, meta, None, softmax_scale=case.scale, causal=False,
                is_fp8_kvcache=True, indices=lists, extra_k_cache=extra_cache,
                extra_indices_in_kvcache=extra, topk_length=case.topk_length,
            )[0]  # fmt: skip

        return call


class VllmFlashMla(_FlashMlaKernels):
    """FlashMLA as vLLM builds it: operators of torch, with fewer heads in prefill."""

    name = "flash_mla_vllm"
    prefill_heads: tuple[int, ...] = (8, 16, 32, 64, 128)
    operators: Any

    def load(self) -> str:
        hint = "pip install vllm"
        imported("vllm._flashmla_C", hint)
        self.operators = imported("torch", "pip install torch").ops._flashmla_C
        return version(imported("vllm", hint))

    def prefill_call(self, q: Any, kv: Any, lists: Any, case: SparseCase) -> Call:
        run, rest = _operator(self.operators.sparse_prefill_fwd, 7)
        given = (q, kv, lists, case.scale, D_V, None, case.lengths, *rest)
        return lambda: run(*given)[0]

    def decode_call(self, q: Any, lists: Any, extra: Any, case: SparseCase) -> Call:
        run, rest = _operator(self.operators.sparse_decode_fwd, 12)
        first = (q, _one_head(case.pool), lists, case.topk_length, None)
        last = (_one_head(case.extra_pool), extra, None, D_V, case.scale, *rest)
        meta = run(*first, None, None, *last)[2:]  # how work is divided, made by a first call
        given = (*first, *meta[:2], *last)
        return lambda: run(*given)[0]


def _operator(found: Any, known: int) -> tuple[Any, tuple[None, ...]]:
    """An operator and what stands for its arguments beyond those `known` here: later versions
    have outputs of the caller's there."""
    return found, (None,) * (len(found.default._schema.arguments) - known)


class VllmFlashMla64(VllmFlashMla):
    """The same with 64 heads where there are fewer, which is often faster than its own kernels for
    fewer."""

    name = "flash_mla_vllm_64"
    prefill_heads = (64, 128)

    def prepare(self, case: SparseCase) -> Call:
        config = case.work.config
        decode = isinstance(case.work, SparseDecodeWork) and config.rows in ROWS_OF_PACKAGE
        fewer = config.num_heads <= VllmFlashMla.prefill_heads[2]
        require(fewer and not decode, "flash_mla_vllm does the same here")
        return super().prepare(case)


class SparseFlashAttention3(VllmFlashAttention):
    """vLLM's FlashAttention-3 with pages of one row: lists are its page table."""

    def prepare(self, case: SparseCase) -> Call:
        import torch  # type: ignore[import-not-found,unused-ignore]

        require_page_table(case)
        fitted, queries = Fitted(case), case.work.queries
        q = fitted.queries().reshape(queries, *case.q.shape[-2:])
        starts = torch.arange(queries + 1, dtype=torch.int32, device=case.q.device)
        run = self.paged(
            q, fitted.rows()[:, None, None], max_seqlen_q=1, cu_seqlens_q=starts,
            max_seqlen_k=case.work.topk, seqused_k=list_lengths(case),
            block_table=case.lists.clamp(min=0), softmax_scale=case.scale, causal=False,
        )  # fmt: skip
        return fitted.call(lambda: case.shaped(run()))


class SparseFlashInfer(FlashInferPackage):
    """FlashInfer's paged MLA with pages of one row."""

    def prepare(self, case: SparseCase) -> Call:
        import torch

        require_page_table(case)
        fitted, config, work = Fitted(case), case.work.config, case.work
        one_scale = config.rows == "e4m3"
        rows = case.pool.cache.reshape(-1, config.d_qk) if one_scale else fitted.rows()
        q = fitted.queries().reshape(work.queries, *case.q.shape[-2:])
        lengths = list_lengths(case)
        starts = torch.zeros(work.queries + 1, dtype=torch.int32, device=q.device)
        starts[1:] = lengths.cumsum(0)
        place = torch.arange(work.topk, device=q.device)
        indices = case.lists[place[None, :] < lengths[:, None]].contiguous()
        run = self.planned(
            q, rows[:, None], torch.arange(work.queries + 1, dtype=torch.int32, device=q.device),
            starts, indices, lengths, config.num_heads, D_V, config.d_qk - D_V, 1, False,
            case.scale, kv_scale=1.0 if one_scale else None,
        )  # fmt: skip
        return fitted.call(lambda: case.shaped(run()))


class TileLang:
    """TileLang's pipelined example of sparse prefill; decode as rows over the whole pool."""

    name = "tilelang"
    example: Any

    def load(self) -> str:
        hint = "pip install tilelang, and its examples/deepseek_v32 on PYTHONPATH"
        found = version(imported("tilelang", hint))
        self.example = imported("sparse_mla_fwd_pipelined", hint)
        return found

    def prepare(self, case: SparseCase) -> Call:
        require_page_table(case)
        require(case.work.full, "full lists only")
        require(case.work.topk % 128 == 0, "lists of multiples of 128 only")
        fitted = Fitted(case)
        q, kv = fitted.flat_q((64, 128))[None], fitted.rows()[None, :, None]
        lists = case.lists[None, :, None].contiguous()
        # Its mask is causal: a first query behind the last row sees all of them.
        first = max(2, kv.shape[1])
        kernel = self.example.sparse_mla_fwd_interface(
            q, kv, lists, first, 1, sm_scale=case.scale, return_kernel=True
        )
        start = lists.new_full((1,), first)
        return fitted.call(lambda: case.shaped(kernel(q, kv, lists, start)[0][0]))


class SparseTorchSdpa:
    """torch's scaled_dot_product_attention. Rows are gathered beforehand, and that is not timed."""

    name = "torch_sdpa"
    torch: Any

    def load(self) -> str:
        self.torch = imported("torch", "pip install torch")
        return version(self.torch)

    def prepare(self, case: SparseCase) -> Call:
        work, fitted = case.work, Fitted(case)
        require_one_cache(case)
        require(work.full, "full lists only")
        numbers = work.queries * work.topk * work.config.d_qk
        require(numbers <= MOST_GATHERED, "its gathered rows would fill the memory")
        k = fitted.rows()[case.lists.long()][:, None]
        v = k[..., :D_V]
        q = fitted.queries()  # heads share rows, as queries do
        q = q.reshape(work.queries, 1, *q.shape[-2:])
        attend = self.torch.nn.functional.scaled_dot_product_attention
        return fitted.call(lambda: case.shaped(attend(q, k, v, scale=case.scale)[:, 0]))


# In the order of a report.
_ALL = (
    SparseFlashMla,
    VllmFlashMla,
    VllmFlashMla64,
    SparseFlashAttention3,
    SparseFlashInfer,
    TileLang,
    SparseTorchSdpa,
)
PEERS: dict[str, Callable[[], Peer]] = {peer.name: peer for peer in _ALL}
