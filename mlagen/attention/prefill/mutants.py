"""On what mutants of prefill kernels run: one workgroup whose inputs show every tile.

Wrong keys must be visible in the output and both sides of every branch must be taken, so the rows
differ: the row maxima of two waves in four grow by more than the rescale threshold with every tile,
and those of the others hardly move, so that old tiles keep their weight in the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.attention.prefill.call_scales import default_scale
from mlagen.attention.prefill.facts import facts_of
from mlagen.attention.prefill.inputs import PrefillInputs
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.attention.prefill.verification import PrefillKind, PrefillTrial
from mlagen.errors import UnsupportedError
from mlagen.family.mutants import MutantCall, MutantInputs
from mlagen.problem.formats import ELEMENT_TYPES

_STEP = 12.0  # log2 units that the maxima of climbing rows grow by from tile to tile
_ALONG = 4.0  # a climbing query's part along the direction of the climb
_TAIL = 17  # keys that the last tile lacks in the call with a partial tile


@dataclass(frozen=True, slots=True)
class TileCall(MutantCall):
    """`tiles` KV tiles, the last with `missing` keys less."""

    tiles: int = 0
    missing: int = 0


def tile_call(tiles: int, missing: int) -> TileCall:
    """Whether the last tile is whole decides about the key mask alone, not about any order."""
    name = f"N = {tiles}" + (f", {missing} keys short" if missing else "")
    return TileCall(name, once=not missing, tiles=tiles, missing=missing)


class PrefillMutants(MutantInputs):
    """Calls of one head and one query tile. UnsupportedError: work is planned, or K and V are not
    tensors of their own."""

    side_by_side = True

    def __init__(self, kind: PrefillKind, artifact: Artifact) -> None:
        self._kind = kind
        self._config = kind.config_type.from_fields(kind.fields(artifact))
        what = ""
        if facts_of(artifact).persistent:
            what = "a persistent grid, whose workgroups walk parts of several query tiles"
        elif set(self._config.key_shapes) != {"k", "v"}:
            what = f"keys in {', '.join(self._config.key_shapes)}"
        if what:
            raise UnsupportedError(
                f"mutants of {artifact.manifest.kernel} with {what}, are not judged",
                hint="a static grid, and K and V as tensors of their own; or --class values",
            )

    def calls(self, tiles: Sequence[int]) -> tuple[TileCall, ...]:
        return tuple(tile_call(n, missing) for missing in (_TAIL, 0) for n in tiles)

    def trial(self, call: MutantCall, copies: int = 1) -> PrefillTrial:
        assert isinstance(call, TileCall)
        inputs = make_inputs(self._config, self._kind.kernel_type.inputs_type, call, copies=copies)
        trial = self._kind.trial(inputs)
        return replace(trial, workgroups=tuple((0, 0, copy) for copy in range(copies)))


def make_inputs(
    config: PrefillConfig, inputs_type: Any, call: TileCall, *, copies: int = 1, seed: int = 0
) -> PrefillInputs:
    """Inputs of one call; `copies` batch entries, all alike.

    With a partial last tile the queries stand after all keys, and a causal mask hides none from
    any wave; with whole tiles they stand at the end of the keys, and it cuts through their tiles.
    Either way all tiles are computed.
    """
    keys = max(0, config.kv_block * call.tiles - call.missing)
    rows, depth, heads = config.q_tile, config.qk_width, config.num_kv_heads
    rng = np.random.default_rng([seed, call.tiles, call.missing])
    scale = default_scale(config)
    q = rng.standard_normal((rows, config.num_heads, depth))
    k = rng.standard_normal((keys, heads, depth))
    v = rng.standard_normal((keys, heads, config.v_width))
    direction = rng.standard_normal((heads, depth))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    along = np.repeat(direction, config.group, axis=0)
    climbing = np.arange(rows) // config.q_block_size % 4 < 2
    wanted = np.where(climbing, _ALONG, 0.0)[:, None, None]
    q += (wanted - (q * along).sum(axis=2, keepdims=True)) * along
    # The steps do not fall on the tiles' first keys: a tile has keys of both levels.
    level = _STEP * ((np.arange(keys) + config.kv_block - 5) // config.kv_block - 1)
    k += (level / (_ALONG * scale * math.log2(math.e)))[:, None, None] * direction
    element = ELEMENT_TYPES[config.dtype]
    start = keys if call.missing else max(0, keys - rows)
    arrays: dict[str, Any] = {"start_pos": start}
    if config.by_sequence:
        arrays["start_pos"] = np.full(copies, start, np.int32)
    if config.sink:
        arrays["sinks"] = np.zeros(config.num_heads, np.float32)
    if config.ragged:
        arrays["q_offsets"] = (np.arange(copies + 1) * rows).astype(np.int32)
        q = np.concatenate([q] * copies)
    else:
        q = np.repeat(q[None], copies, axis=0)
    if config.page_size:
        k, v, arrays["page_table"] = _paged(config, k, v, copies)
        arrays["kv_lengths"] = np.full(copies, keys, np.int32)
    elif config.ragged:
        k, v = (np.concatenate([x] * copies) for x in (k, v))
        arrays["kv_offsets"] = (np.arange(copies + 1) * keys).astype(np.int32)
    else:
        k, v = (np.repeat(x[None], copies, axis=0) for x in (k, v))
    q, k, v = (x.astype(element) for x in (q, k, v))
    made: PrefillInputs = inputs_type(config=config, q=q, k=k, v=v, scale=scale, **arrays)
    return made


def _paged(
    config: PrefillConfig, k: npt.NDArray[Any], v: npt.NDArray[Any], copies: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.int32]]:
    """Pools and page table of `copies` equal sequences, which share their pages. Pages lie in
    reverse, after one that is no sequence's; rows that are no keys are NaN."""
    count, size = max(1, config.pages(len(k))), config.page_size
    pools = []
    for rows in (k, v):
        pool = np.full((count + 1, size, *rows.shape[1:]), np.nan)
        held = np.full((count * size, *rows.shape[1:]), np.nan)
        held[: len(rows)] = rows
        pool[1:] = held.reshape(count, size, *rows.shape[1:])[::-1]
        pools.append(pool)
    table = np.tile(np.arange(count, 0, -1, dtype=np.int32), (copies, 1))
    return pools[0], pools[1], table
