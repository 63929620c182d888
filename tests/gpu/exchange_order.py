"""Whether exchanges between the two math warpgroups of MLA decode are ordered in the SASS on all
paths, also where their words are written again: in a loop, and for a block's next item.

    python tests/gpu/sanitizer_report.py --forms --keep FOLDER
    python tests/gpu/exchange_order.py FOLDER [--without BARRIER]

Both warpgroups are followed at once, through every branch either way and in all interleavings, from
one load or store of an exchange, or barrier that both take part in, to the next. What a warpgroup
did before an arrival, the other one knows after it has waited there. Printed are loads and stores
of an exchange of which the other's last store or load is not known, and arrivals at a barrier that
the other one has not met since the last one. Exchanges are those of `racecheck_exchanges.py`.

`--without` takes a barrier away. The script takes for granted that both read the same number of
tiles of an item, so exchange equally often, and that both come to their end. Needs nvdisasm.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from pathlib import Path

from racecheck_exchanges import LABEL, LEAVES, Listing, disassembled

from mlagen.artifact import read_artifact

BAR = re.compile(r"\bBAR\.(SYNC|ARV)\S* (0x\w+)")
BEFORE_SUMS = re.compile(r"exchange [MP] \w+: .*, named barrier (\d+)")
SUMS = re.compile(r"exchange l (?:left|right): .*, named barrier (\d+)")
EVERYBODY, LEFT_ALONE, RIGHT_ALONE = 0, 1, 2  # barriers
END = -1

Deed = tuple[int, bool, str]  # a warpgroup loads, or stores, an exchange
# Where both are; arrivals that are not met, with what they tell; what the other does not know.
State = tuple[tuple[int, int], frozenset[tuple[int, frozenset[Deed]]], frozenset[Deed]]


@dataclass
class Paths:
    """Of a kernel's SASS: what follows each line, and the lines that order or access exchanges."""

    listing: Listing
    without: int | None
    bars: dict[int, tuple[bool, int]] = field(default_factory=dict)  # (arrives only, which)
    leads: list[list[int]] = field(default_factory=list)
    skips: dict[int, int] = field(default_factory=dict)  # where else a line under a guard leads

    def __post_init__(self) -> None:
        lines = self.listing.lines
        labels = {
            text.rstrip(":"): at for at, (address, text, _) in enumerate(lines) if address < 0
        }
        for at, (_, text, _) in enumerate(lines):
            if found := BAR.search(text):
                self.bars[at] = (found[1] == "ARV", int(found[2], 16))
            kind = LEAVES.search(text)
            if kind is None:
                self.leads.append([at + 1])
                continue
            assert kind[1] in ("BRA", "EXIT"), text
            target = END if kind[1] == "EXIT" else labels[LABEL.findall(text)[-1]]
            # BRA.DIV asks which lanes there are; `BRA P0, ..` has a second guard.
            free = text.startswith("@") or re.search(r"BRA\.DIV|BRA\S* !?U?P\d", text)
            self.leads.append([target, at + 1] if free else [target])
        for at in [at for at in self.bars if lines[at][1].startswith("@")]:
            self._guarded(at)

    def _guarded(self, at: int) -> None:
        """A barrier under a guard that the branch after it has, too: both or none."""
        guard = self.listing.lines[at][1].split()[0]
        register = re.compile(rf"\b{guard.lstrip('@!')}\b")
        behind = at + 1
        while not register.search(self.listing.lines[behind][1]):
            assert self.leads[behind] == [behind + 1] and behind not in self.bars
            behind += 1
        assert re.match(rf"{guard} +BRA ", self.listing.lines[behind][1])
        self.leads[at], self.skips[at] = [self.leads[behind][0]], behind + 1

    def entries(self) -> list[int]:
        """Where each warpgroup goes at the one branch that parts them."""
        alone = [self._reaching(LEFT_ALONE), self._reaching(RIGHT_ALONE)]
        found = [
            sorted(to, key=lambda line: line in alone[1])
            for to in self.leads
            if len(to) == 2
            and {line in alone[0] for line in to} == {True, False}
            and [line in alone[0] for line in to] == [line not in alone[1] for line in to]
        ]
        assert len(found) == 1, found
        return found[0]

    def _reaching(self, bar: int) -> set[int]:
        """Lines from which this barrier is reached."""
        before: dict[int, list[int]] = {}
        for at, to in enumerate(self.leads):
            for line in [*to, *([self.skips[at]] if at in self.skips else [])]:
                before.setdefault(line, []).append(at)
        stack = [at for at, (_, which) in self.bars.items() if which == bar]
        found = set(stack)
        while stack:
            new = set(before.get(stack.pop(), [])) - found
            found |= new
            stack += new
        return found

    def next(self, lines: list[int]) -> list[int]:
        """The next lines that matter, from these on."""
        seen: set[int] = set()
        stack, found = list(lines), []
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            if at in self.skips:
                stack.append(self.skips[at])
            if at == END or self.matters(at):
                found.append(at)
            else:
                stack += self.leads[at]
        return found

    def matters(self, at: int) -> bool:
        if at in self.bars:
            which = self.bars[at][1]
            return which not in (LEFT_ALONE, RIGHT_ALONE) and which != self.without
        return self.listing.exchange(at) is not None


