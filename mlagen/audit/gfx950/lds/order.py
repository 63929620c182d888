"""Order between waves: operations whose barrier epochs overlap are not ordered.

An operation of a wave may happen in any of the epochs from its issue to the wait that covered it.
Barriers are the only order between waves: two conflicting operations are ordered if and only if
one was done in an earlier epoch than the other was issued in. No interleaving is chosen, so no
race hides behind one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from mlagen.audit.gfx950.lds.wave import LdsOperation, Wave


@dataclass(frozen=True, slots=True)
class Race:
    """Two operations that nothing orders. Of two waves, unless `same_wave`."""

    rule: str
    earlier: LdsOperation
    later: LdsOperation
    waves: tuple[int, int]
    mask: int
    newer: int
    """Operations after the earlier one on its counter at that point; -1: only a barrier lacks."""


def races(waves: list[Wave]) -> Iterator[Race]:
    """All pairs, at least one of each pair of instructions."""
    for wave in waves:
        for clash in wave.clashes.values():
            mask = clash.earlier.footprint.mask & clash.later.footprint.mask
            rule = _rule(clash.earlier, clash.later)
            number = wave.number
            yield Race(rule, clash.earlier, clash.later, (number, number), mask, clash.newer)
    live = [_by_epoch(wave) for wave in waves]
    for epoch in sorted(set().union(*live)):
        yield from _in_epoch(waves, [one.get(epoch, _NOTHING) for one in live])


@dataclass(slots=True)
class _Live:
    """Operations of one wave that may happen in one epoch, and the bytes they read and write."""

    operations: list[LdsOperation]
    reads: int = 0
    writes: int = 0


_NOTHING = _Live([])


def _by_epoch(wave: Wave) -> dict[int, _Live]:
    found: dict[int, _Live] = defaultdict(lambda: _Live([]))
    for operation in wave.history:
        last = min(operation.done, wave.epoch)
        wave.budget.spend(max(last - operation.issued, 0) + 1)
        for epoch in range(operation.issued, last + 1):
            live = found[epoch]
            live.operations.append(operation)
            if operation.site.reads:
                live.reads |= operation.footprint.mask
            if operation.site.writes:
                live.writes |= operation.footprint.mask
    return found


def _in_epoch(waves: list[Wave], live: list[_Live]) -> Iterator[Race]:
    total = [one.reads | one.writes for one in live]
    for i, mine in enumerate(live):
        if not mine.writes:
            continue
        others = 0
        for j, mask in enumerate(total):
            # Two writers would be met twice: once is enough.
            others |= 0 if j == i else mask if j > i else live[j].reads
        if not mine.writes & others:
            continue
        for j, other in enumerate(live):
            overlap = mine.writes & (total[j] if j > i else other.reads)
            if j != i and overlap:
                yield from _pairs((waves[i], mine), (waves[j], other), overlap)


def _pairs(first: tuple[Wave, _Live], second: tuple[Wave, _Live], overlap: int) -> Iterator[Race]:
    writers = [o for o in first[1].operations if o.site.writes and o.footprint.mask & overlap]
    others = [o for o in second[1].operations if o.footprint.mask & overlap]
    for a in writers:
        first[0].budget.spend(len(others))
        for b in others:
            mask = a.footprint.mask & b.footprint.mask
            if mask and not same_bytes(a, b):
                numbers = first[0].number, second[0].number
                if (b.issued, b.place) < (a.issued, a.place):
                    yield Race(_rule(b, a), b, a, numbers[::-1], mask, -1)
                else:
                    yield Race(_rule(a, b), a, b, numbers, mask, -1)


def same_bytes(a: LdsOperation, b: LdsOperation) -> bool:
    """Whether two operations put the same bytes of memory, or the same values, wherever both write:
    in any order, or at once, LDS holds the same. That nobody writes the memory meanwhile is taken
    for granted."""
    return a.source is not None and b.source is not None and a.source.agrees(b.source)


def _rule(earlier: LdsOperation, later: LdsOperation) -> str:
    if not later.site.writes:
        return "lds-raw"
    return "lds-waw" if earlier.site.writes else "lds-war"
