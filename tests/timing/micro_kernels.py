"""Kernels of a few instructions, executed, recorded and timed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from gfx950_assembler import assemble

from mlagen.binary import KernelCode, load_code_object
from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
from mlagen.emulator.streams import ExecutedStream
from mlagen.timing.constants import machine
from mlagen.timing.unit import UnitTimes, time_unit


def recorded(
    body: str, *, waves: int = 1, grid: int = 1, lds: int = 0, **frame: object
) -> tuple[KernelCode, tuple[ExecutedStream, ...]]:
    """The kernel of `body` (without s_endpgm) and what its workgroups execute. Its one argument is
    a buffer of 64 KiB, in s[4:5] after `POINTER`."""
    code = load_code_object(assemble(f"{body}\n  s_endpgm\n", lds=lds, vgprs=128, **frame))
    result = emulate(
        code,
        Launch(
            grid=(grid, 1, 1),
            block=(64 * waves, 1, 1),
            arguments=[Argument(0, Buffer("memory", np.zeros(1 << 14, np.uint32)))],
        ),
        Settings(sanitize=False, record=True),
    )
    return code.kernel(), result.streams


POINTER = "  s_load_dwordx2 s[4:5], s[0:1], 0x0\n  s_waitcnt lgkmcnt(0)\n"


def timed(body: str, *, waves: int = 1, lds: int = 0, workgroups: int = 1,
          **constants: float) -> UnitTimes:  # fmt: skip
    """`body` on one compute unit; `constants` replace the table's."""
    kernel, (stream,) = recorded(body, waves=waves, lds=lds)
    return time_unit(stream, kernel, machine().changed(**constants), workgroups=workgroups)


def issued(unit: UnitTimes, mnemonic: str, wave: int = 0) -> list[int]:
    """Cycles in which a wave issued the instructions of that name."""
    instructions = unit.program.kernel.instructions
    mine = unit.waves[wave]
    return [
        int(when)
        for row, when in zip(mine.rows, mine.issued, strict=True)
        if instructions[row].mnemonic == mnemonic
    ]


def gaps(cycles: list[int]) -> list[int]:
    """Differences of neighbours."""
    return [b - a for a, b in pairwise(cycles)]


LOOP = """
  s_mov_b32 s8, {count}
head:
{body}
  s_sub_u32 s8, s8, 1
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 head
"""


def loop(body: str, count: int = 8) -> str:
    """`body`, `count` times."""
    return LOOP.format(body=body, count=count)
