"""Waves that pass fewer barriers than others: did they end early, or go around one?

A barrier waits for the waves that are left (CDNA4 ISA guide, S_BARRIER), and an end waits for the
wave's own operations, so a wave that ends early is missed by none. One that went around a barrier
and does what others do behind it is, unless that is nothing in LDS: then no barrier of others lacks
it, and what it did before is ordered, or not, by the barriers that it passed.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import takewhile

from mlagen.audit.gfx950.lds.wave import Wave


def any_too_few(waves: Sequence[Wave], working: Set[int]) -> bool:
    """Whether some wave passed too few barriers. `working`: blocks that access memory or LDS."""
    most = max(wave.epoch for wave in waves)
    longest = {_key(wave): wave for wave in waves if wave.epoch == most}.values()
    shorter = {_key(wave): wave for wave in waves if wave.epoch < most}.values()
    return any(all(not _ended_early(wave, other, working) for other in longest) for wave in shorter)


def _key(wave: Wave) -> tuple[int, ...]:
    return tuple(wave.path)


def _ended_early(wave: Wave, other: Wave, working: Set[int]) -> bool:
    """Whether a wave does nothing in LDS behind its last barrier; or passed the first barriers of
    another, and does nothing behind them that the other does behind a later one."""
    if wave.touched < wave.epoch:
        return True
    count = wave.epoch
    barriers = zip(wave.passed, other.passed, strict=False)
    if any(wave.path[mine - 1] != other.path[its - 1] for mine, its in barriers):
        return False
    mine, its = _behind(wave, count), _behind(other, count)
    shared = takewhile(lambda pair: pair[0] == pair[1], zip(mine, its, strict=False))
    later = working & {*_behind(other, count + 1)}
    return later.isdisjoint(mine[sum(1 for _ in shared) :])


def _behind(wave: Wave, count: int) -> list[int]:
    """The blocks from that of the last of `count` barriers on."""
    return wave.path[wave.passed[count - 1] - 1 :] if count else wave.path
