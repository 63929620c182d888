"""What an audit says: findings, what it could not check, and the facts it gathered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mlagen.audit.ptx.severity import severity
from mlagen.names import short_name
from mlagen.ptx import Instruction
from mlagen.severity import ADVICE, ASSUMED, ERROR, UNPROVED, Severity, any_error, rank

# Rule -> what it demands. The list in docs/ptx_audit.md is held to this one by a test.
RULES: dict[str, str] = {
    "wgmma-in-flight": "no ordinary access to an accumulator before the wait that covers its group",
    "wgmma-a-overwritten": "registers of operand A keep their values while the wgmma is in flight",
    "wgmma-fence": "wgmma.fence between ordinary accesses to its registers and a wgmma",
    "wgmma-uncommitted": "every wgmma is in a committed group when it is waited for",
    "wgmma-wait-conditional": "a wait stands on every path from its wgmma to the use",
    "wgmma-back-edge": "accumulators carried over a back edge are waited for with wait_group 0",
    "wgmma-unwaited": "no wgmma is in flight when the kernel ends",
    "wgmma-predicated": "no guard on a wgmma; its scale-d operand does that",
    "wgmma-diverged": "the four warps of a warpgroup issue the same wgmma",
    "cluster-begin": "a block's shared memory is accessed by others once it is known to have begun",
    "cluster-end": "no block ends before what others do to its shared memory is over",
    "mbarrier-count": "an mbarrier's count is 1..1048575, its address a multiple of 8",
    "mbarrier-uninitialised": "an mbarrier is initialised before it is used",
    "mbarrier-visible": "initialisation is fenced and synchronised before other threads use it",
    "mbarrier-transaction": "expected bytes are those of the copies of the phase",
    "mbarrier-arrivals": "each phase gets as many arrivals as the mbarrier was initialised with",
    "mbarrier-order": "an arrival knows that the phase before has completed",
    "mbarrier-overrun": "a phase completes only after all waiters saw the one before",
    "mbarrier-overwritten": "no data is written over an mbarrier in use",
    "deadlock": "every wait is satisfied",
    "smem-raw": "shared memory is read only after a wait for what fills it",
    "smem-war": "shared memory is overwritten only after its readers have released it",
    "smem-waw": "two writes to the same shared memory are ordered",
    "smem-bounds": "accesses stay inside the declared shared memory",
    "smem-size": "shared memory fits the target's 232448 bytes",
    "smem-alignment": "tiles, barriers and copies are aligned as their instructions demand",
    "smem-load-release": "a place that a copy fills again is released when the values of its loads"
    " were used, or behind fence.proxy.async",
    "proxy-fence": "fence.proxy.async between ordinary writes and asynchronous accesses",
    "tensormap-fence": "a tensor map that the kernel edits is fenced by its editor and its users",
    "copy-unwaited": "no copy to shared memory is in flight when the kernel ends",
    "bulk-unwaited": "bulk stores have been read before their buffer or the block goes away",
    "bar-id": "named barriers are 0..15",
    "bar-count": "a named barrier's thread count is a multiple of 32 and the same for all",
    "bar-order": "a named barrier is used again only by those that know it completed",
    "setmaxnreg-value": "setmaxnreg takes 24..256 in steps of 8, dec lowers and inc raises",
    "setmaxnreg-entry": "setmaxnreg needs .maxntid, .reqntid or .maxnreg",
    "setmaxnreg-pool": "the warpgroups' registers fit the block's pool",
    "setmaxnreg-diverged": "all warps of a warpgroup execute the same setmaxnreg",
    "divergence": "warp-wide instructions are reached by all lanes of the warp",
    "tcgen05-columns": "a power of two of columns from 32 to 512 is allocated or freed",
    "tcgen05-permit": "no allocation comes behind tcgen05.relinquish_alloc_permit",
    "tcgen05-freed": "what is allocated is freed, as many columns as were allocated",
    "tcgen05-bounds": "tcgen05.ld and .st stay in the lanes and columns that there are",
    "tcgen05-lanes": "tcgen05.ld and .st begin at lanes that their shape can begin at",
    "tcgen05-group": "all tcgen05 of a kernel have the same .cta_group",
    "tcgen05-sparse": "the sparsity of an instruction descriptor is that of the modifiers",
    "tcgen05-shape": "M and N of an instruction descriptor are some that its modifiers allow",
    "stricter-wait": "a wait for groups asks for no more than what follows it needs",
    "spare-fence": "a fence makes something visible, or orders a register",
    "spare-barrier": "a barrier orders accesses",
    ASSUMED: "what the text does not say is as it was taken to be",
    "call": "no calls in a kernel that uses wgmma (ptxas serialises it)",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule. `line` is 0 for the whole kernel; `other_line` is the second instruction of
    a pair, 0 for none. `severity`: a word of mlagen.severity. `guess`: what it rests on, which
    makes it unproved; "" for nothing. `places`: lines and other lines of all that have this
    cause. `change`: line of the instruction that has to say what `needs` says, 0 where one is
    missing, or not known."""

    rule: str
    function: str
    line: int
    text: str
    message: str
    other_line: int = 0
    other_text: str = ""
    needs: str = ""
    who: str = ""  # "warp 4, lanes 0-31"
    when: str = ""  # the path: "k_tiles = 3"
    place: str = ""  # the schedule's line, where a manifest tells it
    other_place: str = ""
    context: tuple[str, ...] = ()
    severity: Severity = ERROR
    guess: str = ""
    places: tuple[tuple[int, int], ...] = ()
    change: int = 0

    @classmethod
    def at(
        cls,
        rule: str,
        function: str,
        instruction: Instruction,
        message: str,
        *,
        other: Instruction | None = None,
        needs: str = "",
        who: str = "",
        guess: str = "",
    ) -> Finding:
        """A finding on an instruction, or on a pair of them. `guess`: what it rests on; see
        mlagen.severity."""
        line, text = (other.line, other.text) if other else (0, "")
        return cls(
            rule,
            function,
            instruction.line,
            instruction.text,
            message,
            line,
            text,
            needs=needs,
            who=who,
            severity=UNPROVED if guess else severity(rule, instruction, other),
            guess=guess,
        )

    def resting_on(self, guess: str) -> Finding:
        """The finding, which is no more certain than a guess."""
        return replace(self, severity=UNPROVED, guess=guess)

    def render(self) -> str:
        """The diagnostic, as `error[rule] file:line: what happened`, then the lines."""
        name = short_name(self.function)
        here = f"{name}:{self.line}" if self.line else name
        head = f"{self.severity}[{self.rule}] {self.place or here}: {self.message}"
        verb = "Enough:" if self.severity == ADVICE else "Needs"
        notes = " ".join(
            part
            for part in (
                f"{verb} {self.needs}{f' at line {self.change}' * bool(self.change)}."
                if self.needs
                else "",
                f"By {self.who}." if self.who else "",
                f"With {self.when}." if self.when else "",
            )
            if part
        )
        lines = [head]
        if notes:
            lines.append(f"  {notes}")
        lines += [f"  {line}" for line in self.context]
        if self.other_line:
            at = f"  ({self.other_place})" if self.other_place else ""
            lines.append(f"  and {self.other_line}: {self.other_text}{at}")
        if len(self.places) > 1:
            lines.append(f"  {self._all()}")
        return "\n".join(lines)

    def _all(self) -> str:
        """All places that have the finding's cause, by their lines."""
        lines = {line for line, _ in self.places if line}
        told = f"{len(self.places)} times, at lines {_ranges(lines)}"
        others = {other for _, other in self.places if other}
        return f"{told}, with lines {_ranges(others)}" if others else told


