"""The plan of a persistent prefill kernel: its work, divided evenly over the workgroups.

AITER's metadata for prefill divides it in the same way. Heads and workgroups form gcd(heads,
workgroups) head groups, which do the same work. In a head group every sequence is cut
into query tiles, in the order first, last, second, last but one, ...; a tile costs as many units of
`tile_kv` keys (or of a block, if that is larger) as it sees. Each workgroup gets the same number of
units, the first few one more, and takes tiles in their order; a tile that does not fit is cut, and
the next workgroup goes on with it. A workgroup with several heads does the same units for each.

Two things differ, both where AITER's leaves rows of O unwritten: a tile that sees no key costs
nothing (never less than nothing), and is given out like any other, at the latest to the last
workgroup. Its item has no blocks, O = 0.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mlagen.attention.dealing import check_blocks
from mlagen.attention.prefill.work import FINAL, MAX_HEAD, WorkItem, WorkShape, work_arrays
from mlagen.errors import ConfigError

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class WorkPlan:
    """What the kernel and the merge are given.

    `work_indptr` int32 [workgroups + 1], `work_info` int32 [items, 8]: see `prefill.work`.
    Merging: group r is rows `reduce_final_map[r]` (first, last + 1) of O and takes partial tiles
    `reduce_partial_map[reduce_indptr[r] .. reduce_indptr[r + 1] - 1]`, each the first row of one
    in the partial buffers, which need `partial_rows` rows. All heads merge alike.
    """

    shape: WorkShape
    work_indptr: Ints
    work_info: Ints
    reduce_indptr: Ints
    reduce_final_map: Ints
    reduce_partial_map: Ints

    @property
    def partial_rows(self) -> int:
        """Rows of the partial buffers."""
        return len(self.reduce_partial_map) * self.shape.tile_q


def plan_work(
    seqlens_qo: Sequence[int],
    seqlens_kv: Sequence[int],
    heads: int,
    workgroups: int,
    *,
    causal: bool,
    start_pos: Sequence[int] | None = None,
    tile_q: int = 256,
    tile_kv: int = 128,
    block_size: int = 1,
) -> WorkPlan:
    """Divides the work of sequences of `seqlens_qo` rows against `seqlens_kv` keys.

    `start_pos`: position of each sequence's first row; None: its last row stands at its last key.
    `block_size`: keys a block of the page list. Raises ConfigError for numbers that are no sizes,
    lists of different lengths, and a `block_size` that does not divide the unit of keys.
    """
    lists = {"seqlens_qo": seqlens_qo, "seqlens_kv": seqlens_kv}
    if start_pos is not None:
        lists["start_pos"] = start_pos
    for name, numbers in lists.items():
        if len(numbers) != len(seqlens_qo) or not len(numbers):
            raise ConfigError(
                f"{name} has {len(numbers)} entries for {len(seqlens_qo)} sequences",
                hint="one number a sequence, at least one sequence",
            )
        if min(numbers) < 0:
            raise ConfigError(f"{name}={list(numbers)} must not be negative")
    _check_sizes(heads, workgroups, tile_q, tile_kv, block_size)
    if start_pos is None:
        start_pos = [kv - qo for qo, kv in zip(seqlens_qo, seqlens_kv, strict=True)]
    blocks = [-(-kv // block_size) for kv in seqlens_kv]
    shape = WorkShape(
        tuple(np.cumsum([0, *seqlens_qo]).tolist()),
        tuple(np.cumsum([0, *blocks]).tolist()),
        tuple(seqlens_kv),
        tuple(start_pos),
        heads,
        causal,
        tile_q,
        block_size,
    )
    return plan_shape(shape, workgroups, tile_kv)


def plan_shape(shape: WorkShape, workgroups: int, tile_kv: int = 128) -> WorkPlan:
    """Divides the work of a call, wherever its sequences' rows and blocks lie.

    Raises ConfigError as `plan_work` does.
    """
    _check_sizes(shape.heads, workgroups, shape.tile_q, tile_kv, shape.block_size)
    unit = max(tile_kv, shape.block_size)
    head_groups = math.gcd(shape.heads, workgroups)
    own_heads = shape.heads // head_groups
    pieces = _pieces(shape, _tiles(shape), unit, workgroups // head_groups)
    groups = [
        [replace(item, head=head) for head in range(part * own_heads, (part + 1) * own_heads)
         for item in group]
        for part in range(head_groups)
        for group in pieces
    ]  # fmt: skip
    return WorkPlan(shape, *work_arrays(groups), *_reduction(pieces))


def _tiles(shape: WorkShape) -> list[tuple[int, int, int]]:
    """Sequence, first row and last + 1 of all query tiles, in the order of their work."""
    ordered = []
    for batch in range(len(shape.kv_lengths)):
        tiles = shape.tiles_of(batch)
        for index in range(len(tiles)):
            at = index // 2 if index % 2 == 0 else len(tiles) - 1 - index // 2
            ordered.append((batch, *tiles[at]))
    return ordered


def _pieces(
    shape: WorkShape, tiles: Sequence[tuple[int, int, int]], unit: int, workgroups: int
) -> list[list[WorkItem]]:
    """The items of each workgroup of one head group, for its first head."""
    seen = [max(shape.keys_of(*tile), 0) for tile in tiles]
    units = [-(-keys // unit) for keys in seen]
    share, more = divmod(sum(units), workgroups)
    groups: list[list[WorkItem]] = []
    tile, done, slots = 0, 0, 0  # the next tile, units of it that are given out, partial tiles
    for group in range(workgroups):
        own: list[WorkItem] = []
        quota = share + (group < more)
        while tile < len(tiles):
            left = units[tile] - done
            taken = min(left, quota)
            if left and not taken:
                break
            batch, qo_start, qo_end = tiles[tile]
            last = taken == left
            whole = last and not done
            first, end = shape.blocks_of(batch)
            per_unit = unit // shape.block_size
            begin = first + done * per_unit
            stop = min(begin + taken * per_unit, end)
            past = shape.kv_lengths[batch] - (stop - first) * shape.block_size
            slot = FINAL if whole else slots * shape.tile_q
            slots += not whole
            offset = 0 if last else past
            own.append(WorkItem(batch, slot, qo_start, qo_end, begin, stop, offset, head=0))
            quota -= taken
            tile, done = (tile + 1, 0) if last else (tile, done + taken)
        groups.append(own)
    return groups


def _reduction(pieces: Sequence[Sequence[WorkItem]]) -> tuple[Ints, Ints, Ints]:
    """reduce_indptr, reduce_final_map, reduce_partial_map: by rows, partial tiles ascending."""
    merged: dict[tuple[int, int], list[int]] = defaultdict(list)
    for group in pieces:
        for piece in group:
            if piece.partial:
                merged[piece.qo_start, piece.qo_end].append(piece.partial_o_loc)
    rows = sorted(merged)
    indptr = np.cumsum([0, *(len(merged[key]) for key in rows)], dtype=np.int32)
    slots = [slot for key in rows for slot in sorted(merged[key])]
    final = np.array(rows, np.int32).reshape(-1, 2)
    return indptr, final, np.array(slots, np.int32)


def _check_sizes(heads: int, workgroups: int, tile_q: int, tile_kv: int, block_size: int) -> None:
    sizes = {
        "heads": heads,
        "tile_q": tile_q,
        "tile_kv": tile_kv,
        "block_size": block_size,
    }
    for name, size in sizes.items():
        if size < 1:
            raise ConfigError(f"{name}={size} must be at least 1")
    check_blocks("workgroups", workgroups)
    if heads > MAX_HEAD:
        raise ConfigError(f"heads={heads}: a work item holds head numbers below {MAX_HEAD}")
    if max(tile_kv, block_size) % block_size:
        fits = [size for size in range(1, tile_kv + 1) if tile_kv % size == 0]
        raise ConfigError(
            f"block_size={block_size} does not divide tile_kv={tile_kv}: a cut would fall inside a "
            f"block",
            hint=f"block_size is one of {fits}, or at least {tile_kv}",
        )
