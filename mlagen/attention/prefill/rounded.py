"""The rounding oracle of prefill: rounds where the kernel rounds, and is exact in between.

What it follows:

* bf16: Q' = bf16(fp32(Q) * fp32(c)), S = Q' K^T in log2 units; fp8: S = c (Q K^T). Tile by tile of
  `kv_block` keys, from the first tile that any row of the workgroup sees.
* A wave of 32 query rows keeps a lagging maximum M per row. The first tile sets it, to the sink if
  that is larger. At every later tile, if max(M, tile maximum) - M exceeds `rescale_threshold` in
  any row of the wave, all its rows take their new maximum, and O and the row sum are multiplied by
  exp2(M_old - M_new); the P of the tile before is already in O by then. Otherwise M stays. Rows
  beyond the sequence's end are zeros.
* P = bf16(exp2(S - M)), or e4m3(…) without a scale; the row sum adds P before the rounding, and
  exp2(sink - M); O = Σ P v / row sum; LSE = (M + log2(row sum)) ln 2.

What is left between this and a right kernel is fp32 accumulation. The bound is its sum:

* P whose fp32 error interval holds a boundary between two numbers of its format may be either of
  them: that difference times |v|. The interval comes from the errors of S, M, S - M and exp2.
* a tile that is rescaled carries exp2 of the difference of two maxima, each with its score error;
* the row sum carries the score errors of its keys and that of the last maximum;
* accumulation of O and of the row sum, reciprocal, last product, the products of rescaling.

M cancels in the LSE: its bound has the score errors of the keys, the roundings of the row sum and
the last operations (`lse_error`).

Where M's growth is so close to the threshold that fp32 may decide otherwise, both ways are followed
for that wave and given as alternatives.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mlagen.attention.prefill.arithmetic import Arithmetic
from mlagen.attention.prefill.exact import Pair
from mlagen.attention.prefill.expected import Answer, PrefillExpected
from mlagen.attention.prefill.inputs import PrefillInputs
from mlagen.attention.prefill.pieces import Tile, joined, pieces_of
from mlagen.attention.prefill.plan import WorkPlan
from mlagen.attention.prefill.scores import (
    LN2,
    SCORES,
    Bools,
    HeadData,
    Ints,
    log_moved,
    lse_error,
    relative,
    score_error,
    sink_error,
    visible,
)
from mlagen.attention.prefill.selection import HeadRows, Selection, Workgroup
from mlagen.problem.expected import Alternative
from mlagen.problem.formats import (
    TRANSCENDENTAL,
    U_FP32,
    Floats,
    accumulated,
    scale_log2e,
)

MAX_PATHS = 16  # ways to decide the close votes of one wave that are followed


def rounded(
    inputs: PrefillInputs,
    *,
    rows: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    workgroups: Sequence[Workgroup] | None = None,
    plan: WorkPlan | None = None,
) -> PrefillExpected:
    """What the kernel should compute from `inputs`, for some rows and heads or for all, or for the
    rows of some workgroups of the grid. With a `plan`, work items that share a query tile walk
    keys of their own, from their first key on, and are merged.

    A row that sees no key is 0, exactly. ConfigError: no bf16 problem.
    """
    answer = Answer(inputs, Selection.of(inputs, rows, heads, workgroups))
    alternatives: list[Alternative] = []
    of_lse: list[Alternative] = []
    undecided = 0
    cuts = {} if plan is None else pieces_of(plan)
    factor = answer.factor
    for part, data in answer.with_data():
        for waves, pieces in _wave_blocks(inputs, part, cuts):
            block = _Block.of(inputs, part, waves)
            walks = [_Scores.of(inputs, part, data, block, keys, factor) for keys in pieces]
            paths = [scores.path({}) for scores in walks]
            output, lse = joined(
                [x.finish(data, path, factor) for x, path in zip(walks, paths, strict=True)]
            )
            kept = block.kept
            at = part.at(block.at)
            answer.put(at, (output[0][kept], output[1][kept]), (lse[0][kept], lse[1][kept]))
            for wave, options in _other_walks(walks, paths):
                undecided += options is None
                lanes = _lanes(walks[0], wave)
                mine = kept[lanes]
                first = at[1].start + int(kept[: lanes.start].sum())
                own_rows = first + np.arange(int(mine.sum()))
                for option in options or ():
                    made = joined(
                        [
                            x.wave(lanes).finish(data, path, factor)
                            for x, path in zip(walks, option, strict=True)
                        ]
                    )
                    for (values, bounds), found in zip(made, (alternatives, of_lse), strict=True):
                        found.append(
                            Alternative(at[0], at[2], own_rows, values[mine], bounds[mine])
                        )
    return answer.expected("rounding", tuple(alternatives), tuple(of_lse), undecided)


def _lanes(scores: _Scores, wave: int) -> slice:
    """A wave's rows among those of the scores."""
    return slice(wave * scores.wave_rows, (wave + 1) * scores.wave_rows)


