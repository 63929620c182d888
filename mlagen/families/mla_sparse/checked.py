"""A sparse call past all checks: what its kernels are given, by the names of their arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlagen.attention.latent.call_tensors import (
    as_host,
    check,
    check_rows,
    made,
    overlap,
)
from mlagen.attention.latent.order import D_V
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.call import SparseCall
from mlagen.families.mla_sparse.call_checks import check_goes_with, check_scales, check_side
from mlagen.families.mla_sparse.call_layout import LaidPool, check_packed, laid_lists
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.inputs import MlaSparseDecodeInputs, MlaSparsePrefillInputs
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.splits import TILE
from mlagen.launch.device_tensor import on_the_host
from mlagen.problem.formats import ELEMENT_TYPES, scale_log2e

Config = MlaSparsePrefillConfig | MlaSparseDecodeConfig
# The bits of what the LSE of a query without keys is.
EMPTY_LSE = {"-inf": 0xFF800000, "+inf": 0x7F800000}
OUTPUTS = ("o", "lse", "max_logits")
Wanted = tuple[tuple[int | None, ...], str]  # a shape and a type


@dataclass(frozen=True, eq=False)
class Checked:
    """`tensors` and `numbers` of a kernel, those of outputs among them, but for what stands for
    arguments that are not given. `entries`: lists' lengths that a call has; `tiles`: of the longest
    lists that there is room for."""

    tensors: dict[str, Any]
    numbers: dict[str, int | float]
    outputs: tuple[Any, ...]
    entries: int
    queries: int
    tiles: int
    host: bool


def checked(config: Config, names: tuple[str, ...], call: SparseCall) -> Checked:
    """The call whose tensors have these names. Raises ConfigError for what no kernel of the problem
    can serve."""
    given = {n: x for n, x in zip(names, call.tensors, strict=True) if x is not None}
    written = {n: x for n, x in zip(OUTPUTS, call.outputs, strict=False) if x is not None}
    for name in ("q", "cache", "indices"):
        if name not in given:
            raise ConfigError(f"{name} is None: it is no optional argument")
    host = on_the_host({**given, **written})
    if call.empty_lse not in EMPTY_LSE:
        raise ConfigError(
            f"empty_lse={call.empty_lse!r}", hint=f"empty_lse is {' or '.join(EMPTY_LSE)}"
        )
    if isinstance(config, MlaSparseDecodeConfig):
        check_goes_with("causal", config.causal, given)
        check_goes_with("extra", config.extra, given)
    scale, kv_scale, q_scale = check_scales(config, *call.scales)
    rows = _query_rows(config, given["q"])
    tensors = dict(given)
    numbers: dict[str, int | float] = {
        "scale_log2e": scale_log2e(scale * kv_scale * q_scale),
        "kv_scale": kv_scale,
        "empty_lse": EMPTY_LSE[call.empty_lse],
    }
    pools, tiles = {}, 0
    for prefix in ("", "extra_") if "extra_cache" in given else ("",):
        pool = LaidPool.of(
            f"{prefix}cache", config.row_format, config.d_qk, given[f"{prefix}cache"]
        )
        pools[prefix] = pool
        tensors[f"{prefix}cache"] = pool.flat
        numbers |= pool.paging.numbers(prefix)
        side = config.row_format.side_shape(config.d_qk, pool.paging.cache_rows)
        _check_side(f"{prefix}kv_scales", config, given, side)
        lists, topk = f"{prefix}indices", int(given[f"{prefix}indices"].shape[-1])
        tensors[lists], stride = laid_lists(lists, given[lists], _lists(config, rows))
        whole = int(f"{prefix}topk_length" not in given)
        numbers |= {
            f"{prefix}topk": topk, f"{prefix}list_stride": stride, f"{prefix}whole": whole
        }  # fmt: skip
        tiles += -(-topk // TILE)
        _small(f"{prefix}topk_length", given, (rows[:1], "int32"))
    _positions(config, tensors, rows, int(numbers["list_stride"]), int(numbers["topk"]))
    _small("sink", given, ((config.num_heads,), "fp32"))
    outputs = _outputs(config, call.outputs, tensors, rows)
    if call.checked or host:
        _check_contents(config, given, pools, (scale, kv_scale, q_scale))
    return Checked(
        {**tensors, **dict(zip(OUTPUTS, outputs, strict=False))}, numbers, outputs,
        entries=rows[0], queries=int(np.prod(rows)), tiles=tiles, host=host,
    )  # fmt: skip


def output_shapes(config: Config, rows: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Of o, LSE and, of prefill, largest scores of calls with these rows of queries, (rows,) or
    (batch, q_len)."""
    heads = config.num_heads
    o = (*rows, heads, D_V), config.output_dtype
    if isinstance(config, MlaSparseDecodeConfig):
        return o, ((rows[0], heads, rows[1]), "fp32")
    return o, ((*rows, heads), "fp32"), ((*rows, heads), "fp32")


