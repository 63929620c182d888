"""How much of a folder of gfx950 objects the emulator can execute, as a Markdown table.

    python tests/foreign/family_report.py FOLDER [FAMILY ...] [--objects]

A family is a folder below FOLDER (AITER's `hsa/gfx950`), with all objects at any depth. An object
counts as executable when every instruction that its kernels can reach, in the form that they have
it, and the modes of their descriptors are modelled: then nothing but its data can stop a run.
`--objects` lists what stops each of the others.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mlagen.binary import load_code_object
from mlagen.emulator.gfx950.machine import refused_modes
from mlagen.emulator.gfx950.translate import gaps
from mlagen.errors import MlagenError

COLUMNS = ("family", "objects", "execute", "missing opcodes (objects)", "other reasons (objects)")


@dataclass(frozen=True)
class Coverage:
    """What keeps an object from being executed: opcodes, and other reasons. Empty: nothing."""

    opcodes: frozenset[str]
    reasons: frozenset[str]

    @property
    def executes(self) -> bool:
        return not self.opcodes and not self.reasons


def coverage(code: bytes) -> Coverage:
    """All kernels of an object."""
    opcodes: set[str] = set()
    reasons: set[str] = set()
    try:
        for kernel in load_code_object(code).kernels.values():
            reasons |= set(refused_modes(kernel))
            for gap in gaps(kernel):
                mnemonic = gap.instruction.mnemonic
                if gap.why:
                    reasons.add(f"{mnemonic}: {gap.why}")
                else:
                    opcodes.add(mnemonic)
    except MlagenError as error:
        reasons.add(f"unreadable: {error}")
    return Coverage(frozenset(opcodes), frozenset(reasons))


def _counted(names: Iterable[str]) -> str:
    counts = sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"`{name}` {count}" for name, count in counts) or "none"


def row(family: str, found: dict[str, Coverage]) -> tuple[str, ...]:
    """The table's row of one family."""
    every = found.values()
    return (
        f"`{family}`",
        str(len(found)),
        str(sum(each.executes for each in every)),
        _counted(name for each in every for name in each.opcodes),
        _counted(reason for each in every for reason in each.reasons),
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--objects", action="store_true")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        sys.exit(f"{options.folder} is no folder")
    families = options.families or sorted(p.name for p in options.folder.iterdir() if p.is_dir())
    for cells in (COLUMNS, tuple("---" for _ in COLUMNS)):
        print(f"| {' | '.join(cells)} |")
    details: list[str] = []
    for family in families:
        files = sorted((options.folder / family).rglob("*.co"))
        if not files:
            sys.exit(f"{options.folder / family} holds no .co file")
        found = {
            str(file.relative_to(options.folder)): coverage(file.read_bytes()) for file in files
        }
        print(f"| {' | '.join(row(family, found))} |", flush=True)
        for name, each in found.items():
            if not each.executes:
                details.append(f"{name}: {', '.join(sorted(each.opcodes | each.reasons))}")
    if options.objects:
        print("", *details, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
