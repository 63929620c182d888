"""What a run executed, as values: for whoever wants to know more than results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class ExecutedStream:
    """The instructions of one workgroup in the order in which the emulator executed them.

    `workgroup`: its number in the grid, x fastest. `wave`, `row`, `access`: one entry an
    instruction (int32): which wave, which of the kernel's `instructions`, and the row of
    `addresses` that holds its lanes' addresses, -1 where it accesses no memory.
    `addresses`: int64 [accesses, 64]; -1 for lanes that access nothing. DS instructions: bytes in
    LDS (two-address forms: the second address << 32 | the first). Loads and stores: bytes in an
    address space of the run's own, in which buffers keep their order and their 256-byte alignment.
    """

    workgroup: int
    waves: int
    wave: npt.NDArray[np.int32]
    row: npt.NDArray[np.int32]
    access: npt.NDArray[np.int32]
    addresses: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row)
