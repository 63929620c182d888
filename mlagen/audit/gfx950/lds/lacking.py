"""What a race lacks: the waits that let its first operation stay in flight, or the barrier."""

from __future__ import annotations

from mlagen.audit.gfx950.lds.order import Race
from mlagen.audit.gfx950.lds.wave import Waited, Wave
from mlagen.audit.gfx950.weak import WeakWait


def weak_waits(race: Race, waves: list[Wave]) -> list[WeakWait]:
    """The waits of the first operation's wave that come early enough, ask for something on its
    counter, and not for enough; in the order of that wave. Empty where a barrier is what lacks."""
    earlier, later = race.earlier, race.later
    wave = waves[race.waves[0]]
    after = [wait for wait in wave.waits if wait.place >= earlier.place]
    on = 0 if earlier.site.kind == "dma" else 1
    if race.waves[0] == race.waves[1]:
        in_time = [wait for wait in after if wait.place < later.place]
    elif _barrier_lacks(race, wave, after, on):
        return []
    else:
        in_time = [wait for wait in after if wait.epoch < later.issued]
    found = []
    for wait in in_time:
        left, newer = wait.left[on], wait.issued[on] - earlier.serial - 1
        if left is not None and left > newer:
            found.append(WeakWait(wait.pc, ("vmcnt", "lgkmcnt")[on], left, newer))
    return found


def wait_before_barrier(race: Race, waves: list[Wave]) -> Waited | None:
    """The wait that covers the first operation where a barrier behind it is all that lacks."""
    wave, on = waves[race.waves[0]], 0 if race.earlier.site.kind == "dma" else 1
    after = [wait for wait in wave.waits if wait.place >= race.earlier.place]
    if race.waves[0] == race.waves[1] or not _barrier_lacks(race, wave, after, on):
        return None
    first = next(wait for wait in after if _covers(wait, race, on))
    return first if first.epoch == race.later.issued else None


def _covers(wait: Waited, race: Race, on: int) -> bool:
    left = wait.left[on]
    return left is not None and left <= wait.issued[on] - race.earlier.serial - 1


def _barrier_lacks(race: Race, wave: Wave, after: list[Waited], on: int) -> bool:
    """Whether the first operation is waited for before the second one, in the order in which its
    wave comes by both, and only no barrier stands between."""
    later = race.later
    for wait in after:
        if _covers(wait, race, on):
            break
    else:
        return False
    if wait.epoch < later.issued:
        return True  # in order by this count; what else is wrong is not the wait
    if wait.epoch > later.issued:
        return False
    same = [
        operation.place
        for operation in wave.history
        if operation.site.pc == later.site.pc and operation.issued == later.issued
    ]
    return not same or wait.place < min(same)
