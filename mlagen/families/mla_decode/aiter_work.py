"""Work items of MLA decode in AITER's form: what is legal in them, checked one by one.

Workgroup g takes items `work_indptr[g] .. work_indptr[g + 1] - 1` of `work_info_set`, int32 [items,
8]: sequence, row of the partial buffers or -1, first and last + 1 query token of q, first and
last + 1 page of `kv_page_indices`, keys of the sequence after these, heads. The kernel does not
read the last two. An item is some tokens of a sequence, with all their heads, against some of its
pages. Tokens whose keys are in several items leave fp32 parts, which `mla_reduce_v1`'s arrays say
how to merge.

Source: `mla_decode_stage1_asm_fwd` and `get_mla_metadata_v1` of AITER.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mlagen.attention.latent.call_tensors import as_host
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.problem.arrays import check_int32, check_offsets

Ints = npt.NDArray[np.int32]

FINAL = -1  # place of an item that writes O itself
WORDS = 8  # int32 an item


class AiterItem(NamedTuple):
    """The words of an item; see the module."""

    sequence: int
    place: int
    qo_start: int
    qo_end: int
    kv_start: int
    kv_end: int
    after: int = 0
    heads: int = 0

    def __str__(self) -> str:
        return f"tokens {self.qo_start} .. {self.qo_end - 1} of sequence {self.sequence}"


@dataclass(frozen=True, slots=True)
class AiterShape:
    """The call that work items are for: sequence b has tokens `qo_indptr[b] .. qo_indptr[b + 1] -
    1` of q, pages `kv_indptr[b] .. kv_indptr[b + 1] - 1` of the list, and `lengths[b]` keys."""

    config: MlaDecodeConfig
    qo_indptr: tuple[int, ...]
    kv_indptr: tuple[int, ...]
    lengths: tuple[int, ...]

    @staticmethod
    def of(
        config: MlaDecodeConfig, qo_indptr: Any, kv_indptr: Any, last_page_lens: Any
    ) -> AiterShape:
        """From AITER's arrays. ConfigError for offsets that fall or do not begin at 0, for a
        sequence of more tokens than the kernel has, and for a last page that holds no key or more
        than a page does."""
        check_int32("qo_indptr", qo_indptr, (None,), least=2)
        batch = len(qo_indptr) - 1
        check_int32("kv_indptr", kv_indptr, (batch + 1,))
        check_int32("kv_last_page_lens", last_page_lens, (batch,))
        check_offsets("qo_indptr", qo_indptr, int(qo_indptr[-1]), "q")
        check_offsets("kv_indptr", kv_indptr, int(kv_indptr[-1]), "kv_page_indices")
        tokens, pages = np.diff(qo_indptr), np.diff(kv_indptr).astype(np.int64)
        wrong = np.flatnonzero(tokens > config.q_len)
        if wrong.size:
            raise ConfigError(
                f"sequence {wrong[0]} has {tokens[wrong[0]]} query tokens, the kernel is for up to "
                f"{config.q_len}",
                hint=f"q_len={tokens.max()}",
            )
        last, page_size = last_page_lens.astype(np.int64), config.page_size
        wrong = np.flatnonzero((pages > 0) & ((last < 1) | (last > page_size)))
        if wrong.size:
            raise ConfigError(
                f"kv_last_page_lens[{wrong[0]}]={last[wrong[0]]} is not in 1 .. {page_size}, the "
                f"keys of a page"
            )
        lengths = np.where(pages > 0, (pages - 1) * page_size + last, 0)
        arrays = (qo_indptr, kv_indptr, lengths)
        return AiterShape(config, *(tuple(array.tolist()) for array in arrays))

    def seen(self, item: AiterItem) -> int:
        """Keys that the item's newest token sees."""
        length = self.lengths[item.sequence]
        newer = self.qo_indptr[item.sequence + 1] - item.qo_end
        return max(length - newer, 0) if self.config.causal else length

    def key_of(self, sequence: int, page: int) -> int:
        """The key that a page of the list begins with, or the number of keys."""
        keys = (page - self.kv_indptr[sequence]) * self.config.page_size
        return min(keys, self.lengths[sequence])


def check_page_list(shape: AiterShape, pages: Any, pool: int) -> None:
    """ConfigError for a list that is shorter than `kv_indptr` says, and for a used page that the
    pool of `pool` pages does not have."""
    check_int32("kv_page_indices", pages, (None,))
    used = shape.kv_indptr[-1]
    if used > len(pages):
        raise ConfigError(f"kv_indptr ends at {used}, but kv_page_indices has {len(pages)} entries")
    wrong = np.flatnonzero((pages[:used] < 0) | (pages[:used] >= pool))
    if wrong.size:
        at = int(wrong[0])
        raise ConfigError(
            f"kv_page_indices[{at}]={pages[at]} is not in 0 .. {pool - 1}, the pool's pages"
        )


