"""What the hazards that racecheck printed are, row by row, and what orders them.

    python tests/gpu/sanitizer_report.py --forms --keep FOLDER
    python tests/gpu/racecheck_exchanges.py FOLDER

Of each artifact in the folder: the two instructions of every hazard in the SASS, the lines of the
PTX that they come from, the roles and operations which these belong to, the bytes of SMEM that both
access, and what orders them:

* *named barrier N*: on all paths of the SASS the store is followed by an arrival or a meeting at N,
  and the load follows a meeting there. N is an exchange's, of the store's role with the load's.
* *mbarrier of P*: in the PTX the store is followed by its role's arrival at the full mbarrier of
  pipeline P before the role stores there again, and the load follows its role's wait for it. That
  the phases fit is the proof's and the emulator's to say.
* *not seen*: neither.

At the end, of how many of all loads and stores of exchanges the first holds, whether they ran or
not. Registers that are added to an address are taken for the row within an area. Needs nvdisasm.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mlagen.artifact import Manifest, SourceLine, read_artifact

HAZARD = re.compile(
    r"between (\w+) access at (\w+)\+0x([0-9a-f]+)[^\n]*\n"
    r"=+ +and \w+ access at \w+\+0x([0-9a-f]+)[^\n]*?\[(\d+) hazards\]"
)
INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]+)\*/\s+(.*?) ;")
FROM = re.compile(r'//## File "\S*", line (\d+)')
LABEL = re.compile(r"\.L_\w+")
BARRIER = re.compile(r"^BAR\.(SYNC|ARV)\S* (0x\w+)")  # not under a predicate
LEAVES = re.compile(r"\b(BRA|BRX|JMP|CALL|RET|EXIT)\b")
SHARED = re.compile(r"\b(ld|st)\.shared\S*\s[^\[]*\[[^\]]*?\+ (\d+)\]")
PLACE = r"\S*[^\[]*\[(%\w+)(?: \+ (\d+))?\]"  # a register and what is added to it
ARRIVES = re.compile(r"mbarrier\.arrive" + PLACE)
WAITS = re.compile(r"mbarrier\.try_wait" + PLACE)
MBARRIER = 8  # bytes


@dataclass(frozen=True)
class Area:
    """Bytes of SMEM from `first` to `last`; of an exchange its named barrier."""

    name: str
    first: int
    last: int
    barrier: int  # -1: none


@dataclass(frozen=True)
class Listing:
    """A kernel: (address, instruction, line of the PTX) of its SASS in order, the address -1 where
    a branch may enter; its PTX; what its manifest says."""

    lines: tuple[tuple[int, str, int], ...]
    ptx: tuple[str, ...]
    manifest: Manifest

    @classmethod
    def of(cls, sass: str, ptx: str, manifest: Manifest) -> Listing:
        code = [(INSTRUCTION.match(line), line) for line in sass.splitlines()]
        targets = {label for found, line in code if found for label in LABEL.findall(line)}
        made, source = [], 0
        for found, line in code:
            if told := FROM.search(line):
                source = int(told[1])
            if found:
                made.append((int(found[1], 16), found[2], source))
            elif line.rstrip(":") in targets:
                made.append((-1, line, source))
        return cls(tuple(made), tuple(re.sub("//.*", "", ptx).splitlines()), manifest)

    @cached_property
    def sources(self) -> dict[int, SourceLine]:
        return {line.asm_line: line for line in self.manifest.source}

    @cached_property
    def areas(self) -> tuple[Area, ...]:
        """All of the manifest's."""
        named = {each.name: each.named for each in self.manifest.map.handoffs}
        return tuple(
            Area(each.name, each.base, each.base + each.slots * each.slot_bytes - 1,
                 named.get(each.name, -1) if each.kind == "message" else -1)
            for each in self.manifest.map.memory
        )  # fmt: skip

    def holding(self, offset: int) -> list[Area]:
        return [area for area in self.areas if area.first <= offset <= area.last]

    def access(self, index: int) -> tuple[str, int]:
        """ "ld" or "st" of the PTX that an instruction comes from, and its constant address."""
        line = self.lines[index][2]
        found = SHARED.search(self.ptx[line - 1]) if 0 < line <= len(self.ptx) else None
        return (found[1], int(found[2])) if found else ("", -1)

    def loads(self, index: int) -> bool:
        return self.access(index)[0] == "ld"

    def exchange(self, index: int) -> Area | None:
        """Whose bytes a load or store accesses: of several exchanges that share them, the one whose
        barrier orders it."""
        if not re.search(r"\b(LDS|STS)\b", self.lines[index][1]):
            return None
        held = self.holding(self.access(index)[1])
        if any(area.barrier < 0 for area in held):  # a tile lies there too: other accesses
            return None
        met = [area for area in held if self.barrier(index) == area.barrier]
        return (met or held or [None])[0]

    def operation(self, index: int) -> str:
        source = self.sources.get(self.lines[index][2])
        return f"{source.role}: {source.operation}" if source else "?"

    def barrier(self, index: int) -> int:
        """The named barrier that a store arrives at next on all paths, or at which a load has met
        last on all paths; -1: there is none, or a load has only arrived there."""
        loads, lines = self.loads(index), self.lines
        places = range(index - 1, -1, -1) if loads else range(index + 1, len(lines))
        for place in places:
            if found := BARRIER.match(lines[place][1]):
                inside = range(place + 1, index) if loads else range(index + 1, place)
                alone = self.entered_only_from(inside) if loads else self.left_only_to(inside)
                return int(found[2], 16) if alone and (found[1] == "SYNC" or not loads) else -1
        return -1

    def left_only_to(self, inside: range) -> bool:
        """Whether branches of some lines lead ahead, to others of them or behind the last."""
        for place in inside:
            text = self.lines[place][1]
            if self.lines[place][0] < 0 or not LEAVES.search(text):
                continue
            to = [self.labels.get(label, -1) for label in LABEL.findall(text)]
            if not to or not all(place < at <= inside.stop for at in to):
                return False
        return True

    def entered_only_from(self, inside: range) -> bool:
        """Whether the branches that lead to some lines are among them."""
        labels = {at for at in inside if self.lines[at][0] < 0}
        return all(
            place in inside
            for place, (at, text, _) in enumerate(self.lines)
            if at >= 0 and LEAVES.search(text)
            for label in LABEL.findall(text)
            if self.labels.get(label) in labels
        )

    @cached_property
    def labels(self) -> dict[str, int]:
        """Where each label of the SASS is."""
        return {line.rstrip(":"): n for n, (at, line, _) in enumerate(self.lines) if at < 0}

    def tells(self, barrier: int, store: int, load: int) -> bool:
        """Whether it is an exchange's, of a store's role with a load's role."""
        roles = [self.operation(index).partition(":")[0] for index in (store, load)]
        return any(
            each.named == barrier and each.producer == roles[0] and roles[1] in each.consumers
            for each in self.manifest.map.handoffs
        )

    def pipelines(self, index: int) -> list[str]:
        """Pipelines at whose full mbarrier a store's role arrives before it stores there again, or
        for which a load's role has waited since it last loaded from there, the nearest first."""
        kind, offset = self.access(index)
        line = self.lines[index][2]
        step, wanted = (-1, WAITS) if kind == "ld" else (1, ARRIVES)
        role = self.operation(index).partition(":")[0]
        found: list[str] = []
        at = line + step
        while 0 < at <= len(self.ptx):
            source, text = self.sources.get(at), self.ptx[at - 1]
            if source is not None and source.role != role:
                break
            again = SHARED.search(text)
            if again and (again[1], int(again[2])) == (kind, offset) and found:
                break
            if barrier := wanted.search(text):
                place = self.constant(at, barrier[1]) if barrier[2] is None else int(barrier[2])
                found += [
                    each.name
                    for each in self.manifest.map.handoffs
                    if each.full >= 0 and 0 <= place - each.full < MBARRIER * each.depth
                ]
            at += step
        return found

    def constant(self, line: int, register: str) -> int:
        """What the text adds to SMEM's address to make the register, above a line of the PTX."""
        wanted = re.compile(rf"\badd\.u32 {re.escape(register)}, %\w+, (\d+);")
        found = (wanted.search(text) for text in self.ptx[line - 2 :: -1])
        return next((int(each[1]) for each in found if each), -1)

    def hazard(self, load: int, store: int) -> tuple[str, str, str, str]:
        """Operations of a load and a store, by their addresses, the area, and what orders them."""
        loads = [n for n, (at, *_) in enumerate(self.lines) if at == load]
        stores = [n for n, (at, *_) in enumerate(self.lines) if at == store]
        first, second = loads[0], stores[0]
        told = (self.operation(second), self.operation(first))
        offset = self.access(first)[1]
        name = ", ".join(area.name for area in self.holding(offset)) or f"{offset:#x}"
        barrier = self.barrier(second)
        if -1 < barrier == self.barrier(first) and self.tells(barrier, second, first):
            return (*told, name, f"named barrier {barrier}")
        waited = self.pipelines(first)
        if both := [each for each in self.pipelines(second) if each in waited]:
            return (*told, name, f"mbarrier of {both[0]}")
        return (*told, name, "not seen")

    def tally(self) -> tuple[int, int]:
        """Loads and stores of exchanges, and how many of them are ordered by a named barrier."""
        of = [(index, self.exchange(index)) for index in range(len(self.lines))]
        found = [self.barrier(index) == area.barrier for index, area in of if area is not None]
        return len(found), sum(found)


