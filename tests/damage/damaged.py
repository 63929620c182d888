"""A launcher that writes over a word of a launch's table before it emulates the kernel, with guard
bytes around every tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlagen.launch import EmulatedLauncher, LaunchReport

# What memory that belongs to others now holds, in place of a number: nothing, -1, the least and the
# largest number, a NaN, 1.0, what is behind the end of anything, and one off.
HOW: dict[str, Callable[[int], int]] = {
    "0": lambda _: 0,
    "-1": lambda _: -1,
    "least": lambda _: -(2**31),
    "largest": lambda _: 2**31 - 1,
    "nan": lambda _: 0x7FC00000,
    "1.0": lambda _: 0x3F800000,
    "5000": lambda _: 5000,
    "one more": lambda number: min(number + 1, 2**31 - 1),
    "one less": lambda number: max(number - 1, -(2**31)),
}
GUARD, PATTERN = 4096, 0xA5  # bytes before and after a tensor
# An access out of memory, and a run that only a bound on its steps ended.
WRONG = {
    "global-bounds", "shared-bounds", "local-bounds", "param-bounds", "const-bounds",
    "lds-bounds", "lds-alignment", "global-alignment", "alignment", "map-misuse", "deadlock",
    "not-ended",
}  # fmt: skip


@dataclass
class Damaging:
    """`table`, and of each of its rows the word in `column`, which becomes something else in each:
    of `HOW` the first one in row `-first`, and so on. Without a table nothing is written over."""

    table: str
    column: int
    first: int = 0
    inner: EmulatedLauncher = field(
        default_factory=lambda: EmulatedLauncher(threads=1, max_instructions=30_000_000)
    )
    report: LaunchReport | None = None
    tensors: dict[str, Any] = field(default_factory=dict)

    def launch(self, artifact: Any, *, tensors: Any, scalars: Any, sizes: Any) -> LaunchReport:
        held, given = {}, {}
        for name, array in tensors.items():
            room = np.full(array.nbytes + 2 * GUARD, PATTERN, np.uint8)
            own = room[GUARD : GUARD + array.nbytes].view(array.dtype).reshape(array.shape)
            own[...] = array
            held[name], given[name] = room, own
        self.tensors = given
        if self.table in given:
            words = given[self.table].reshape(len(given[self.table]), -1)
            for row, how in enumerate(cycled(self.first, len(words))):
                words[row, self.column] = HOW[how](int(words[row, self.column]))
        self.report = self.inner.launch(artifact, tensors=given, scalars=scalars, sizes=sizes)
        for name, room in held.items():
            around = np.concatenate([room[:GUARD], room[-GUARD:]])
            assert (around == PATTERN).all(), f"bytes around {name} have changed"
        return self.report

    def wrong(self) -> list[str]:
        """What the run must not do, whatever the table says."""
        assert self.report and self.report.emulation
        return [str(f) for f in self.report.emulation.findings if f.kind in WRONG]


def cycled(first: int, rows: int) -> list[str]:
    """What becomes of the word in each of so many rows."""
    names = list(HOW)
    return [names[(first + row) % len(names)] for row in range(rows)]
