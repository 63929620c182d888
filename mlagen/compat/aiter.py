"""AITER's MLA decode over its own work items, its names and signatures, over mlagen's kernels.

    from mlagen.compat import aiter
    aiter.mla_decode_fwd(q, kv_buffer, o, qo_indptr, .., work_meta_data, work_indptr, ..)
    aiter.install()        # AITER's own `mla.mla_decode_fwd` and `mla_reduce_v1` are these now

Tensors are ROCm's, on gfx950, or all arrays of numpy, which are emulated. What differs: any number
of heads from 1 to 128, 1 to 8 tokens, pages of 1, 16, 32 or multiples of 64. The work is AITER's:
the arrays of its `get_mla_metadata_v1`; calls without them, with context parallelism or with a cap
of scores are refused. The LSE of a row without keys is -inf.

Source of names and order of arguments: AITER's aiter/mla.py and aiter/ops/attention.py (commit
e404860).
"""

from __future__ import annotations

import sys
from typing import Any

from mlagen.errors import ConfigError, UnsupportedError
from mlagen.ops.aiter_decode import aiter_decode, aiter_reduce

NAME = "aiter"


def mla_decode_fwd(
    q: Any,
    kv_buffer: Any,
    o: Any,
    qo_indptr: Any,
    kv_indptr: Any,
    kv_indices: Any,
    kv_last_page_lens: Any,
    max_seqlen_q: int,
    page_size: int = 1,
    nhead_kv: int = 1,
    sm_scale: float | None = None,
    logit_cap: float = 0.0,
    num_kv_splits: int | None = None,
    num_kv_splits_indptr: Any = None,
    work_meta_data: Any = None,
    work_indptr: Any = None,
    work_info_set: Any = None,
    reduce_indptr: Any = None,
    reduce_final_map: Any = None,
    reduce_partial_map: Any = None,
    q_scale: Any = None,
    kv_scale: Any = None,
    intra_batch_mode: bool = False,
    return_logits: bool = False,
    return_lse: bool = False,
    g_kv_indptr: Any = None,
    cp_world_size: int = 1,
    cp_rank: int = 0,
    causal: bool = True,
    *,
    compute: str = "bf16",
    checked: bool = False,
) -> tuple[Any, Any]:
    """Writes attention of `q` over the paged cache to `o`; returns (logits, lse): the parts fp32
    [rows, 1, H, 512], and the log-sum-exp fp32 [tokens, H], natural logarithm, None without
    `return_lse`.

    `q` [tokens, H, 576] and `kv_buffer` [pages, page_size, 1, 576] bf16 or e4m3; `o` [tokens, H,
    512] bf16; `q_scale`, `kv_scale` fp32 [1], of tensors of e4m3 alone. Work, reduction, offsets
    and pages are int32 as `get_mla_metadata_v1` makes and takes them. `sm_scale`: 576 ** -0.5 where
    it is not given. `num_kv_splits` and `intra_batch_mode` are the work's, which is made; nothing
    else is done with them, nor with `return_logits`: parts are always returned. `compute`, which
    AITER has not: "fp8" multiplies e4m3 numbers, P too, over e4m3 queries and caches.

    Work of arrays of numpy is checked item by item. Kernels believe tables on a GPU, as AITER's do:
    damaged ones reach other memory. `checked`, which AITER has not either, copies them to the host
    first, waiting for the GPU, and checks them too. Raises ConfigError for what no kernel takes,
    UnsupportedError for what there is no kernel for, before anything is launched.
    """
    _refuse(page_size, nhead_kv, kv_buffer, logit_cap)
    if cp_world_size != 1 or cp_rank or g_kv_indptr is not None:
        raise UnsupportedError(
            f"cp_world_size={cp_world_size}, cp_rank={cp_rank}: the cache of a sequence lies on "
            f"one GPU here",
            hint="cp_world_size=1, without g_kv_indptr",
        )
    work = {
        "work_indptr": work_indptr, "work_info_set": work_info_set, "reduce_indptr": reduce_indptr,
        "reduce_final_map": reduce_final_map, "reduce_partial_map": reduce_partial_map,
    }  # fmt: skip
    missing = [name for name, tensor in work.items() if tensor is None]
    if missing or num_kv_splits_indptr is not None:
        what = f"{', '.join(missing)} missing" if missing else "num_kv_splits_indptr is given"
        raise UnsupportedError(
            f"mla_decode_fwd: {what}: there is no kernel but for work items",
            hint="AITER's get_mla_metadata_v1 makes all of them, on the host "
            "mlagen.families.mla_decode.aiter_plan.plan_aiter; mlagen.ops.mla_decode needs none",
        )
    kernel = aiter_decode(q, kv_buffer, max_seqlen_q, causal=causal, compute=compute)
    run = kernel.called(
        q, kv_buffer, qo_indptr, kv_indptr, kv_indices, kv_last_page_lens, work_indptr,
        work_info_set, scale=kernel.config.d_qk**-0.5 if sm_scale is None else float(sm_scale),
        q_scale=q_scale, kv_scale=kv_scale, max_seqlen_q=max_seqlen_q, reduce_indptr=reduce_indptr,
        reduce_final_map=reduce_final_map, reduce_partial_map=reduce_partial_map, out=o,
        work_meta_data=work_meta_data, checked=checked,
    )  # fmt: skip
    rows, heads, columns = run.partial_o.shape
    return run.partial_o.reshape((rows, 1, heads, columns)), run.lse if return_lse else None