def _other_walks(
    walks: Sequence[_Scores], paths: Sequence[_Path]
) -> Iterator[tuple[int, list[tuple[_Path, ...]] | None]]:
    """Every other choice of a path for each piece, for each wave that has one; None where there
    are too many."""
    others = [dict(x.other_paths(path)) for x, path in zip(walks, paths, strict=True)]
    for wave in sorted({wave for other in others for wave in other}):
        choices: list[list[_Path]] = []
        for scores, path, other in zip(walks, paths, others, strict=True):
            found = other.get(wave, [path.wave(wave, _lanes(scores, wave))])
            choices.append(found if found is not None else [])
        count = math.prod(len(found) for found in choices)
        yield wave, list(itertools.product(*choices)) if 0 < count <= MAX_PATHS else None


def _wave_blocks(
    inputs: PrefillInputs, part: HeadRows, cuts: Mapping[Tile, tuple[slice, ...]]
) -> Iterator[tuple[Ints, tuple[slice, ...]]]:
    """The waves that compute the part's rows, some of one workgroup at a time, with the keys that
    their workgroup walks, or each of several does; nothing where it walks none. Votes are a
    wave's: whole waves."""
    config, sequence = inputs.config, part.sequence
    waves = np.unique(part.rows // config.q_block_size)
    tile_of = waves // config.num_warps
    for q_tile in np.unique(tile_of):
        tiles = config.tiles(
            int(q_tile),
            seq_len=sequence.rows,
            start_pos=sequence.start_pos,
            num_keys=sequence.keys,
        )
        size = config.kv_block
        whole = slice(tiles.start * size, min(tiles.stop * size, sequence.keys))
        pieces = cuts.get((sequence.index, int(q_tile), part.head), (whole,))
        if not tiles or not pieces:
            continue
        own = waves[tile_of == q_tile]
        size = max(1, SCORES // (len(tiles) * config.kv_block * config.q_block_size))
        for start in range(0, len(own), size):
            yield own[start : start + size], pieces


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Whole waves of one sequence and head. `rows`: all their local rows, those that do not exist
    included; `q` [rows, depth], prescaled; `kept` [rows]: those that the part asks for, which are
    `part.rows[at]`."""

    rows: Ints
    q: Floats
    unit: float
    kept: Bools
    at: slice

    @staticmethod
    def of(inputs: PrefillInputs, part: HeadRows, waves: Ints) -> _Block:
        size = inputs.config.q_block_size
        rows = (waves[:, None] * size + np.arange(size)).ravel()
        q = np.zeros((len(rows), inputs.config.qk_width))
        exist = rows < part.sequence.rows
        raw = inputs.queries(part.sequence, rows[exist], part.head)
        q[exist], unit = inputs.arithmetic.scaled(raw, inputs.score_scale)
        kept = np.isin(rows, part.rows)
        first, end = np.searchsorted(part.rows, [rows[0], rows[-1] + 1]).tolist()
        return _Block(rows, q, unit, kept, slice(first, end))


@dataclass(frozen=True, slots=True, eq=False)
class _Path:
    """The lagging maxima of some waves. `maximum`, `error`: [rows, tiles], after each tile's vote.

    `moved` [waves, tiles]: whether the vote moved them; `close` [waves, tiles]: whether fp32 might
    have decided otherwise.
    """

    maximum: Floats
    error: Floats
    moved: Bools
    close: Bools

    def wave(self, wave: int, lanes: slice) -> _Path:
        """One wave's, whose rows are `lanes`."""
        only = slice(wave, wave + 1)
        return _Path(self.maximum[lanes], self.error[lanes], self.moved[only], self.close[only])


@dataclass(frozen=True, slots=True, eq=False)
class _Scores:
    """Scores of whole waves against all tiles that their workgroup walks, with their fp32 errors.

    `scores`, `errors`: [rows, tiles, kv_block]; -inf and 0 where a key is hidden. `keys` are those
    of the tiles, the last may reach past the keys that exist. `sink` and its error in log2 units,
    -inf and 0 where there is none.
    """

    scores: Floats
    errors: Floats
    keys: slice
    arithmetic: Arithmetic
    threshold: float
    wave_rows: int
    sink: float
    sink_error: float

    @staticmethod
    def of(
        inputs: PrefillInputs,
        part: HeadRows,
        data: HeadData,
        block: _Block,
        inside: slice,
        factor: float,
    ) -> _Scores:
        config = inputs.config
        tile = config.kv_block
        first, end = inside.start, inside.stop
        last = first - (first - end) // tile * tile
        seen = visible(config, part.sequence, block.rows, inside)
        k = data.k[inside]
        scores = np.full((len(block.rows), last - first), -np.inf)
        errors = np.zeros(scores.shape)
        arithmetic = inputs.arithmetic
        of_dots = block.unit * score_error(block.q, k, factor, arithmetic.products)
        scores[:, : end - first] = np.where(seen, block.unit * (block.q @ k.T), -np.inf)
        errors[:, : end - first] = np.where(seen, of_dots, 0.0)
        shape = (len(block.rows), -1, tile)
        sink = inputs.sink_of(part.head)
        return _Scores(
            scores.reshape(shape),
            errors.reshape(shape),
            inside,
            arithmetic,
            config.rescale_threshold,
            config.q_block_size,
            scale_log2e(sink),
            sink_error(sink),
        )

    def wave(self, rows: slice) -> _Scores:
        """The same for some rows only."""
        return replace(self, scores=self.scores[rows], errors=self.errors[rows])

    def path(self, forced: dict[int, bool]) -> _Path:
        """The maxima that the votes lead to; `forced` decides some tiles' votes (for one wave)."""
        rows, tiles, _ = self.scores.shape
        waves = rows // self.wave_rows
        top = self.scores.max(axis=2)
        # M may be rounded on its own.
        own = self.arithmetic.maximum_ulps * U_FP32 * np.where(np.isneginf(top), 0.0, np.abs(top))
        low = (self.scores - self.errors).max(axis=2) - own
        high = (self.scores + self.errors).max(axis=2) + own
        of_growth = self.arithmetic.distance_ulps * U_FP32
        maximum, error = np.empty((rows, tiles)), np.empty((rows, tiles))
        moved = np.zeros((waves, tiles), np.bool_)
        close = np.zeros((waves, tiles), np.bool_)
        of_tiles = np.stack([top, low, high])
        sinks = self.sink + self.sink_error * np.array([[0.0], [-1.0], [1.0]])
        now = np.maximum(of_tiles[..., 0], sinks)  # M, the least that it may be, and the most
        for tile in range(tiles):
            if tile:
                # The kernel subtracts in fp32.
                least = _growth(now[2], low[:, tile]) * (1 - of_growth)
                most = _growth(now[1], high[:, tile]) * (1 + of_growth)
                surely = self._any_row(least > self.threshold)
                maybe = self._any_row(most > self.threshold)
                vote = self._any_row(_growth(now[0], top[:, tile]) > self.threshold)
                moved[:, tile] = forced.get(tile, vote)
                close[:, tile] = maybe & ~surely
                lanes = np.repeat(moved[:, tile], self.wave_rows)
                now = np.where(lanes, np.maximum(now, of_tiles[..., tile]), now)
            maximum[:, tile] = now[0]
            with np.errstate(invalid="ignore"):
                spread = np.maximum(now[2] - now[0], now[0] - now[1])
            error[:, tile] = np.where(np.isneginf(now[0]), 0.0, spread)
        return _Path(maximum, error, moved, close)

    def _any_row(self, votes: Bools) -> Bools:
        return np.asarray(votes.reshape(-1, self.wave_rows).any(axis=1))

    def other_paths(self, path: _Path) -> Iterator[tuple[int, list[_Path] | None]]:
        """The other paths of every wave with close votes; None where there are too many."""
        for wave in np.flatnonzero(path.close.any(axis=1)):
            own = self.wave(slice(wave * self.wave_rows, (wave + 1) * self.wave_rows))
            found: list[_Path] = []
            open_choices: list[dict[int, bool]] = [{}]
            while open_choices and len(found) <= MAX_PATHS:
                forced = open_choices.pop()
                option = own.path(forced)
                undecided = [int(t) for t in np.flatnonzero(option.close[0]) if t not in forced]
                if undecided:
                    # Decide the first close vote both ways; later ones depend on it.
                    open_choices += [{**forced, undecided[0]: vote} for vote in (False, True)]
                else:
                    found.append(option)
            yield int(wave), None if open_choices else found

    def finish(self, data: HeadData, path: _Path, factor: float) -> tuple[Pair, Pair]:
        """O with its bound [rows, depth] and the LSE with its bound [rows, 1], along one path."""
        tiles, arithmetic = self.scores.shape[1], self.arithmetic
        some = ~np.isneginf(path.maximum)
        base = np.where(some, path.maximum, 0.0)
        last = base[:, -1:]
        distance = base[:, :, None] - self.scores  # inf for hidden keys
        p = np.exp2(-distance)
        # fp32: the score's error, the maximum's, that of the subtraction, exp2's.
        hidden = np.isneginf(self.scores)
        far = p == 0.0  # hidden, or below anything that fp32 holds
        subtraction = np.where(far, 0.0, arithmetic.distance_ulps * U_FP32 * np.abs(distance))
        eta = relative(self.errors + path.error[:, :, None] + subtraction) + TRANSCENDENTAL
        stored = arithmetic.round_p(p)
        flip = np.maximum(
            arithmetic.round_p(p * (1.0 + eta)) - stored,
            stored - arithmetic.round_p(p * (1.0 - eta)),
        )
        # What a tile's part of O is multiplied by after it: all later moves of M.
        carried = np.where(some, np.exp2(base - last), 0.0)
        later: Ints = np.cumsum(path.moved[:, ::-1], axis=1)[:, ::-1] - path.moved
        moves: Ints = np.repeat(later, self.wave_rows, axis=0)
        of_moves = moves * (TRANSCENDENTAL + U_FP32)
        of_moves = of_moves + LN2 * arithmetic.distance_ulps * U_FP32 * (last - base)
        last_error = path.error[:, -1:]
        of_maxima = np.where(moves > 0, relative(path.error + last_error), 0.0)

        unrounded = p * carried[:, :, None]
        of_sink = np.exp2(self.sink - last)  # 0 where there is none
        total = unrounded.sum(axis=(1, 2))[:, None] + of_sink
        safe = np.where(total == 0.0, 1.0, total)
        # Of the row sum's terms, in units of the row sum: relative to exact scores, in which the
        # maxima cancel; and relative to the last maximum.
        # An M that is rounded on its own may be another in P than in what rescales O.
        of_rounding = 2 * arithmetic.maximum_ulps * U_FP32 * np.abs(base).max(axis=1)
        rounding = subtraction + self.errors + np.where(far, 0.0, of_rounding[:, None, None])
        of_terms = relative(rounding) + TRANSCENDENTAL + of_moves[:, :, None]
        off = (unrounded * of_terms).sum(axis=(1, 2))[:, None] / safe
        of_terms += relative(rounding + last_error[:, :, None]) - relative(rounding)
        of_sum = (unrounded * of_terms).sum(axis=(1, 2))[:, None] / safe
        of_level = np.zeros(off.shape)
        if not np.isneginf(self.sink):
            share = of_sink / safe
            error = self.sink_error + U_FP32 * np.where(share > 0.0, last - self.sink, 0.0)
            own = TRANSCENDENTAL + of_moves[:, :1]
            off += share * own
            of_level = log_moved(share, error)
            of_sum += share * (relative(error + last_error) + own)
        additions = accumulated(self.scores.shape[2] + tiles + 1, factor)
        count = (~hidden).sum(axis=(1, 2))[:, None]
        off += additions
        of_sum += additions + TRANSCENDENTAL + (1 + arithmetic.output_ulps) * U_FP32

        scaled = (carried / safe)[:, :, None]
        of_tile = (of_maxima + of_moves + accumulated(count, factor))[:, :, None]
        weights = self._existing(stored * scaled)
        moved = self._existing((flip + stored * of_tile) * scaled)
        output = data.weighted(weights, self.keys)
        bound = moved @ data.abs_v[self.keys] + np.abs(output) * of_sum
        # Products of two of these errors.
        bound *= (1.0 + of_sum) * (1.0 + eta.max(axis=(1, 2)))[:, None] ** 2
        bound += data.flushed(count)

        empty = total == 0.0
        log_sum = np.log2(safe)
        lse = np.where(empty, -np.inf, LN2 * (last + log_sum))
        lse_bound = off / (1.0 - off) + of_level + lse_error(last, log_sum)
        of_last = (arithmetic.scale_ulps + arithmetic.maximum_ulps) * U_FP32 * np.abs(last)
        lse_bound += LN2 * of_last
        lse_bound = np.where(empty, 0.0, lse_bound)
        return (output, bound), (lse, lse_bound)

    def _existing(self, of_tiles: Floats) -> Floats:
        """[rows, tiles, kv_block] -> [rows, keys that exist]."""
        return of_tiles.reshape(len(of_tiles), -1)[:, : self.keys.stop - self.keys.start]


def _growth(maximum: Floats, tile: Floats) -> Floats:
    """What a tile's maximum adds to the row's: 0 if it sees no key, inf if it sees its first."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(tile), 0.0, np.maximum(tile - maximum, 0.0))
