"""Calls of sparse MLA on a Hopper GPU, and what is expected of them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np
from guarded import Guarded, placed

from mlagen.app.build import build_artifact
from mlagen.attention.latent.facts import order_of
from mlagen.bench.torch_arrays import to_host
from mlagen.families.mla_sparse.benchmark.judge import outside_oracles
from mlagen.families.mla_sparse.inputs import MlaSparseDecodeInputs, MlaSparseInputs
from mlagen.families.mla_sparse.kernel import sparse_kernel

OF_ENTRIES = (
    "q", "indices", "topk_length", "positions", "first_position", "extra_indices",
    "extra_topk_length",
)  # fmt: skip
AT_ONCE = 1 << 26  # numbers of gathered rows


@cache
def artifact(
    name: str, given: tuple[tuple[str, Any], ...], knobs: tuple[tuple[str, Any], ...] = ()
) -> Any:
    return build_artifact(name, dict(given), dict(knobs))


@dataclass(frozen=True, eq=False)
class Guard:
    """A kernel whose workspaces lie between the canaries of `memory`."""

    kernel: Any
    memory: Guarded


@cache
def built(which: str, **problem: Any) -> Guard:
    """The kernel of `prefill` or `decode`."""

    def build(name: str, given: Any, *_: Any) -> Any:
        return artifact(name, tuple(sorted(given.items())))

    kernel = sparse_kernel(build(f"mla_sparse_{which}_sm90", problem), build=build)
    kernel._memory = Guarded()
    return Guard(kernel, kernel._memory)


def on_gpu(inputs: MlaSparseInputs, ahead: int = 0) -> dict[str, Any]:
    """What a call is given by name. Pools lie `ahead` bytes further from the start of theirs."""
    given = {each.name: getattr(inputs, each.name) for each in fields(inputs)}
    del given["config"]
    return {
        name: placed(value, ahead if name.endswith("cache") else 0)
        if isinstance(value, np.ndarray) else value
        for name, value in given.items()
    }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Found:
    """What a call left, on the host: `o`, `lse` and, of prefill, `max_logits`. `splits`: parts of
    each query's keys."""

    outputs: dict[str, Any]
    splits: int


def called(guard: Guard, inputs: MlaSparseInputs, ahead: int = 0, **given: Any) -> Found:
    """A call that is checked for NaN, into poisoned memory between canaries, which stay."""
    config, decode = inputs.config, isinstance(inputs, MlaSparseDecodeInputs)
    rows, heads = inputs.q.shape[:-2], config.num_heads
    log = (rows[0], heads, *rows[1:]) if decode else (*rows, heads)
    out = Guarded()
    outputs = {"out": out.empty((*rows, heads, 512), "bf16"), "lse": out.empty(log, "fp32")}
    if not decode:
        outputs["max_logits"] = out.empty(log, "fp32")
    step = guard.kernel.prepare(**on_gpu(inputs, ahead), **outputs, checked=True, **given)
    for tensor in step.partials:
        tensor.fill_(float("nan"))
    step()
    assert out.untouched() and guard.memory.untouched()
    named = {name.replace("out", "o"): to_host(tensor) for name, tensor in outputs.items()}
    if given.get("empty_lse") == "+inf":
        assert not np.isneginf(named["lse"]).any()
        named["lse"] = np.where(np.isposinf(named["lse"]), np.float32(-np.inf), named["lse"])
    return Found(named, step.splits)


def some(inputs: MlaSparseInputs, found: Found, entries: Any) -> tuple[MlaSparseInputs, Found]:
    """The call of these entries alone (rows of prefill, sequences of decode)."""
    own = {
        name: getattr(inputs, name)[entries]
        for name in OF_ENTRIES
        if getattr(inputs, name, None) is not None
    }
    outputs = {name: array[entries] for name, array in found.outputs.items()}
    return replace(inputs, **own), Found(outputs, found.splits)


def passes(kernel: Any, inputs: MlaSparseInputs, found: Found, heads: Any = None) -> None:
    """Holds outputs against both oracles, for these heads, or for some, and for the last one."""
    count = inputs.config.num_heads
    heads = heads or {0, 7, 8, 63, 64, count - 1}
    chosen = sorted({*(head for head in heads if head < count), count - 1})
    order = order_of(kernel.artifact)
    wrong = outside_oracles(inputs, found.outputs, order, splits=found.splits, heads=chosen)
    assert not wrong, wrong


def reference(inputs: MlaSparseInputs, kernel: Any) -> Any:
    """O in fp64 on the GPU, [queries, heads, 512]. Numbers with a scale of columns are what they
    are as bf16, where the kernel rounds them."""
    import torch

    order = order_of(kernel.artifact)
    caches: dict[str, tuple[int, Any]] = {}
    lists = []
    for entry, token in np.ndindex(inputs.batch, inputs.tokens):
        own = []
        for part in inputs.parts(entry, token):
            name = part.pool.name
            if name not in caches:
                caches[name] = sum(pool.rows for _, pool in caches.values()), part.pool
            own.append(part.indices[: part.places][part.seen] + caches[name][0])
        lists.append(np.concatenate(own))
    named = np.unique(np.concatenate(lists))
    whole = np.zeros((sum(pool.rows for _, pool in caches.values()), inputs.config.d_qk))
    for first, pool in caches.values():
        rows = named[(named >= first) & (named < first + pool.rows)]
        numbers = pool.numbers((rows - first).astype(np.int64))
        used = numbers.exact if order.scaled_columns or order.grained else numbers.bf16
        whole[rows] = used * numbers.scales[:, None]
    whole *= inputs.kv_scale
    most = max(1, *(len(own) for own in lists))
    padded = np.full((len(lists), most), -1)
    for row, own in zip(padded, lists, strict=True):
        row[: len(own)] = own
    keys, at = torch.from_numpy(whole).cuda(), torch.from_numpy(padded).cuda()
    heads = inputs.config.num_heads
    q = torch.from_numpy(inputs.q.reshape(len(lists), heads, -1).astype(np.float64)).cuda()
    sink = -np.inf if inputs.sink is None else inputs.sink
    extra = torch.from_numpy(np.broadcast_to(sink, (heads,)).astype(np.float64)).cuda()
    step = max(1, AT_ONCE // (most * q.shape[-1]))
    parts = [
        _attention(q[n : n + step], keys, at[n : n + step], inputs.scale * inputs.q_scale, extra)
        for n in range(0, len(lists), step)
    ]
    return torch.cat(parts)


def _attention(q: Any, keys: Any, at: Any, scale: float, sink: Any) -> Any:
    """O of queries [n, heads, columns] over the rows `at` [n, keys] of `keys`, but for those below
    0."""
    import torch

    rows = keys[at.clamp(min=0)]
    scores = torch.einsum("nhd,nkd->nhk", q, rows) * scale
    scores = scores.masked_fill((at < 0)[:, None], float("-inf"))
    top = torch.maximum(scores.amax(-1), sink).clamp(min=-1e300, max=1e300)
    weights = torch.exp(scores - top[..., None])
    total = weights.sum(-1) + torch.exp(sink - top)
    o = torch.einsum("nhk,nkd->nhd", weights, rows[..., :512])
    return torch.where(total[..., None] > 0, o / total[..., None], 0.0)
