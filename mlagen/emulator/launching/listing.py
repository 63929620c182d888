"""A few instructions around a place in a kernel, for people who read a finding."""

from __future__ import annotations

from mlagen.binary import KernelCode


def around(kernel: KernelCode, pc: int, reach: int = 2) -> list[str]:
    """`reach` instructions before and after the one at byte `pc`, which is marked with `>`."""
    instructions = kernel.instructions
    here = next((n for n, ins in enumerate(instructions) if ins.offset == pc), None)
    if here is None:
        return []
    shown = instructions[max(here - reach, 0) : here + reach + 1]
    return [f"{'>' if ins.offset == pc else ' '} {ins.offset:#8x}  {ins}" for ins in shown]