def _query_rows(config: Config, q: Any) -> tuple[int, ...]:
    """Extents of q before the heads."""
    leading: tuple[int | None, ...] = (None,)
    if isinstance(config, MlaSparseDecodeConfig):
        leading = (None, config.q_len)
    shape = tuple(int(n) for n in q.shape)
    # an empty call is one
    fitting = tuple(0 if n == 0 else want for n, want in zip(shape[:1], leading[:1], strict=False))
    check("q", q, (*fitting, *leading[1:], config.num_heads, config.d_qk), config.dtype)
    check_packed("q", q)
    rows = shape[: len(leading)]
    check_rows("q", rows[0], config.num_heads * int(np.prod(rows[1:])))
    return rows


def _lists(config: Config, rows: tuple[int, ...]) -> tuple[int | None, ...]:
    """The shape of lists."""
    shared = isinstance(config, MlaSparseDecodeConfig) and config.shared_list
    return *(rows[:1] if shared else rows), None


def _positions(
    config: Config, tensors: dict[str, Any], rows: tuple[int, ...], stride: int, topk: int
) -> None:
    """Puts positions as kernels take them in the place of those that are given."""
    if "positions" not in tensors:
        return
    shape = *_lists(config, rows)[:-1], topk
    tensors["positions"], own = laid_lists("positions", tensors["positions"], shape)
    if own != stride:
        raise ConfigError(
            f"positions lie {own} numbers apart from list to list, and indices {stride}",
            hint="both with the same strides; contiguous ones have",
        )
    _small("first_position", tensors, (rows[:1], "int32"))


def _small(name: str, given: dict[str, Any], wanted: Wanted) -> None:
    """A tensor without gaps, where it is given."""
    if name in given:
        check(name, given[name], *wanted)
        check_packed(name, given[name])


def _check_side(
    name: str, config: Config, given: dict[str, Any], wanted: tuple[int, ...] | None
) -> None:
    check_side(name, config.rows, given.get(name), wanted)
    if wanted is not None:
        _small(name, given, (wanted, "fp32"))


def _outputs(
    config: Config, given: tuple[Any, ...], tensors: dict[str, Any], rows: tuple[int, ...]
) -> tuple[Any, ...]:
    """The outputs, made where they are not given; none lies in another tensor's memory."""
    found: dict[str, Any] = {}
    for label, output, wanted in zip(
        ("out", "lse", "max_logits"), given, output_shapes(config, rows), strict=False
    ):
        if output is None:
            output = made(label, tensors["q"], *wanted)
        check(label, output, *wanted)
        check_packed(label, output)
        for other, tensor in {**tensors, **found}.items():
            if overlap(output, tensor):
                raise ConfigError(f"{label} overlaps {other} in memory", hint="pass another")
        found[label] = output
    return tuple(found.values())


def _check_contents(
    config: Config,
    given: dict[str, Any],
    pools: dict[str, LaidPool],
    scales: tuple[float, float, float],
) -> None:
    """ConfigError for numbers that are none: sinks, and scales of rows that lists name. Waits for
    the GPU, where it holds them."""
    nothing = np.zeros((), ELEMENT_TYPES[config.dtype])
    shape = tuple(int(n) for n in given["q"].shape)
    if 0 in shape:
        return
    found = {
        name: as_host(name, x) for name, x in given.items() if "cache" not in name and name != "q"
    }
    found |= {f"{prefix}cache": pool.on_host() for prefix, pool in pools.items()}
    found["q"] = np.broadcast_to(nothing, shape)
    scale, kv_scale, q_scale = scales
    found |= {"scale": scale, "kv_scale": kv_scale, "q_scale": q_scale}
    if isinstance(config, MlaSparseDecodeConfig):
        MlaSparseDecodeInputs(config, **found)
    else:
        MlaSparsePrefillInputs(config, **found)
