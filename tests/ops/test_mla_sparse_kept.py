"""What calls of sparse MLA on one device share."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlagen.attention.latent.call_tensors import HostMemory
from mlagen.families.mla_sparse.kept import ROOMS, Kept


class Counted(HostMemory):
    """Memory of the host that counts what is copied to it."""

    def __init__(self) -> None:
        super().__init__()
        self.copies = 0

    def upload(self, array: Any) -> Any:
        self.copies += 1
        return super().upload(array)


def test_streams_find_their_arrivals_made() -> None:
    """A graph is captured in a stream of its own, in which nothing can be copied."""
    memory = Counted()
    kept = Kept(memory)
    found = [kept.arrivals(300, stream) for stream in range(ROOMS)]
    assert memory.copies == ROOMS
    for number, room in enumerate(found):
        assert room.shape[0] >= 300 and not room.any()
        room[:] = number + 1
    assert [int(room[0, 0]) for room in found] == list(range(1, ROOMS + 1)), "rooms overlap"
    assert kept.arrivals(300, 3) is found[3]


def test_more_parts_take_another_room_of_which_other_streams_have_one_too() -> None:
    memory = Counted()
    kept = Kept(memory)
    small = kept.arrivals(8, "eager")
    large = kept.arrivals(5000, "eager")
    assert large.shape[0] >= 5000 and not np.shares_memory(small, large)
    assert memory.copies == 2 * ROOMS
    assert kept.arrivals(5000, "capture").shape[0] >= 5000 and memory.copies == 2 * ROOMS
