"""Which exchanges between warps the hazards that racecheck printed are, and what orders them.

    python tests/gpu/sanitizer_report.py --forms --keep FOLDER
    python tests/gpu/racecheck_exchanges.py FOLDER

Of each artifact in the folder: the two instructions of every hazard in the SASS, and the exchange
whose bytes both access, as the head of the PTX lists them (registers that are added to an address
are taken for the row within an exchange). *Ordered*: in straight line, without a branch or a place
that one leads to, the store is followed by an arrival or a meeting at the exchange's own named
barrier, and the load follows a meeting there. At the end, of how many of all loads and stores of
exchanges this holds, whether they ran or not. Exchanges in bytes that something else uses as well
are left out: P of the right warpgroup, which lies in a tile of Q. Needs nvdisasm.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HAZARD = re.compile(
    r"between (\w+) access at (\w+)\+0x([0-9a-f]+)\n"
    r"=+ +and \w+ access at \w+\+0x([0-9a-f]+) \[(\d+) hazards\]"
)
REGION = re.compile(r"(?m)^//   0x(\w+)\.\.0x(\w+)  (.+)$")
EXCHANGE = re.compile(r"exchange (.+): .*, named barrier (\d+)$")
INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]+)\*/\s+(.*?) ;")
ACCESS = re.compile(r"\b(LDS|STS)\b.*\[R\d+\+0x(\w+)\]")
LABEL = re.compile(r"\.L_\w+")
BARRIER = re.compile(r"^BAR\.(SYNC|ARV)\S* (0x\w+)")  # not under a predicate
LEAVES = re.compile(r"\b(BRA|BRX|JMP|CALL|RET|EXIT)\b")


@dataclass(frozen=True)
class Exchange:
    """Bytes of SMEM from `first` to `last` that one role writes and another reads."""

    first: int
    last: int
    name: str
    barrier: int


def exchanges(ptx: str) -> tuple[Exchange, ...]:
    """Those that the PTX lists, and that have their bytes for themselves."""
    regions = [(int(a, 16), int(b, 16), what) for a, b, what in REGION.findall(ptx)]
    return tuple(
        Exchange(first, last, found[1], int(found[2]))
        for first, last, what in regions
        if (found := EXCHANGE.match(what))
        and sum(a <= last and first <= b for a, b, _ in regions) == 1
    )


@dataclass(frozen=True)
class Listing:
    """A kernel's SASS: (address, instruction) in order, -1 where a branch may enter; and its
    exchanges."""

    lines: tuple[tuple[int, str], ...]
    exchanges: tuple[Exchange, ...]

    @classmethod
    def of(cls, sass: str, ptx: str) -> Listing:
        code = [(INSTRUCTION.match(line), line) for line in sass.splitlines()]
        targets = {label for found, line in code if found for label in LABEL.findall(line)}
        return cls(
            tuple(
                (int(found[1], 16), found[2]) if found else (-1, line)
                for found, line in code
                if found or line.rstrip(":") in targets
            ),
            exchanges(ptx),
        )

    def accessed(self, index: int) -> tuple[Exchange | None, int]:
        """The exchange that a load or store accesses, and the constant part of its address."""
        found = ACCESS.search(self.lines[index][1])
        offset = int(found[2], 16) if found else -1
        return next((m for m in self.exchanges if m.first <= offset <= m.last), None), offset

    def loads(self, index: int) -> bool:
        found = ACCESS.search(self.lines[index][1])
        return found is not None and found[1] == "LDS"

    def ordered(self, index: int, barrier: int) -> bool:
        loads = self.loads(index)
        for at, text in self.lines[index - 1 :: -1] if loads else self.lines[index + 1 :]:
            if found := BARRIER.match(text):
                return int(found[2], 16) == barrier and (found[1] == "SYNC" or not loads)
            if at < 0 or LEAVES.search(text):
                return False
        return False

    def hazard(self, one: int, other: int) -> str:
        """Of a hazard between two addresses: exchange, its bytes, and the barrier that orders both
        instructions."""
        indices = [index for index, (at, _) in enumerate(self.lines) if at in (one, other)]
        (exchange, offset), *others = {self.accessed(index) for index in indices}
        if exchange is None or others or sum(map(self.loads, indices)) != 1:
            return "no exchange | | not seen"
        ordered = all(self.ordered(index, exchange.barrier) for index in indices)
        order = f"named barrier {exchange.barrier}" if ordered else "not seen"
        return f"{exchange.name} | {offset:#x} | {order}"

    def tally(self) -> tuple[int, int]:
        """Loads and stores of exchanges, and how many of them are ordered."""
        accesses = [(index, self.accessed(index)[0]) for index in range(len(self.lines))]
        ordered = [self.ordered(index, of.barrier) for index, of in accesses if of]
        return len(ordered), sum(ordered)


def disassembled(cubin: Path) -> str:
    tool = shutil.which("nvdisasm") or "/usr/local/cuda/bin/nvdisasm"
    return subprocess.run(
        [tool, "-c", str(cubin)], capture_output=True, text=True, check=True
    ).stdout


def main() -> None:
    folders = sorted(path.parent for path in Path(sys.argv[1]).glob("*/racecheck.txt"))
    if not folders:
        raise SystemExit(f"{sys.argv[1]}: no folder in it has a racecheck.txt")
    print("| kernel | exchange | SMEM | ordered by | store | load | hazards |")
    print("|---|---|---|---|---|---|---|")
    tallies = []
    for folder in folders:
        ptx = (folder / "kernel.ptx").read_text()
        listing = Listing.of(disassembled(folder / "kernel.cubin"), ptx)
        printed = (folder / "racecheck.txt").read_text()
        for kind, kernel, one, other, count in HAZARD.findall(printed):
            load, store = (one, other) if kind == "Read" else (other, one)
            found = "no exchange | | another kernel"
            if f".entry {kernel}(" in ptx:
                found = listing.hazard(int(load, 16), int(store, 16))
            print(f"| {folder.name} | {found} | 0x{store} | 0x{load} | {count} |", flush=True)
        tallies.append("{}: {} loads and stores of exchanges, {} ordered")
        tallies[-1] = tallies[-1].format(folder.name, *listing.tally())
    print("", *tallies, sep="\n")


if __name__ == "__main__":
    main()