def _ranges(lines: set[int], most: int = 12) -> str:
    """Some of the lines."""
    first = ", ".join(map(str, sorted(lines)[:most]))
    return f"{first}, … ({len(lines)})" if len(lines) > most else first


@dataclass(slots=True)
class Notes:
    """Collects findings and gaps of one entry; a pair of lines is told once for each rule."""

    function: str
    found: dict[tuple[object, ...], Finding] = field(default_factory=dict)
    unchecked: dict[str, None] = field(default_factory=dict)
    unfollowed: str = ""  # why no path is followed
    checked: tuple[str, ...] = ()  # of such an entry
    idle: bool = False  # no path could show anything
    paths: int = 0  # that were followed to their end
    reached: set[int] = field(default_factory=set)  # instructions on them

    @property
    def wrong(self) -> bool:
        """Whether an error was found."""
        return any_error(self.found.values())

    def add(self, finding: Finding) -> None:
        """Keeps the gravest finding of its rule and pair, the first of equals."""
        key: tuple[object, ...] = (finding.rule, finding.line, finding.other_line)
        if finding.rule == ASSUMED:
            key = (*key, finding.guess)
        known = self.found.setdefault(key, finding)
        graver = rank(finding.severity) < rank(known.severity)
        more = finding.severity == known.severity and finding.change and not known.change
        if graver or more:
            self.found[key] = finding

    def copy(self) -> Notes:
        """The same, to be continued in another way."""
        return replace(self, found=dict(self.found), unchecked=dict(self.unchecked))

    def assume(self, guess: str, instruction: Instruction | None = None) -> None:
        """Something that had to be guessed, though no rule is broken by it so far: at an
        instruction, or for the whole kernel. `guess`: see mlagen.severity."""
        line, text = (instruction.line, instruction.text) if instruction else (0, "")
        self.add(Finding(ASSUMED, self.function, line, text, guess, severity=UNPROVED, guess=guess))

    def gap(self, text: str) -> None:
        """Something that could not be decided."""
        self.unchecked[text] = None

    def unfollow(self, why: str, more: str = "") -> None:
        """No path is followed; `more` stands in the gap alone."""
        self.unfollowed = why
        self.gap(f"no path of this kernel was followed: {why}{more}")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What tells whether a mutant is equivalent: see `mutation`."""

    flow: int  # which write each read sees, on every path
    blind: bool  # some access was not followed
    through_global: bool  # threads may read global memory that others wrote
    spare_wgmma_fences: frozenset[int]  # lines of those that order no register
    spare_fences: frozenset[int]  # lines of proxy fences that made nothing visible
    unwaited_arrivals: frozenset[int]  # lines of arrivals that no wait is for
    unreached: frozenset[int]  # lines that no path led to


@dataclass(frozen=True, slots=True)
class EntryReport:
    """The audit of one kernel. `unfollowed`: why no path of it was followed, "" where paths were;
    then `checked` says what was looked at. `idle`: it has nothing that a path could show: no
    barrier, no shared memory, nothing asynchronous. `unadvised`: where advice was asked for, why
    none, or not all, was looked for."""

    function: str
    threads: int
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]
    facts: Mapping[str, Any]
    evidence: Evidence | None = None
    unfollowed: str = ""
    checked: tuple[str, ...] = ()
    idle: bool = False
    unadvised: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The audit of a file."""

    target: str
    version: str
    entries: tuple[EntryReport, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings."""
        return tuple(finding for entry in self.entries for finding in entry.findings)

    @property
    def unchecked(self) -> tuple[str, ...]:
        """All gaps, each with its kernel's name."""
        return tuple(
            f"{short_name(e.function)}: {gap}" for e in self.entries for gap in e.unchecked
        )
