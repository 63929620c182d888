"""MLA decode as an operator of torch: `torch.ops.mlagen.mla_decode`, which torch.compile and graphs
take. Importing this module imports torch."""

from __future__ import annotations

from functools import cache
from typing import Any
from weakref import WeakValueDictionary

import torch  # type: ignore[import-not-found,unused-ignore]

from mlagen.errors import ConfigError
from mlagen.families.mla_decode.call import decode_call
from mlagen.families.mla_decode.device_plan import MlaDecodePlan, PlanTensors
from mlagen.families.mla_decode.kernel import MlaDecodeKernel
from mlagen.families.mla_decode.problem import D_QK, ROPE_AWARE, MlaDecodeConfig
from mlagen.ops.gpu_kernel import kernel_for
from mlagen.ops.kernel_names import DENSE
from mlagen.ops.torch_registration import registered

# By the address of their items, which is theirs as long as they live.
_PLANS: WeakValueDictionary[int, MlaDecodePlan] = WeakValueDictionary()
ROPE_AWARE_COLUMNS = 640
TYPES = {"torch.bfloat16": "bf16", "torch.float8_e4m3fn": "fp8_e4m3"}


@cache
def _built(name: str, config: MlaDecodeConfig) -> MlaDecodeKernel:
    """The callable of a kernel for a problem, built once."""
    from mlagen.app.build import callable_of
    from mlagen.tune.lookup import build_best

    artifact, choice = build_best(name, config.to_fields())
    kernel = callable_of(artifact)
    assert isinstance(kernel, MlaDecodeKernel)
    kernel.choice = str(choice)
    return kernel


@cache
def _known(
    kernel: str,
    heads: int,
    columns: int,
    pool: tuple[int, ...],
    types: tuple[Any, Any],
    mask: str,
    q_len: int,
    compute: str,
) -> MlaDecodeKernel:
    for name, given in zip(("q", "cache"), types, strict=True):
        if str(given) not in TYPES:
            raise ConfigError(f"{name} has dtype {given}", hint=f"dtypes: {', '.join(TYPES)}")
    page, kv_heads, row = pool
    of_q, of_cache = (_stored(*one) for one in zip(types, (columns, row), strict=True))
    return _built(
        kernel,
        MlaDecodeConfig(
            num_heads=heads, num_kv_heads=kv_heads, d_qk=D_QK if of_q == ROPE_AWARE else columns,
            page_size=page, q_len=q_len, mask=mask, dtype=of_q, cache_dtype=of_cache,
            compute=compute,
        ),
    )  # fmt: skip


def _stored(dtype: Any, columns: int) -> str:
    """How rows of a type and width are stored."""
    name = TYPES[str(dtype)]
    return ROPE_AWARE if name == "fp8_e4m3" and columns == ROPE_AWARE_COLUMNS else name


def decode_kernel(
    q: Any, kv_cache: Any, *, mask: str, q_len: int, compute: str = "bf16"
) -> MlaDecodeKernel:
    """The kernel for tensors of these shapes and the GPU of `q`, built at its first use. `compute`:
    what products are of. ConfigError for a problem that none solves, UnsupportedError where that
    GPU has none."""
    shape, pool = q.shape, kv_cache.shape
    if len(pool) != 4 or len(shape) not in (3, 4):
        raise ConfigError(
            f"q has shape {tuple(shape)}, cache {tuple(pool)}",
            hint="q [B, q_len, H, 576] or [tokens, H, 576], "
            "cache [num_blocks, page_size, KV heads, 576]",
        )
    return _known(
        kernel_for(q, "mla_decode", DENSE), shape[-2], shape[-1], tuple(pool[1:]),
        (q.dtype, kv_cache.dtype), mask, q_len, compute,
    )  # fmt: skip


def mla_decode(
    q: Any,
    kv_cache: Any,
    block_table: Any,
    cache_lengths: Any,
    scale: float,
    *,
    mask: str = "causal",
    kv_scale: float = 1.0,
    q_scale: float = 1.0,
    kv_scales: Any = None,
    q_scales: Any = None,
    compute: str = "bf16",
    plan: MlaDecodePlan | None = None,
) -> tuple[Any, Any]:
    """Attention of `q` over a paged cache: (output, log-sum-exp); see `MlaDecodeKernel.run`.

    The kernel is chosen by the GPU that holds `q`, shapes and types (rows of 640 e4m3 are
    rope-aware ones), and by `compute`, what products are of ("fp8": of e4m3 queries, rows and P),
    and built at its first use. Without a `plan` of `plan_mla_decode` the work is distributed as if
    all sequences filled their tables; with one, mask and `compute` are the plan's.
    """
    arguments = (q, kv_cache, block_table, cache_lengths)
    if plan is None:
        out, lse = DECODE(*arguments, scale, mask, kv_scale, q_scale, kv_scales, q_scales, compute)
    else:
        out, lse = DECODE_PLANNED(
            *arguments, plan.items, plan.merges, plan.shares, plan.partial_o, plan.partial_lse,
            plan.arrivals, plan.config.q_len, scale, plan.config.mask, kv_scale, q_scale, kv_scales,
            q_scales, plan.config.compute,
        )  # fmt: skip
    return out, lse


