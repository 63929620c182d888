"""A call of MLA decode in the arguments of AITER's persistent kernels, and a plan of its work.

AITER makes such work on the GPU (`get_mla_metadata_v1`); here the host does, as for our own plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.families.mla_decode.aiter_work import FINAL, WORDS, AiterItem, Ints
from mlagen.families.mla_decode.costs import on_mi355x
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.families.mla_decode.plan import plan_work
from mlagen.families.mla_decode.problem import TILE, MlaDecodeConfig
from mlagen.families.mla_decode.ragged import Ragged
from mlagen.families.mla_decode.unit import MI355X_CUS, Unit
from mlagen.problem.formats import ELEMENT_TYPES

Array = npt.NDArray[Any]
ROWS = 128  # of a workgroup that splits are estimated for


@dataclass(frozen=True, eq=False)
class AiterPlan:
    """Work in AITER's form (`aiter_work`), and what `mla_reduce_v1` takes of it: group g merges
    the parts at rows `reduce_partial_map[reduce_indptr[g]] ..` into tokens `reduce_final_map[g]`.
    `splits`: the first tile of 64 keys of each split of each sequence."""

    work_indptr: Ints
    work_info_set: Ints
    reduce_indptr: Ints
    reduce_final_map: Ints
    reduce_partial_map: Ints
    partial_rows: int
    splits: tuple[tuple[int, ...], ...]

    @property
    def workgroups(self) -> int:
        """That share the items."""
        return len(self.work_indptr) - 1


def plan_aiter(
    config: MlaDecodeConfig,
    lengths: Sequence[int] | npt.NDArray[Any],
    *,
    q_lens: Sequence[int] | None = None,
    workgroups: int = MI355X_CUS,
    split_keys: int | None = None,
) -> AiterPlan:
    """Work for sequences of `lengths` keys and `q_lens` tokens, q_len without these, whose pages
    follow each other in the list. Splits are those of `plan_work`, moved down to where
    pages begin; the items follow each other, as many for each workgroup."""
    unit = Unit(ROWS, MI355X_CUS, on_mi355x(config, ROWS))
    planned = plan_work(
        config, lengths, q_lens=q_lens, blocks=workgroups, split_keys=split_keys, unit=unit
    )
    counts = [config.q_len] * len(lengths) if q_lens is None else list(q_lens)
    starts_of = np.cumsum([0, *counts]).tolist()
    splits = tuple(_at_pages(own, config.page_size) for own in planned.splits)
    pages = np.cumsum([0, *(config.pages(int(length)) for length in lengths)]).tolist()
    items: list[AiterItem] = []
    groups, parts, row = [0], [], 0
    finals: list[tuple[int, int]] = []
    for sequence, own in enumerate(splits):
        first, end = pages[sequence : sequence + 2]
        tokens = starts_of[sequence], starts_of[sequence + 1]
        starts = [min(first + tile * TILE // config.page_size, end) for tile in own]
        for start, stop in zip(starts, [*starts[1:], end], strict=True):
            place = FINAL
            if len(own) > 1:
                place, row = row, row + counts[sequence]
                parts.append(place)
            after = max(int(lengths[sequence]) - (stop - first) * config.page_size, 0)
            items.append(AiterItem(sequence, place, *tokens, start, stop, after))
        if len(own) > 1:
            groups.append(len(parts))
            finals.append(tokens)
    shares = [len(share) for share in np.array_split(np.arange(len(items)), workgroups)]
    return AiterPlan(
        np.cumsum([0, *shares]).astype(np.int32),
        np.array(items, np.int32).reshape(-1, WORDS),
        np.array(groups, np.int32),
        np.array(finals, np.int32).reshape(-1, 2),
        np.array(parts, np.int32),
        row,
        splits,
    )


def _at_pages(tiles: tuple[int, ...], page_size: int) -> tuple[int, ...]:
    """First tiles of splits, moved down to where a page begins."""
    step = max(page_size // TILE, 1)
    return tuple(dict.fromkeys(tile // step * step for tile in tiles))


def aiter_arrays(inputs: MlaDecodeInputs, ragged: Ragged | None = None) -> dict[str, Array]:
    """The call's arrays by AITER's names, but for its work: q [tokens, H, 576] of the tokens that
    the call has, all of them without `ragged`, the pages of all sequences in one list, scales where
    numbers are e4m3."""
    ragged = ragged or Ragged.of(inputs)
    config, lengths = inputs.config, inputs.cache_lengths.tolist()
    pages = [config.pages(length) for length in lengths]
    rows = [inputs.block_table[b, :count] for b, count in enumerate(pages)]
    last = [(length - 1) % config.page_size + 1 if length else 0 for length in lengths]
    scales = {
        name: np.array([scale], np.float32)
        for name, scale, element in (("q_scale", inputs.q_scale, config.dtype),
                                     ("kv_scale", inputs.kv_scale, config.cache_dtype))
        if element != "bf16"
    }  # fmt: skip
    return {
        **scales,
        "q": inputs.q[ragged.kept],
        "cache": inputs.cache,
        "qo_indptr": np.cumsum([0, *ragged.q_lens]).astype(np.int32),
        "kv_indptr": np.cumsum([0, *pages]).astype(np.int32),
        "kv_page_indices": np.concatenate(rows if any(pages) else [[0]]).astype(np.int32),
        "kv_last_page_lens": np.array(last, np.int32),
    }


def aiter_numbers(config: MlaDecodeConfig, scale: float, tokens: int) -> dict[str, int | float]:
    """The numbers of a call. `tokens`: the most of a sequence."""
    row = config.num_heads * config.q_columns * ELEMENT_TYPES[config.q_element].itemsize
    page = config.page_size * config.cache_columns * ELEMENT_TYPES[config.cache_element].itemsize
    return {
        "scale": scale,
        "num_heads": config.num_heads,
        "q_stride": tokens * row,
        "page_stride": page,
        "world": 1,
    }