def check_aiter_work(
    shape: AiterShape, work_indptr: Any, work_info: Any, *, partial_rows: int
) -> tuple[tuple[AiterItem, ...], ...]:
    """Each workgroup's items. ConfigError unless they do all the work once.

    What is refused: offsets that fall, or lead past the items; an item of no sequence, or that runs
    past its sequence's tokens or pages; tokens that no item computes, or that two do; tokens whose
    items overlap, leave keys out that they see, or of which one writes O though there are several;
    a part past `partial_rows`, or on another part's rows. Entries of `work_info` after the last
    offset have no meaning.
    """
    check_int32("work_indptr", work_indptr, (None,), least=2)
    check_int32("work_info_set", work_info, (None, WORDS))
    check_offsets("work_indptr", work_indptr, int(work_indptr[-1]), "work_info_set")
    count = int(work_indptr[-1])
    if count > len(work_info):
        raise ConfigError(f"work_indptr ends at {count}, work_info_set has {len(work_info)} items")
    items = [AiterItem(*words) for words in work_info[:count].tolist()]
    tiles: dict[tuple[int, int, int], list[tuple[int, AiterItem]]] = defaultdict(list)
    for index, item in enumerate(items):
        _check_item(shape, index, item)
        if item.qo_start < item.qo_end:
            tiles[item.sequence, item.qo_start, item.qo_end].append((index, item))
    _check_tokens(shape, list(tiles))
    for own in tiles.values():
        _check_keys(shape, own)
    _check_places(items, partial_rows)
    return tuple(tuple(items[first:end]) for first, end in pairwise(work_indptr.tolist()))


def _check_item(shape: AiterShape, index: int, item: AiterItem) -> None:
    """Its sequence, and that it stays in it."""
    batch = len(shape.lengths)
    if not 0 <= item.sequence < batch:
        raise ConfigError(
            f"work_info_set[{index}]: sequence {item.sequence} is not in 0 .. {batch - 1}"
        )
    for what, offsets, start, end in (
        ("tokens", shape.qo_indptr, item.qo_start, item.qo_end),
        ("pages", shape.kv_indptr, item.kv_start, item.kv_end),
    ):
        first, last = offsets[item.sequence], offsets[item.sequence + 1]
        if not first <= start <= end <= last:
            raise ConfigError(
                f"work_info_set[{index}]: {what} {start} .. {end - 1} run past those of sequence "
                f"{item.sequence}, {first} .. {last - 1}"
            )


def _check_tokens(shape: AiterShape, tiles: list[tuple[int, int, int]]) -> None:
    """Each sequence's tokens are in one group of items each."""
    for sequence, (at, end) in enumerate(pairwise(shape.qo_indptr)):
        for _, first, last in sorted(tile for tile in tiles if tile[0] == sequence):
            if first < at:
                raise ConfigError(
                    f"work_info_set: items of sequence {sequence} overlap: tokens {first} .. "
                    f"{last - 1} begin before token {at}, where others end"
                )
            if first > at:
                break
            at = last
        if at < end:
            raise ConfigError(f"work_info_set: no item computes token {at} of sequence {sequence}")


def _check_keys(shape: AiterShape, own: list[tuple[int, AiterItem]]) -> None:
    """The items of some tokens cover the pages that they see, once."""
    own.sort(key=lambda entry: (entry[1].kv_start, entry[1].kv_end))
    for index, item in own:
        if item.place < 0 and len(own) > 1:
            raise ConfigError(
                f"work_info_set[{index}] writes O of {item}, which {len(own)} items compute",
                hint="items of split keys need a place in the partial buffers",
            )
    sequence = own[0][1].sequence
    reached = shape.kv_indptr[sequence]
    for index, item in own:
        if item.kv_start != reached:
            how = "overlap" if item.kv_start < reached else "leave a gap"
            raise ConfigError(
                f"work_info_set[{index}]: the items of {item} {how}: pages begin at "
                f"{item.kv_start}, those before end at {reached}"
            )
        reached = item.kv_end
    index, last = own[-1]
    if shape.key_of(sequence, reached) < shape.seen(last):
        raise ConfigError(
            f"work_info_set[{index}]: the items of {last} end at page {reached}, after "
            f"{shape.key_of(sequence, reached)} keys; these tokens see {shape.seen(last)}"
        )


