"""Recording what a workgroup executes: rows in order of execution, addresses of its accesses.

The engine appends to arrays that Python empties between slices; a slice executes no more
instructions than they have room for. Without a recorder the engine pays one test an instruction.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950.state import program_row, queue_slot, wave_base
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.streams import ExecutedStream

ROOM: Final = 1 << 14  # instructions, and accesses with 64 addresses each
R_STEPS: Final = 0  # address of the steps
R_ADDRESSES: Final = 1  # address of the lanes' addresses
R_COUNT: Final = 2
R_ACCESSES: Final = 3
R_SIZE: Final = 4
_STEP: Final = 3  # wave, row, access (-1 for none)


@compiled
def note_step(context: int, wave: int, row: int) -> None:
    """Append an instruction that was executed, and the addresses of its memory access."""
    record = load_i64(context, y.C_RECORD)
    count = load_i64(record, R_COUNT)
    access = -1
    p = program_row(context, row)
    queue = load_i64(p, y.P_QUEUE)
    kind = load_i64(p, y.P_CLASS)
    if kind == y.X_LDS or kind == y.X_VMEM:
        access = load_i64(record, R_ACCESSES)
        store_i64(record, R_ACCESSES, access + 1)
        last = load_i64(wave_base(context, wave), y.W_TAIL + queue) - 1
        slot = queue_slot(wave, queue, last)
        entry = load_i64(context, y.C_QUEUE) + slot * (8 * y.E_SIZE)
        lanes = load_i64(entry, y.E_EXEC)
        if load_i64(entry, y.E_KIND) == y.K_LDS_PERMUTE:
            lanes = 0
        source = load_i64(context, y.C_QADDR) + slot * 512
        target = load_i64(record, R_ADDRESSES) + access * 512
        for lane in range(64):
            word = load_i64(source, lane)
            if kind == y.X_VMEM:
                word = word >> 8 if word & 255 else -1
            store_i64(target, lane, word if (lanes >> lane) & 1 else -1)
    steps = load_i64(record, R_STEPS)
    store_i64(steps, count * _STEP, wave)
    store_i64(steps, count * _STEP + 1, row)
    store_i64(steps, count * _STEP + 2, access)
    store_i64(record, R_COUNT, count + 1)


class Recorder:
    """The arrays that the engine appends to, and what was taken from them so far."""

    def __init__(self) -> None:
        self._head = np.zeros(R_SIZE, dtype=np.int64)
        self._steps = np.zeros((ROOM, _STEP), dtype=np.int64)
        self._addresses = np.zeros((ROOM, y.LANES), dtype=np.int64)
        self._head[R_STEPS] = self._steps.ctypes.data
        self._head[R_ADDRESSES] = self._addresses.ctypes.data
        self.reset()

    @property
    def address(self) -> int:
        return int(self._head.ctypes.data)

    def reset(self) -> None:
        """Forget everything: another workgroup starts."""
        self._taken_steps: list[np.ndarray] = []
        self._taken_addresses: list[np.ndarray] = []
        self._accesses = 0
        self._head[R_COUNT] = self._head[R_ACCESSES] = 0

    def empty(self) -> None:
        """Take what a slice left."""
        count, accesses = int(self._head[R_COUNT]), int(self._head[R_ACCESSES])
        steps = self._steps[:count].astype(np.int32)
        steps[steps[:, 2] >= 0, 2] += self._accesses
        self._taken_steps.append(steps)
        self._taken_addresses.append(self._addresses[:accesses].copy())
        self._accesses += accesses
        self._head[R_COUNT] = self._head[R_ACCESSES] = 0

    def stream(self, workgroup: int, waves: int) -> ExecutedStream:
        """Everything taken since `reset`."""
        steps = np.concatenate([np.zeros((0, _STEP), np.int32), *self._taken_steps])
        addresses = [np.zeros((0, y.LANES), np.int64), *self._taken_addresses]
        return ExecutedStream(
            workgroup=workgroup,
            waves=waves,
            wave=np.ascontiguousarray(steps[:, 0]),
            row=np.ascontiguousarray(steps[:, 1]),
            access=np.ascontiguousarray(steps[:, 2]),
            addresses=np.concatenate(addresses),
        )
