"""A block of PTX whose copies and matrix instructions end as late as their waits allow.

The plain interpreter (`tests/ptx/ptx_run.py`) lets copies land at once and lets the warpgroups run
in one order: it shows values, not waits. Here a copy lands when nobody can go on without it, a
matrix group reads SMEM and writes its registers when it is waited for, and warpgroups take turns at
random. A wait that the schedule needs and does not have then shows in the numbers.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "ptx"))

from ptx_run import GROUP, Block, Global

from mlagen.ptx import Instruction, Vector, read_ptx

MODES = ("late", "random")
TURN = 150  # instructions of a warpgroup's turn, at most
STEPS = 2_000_000  # of a block, after which it is called endless


class Endless(Exception):
    """A block went on and on."""


@cache
def _entry(text: str) -> Any:
    return read_ptx(text).entries[0]


def run_block(text: str, arguments: dict[str, Any], at: tuple[int, int], *, mode: str) -> None:
    """Runs one block of the text's kernel; arrays of `arguments` are read and written in place.
    AssertionError: a deadlock, an address out of bounds, a trap."""
    entry = _entry(text)
    memory = Global()
    given = {
        name: memory.add(value) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }
    assert {p.name for p in entry.parameters} == set(given), set(given)
    LateBlock(entry, memory, given, at, mode=mode).run()


class LateBlock(Block):
    """`mode`: "early", as the plain interpreter; "late", the last warpgroup first; "random"."""

    def __init__(self, entry: Any, memory: Any, given: Any, at: Any, *, mode: str) -> None:
        super().__init__(entry, memory, given, at)
        self.mode, self.rng, self.count = mode, random.Random(f"{mode}{at}"), 0
        self.flying: deque[Callable[[], None]] = deque()  # copies, in the order of their issue
        self.groups: dict[int, list[list[Callable[[], None]]]] = {}  # a warpgroup's, oldest first

    # ---- turns ---------------------------------------------------------------------------------

    def run(self) -> None:
        groups = [np.arange(s, s + GROUP) for s in range(0, self.threads, GROUP)]
        end = len(self.code)
        if self.mode == "late":
            groups.reverse()
        while True:
            moved = False
            if self.mode == "random":
                self.rng.shuffle(groups)
            for group in groups:
                turn = self.rng.randint(1, TURN) if self.mode == "random" else STEPS
                while turn and self._advance(group, end):
                    moved, turn = True, turn - 1
                    self.count += 1
                    if self.count > STEPS:
                        raise Endless(f"{STEPS} instructions")
            if self.flying and (not moved or (self.mode == "random" and self.rng.random() < 0.3)):
                self.flying.popleft()()
                moved = True
            if not moved:
                break
        stuck = {int(pc) for pc in self.pc if pc < end}
        assert not stuck, f"deadlock at lines {sorted(self.code[pc].line for pc in stuck)[:6]}"

    # ---- what ends later -----------------------------------------------------------------------

    def _later(self, done: Callable[[], None]) -> None:
        if self.mode == "early":
            done()
        else:
            self.flying.append(done)

    def _cp(self, i: Instruction, lanes: Any) -> None:
        if "prefetch" in i.parts or ("tensor" in i.parts and self.mode == "early"):
            super()._cp(i, lanes)
            return
        # Registers may change before it lands: what it needs of them is kept.
        kept = {
            name: self.registers[name][lanes].copy()
            for name in _registers(i)
            if name in self.registers
        }
        special = {name: self.special[name] for name in _registers(i) if name in self.special}

        def land() -> None:
            now = {name: self.registers[name][lanes].copy() for name in kept}
            others = dict(self.special)
            self.special.update(special)
            for name, value in kept.items():
                self.registers[name][lanes] = value
            super(LateBlock, self)._cp(i, lanes)
            self.special = others
            for name, value in now.items():
                self.registers[name][lanes] = value

        self._later(land)

    def _wgmma(self, i: Instruction, lanes: Any) -> None:
        if self.mode == "early" or "fence" in i.parts:
            super()._wgmma(i, lanes)
            return
        groups = self.groups.setdefault(int(lanes[0]) // GROUP, [[]])
        if "commit_group" in i.parts:
            groups.append([])
        elif "wait_group" in i.parts:
            while len(groups) - 1 > int(i.operands[0]):
                for done in groups.pop(0):
                    done()
        else:
            super()._wgmma(i, lanes)

    def _multiply(self, i: Instruction, lanes: Any, *at: Any) -> None:
        if self.mode == "early":
            super()._multiply(i, lanes, *at)
            return
        groups = self.groups.setdefault(int(lanes[0]) // GROUP, [[]])
        groups[-1].append(lambda: super(LateBlock, self)._multiply(i, lanes, *at))


def _registers(i: Instruction) -> set[str]:
    """Names that an instruction's operands mention."""
    found: set[str] = set()

    def visit(operand: Any) -> None:
        if isinstance(operand, str):
            found.add(operand)
        elif isinstance(operand, Vector):
            for item in operand.items:
                visit(item)
        else:
            for name in ("base", "coordinates"):
                held = getattr(operand, name, None)
                for item in held if isinstance(held, tuple | list) else [held]:
                    if item is not None:
                        visit(item)

    for operand in i.operands:
        visit(operand)
    return found
