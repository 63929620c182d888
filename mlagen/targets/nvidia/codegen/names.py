"""PTX registers of mlagen's own, by name. Templates read most of them; none may declare one."""

from __future__ import annotations

# What control flow and operations share: tiles, items that are left, tiles of the next one.
TILES, ITEMS, COMING = COUNTS = ("%tiles", "%items", "%coming")
LOOP = ("%i", "%last", "%done")  # of the loop alone: elsewhere they are not of any tile
# What no operation writes.
OWN = ("%i", "%last", "%smem", "%tmem", "%thread", "%warp", "%lane")
RANK = "%rank"  # nor this, of a CTA pair

ALL = tuple(dict.fromkeys((*OWN, RANK, *LOOP, *COUNTS)))


def another(name: str) -> str:
    """What to do about a name that is taken."""
    return f"another, such as %my_{name.lstrip('%')}; mlagen's own are {', '.join(ALL)}"