def disassembled(cubin: Path) -> str:
    tool = shutil.which("nvdisasm") or "/usr/local/cuda/bin/nvdisasm"
    return subprocess.run(
        [tool, "-gp", "-c", str(cubin)], capture_output=True, text=True, check=True
    ).stdout


def main() -> None:
    folders = sorted(path.parent for path in Path(sys.argv[1]).glob("*/racecheck.txt"))
    if not folders:
        raise SystemExit(f"{sys.argv[1]}: no folder in it has a racecheck.txt")
    print("| kernel | store | load | bytes of | ordered by | SASS | hazards |")
    print("|---|---|---|---|---|---|---|")
    tallies = []
    for folder in folders:
        artifact = read_artifact(folder)
        sass = disassembled(folder / "kernel.cubin")
        listing = Listing.of(sass, artifact.text, artifact.manifest)
        printed = (folder / "racecheck.txt").read_text()
        for kind, kernel, one, other, count in HAZARD.findall(printed):
            load, store = (one, other) if kind == "Read" else (other, one)
            found: tuple[str, ...] = ("", "", "", "another kernel")
            if kernel == artifact.manifest.symbol:
                found = listing.hazard(int(load, 16), int(store, 16))
            row = " | ".join(found)
            print(f"| {folder.name} | {row} | 0x{store}, 0x{load} | {count} |", flush=True)
        tallies.append("{}: {} loads and stores of exchanges, {} ordered by named barriers")
        tallies[-1] = tallies[-1].format(folder.name, *listing.tally())
    print("", *tallies, sep="\n")


if __name__ == "__main__":
    main()
