"""Inputs of prefill on which the work of every tile shows in the output.

What a kernel does for one tile often hardly matters: a maximum that is too low costs nothing until
an exponential overflows, and a rescale that is left out is made up for by a later one that
multiplies all that is old by almost nothing. So the query rows have three natures:

* even ones: **spikes**. In every tile one key scores above all before it, by more than fp32 holds
  as a power of two. A maximum that overlooks it overflows, one that is too high loses it, and O is
  one row of V. Where a mask cuts, the spike is the last key that the row sees or the first one that
  it must not see; calls that begin at an even and at an odd position have one at every place.
* odd ones: **steps**. A row's maximum grows once by more than the rescale threshold, at a tile of
  its own, and all later keys have that level: O and row sum stay wrong if they are not rescaled
  just there.
* all rows of every fourth wave: **rest**. After the first tile no maximum grows by more than the
  threshold, and all keys weigh about alike: the rescale is skipped, and a key that is dropped,
  doubled or not hidden shows.

The columns of a K/V head are turned by a random rotation; some directions of it carry the spikes
and others all the rest, so that neither disturbs the other.
"""

from __future__ import annotations

import math

import numpy as np

from mlagen.attention.made_up import Array
from mlagen.attention.prefill.made_up import Shapes

WAVE_ROWS = 32
SPIKE = 160.0  # log2 units between the spikes of two tiles; fp32 ends at 2^128
SPIKE_QUERY = 60.0  # length of a query along its spikes
MOST_SPIKES = 40  # tiles that they climb over; then they begin again
OVER = 4.0  # log2 units that a step is higher than the threshold
STEP_QUERY = 4.0  # length of a query along its step
LEVEL_LATE = 5  # keys of its tile that stand before a level: a tile has keys of both
REST = 1.5  # log2 units: standard deviation of scores at rest


def every_tile(rng: np.random.Generator, s: Shapes) -> tuple[Array, Array, Array]:
    """Q, K and V, [batch, rows or keys, heads, depth]."""
    batch, rows, block = s.q[0], s.q[1], s.config.kv_block
    heads, width = s.config.num_kv_heads, s.levels
    unit = s.scale * math.log2(math.e)  # log2 units of a dot product of 1
    turn = np.linalg.qr(rng.standard_normal((heads, width, width)))[0]
    spiky = max(min(width // 2, block // 2), width * 5 // 8 if block > width else 0)
    plain = width - spiky
    key, tile = np.arange(s.keys), np.arange(s.keys) // block
    steps = min(int(tile[-1]), plain // 3)
    rest = REST / (unit * math.sqrt(plain))

    # K in the turned columns: spikes, levels, rest; columns of position are at rest.
    k = rest * rng.standard_normal((batch, s.keys, heads, s.depth))
    k[..., :spiky] = 0.0
    place = key % block % (2 * spiky)  # two places share a direction, with opposite signs
    climb = SPIKE * (tile % MOST_SPIKES + 1) / (SPIKE_QUERY * unit)
    k[:, key, :, place % spiky] = np.where(place < spiky, climb, -climb)[:, None, None]
    begins = 1 + np.arange(steps) * int(tile[-1]) // max(steps, 1)  # tiles
    reached = (key[:, None] - LEVEL_LATE) // block >= begins
    level = (s.config.rescale_threshold + OVER) / (STEP_QUERY * unit)
    k[..., spiky : spiky + steps] = (level * reached)[None, :, None]

    # Q in the turned columns of its K/V head.
    row = np.arange(rows)
    resting = row // WAVE_ROWS % 4 == 3
    q = rng.standard_normal((batch, rows, s.config.num_heads, s.depth))
    q[..., : spiky + steps] = 0.0
    is_spike = ~resting & (row % 2 == 0)
    # Neighbouring halves of a workgroup take the two sides of the diagonal, and change them with
    # the number of tiles. Query tiles after the first take other places, where tiles have more.
    hidden = (row // (4 * WAVE_ROWS) + tile[-1]) % 2
    shift = 2 * WAVE_ROWS * np.maximum(row // s.config.q_tile - 1, 0)
    chosen = (s.start_pos + row + hidden + shift) % block % (2 * spiky)
    sign = np.where(chosen < spiky, SPIKE_QUERY, -SPIKE_QUERY)
    q[:, is_spike] = 0.0
    q[:, row[is_spike], :, chosen[is_spike] % spiky] = sign[is_spike, None, None]
    if steps:
        stepping = row[~resting & (row % 2 == 1)]
        q[:, stepping, :, spiky + stepping // 2 % steps] = STEP_QUERY

    q[..., :width] = np.einsum("bnhd,hed->bnhe", q[..., :width], s.each_query_head(turn))
    k[..., :width] = np.einsum("bnhd,hed->bnhe", k[..., :width], turn)
    return q, k, rng.standard_normal(s.kv)