def mla_reduce_v1(
    partial_output: Any,
    partial_lse: Any,
    reduce_indptr: Any,
    reduce_final_map: Any,
    reduce_partial_map: Any,
    max_seqlen_q: int,
    num_kv_splits: int,
    final_output: Any,
    final_lse: Any = None,
    *,
    checked: bool = False,
) -> None:
    """Merges parts into `final_output` [tokens, H, 512 or 128] bf16 or fp32, and `final_lse` fp32
    [tokens, H] where it is given; only rows of groups that have parts change.

    `partial_output` fp32 [rows, H, D] or [rows, 1, H, D], normalised; `partial_lse` fp32 [rows, H]
    or [rows, 1, H, 1], natural logarithms; the rest int32. `num_kv_splits`, room of AITER's kernel,
    is not looked at: any number of parts is merged. Arrays of numpy are checked; `checked` checks
    tensors of a GPU, too, waiting for it: without it the kernel believes them.

    Raises ConfigError for what the kernel does not take.
    """
    if reduce_final_map is None:
        raise ConfigError(
            "reduce_final_map is None: groups do not say which tokens are theirs",
            hint="int32 [groups, 2], first token and last + 1; get_mla_metadata_v1 makes it",
        )
    parts = []
    for tensor, extents in ((partial_output, 3), (partial_lse, 2)):
        shape = tuple(tensor.shape)
        if len(shape) == 4 and shape[1] == 1 and (extents == 3 or shape[3] == 1):
            tensor = tensor.reshape((shape[0], *shape[2 : extents + 1]))
        parts.append(tensor)
    maps = reduce_indptr, reduce_final_map, reduce_partial_map
    aiter_reduce(
        (parts[0], parts[1]), maps, int(max_seqlen_q), final_output, final_lse, checked=checked
    )


def _refuse(page_size: int, nhead_kv: int, kv_buffer: Any, logit_cap: float) -> None:
    """ConfigError where numbers are not those of the cache, UnsupportedError for capped scores."""
    if logit_cap > 0:
        raise UnsupportedError(f"logit_cap={logit_cap}: no kernel caps scores", hint="logit_cap=0")
    shape = tuple(kv_buffer.shape)
    for name, given, at in (("page_size", page_size, 1), ("nhead_kv", nhead_kv, 2)):
        if len(shape) == 4 and given != shape[at]:
            raise ConfigError(
                f"{name}={given}, but kv_buffer has shape {shape}",
                hint=f"{name}={shape[at]}; kv_buffer is [pages, page_size, KV heads, 576]",
            )


def install() -> None:
    """Puts `mla_decode_fwd` and `mla_reduce_v1` into AITER, in place of its own. ConfigError where
    AITER is not imported."""
    package, mla = sys.modules.get(NAME), sys.modules.get(f"{NAME}.mla")
    if package is None or mla is None:
        raise ConfigError(
            "aiter.mla is not imported, so its functions cannot be replaced",
            hint="import aiter.mla; without AITER: from mlagen.compat import aiter",
        )
    vars(mla)["mla_decode_fwd"] = mla_decode_fwd
    vars(package)["mla_reduce_v1"] = mla_reduce_v1