class Search:
    """All states of both warpgroups, and what is not ordered in them."""

    def __init__(self, paths: Paths, ptx: str) -> None:
        self.paths, self.listing = paths, paths.listing
        self.sums = {int(which) for which in SUMS.findall(ptx)}
        self.before_sums = {int(which) for which in BEFORE_SUMS.findall(ptx)}
        self.met: set[int] = set()
        self.bad: dict[tuple[int, str], None] = {}
        self.known: dict[int, list[int]] = {}
        left, right = (paths.next([entry]) for entry in paths.entries())
        stack: list[State] = [((a, b), frozenset(), frozenset()) for a in left for b in right]
        self.states = set(stack)
        while stack:
            new = set(self._after(stack.pop())) - self.states
            self.states |= new
            stack += new

    def _after(self, state: State) -> list[State]:
        (left, right), pending, unknown = state
        bars = self.paths.bars
        if END not in (left, right) and bars.get(left) == bars.get(right) == (False, EVERYBODY):
            return [
                ((a, b), pending, frozenset()) for a in self._next(left) for b in self._next(right)
            ]
        found = []
        for who, at in enumerate((left, right)):
            if at == END or (done := self._step(who, at, dict(pending), unknown)) is None:
                continue
            for line in self._next(at):
                where = (line, right) if who == 0 else (left, line)
                found.append((where, frozenset(done[0].items()), done[1]))
        return found

    def _next(self, at: int) -> list[int]:
        if at not in self.known:
            self.known[at] = self.paths.next(self.paths.leads[at])
        return self.known[at]

    def _step(
        self, who: int, at: int, pending: dict[int, frozenset[Deed]], unknown: frozenset[Deed]
    ) -> tuple[dict[int, frozenset[Deed]], frozenset[Deed]] | None:
        """Arrivals and what is not known after a line, or None where it waits."""
        self.met.add(at)
        address = self.listing.lines[at][0]
        if at not in self.paths.bars:
            exchange, loads = self.listing.exchange(at), self.listing.loads(at)
            assert exchange is not None
            for other, loaded, name in unknown:
                if other != who and name == exchange.name and not (loads and loaded):
                    self.bad[address, f"{name}: not ordered"] = None
            deed = (who, loads, exchange.name)
            return {bar: told - {deed} for bar, told in pending.items()}, unknown | {deed}
        arrives, which = self.paths.bars[at]
        if arrives:
            if which in pending:
                self.bad[address, f"barrier {which}: not met since the last arrival"] = None
            pending[which] = frozenset(deed for deed in unknown if deed[0] == who)
        elif which not in pending or (which in self.sums and self.before_sums & set(pending)):
            return None  # not yet, or never: this one has exchanged less often in this item
        else:
            unknown -= pending.pop(which)
        return pending, unknown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--without", type=int, metavar="BARRIER")
    options = parser.parse_args()
    for cubin in sorted(options.folder.glob("*/kernel.cubin")):
        artifact = read_artifact(cubin.parent)
        ptx = artifact.text
        listing = Listing.of(disassembled(cubin), ptx, artifact.manifest)
        paths = Paths(listing, options.without)
        search = Search(paths, ptx)
        accesses = [at for at in range(len(listing.lines)) if listing.exchange(at)]
        print(
            f"{cubin.parent.name}: {len(search.states)} states, {len(search.met & {*accesses})} of"
            f" {len(accesses)} loads and stores of exchanges, {len(search.bad)} not ordered",
            flush=True,
        )
        for address, what in sorted(search.bad):
            print(f"    {address:#x}  {what}")


if __name__ == "__main__":
    main()