def _check_places(items: list[AiterItem], rows: int) -> None:
    """Parts lie in the partial buffers, each on rows of its own."""
    parts = sorted(
        (item.place, item.place + item.qo_end - item.qo_start, index)
        for index, item in enumerate(items)
        if item.place >= 0 and item.qo_start < item.qo_end
    )
    for index, item in enumerate(items):
        if item.place < FINAL:
            raise ConfigError(f"work_info_set[{index}]: its place {item.place} is below {FINAL}")
    for first, end, index in parts:
        if end > rows:
            raise ConfigError(
                f"work_info_set[{index}]: its part takes rows {first} .. {end - 1}, the partial "
                f"buffers have {rows}"
            )
    for (_, end, known), (first, _, index) in pairwise(parts):
        if first < end:
            raise ConfigError(
                f"work_info_set[{index}] and work_info_set[{known}] both write row {first} of the "
                f"partial buffers"
            )


def check_merging(
    items: list[AiterItem], reduce_indptr: Any, reduce_final_map: Any, reduce_partial_map: Any
) -> None:
    """ConfigError unless the reduction merges each split tile from its own parts, once. A group
    without parts has no meaning, and neither has what follows the last offset."""
    groups = _groups(reduce_indptr, reduce_final_map, reduce_partial_map)
    parts: dict[tuple[int, int], list[int]] = defaultdict(list)
    for item in items:
        if item.place >= 0 and item.qo_start < item.qo_end:
            parts[item.qo_start, item.qo_end].append(item.place)
    for group, (start, stop), slots in groups:
        merged, there = sorted(slots), parts.pop((start, stop), [])
        if merged != sorted(there):
            raise ConfigError(
                f"reduce group {group} merges rows {merged} into tokens {start} .. {stop - 1}, "
                f"whose parts are at {sorted(there) or 'no rows'}"
            )
    for (start, stop), there in parts.items():
        raise ConfigError(
            f"no reduce group merges tokens {start} .. {stop - 1}, whose parts are at rows "
            f"{sorted(there)}"
        )


def check_table(table: Any, places: tuple[int, ...]) -> None:
    """ConfigError unless `work_meta_data` holds the addresses `places`, of work_indptr and
    work_info_set."""
    held = np.asarray(as_host("work_meta_data", table)).reshape(-1)
    if held.dtype.itemsize != 8 or held.dtype.kind not in "iu" or held.size < len(places):
        raise ConfigError(
            f"work_meta_data has {held.size} numbers of dtype {held.dtype}",
            hint="int64 or uint64 [2]; it is made where it is not given",
        )
    given = tuple(int(place) & 2**64 - 1 for place in held[: len(places)])
    if given != places:
        raise ConfigError(
            f"work_meta_data holds the addresses {given[0]:#x} and {given[1]:#x}; work_indptr lies "
            f"at {places[0]:#x}, work_info_set at {places[1]:#x}",
            hint="it is made where it is not given",
        )


def check_reduction_maps(maps: tuple[Any, Any, Any], *, tokens: int, rows: int, most: int) -> None:
    """ConfigError for a reduction that leads out of `rows` of the partial buffers or out of
    `tokens` of the output, that writes a token twice, or of which a group has more than `most`
    tokens. A group without parts has no meaning, and neither has what follows the last offset."""
    groups = _groups(*maps)
    reached = 0
    for index, (first, end), slots in sorted(groups, key=lambda group: group[1]):
        if not reached <= first < end <= tokens:
            raise ConfigError(
                f"reduce_final_map[{index}]=({first}, {end}) is no range of rows of its own; the "
                f"output has {tokens}"
            )
        if end - first > most:
            raise ConfigError(
                f"max_seqlen_q={most}, but a group has {end - first} tokens",
                hint=f"max_seqlen_q={end - first}",
            )
        for slot in slots:
            if not 0 <= slot <= rows - (end - first):
                raise ConfigError(
                    f"reduce_partial_map has {slot}: group {index} takes {end - first} rows from "
                    f"there, the partial buffers have {rows}"
                )
        reached = end


def _groups(
    indptr: Any, final_map: Any, partial_map: Any
) -> list[tuple[int, tuple[int, int], list[int]]]:
    """Number, tokens and parts of each group that has parts. ConfigError for offsets that fall or
    that need more entries than there are."""
    check_int32("reduce_indptr", indptr, (None,), least=2)
    check_int32("reduce_final_map", final_map, (None, 2))
    check_int32("reduce_partial_map", partial_map, (None,))
    check_offsets("reduce_indptr", indptr, int(indptr[-1]), "reduce_partial_map")
    groups = list(pairwise(indptr.tolist()))
    for name, have, need in (
        ("reduce_partial_map", len(partial_map), groups[-1][1]),
        ("reduce_final_map", len(final_map), len(groups)),
    ):
        if need > have:
            raise ConfigError(f"reduce_indptr needs {need} entries of {name}, which has {have}")
    return [
        (index, (int(final_map[index, 0]), int(final_map[index, 1])), partial_map[at:end].tolist())
        for index, (at, end) in enumerate(groups)
        if at < end
    ]
