"""Made-up inputs of MLA prefill: see `mlagen.testdata`.

Levels, outliers and jumps lie in the columns without position, so that a rotary part which all
heads share, and values which are the keys' own columns, leave them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.problem import MlaConfig, MlaPrefillInputs, default_scale
from mlagen.problem.formats import E4M3_MAX
from mlagen.problem.prefill_inputs import ELEMENT_TYPES, check_scale
from mlagen.testdata.common import (
    Array,
    Numbers,
    dense_sizes,
    each_of,
    paged,
    require_kind,
    rows_of,
)
from mlagen.testdata.mha import KINDS, Shapes

Tensors = dict[str, npt.NDArray[Any]]  # q [batch, rows, ...] and those of keys [batch, keys, ...]


def mla_prefill_inputs(
    config: MlaConfig,
    *,
    batch: int | None = None,
    seq_len: int | None = None,
    lengths: Sequence[int] | None = None,
    num_keys: Numbers | None = None,
    start_pos: Numbers = 0,
    data: str = "realistic",
    seed: int = 0,
    scale: float | None = None,
    quantise: bool = False,
) -> MlaPrefillInputs:
    """Inputs of an MLA prefill problem; sizes are those of `mha_inputs`.

    The numbers are rounded to the problem's dtype. `quantise` (fp8): each tensor is divided by its
    largest magnitude / 448 before, and the scales say so; otherwise they are 1.

    Raises ConfigError as `mha_inputs` does.
    """
    require_kind(data, MLA_PREFILL_KINDS)
    rng = np.random.default_rng([seed, *data.encode()])
    scale = check_scale(config, default_scale(config) if scale is None else scale)
    if not config.by_sequence:
        sizes = dense_sizes(batch, seq_len, lengths, num_keys, start_pos)
        shapes = Shapes(
            config, sizes.batch, sizes.seq_len, max(sizes.keys, 1), sizes.start_pos, scale
        )
        made = _tensors(rng, config, data, shapes)
        of_keys = {name: array[:, : sizes.keys] for name, array in made.items() if name != "q"}
        tensors, scales = _stored(config, {"q": made["q"], **of_keys}, quantise)
        return _inputs(config, tensors, scale, sizes.start_pos, **scales)
    rows = rows_of(config, rng, batch, seq_len, lengths)
    starts = each_of("start_pos", start_pos, len(rows))
    wanted = [s + r for s, r in zip(starts, rows, strict=True)] if num_keys is None else num_keys
    keys = each_of("num_keys", wanted, len(rows))
    each = []
    for r, n, start in zip(rows, keys, starts, strict=True):
        # An empty sequence is made of one row or key too, which is cut off.
        made = _tensors(rng, config, data, Shapes(config, 1, max(r, 1), max(n, 1), start, scale))
        each.append({name: a[0, : r if name == "q" else n] for name, a in made.items()})
    lists = {name: [one[name] for one in each] for name in each[0]}
    more: dict[str, Any] = {}
    packed = {name: np.concatenate(parts) for name, parts in lists.items()}
    stored, scales = _stored(config, packed, quantise)
    if config.ragged:
        more["q_offsets"] = np.cumsum([0, *rows], dtype=np.int32)
    else:
        stored["q"] = stored["q"].reshape(len(rows), -1, *stored["q"].shape[1:])
    if config.page_size:
        names = [name for name in stored if name != "q"]
        cuts = np.cumsum(keys)[:-1]
        table, pools = paged(rng, config.page_size, [np.split(stored[n], cuts) for n in names])
        stored |= dict(zip(names, pools, strict=True))
        more |= {"kv_lengths": np.array(keys, np.int32), "page_table": table}
    else:
        more["kv_offsets"] = np.cumsum([0, *keys], dtype=np.int32)
    return _inputs(config, stored, scale, np.array(starts, np.int32), **more, **scales)


def _inputs(
    config: MlaConfig, tensors: Tensors, scale: float, start_pos: Any, **more: Any
) -> MlaPrefillInputs:
    given: dict[str, Any] = {"v": None, **tensors}
    return MlaPrefillInputs(config, scale=scale, start_pos=start_pos, **given, **more)


def _stored(
    config: MlaConfig, tensors: Tensors, quantise: bool
) -> tuple[Tensors, dict[str, float]]:
    """The tensors in the problem's dtype, and their scales. K's rotary part has K's scale."""
    element = ELEMENT_TYPES[config.dtype]
    scales: dict[str, float] = {}
    if quantise:
        names = {"q_scale": ("q",), "k_scale": ("k", "k_rope"), "v_scale": ("v",)}
        if config.kv_form == "latent":
            names = {"q_scale": ("q",), "k_scale": ("k",)}
        for name, of in names.items():
            present = [tensors[one] for one in of if one in tensors]
            most = max(float(np.nanmax(np.abs(one), initial=0.0)) for one in present)
            scales[name] = float(np.float32((most or 1.0) / E4M3_MAX))
            for one in of:
                if one in tensors:
                    # The largest may come out a hair above 448 and is 448.
                    scaled = tensors[one] / scales[name]
                    tensors[one] = np.clip(scaled, -E4M3_MAX, E4M3_MAX)
        if config.kv_form == "latent":
            scales["v_scale"] = scales["k_scale"]
    return {name: array.astype(element) for name, array in tensors.items()}, scales


def _tensors(rng: np.random.Generator, config: MlaConfig, data: str, shapes: Shapes) -> Tensors:
    """fp64 tensors in the problem's form, [batch, rows or keys, ...]."""
    q, k, v = MLA_PREFILL_KINDS[data](rng, shapes)
    nope, rope = k[..., : config.depth], k[..., config.depth :]
    if config.kv_form == "k_and_v":
        return {"q": q, "k": k, "v": v[..., : config.depth]}
    if config.kv_form == "nope_rope":
        return {"q": q, "k": nope, "v": v[..., : config.depth], "k_rope": rope[:, :, 0]}
    latent = np.full((*k.shape[:3], config.cache_depth), np.nan)
    latent[..., : config.depth] = nope
    first = config.rope_cache_offset
    latent[..., first : first + config.d_rope] = rope
    return {"q": q, "k": latent}


def _scaled(factor_q: float, factor: float) -> Callable[..., tuple[Array, Array, Array]]:
    def scaled(rng: np.random.Generator, s: Shapes) -> tuple[Array, Array, Array]:
        q, k, v = KINDS["randn"](rng, s)
        return factor_q * q, factor * k, factor * v

    return scaled


def _constant(rng: np.random.Generator, s: Shapes) -> tuple[Array, Array, Array]:
    """Every key scores the same, and every value differs: O is a mean."""
    q, k, v = KINDS["randn"](rng, s)
    return q, np.broadcast_to(k[:, :1], k.shape).copy(), v


MLA_PREFILL_KINDS: dict[
    str, Callable[[np.random.Generator, Shapes], tuple[Array, Array, Array]]
] = {
    **KINDS,
    "half": _scaled(0.5, 0.5),  # the published kernel's own test data
    "peaked": _scaled(8.0, 1.0),
    "constant": _constant,
}
