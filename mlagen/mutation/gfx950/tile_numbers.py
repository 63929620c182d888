"""Which numbers of tiles execute a section of a text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mlagen.mutation.gfx950.listing import Listing

_SPAN = 5  # numbers of tiles tried in a row, where the loop runs
_EXACT = re.compile(r"^N = (\d+)$")
_LOOP = re.compile(r"^loop\b")
_DRAIN = re.compile(r"^drain, \(N - (\d+)\) % (\d+) = (\d+)$")


def tiles_for(listing: Listing, sections: Sequence[str]) -> tuple[int, ...]:
    """The numbers of tiles that execute any of the sections; the likeliest to show a defect first.

    Sections that stand for one number of tiles run with that number. Prologue, loop and drain run
    with all numbers from the first that the loop serves, until every phase was entered and left
    twice; a drain with those that lead to it. Setup and epilogue run with all of these.
    """
    exact = sorted(int(m[1]) for name in listing.sections if (m := _EXACT.match(name)))
    phases = sum(1 for name in listing.sections if _LOOP.match(name))
    first = max(exact, default=0) + 1
    looped = range(first, first + max(_SPAN, 2 * phases + 1))
    tiles: dict[int, None] = {}
    for section in sections:
        if one := _EXACT.match(section):
            tiles.update(dict.fromkeys([int(one[1])]))
        elif drain := _DRAIN.match(section):
            back, period, phase = (int(group) for group in drain.groups())
            tiles.update(dict.fromkeys(n for n in looped if (n - back) % period == phase))
        elif section in ("setup", "epilogue"):
            tiles.update(dict.fromkeys([*exact, *looped]))
        else:
            tiles.update(dict.fromkeys(reversed(looped)))
    return tuple(tiles)
