"""What calls are checked for, whatever their tensors are: what goes with what, and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.attention.latent.scales import check_scale, scale_of
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.checks import Common
from mlagen.families.mla_sparse.rows import FORMATS


def check_scales(
    config: Common, scale: float, kv_scale: float, q_scale: float
) -> tuple[float, float, float]:
    """The same as floats. ConfigError for what does not fit each other, fp32 and the problem."""
    scale = check_scale(scale)
    q = scale_of("q_scale", q_scale, "bf16 queries are", "dtype", config.dtype)
    own = FORMATS[config.rows].scale
    if own not in ("none", "cache") and kv_scale != 1.0:
        raise ConfigError(
            f"kv_scale={kv_scale}: rows={config.rows} has scales of its own",
            hint="kv_scale is of rows=e4m3",
        )
    if own == "none" and kv_scale != 1.0:
        raise ConfigError(
            f"kv_scale={kv_scale}: rows=bf16 holds the numbers themselves",
            hint="kv_scale goes with rows=e4m3",
        )
    kv = scale_of("kv_scale", kv_scale, "rows hold", "rows", "fp8_e4m3")
    check_scale(q * kv * scale)
    return scale, kv, q


# What is given where a problem has a field, and only there; then what need not be given.
GOES_WITH: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "causal": (("positions", "first_position"), ()),
    "extra": (("extra_cache", "extra_indices"), ("extra_topk_length", "extra_kv_scales")),
}


def check_goes_with(field: str, has: bool, given: Mapping[str, Any]) -> None:
    """ConfigError unless what goes with a field is given (not None) where the problem has it, and
    only there."""
    names, may = GOES_WITH[field]
    for name in names if has else (*names, *may):
        if (given.get(name) is not None) != has:
            raise ConfigError(
                f"{name} is missing: the problem has {field}=true" if has
                else f"{name} is given, but the problem has {field}=false",
                hint=f"{', '.join(names)} go with {field}=true",
            )  # fmt: skip


def check_side(name: str, rows: str, given: Any, wanted: tuple[int, ...] | None) -> None:
    """ConfigError where scales beside a cache are missing, or given and not `wanted`."""
    if wanted is None and given is not None:
        raise ConfigError(
            f"{name} are given, but rows={rows} has no scales beside the cache",
            hint="formats with them: e4m3_row, e4m3_block*, rope_aware",
        )
    if wanted is not None and given is None:
        raise ConfigError(
            f"{name} are missing: rows={rows} has scales beside the cache",
            hint=f"{name}=, fp32 {list(wanted)}",
        )
