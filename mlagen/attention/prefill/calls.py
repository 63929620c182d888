"""Calls that reach every instruction of a prefill kernel.

Sizes: one query tile for every number of KV tiles that the text tells apart. A mask makes some
numbers impossible (a window is only so wide), and where it cuts decides which copies of the mask's
code are entered: so each number of tiles is made in up to three ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mlagen.artifact import Artifact
from mlagen.artifact.maps import RoleMap
from mlagen.attention.masks import ChunkedCausal, Null, SlidingWindowCausal
from mlagen.attention.prefill.facts import facts_of
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.family.covering import Call, Covering, tile_counts

DATA = "every_tile"
ROWS_SHORT = 5  # rows that the query tile lacks: the last wave's end is not the tile's
KEYS_SHORT = 1  # keys that the last KV tile lacks: what follows from its other keys is seen
SPIKED = 64  # places of a KV tile that the data of one query tile tells apart


@dataclass(frozen=True, slots=True)
class TilePlace:
    """One query tile: where it stands, and the keys there are."""

    rows: int
    start_pos: int
    keys: int


def prefill_covering(config: PrefillConfig, artifact: Artifact) -> Covering:
    """Calls of a kernel of `config`. Where sequences have their own lengths, one call has all."""
    wanted = tile_counts(artifact.manifest)
    places: list[TilePlace] = []
    unreached: list[int] = []
    # Where halves of a workgroup have code of their own, the first one meets the diagonal in the
    # last tiles only if there are no more rows than its own.
    roles = {line.role for line in artifact.manifest.source}
    parts = [config.q_tile]
    if any(role.name in roles for role in artifact.manifest.map.roles) and len(roles) > 1:
        parts += [config.q_tile // 2] * (not isinstance(config.mask, Null))
    for count in wanted:
        found = [
            place
            for part in parts
            for place in _candidates(config, count, part)
            if _tiles(config, place) == count
        ]
        places += found
        if not found:
            unreached.append(count)
    limits = []
    if unreached:
        numbers = ", ".join(map(str, unreached))
        limits.append(f"with mask {config.mask} no query tile was found that walks {numbers} tiles")
    if not isinstance(config.mask, Null):
        for role in artifact.manifest.map.roles:
            limits += _uncut(config, role, wanted)
    calls = list(_calls(config, list(dict.fromkeys(places))))
    if facts_of(artifact).persistent:
        calls.append(replace(calls[-1], thin=False))  # divided among workgroups, which cut tiles
    return Covering(tuple(calls), tuple(dict.fromkeys(limits)))


def _calls(config: PrefillConfig, places: list[TilePlace]) -> Iterator[Call]:
    if not config.by_sequence:
        for place in places:
            sizes = {"seq_len": place.rows, "num_keys": place.keys, "start_pos": place.start_pos}
            yield Call(DATA, sizes, thin=True)
        return
    if config.ragged:  # and sequences without a row, at both ends of the others
        places = [TilePlace(0, 0, 5), *places, TilePlace(0, 0, 0)]
        yield Call(DATA, {"lengths": tuple(place.rows for place in places), **_each(places)}, True)
        return
    for rows in dict.fromkeys(place.rows for place in places):
        alike = [place for place in places if place.rows == rows]
        yield Call(DATA, {"batch": len(alike), "seq_len": rows, **_each(alike)}, True)


def _each(places: list[TilePlace]) -> dict[str, tuple[int, ...]]:
    """Keys and start of each sequence."""
    return {
        "num_keys": tuple(place.keys for place in places),
        "start_pos": tuple(place.start_pos for place in places),
    }


def _tiles(config: PrefillConfig, place: TilePlace) -> int:
    sizes = {"seq_len": place.rows, "start_pos": place.start_pos, "num_keys": place.keys}
    return len(config.tiles(0, **sizes))


def _candidates(config: PrefillConfig, count: int, part: int) -> Iterator[TilePlace]:
    """Query tiles that may walk `count` tiles, each way once; after them as many as tell all
    places of a KV tile apart, after all keys, where the last tile's end alone is cut. The last
    lacks some rows. `part`: of the query tile that has rows; of less than all, that is all."""
    block, q_tile, mask = config.kv_block, part, config.mask
    whole = part == config.q_tile
    rows = (1 + block // SPIKED) * part - ROWS_SHORT if whole else part
    keys = max(0, block * count - KEYS_SHORT)
    if isinstance(mask, Null):
        yield TilePlace(rows, 0, keys)
        return
    # The last row alone sees the last tile: as many tiles as can be are cut for the first wave.
    yield TilePlace(rows, max(0, block * (count - 1) + 1 - q_tile), keys)
    # The last rows see it as the diagonal cuts it, from an even position and from an odd one.
    for start in (block * count - q_tile, block * count - q_tile - 1):
        yield TilePlace(rows, max(count and 1, start), keys)
    if isinstance(mask, SlidingWindowCausal):
        # Far from position 0, where the window's start cuts: at several places of a tile.
        for offset in (0, block // 2 + 1):
            start = -(-mask.window // block) * block + mask.window - 1 + offset
            first = mask.first_key(start) // block
            yield TilePlace(rows, start, max(0, block * (first + count) - KEYS_SHORT))
    if isinstance(mask, ChunkedCausal):
        start = mask.window + max(0, block * (count - 1) + 1 - q_tile)
        yield TilePlace(rows, start, start + q_tile)
        crossing = 2 * mask.window - q_tile // 2
        if crossing > 0:
            first = mask.first_key(crossing) // block
            yield TilePlace(rows, crossing, max(0, block * (first + count) - KEYS_SHORT))


def _uncut(config: PrefillConfig, role: RoleMap, wanted: Sequence[int]) -> Iterator[str]:
    """Which tiles a mask never cuts for the waves of a role, over all positions: their mask code is
    printed, and always skipped."""
    block, mask = config.kv_block, config.mask
    span = block * wanted[-1]
    far = 2 * getattr(mask, "window", 0)
    step = 1 if span * config.num_warps < 20000 else 2
    ends: dict[int, int] = {}  # of so many tiles: the last ones whose end may be cut
    begins: dict[int, int] = {}  # and the first ones whose beginning may be
    for start in [*range(0, span, step), *range(far, far + block if far else 0)]:
        for keys in {start + config.q_tile, *(start // block * block + block * n for n in wanted)}:
            tiles = mask.tiles(start, config.q_tile, keys, block)
            count = len(tiles)
            if count not in wanted or not count:
                continue
            # The first wave's rows end first, the last one's begin last.
            end = mask.end_key(start + role.first * config.q_block_size)
            cut = tiles.stop - min(keys, end if end is not None else keys) // block
            ends[count] = max(ends.get(count, 0), min(cut, count))
            last = mask.first_key(start + (role.last + 1) * config.q_block_size - 1)
            cut = -(-last // block) - tiles.start
            begins[count] = max(begins.get(count, 0), min(cut, count))
    waves = f"waves {role.first}..{role.last}"
    for what, which, most in (("end", "last", ends), ("beginning", "first", begins)):
        usual = max(most.values(), default=0)
        if not usual:
            continue
        fewer = [f"{n} of {count}" for count, n in sorted(most.items()) if n < min(usual, count)]
        but = f" (of fewer: {', '.join(fewer)})" if fewer else ""
        yield (
            f"mask {mask} cuts the {what} of at most the {which} {usual} tiles{but} for {waves}, "
            f"which skip its code in others"
        )
