"""Atomic and plain accesses of two workgroups to one dword of global memory.

Nothing orders the workgroups of a launch but what they tell each other. Atomics of any of them may
meet on a dword. A plain load or store there by another workgroup is unordered: the load may see any
of the partial results, the store may lose some. The tables hold, for every dword of the arena, the
last atomic and the last plain access: workgroup + 1 above ROW_BITS, program row below.

They are kept only for kernels in which no atomic returns a value and so orders nothing, and by one
host thread. A load that bypasses the caches (sc1) may poll on purpose, and is left out.
"""

from __future__ import annotations

from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950 import opcodes as o
from mlagen.emulator.gfx950.state import program_row, report
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64

ROW_BITS = 24


@compiled
def note_access(context: int, wave: int, row: int, slot: int) -> None:
    """Check and record the access that was just issued from the addresses of its queue entry."""
    p = program_row(context, row)
    atomic = load_i64(p, y.P_OP) == o.G_ATOMIC
    if load_i64(p, y.P_OP) == o.G_LOAD and load_i64(p, y.P_DST) != 0:
        return
    mine = load_i64(context, y.C_ATOMIC) if atomic else load_i64(context, y.C_PLAIN)
    others = load_i64(context, y.C_PLAIN) if atomic else load_i64(context, y.C_ATOMIC)
    group = load_i64(context, y.C_WORKGROUP) + 1
    entry = load_i64(context, y.C_QUEUE) + slot * (8 * y.E_SIZE)
    addresses = load_i64(context, y.C_QADDR) + slot * 512
    lanes = load_i64(entry, y.E_EXEC)
    for lane in range(64):
        word = load_i64(addresses, lane)
        for i in range(load_i64(p, y.P_AUX)):
            if (lanes >> lane) & 1 and (word >> i) & 1:
                dword = (word >> 10) + i
                other = load_i64(others, dword)
                if other != 0 and other >> ROW_BITS != group:
                    before = other & ((1 << ROW_BITS) - 1)
                    group_before = (other >> ROW_BITS) - 1
                    place = 4 * dword
                    found = report(
                        context, y.RACE_GLOBAL, row, before, wave, place, group_before, 0
                    )
                    if found != 0:  # which wave of that workgroup is not known
                        store_i64(found, y.F_OTHER_WAVE, -1)
                store_i64(mine, dword, group << ROW_BITS | row)