def plan_mla_decode(
    q: Any, kv_cache: Any, lengths: Any, *, mask: str = "causal", q_len: int = 1,
    compute: str = "bf16", **planned: Any,
) -> MlaDecodePlan:  # fmt: skip
    """The plan of calls with tensors of these shapes; see `MlaDecodeKernel.plan`. `q_len`: of a
    packed q the most tokens a sequence. `compute`: as in `mla_decode`."""
    tokens = int(q.shape[1]) if len(q.shape) == 4 else q_len
    kernel = decode_kernel(q, kv_cache, mask=mask, q_len=tokens, compute=compute)
    plan = kernel.plan(lengths, device=q.device, **planned)
    _PLANS[plan.items.data_ptr()] = plan
    return plan


def _decode(
    q: Any, kv_cache: Any, table: Any, lengths: Any, scale: float, mask: str, kv_scale: float,
    q_scale: float, kv_scales: Any = None, q_scales: Any = None, compute: str = "bf16",
) -> tuple[Any, Any]:  # fmt: skip
    shape = q.shape
    if len(shape) != 4:
        raise ConfigError(
            f"q has shape {tuple(shape)}: packed queries need a plan",
            hint="plan_mla_decode(.., q_lens=..) makes it",
        )
    kernel = decode_kernel(q, kv_cache, mask=mask, q_len=shape[1], compute=compute)
    return kernel.enqueue(
        decode_call(
            q, kv_cache, table, lengths, scale=scale, kv_scale=kv_scale, q_scale=q_scale,
            kv_scales=kv_scales, q_scales=q_scales,
        )
    )  # fmt: skip


def _planned(
    q: Any, kv_cache: Any, table: Any, lengths: Any, items: Any, merges: Any, shares: Any,
    partial_o: Any, partial_lse: Any, arrivals: Any, q_len: int, scale: float, mask: str,
    kv_scale: float, q_scale: float, kv_scales: Any = None, q_scales: Any = None,
    compute: str = "bf16",
) -> tuple[Any, Any]:  # fmt: skip
    call = decode_call(
        q, kv_cache, table, lengths, scale=scale, kv_scale=kv_scale, q_scale=q_scale,
        kv_scales=kv_scales, q_scales=q_scales,
    )  # fmt: skip
    known = _PLANS.get(items.data_ptr())
    if known is not None and _is_of(known, partial_o, partial_lse):
        config = known.config
        if config.q_len == q_len and config.mask == mask and config.compute == compute:
            return known.enqueue(call)
    kernel = decode_kernel(q, kv_cache, mask=mask, q_len=q_len, compute=compute)
    plan = PlanTensors(
        kernel.config, lengths.shape[0], q.shape[0] if len(q.shape) == 3 else None, items,
        merges, partial_o, partial_lse, shares=shares, arrivals=arrivals,
    )  # fmt: skip
    return kernel.enqueue(call.of(plan))


def _is_of(plan: MlaDecodePlan, partial_o: Any, partial_lse: Any) -> bool:
    """Whether these are the plan's own workspaces, and no copies."""
    return bool(
        plan.partial_o.data_ptr() == partial_o.data_ptr()
        and plan.partial_lse.data_ptr() == partial_lse.data_ptr()
    )


def _shapes(q: Any, *_: Any) -> tuple[Any, Any]:
    *rows, heads, _ = q.shape
    out = q.new_empty((*rows, heads, 512), dtype=torch.bfloat16)
    order = (heads, *rows) if len(rows) == 1 else (rows[0], heads, rows[1])
    return out, q.new_empty(order, dtype=torch.float32)


_TENSORS = "Tensor q, Tensor cache, Tensor block_table, Tensor cache_lengths"
_NUMBERS = "float scale, str mask, float kv_scale, float q_scale, Tensor? kv_scales=None, "
_NUMBERS += "Tensor? q_scales=None, str compute='bf16'"
DECODE = registered("mla_decode", _decode, _shapes, f"({_TENSORS}, {_NUMBERS}) -> (Tensor, Tensor)")
DECODE_PLANNED = registered(
    "mla_decode_planned",
    _planned,
    _shapes,
    f"({_TENSORS}, Tensor items, Tensor? merges, Tensor? shares, Tensor(a!) partial_o, "
    f"Tensor(b!) partial_lse, Tensor(c!)? arrivals, int q_len, {_NUMBERS}) -> (Tensor, Tensor)",
)
