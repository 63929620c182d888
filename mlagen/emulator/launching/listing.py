"""A few instructions around a place in a kernel, for people who read a finding."""

from __future__ import annotations

from mlagen.binary import KernelCode
from mlagen.ptx import Entry


def around(kernel: KernelCode | Entry, pc: int, reach: int = 2) -> list[str]:
    """`reach` instructions before and after the one at `pc` (a byte; of PTX its number), which is
    marked with `>`."""
    if isinstance(kernel, Entry):
        lines = [(i.index, f"{i.line:6}  {' '.join(i.text.split())}") for i in kernel.instructions]
    else:
        lines = [(ins.offset, f"{ins.offset:#8x}  {ins}") for ins in kernel.instructions]
    here = next((n for n, (place, _) in enumerate(lines) if place == pc), None)
    if here is None:
        return []
    shown = lines[max(here - reach, 0) : here + reach + 1]
    return [f"{'>' if place == pc else ' '} {text}" for place, text in shown]
