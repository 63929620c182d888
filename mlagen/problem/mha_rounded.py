"""The rounding oracle of MHA / GQA: rounds where the kernel rounds, and is exact in between.

What it follows:

* Q' = bf16(fp32(Q) * fp32(c)), S = Q' K^T in log2 units, tile by tile of `kv_block` keys.
* A wave of 32 query rows keeps a lagging maximum M per row. The first tile sets it. At every later
  tile, if max(M, tile maximum) - M exceeds `rescale_threshold` in any row of the wave, all its rows
  take their new maximum, and O and the row sum are multiplied by exp2(M_old - M_new); the P of the
  tile before is already in O by then. Otherwise M stays. Rows beyond the sequence's end are zeros.
* P = bf16(exp2(S - M)); the row sum adds P before the rounding; O = Σ P v / row sum.

What is left between this and a right kernel is fp32 accumulation. The bound is its sum:

* P whose fp32 error interval holds a boundary between two bf16 numbers may be either of them: that
  difference times |v|. The interval comes from the errors of S, M, S - M and exp2.
* a tile that is rescaled carries exp2 of the difference of two maxima, each with its score error;
* the row sum carries the score errors of its keys and that of the last maximum;
* accumulation of O and of the row sum, reciprocal, last product, the products of rescaling.

Where M's growth is so close to the threshold that fp32 may decide otherwise, both ways are followed
for that wave and given as alternatives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mlagen.problem.attention_math import Bools, HeadData, Ints, row_blocks, score_error, visible
from mlagen.problem.expected import Alternative, Expected
from mlagen.problem.formats import (
    SMALLEST_NORMAL,
    TRANSCENDENTAL,
    U_FP32,
    Floats,
    accumulated,
    confidence,
    prescaled,
    round_bf16,
)
from mlagen.problem.mha_exact import LN2, require_bf16
from mlagen.problem.mha_inputs import MhaInputs

MAX_PATHS = 16  # ways to decide the close votes of one wave that are followed


def rounded(
    inputs: MhaInputs, *, rows: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> Expected:
    """What the kernel should compute from `inputs`, for some rows and heads or for all.

    A row that sees no key is 0, exactly. ConfigError: no bf16 problem.
    """
    require_bf16(inputs)
    chosen_rows, chosen_heads = inputs.rows(rows), inputs.heads(heads)
    # Votes are a wave's: whole waves are computed, rows beyond the end included.
    wave_rows = inputs.config.q_block_size
    waves = np.unique(chosen_rows // wave_rows)
    all_rows = (waves[:, None] * wave_rows + np.arange(wave_rows)).ravel()
    kept = np.isin(all_rows, chosen_rows)
    q = np.zeros((inputs.batch, len(all_rows), len(chosen_heads), inputs.config.depth))
    exist = all_rows < inputs.seq_len
    q[:, exist] = prescaled(inputs.q[:, all_rows[exist]][:, :, chosen_heads], inputs.scale)

    values, bounds = np.zeros(q.shape), np.zeros(q.shape)
    alternatives: list[Alternative] = []
    undecided = 0
    rows_of_heads = q[..., 0].size
    factor = confidence(rows_of_heads * (inputs.keys + inputs.config.depth))  # scores and outputs
    for batch, index in np.ndindex(inputs.batch, len(chosen_heads)):
        data = HeadData.of(inputs, batch, inputs.config.kv_head_of(int(chosen_heads[index])))
        for block, keys in row_blocks(inputs, all_rows):
            if keys.stop == keys.start:
                continue
            at = (batch, block, index)
            scores = _Scores.of(inputs, data, q[at], all_rows[block], keys, factor)
            path = scores.path({})
            values[at], bounds[at] = scores.finish(data, path, factor)
            for wave, options in scores.other_paths(path):
                undecided += options is None
                lanes = slice(wave * wave_rows, (wave + 1) * wave_rows)
                mine = kept[block][lanes]
                first = int(kept[: block.start + lanes.start].sum())
                rows_of_wave = first + np.arange(int(mine.sum()))
                for option in options or ():
                    output, bound = scores.wave(lanes).finish(data, option, factor)
                    alternatives.append(
                        Alternative(batch, index, rows_of_wave, output[mine], bound[mine])
                    )
    return Expected(
        "rounding",
        values[:, kept],
        bounds[:, kept],
        chosen_rows,
        chosen_heads,
        tuple(alternatives),
        undecided,
    )


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


@dataclass(frozen=True, slots=True, eq=False)
class _Scores:
    """Scores of whole waves against all tiles that their block sees, with their fp32 errors.

    `scores`, `errors`: [rows, tiles, kv_block]; -inf and 0 where a key is hidden. `keys` are those
    of the tiles, the last may reach past the keys that exist.
    """

    scores: Floats
    errors: Floats
    keys: slice
    threshold: float
    wave_rows: int

    @staticmethod
    def of(
        inputs: MhaInputs, data: HeadData, q: Floats, rows: Ints, keys: slice, factor: float
    ) -> _Scores:
        config = inputs.config
        tile = config.kv_block
        first, last = keys.start // tile * tile, -(-keys.stop // tile) * tile
        end = min(last, inputs.keys)
        inside = slice(first, end)
        seen = visible(inputs, rows, inside)
        k = data.k[inside]
        scores = np.full((len(rows), last - first), -np.inf)
        errors = np.zeros(scores.shape)
        scores[:, : end - first] = np.where(seen, q @ k.T, -np.inf)
        errors[:, : end - first] = np.where(seen, score_error(q, k, factor), 0.0)
        shape = (len(rows), -1, tile)
        return _Scores(
            scores.reshape(shape),
            errors.reshape(shape),
            inside,
            config.rescale_threshold,
            config.q_block_size,
        )

    def wave(self, rows: slice) -> _Scores:
        """The same for some rows only."""
        return _Scores(
            self.scores[rows], self.errors[rows], self.keys, self.threshold, self.wave_rows
        )

    def path(self, forced: dict[int, bool]) -> _Path:
        """The maxima that the votes lead to; `forced` decides some tiles' votes (for one wave)."""
        rows, tiles, _ = self.scores.shape
        waves = rows // self.wave_rows
        top = self.scores.max(axis=2)
        low = (self.scores - self.errors).max(axis=2)
        high = (self.scores + self.errors).max(axis=2)
        maximum, error = np.empty((rows, tiles)), np.empty((rows, tiles))
        moved = np.zeros((waves, tiles), np.bool_)
        close = np.zeros((waves, tiles), np.bool_)
        now = top[:, 0], low[:, 0], high[:, 0]
        for tile in range(tiles):
            if tile:
                new = (
                    np.maximum(now[0], top[:, tile]),
                    np.maximum(now[1], low[:, tile]),
                    np.maximum(now[2], high[:, tile]),
                )
                # The kernel subtracts in fp32.
                least = _growth(now[2], low[:, tile]) * (1 - U_FP32)
                most = _growth(now[1], high[:, tile]) * (1 + U_FP32)
                surely = self._any_row(least > self.threshold)
                maybe = self._any_row(most > self.threshold)
                vote = self._any_row(_growth(now[0], top[:, tile]) > self.threshold)
                moved[:, tile] = forced.get(tile, vote)
                close[:, tile] = maybe & ~surely
                lanes = np.repeat(moved[:, tile], self.wave_rows)
                now = (
                    np.where(lanes, new[0], now[0]),
                    np.where(lanes, new[1], now[1]),
                    np.where(lanes, new[2], now[2]),
                )
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

    def finish(self, data: HeadData, path: _Path, factor: float) -> tuple[Floats, Floats]:
        """O and its bound, [rows, depth], along one path."""
        tiles = self.scores.shape[1]
        some = ~np.isneginf(path.maximum)
        base = np.where(some, path.maximum, 0.0)
        last = base[:, -1:]
        distance = base[:, :, None] - self.scores  # inf for hidden keys
        p = np.exp2(-distance)
        # fp32: the score's error, the maximum's, that of the subtraction, exp2's.
        hidden = np.isneginf(self.scores)
        subtraction = np.where(hidden, 0.0, U_FP32 * np.abs(distance))
        eta = np.expm1(LN2 * (self.errors + path.error[:, :, None] + subtraction))
        eta += TRANSCENDENTAL
        stored = round_bf16(p)
        flip = np.maximum(
            round_bf16(p * (1.0 + eta)) - stored, stored - round_bf16(p * (1.0 - eta))
        )
        # What a tile's part of O is multiplied by after it: all later moves of M.
        carried = np.where(some, np.exp2(base - last), 0.0)
        later: Ints = np.cumsum(path.moved[:, ::-1], axis=1)[:, ::-1] - path.moved
        moves: Ints = np.repeat(later, self.wave_rows, axis=0)
        of_moves = moves * (TRANSCENDENTAL + U_FP32)
        of_moves = of_moves + LN2 * U_FP32 * (last - base)
        last_error = path.error[:, -1:]
        of_maxima = np.where(moves > 0, LN2 * (path.error + last_error), 0.0)

        unrounded = p * carried[:, :, None]
        total = unrounded.sum(axis=(1, 2))[:, None]
        safe = np.where(total == 0.0, 1.0, total)
        sum_error = (
            np.expm1(LN2 * (self.errors + last_error[:, :, None] + subtraction))
            + TRANSCENDENTAL
            + of_moves[:, :, None]
        )
        count = (~hidden).sum(axis=(1, 2))[:, None]
        of_sum = (unrounded * sum_error).sum(axis=(1, 2))[:, None] / safe
        of_sum += accumulated(self.scores.shape[2] + tiles, factor) + TRANSCENDENTAL + U_FP32

        share = (carried / safe)[:, :, None]
        relative = (of_maxima + of_moves + accumulated(count, factor))[:, :, None]
        weights = self._existing(stored * share)
        off = self._existing((flip + stored * relative) * share)
        output = data.weighted(weights, self.keys)
        bound = off @ data.abs_v[self.keys] + np.abs(output) * of_sum
        # Products of two of these errors.
        bound *= (1.0 + of_sum) * (1.0 + eta.max(axis=(1, 2)))[:, None] ** 2
        bound += np.where(count > 0, SMALLEST_NORMAL * (count + 1), 0.0)
        return output, bound

    def _existing(self, of_tiles: Floats) -> Floats:
        """[rows, tiles, kv_block] -> [rows, keys that exist]."""
        return of_tiles.reshape(len(of_tiles), -1)[:, : self.keys.stop - self.keys.start]


def _growth(maximum: Floats, tile: Floats) -> Floats:
    """What a tile's maximum adds to the row's: 0 if it sees no key, inf if it sees its first."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(tile), 0.0, np.maximum(tile - maximum, 0.0))
