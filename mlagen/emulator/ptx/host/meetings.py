"""Words of global memory that clusters meet at which cannot tell each other anything.

Nothing orders what they do there. So when a cluster has ended, the words that it accessed are held
against those of the clusters that ended before: in what order they ran does not matter. Reads of
one meet writes of another, and writes meet writes, but for atomics among themselves. Where both
write the same value, the severity is LETTER.
"""

from __future__ import annotations

import threading

import numpy as np

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.machine import CheckedLaunch, ClusterState, Shared
from mlagen.emulator.ptx.order import meeting as m
from mlagen.emulator.ptx.order import record_sizes as o

_BYTES, _COMPONENTS = 15, (1 << o.COMPONENT_BITS) - 1


class Meetings:
    """The last write and a read of each word of buffers, of clusters that have ended."""

    def __init__(self, setup: CheckedLaunch, shared: Shared) -> None:
        words = shared.tracked // 4
        self._setup, self._shared = setup, shared
        self._lock = threading.Lock()
        self._writes = np.zeros(words, np.int64)  # accesses as order.record_sizes has them
        self._values = np.zeros(words, np.uint32)
        self._reads = np.zeros(words, np.int64)

    def end(self, state: ClusterState) -> np.ndarray:
        """A cluster has ended: findings about the words that it shares with others, as rows of F_
        words."""
        table = state.arrays[y.C_RECORDS].view(np.int64)
        first = self._setup.cluster_ctas * int(state.context[y.C_SHARED_ROOM])
        low, high = int(table[o.K_LOW]) - first, int(table[o.K_HIGH]) - first
        if high <= 0:
            return np.zeros((0, y.F_SIZE), np.int64)
        low, high = low // 4, -(-high // 4)
        numbers = state.arrays[y.C_SHADOW][first:].view(np.uint32)[low:high]
        touched = np.flatnonzero(numbers)
        records = table[o.TABLE_HEAD :].reshape(-1, o.RECORD // 8)[numbers[touched]]
        places = touched + low
        wrote = records[:, o.RECORD_WRITE]
        wrote = np.where(wrote & _BYTES, wrote, 0)
        read = np.where(records[:, o.RECORD_READS] > 0, records[:, o.RECORD_FIRST], 0)
        with self._lock:
            return self._meet(state, places, wrote, read)

    def _meet(
        self, state: ClusterState, places: np.ndarray, wrote: np.ndarray, read: np.ndarray
    ) -> np.ndarray:
        values = self._memory(places)
        same = values == self._values[places]
        found = [
            *self._rows(state, places, wrote, self._writes[places], m.AFTER_WRITE_WRITE, same),
            *self._rows(state, places, read, self._writes[places], m.AFTER_WRITE_READ, None),
            *self._rows(state, places, wrote, self._reads[places], m.AFTER_READ_WRITE, None),
        ]
        writes, reads = wrote != 0, read != 0
        self._writes[places[writes]] = wrote[writes]
        self._values[places[writes]] = values[writes]
        self._reads[places[reads]] = read[reads]
        return np.array(found, np.int64).reshape(-1, y.F_SIZE)

    def _rows(
        self,
        state: ClusterState,
        places: np.ndarray,
        now: np.ndarray,
        before: np.ndarray,
        pair: int,
        same: np.ndarray | None,
    ) -> list[list[int]]:
        """A finding for each pair of instructions that meets at some of these words."""
        meets = (now & before & _BYTES != 0) & (now & before & o.ATOMIC_BIT == 0)
        if not meets.any():
            return []
        where = np.flatnonzero(meets)
        rows = np.stack([now[where] >> o.ROW_AT, before[where] >> o.ROW_AT], 1)
        kinds, firsts, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        counts = np.bincount(which.reshape(-1), minlength=len(kinds))
        found = []
        for number, (row, other) in enumerate(kinds.tolist()):
            at = where[firsts[number]]
            alike = same is not None and bool(same[where[which.reshape(-1) == number]].all())
            line = [0] * y.F_SIZE
            line[y.F_KIND], line[y.F_ROW], line[y.F_OTHER] = y.RACE, row, other
            line[y.F_WARP] = max(self._warp(state, int(now[at])), 0)
            line[y.F_OTHER_WARP] = self._warp(state, int(before[at]))
            line[y.F_A] = self._address(int(places[at]))
            line[y.F_B] = pair | m.ELSEWHERE | (m.SAME if alike else 0)
            line[y.F_C] = y.LETTER if alike else y.ERROR
            line[y.F_COUNT], line[y.F_CLUSTER] = int(counts[number]), state.number
            found.append(line)
        return found

    def _warp(self, state: ClusterState, access: int) -> int:
        """The warp of a cluster that an access is of; -1 for one of no warp's."""
        number = access >> o.COMPONENT_AT & _COMPONENTS
        warps, kinds = int(state.context[y.C_CTA_WARPS]), int(state.context[y.C_KINDS])
        cta, within = divmod(number, kinds * warps + o.CTA_MBARRIERS)
        return cta * warps + within % warps if within < kinds * warps else -1

    def _tracked(self) -> list[tuple[int, int, np.ndarray]]:
        """Of each buffer with records: the first of its words here, its address, its bytes."""
        first = self._shared.first_tracked
        rows = zip(self._shared.buffers, self._shared.arrays[y.C_BUFFERS].tolist(), strict=False)
        return [
            ((row[y.B_SHADOW] - first) // 4, buffer.base, buffer.array)
            for buffer, row in rows
            if row[y.B_SHADOW] >= 0
        ]

    def _memory(self, places: np.ndarray) -> np.ndarray:
        """The words of memory at places."""
        values = np.zeros(len(places), np.uint32)
        for first, _, array in self._tracked():
            whole = array[: array.nbytes // 4 * 4].view(np.uint32)
            inside = (places >= first) & (places < first + len(whole))
            values[inside] = whole[places[inside] - first]
        return values

    def _address(self, place: int) -> int:
        return max(
            (first, base + 4 * (place - first))
            for first, base, _ in self._tracked()
            if first <= place
        )[1]
