"""Calls that reach every instruction of an artifact, and what an artifact's text says they need.

A loop written for tile i is printed many times: straight code for small numbers of tiles, a
prologue, one copy of the loop for each phase, one drain for each phase that it can be left in. The
artifact's line map names these sections, so a kind of problem can choose sizes that enter each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlagen.artifact import Manifest


_EXACT = re.compile(r"^N = (\d+)$")
_LOOP = re.compile(r"^loop\b")


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the kind of data, and sizes as `--shape` takes them. `thin`: as few workgroups as
    run all code, where the kind of problem can say which; the others repeat it on other heads."""

    data: str
    shape: Mapping[str, Any]
    thin: bool = False


@dataclass(frozen=True, slots=True)
class Covering:
    """Calls that together reach what they can. `limits`: sentences that say what they cannot
    reach, and why."""

    calls: tuple[Call, ...]
    limits: tuple[str, ...] = field(default=())


def tile_counts(manifest: Manifest) -> tuple[int, ...]:
    """Numbers of tiles that enter every section: none, each that has straight code of its own, from
    the first that the loop serves as many as it has phases, to leave it in each, and one more; and
    one with which each phase runs twice, the second time on what was there before."""
    exact, phases = _straight_and_phases(manifest)
    if not phases:
        return tuple(range(exact + 1))
    return (*range(exact + phases + 2), exact + 2 * phases + 1)


def steady_tiles(manifest: Manifest, iterations: int) -> int:
    """The least number of tiles with which the loop does so many iterations whole."""
    exact, phases = _straight_and_phases(manifest)
    return exact + iterations * phases + 1


def _straight_and_phases(manifest: Manifest) -> tuple[int, int]:
    """The most tiles that straight code of their own does, and the tiles of a loop's iteration."""
    sections = {line.section for line in manifest.source}
    exact = max((int(m[1]) for name in sections if (m := _EXACT.match(name))), default=0)
    return exact, sum(1 for name in sections if _LOOP.match(name))
