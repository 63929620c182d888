"""What a kernel could do without: fences, barriers and waits that cost speed alone.

A piece of advice is tried before it is given: the kernel is audited once more with the change, and
with all that was advised before. It holds where the change breaks no rule, leaves no more
unchecked, and, on every path, each read sees the same write and every conflicting pair of accesses
is still ordered (`mutation.same`). A kernel with an error gets none, nor one of which that is not
known: `unadvised` says why. Order through global memory is not followed: what may order that is let
be.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import Final

from mlagen.audit.ptx import wgmma
from mlagen.audit.ptx.changes import Change, last_number
from mlagen.audit.ptx.check import Given, audit_module, placed
from mlagen.audit.ptx.mutation import same
from mlagen.audit.ptx.program import EntryProgram
from mlagen.audit.ptx.report import EntryReport, Finding, Notes, Report
from mlagen.errors import UnsupportedError
from mlagen.ptx import Entry, Instruction, Kind, Module, read_ptx
from mlagen.ptx.effects import kind_of
from mlagen.severity import ADVICE, ERROR, of
from mlagen.untrusted import Spent, within

_FURTHEST: Final = 8  # groups that a wait is tried with beyond what it says
_WAITS = (Kind.WGMMA_WAIT, Kind.ASYNC_WAIT, Kind.BULK_WAIT)
_TRIED = (*_WAITS, Kind.PROXY_FENCE, Kind.BARRIER)
_FENCE, _BARRIER, _WAIT = "spare-fence", "spare-barrier", "stricter-wait"
_SAME = "each read sees the same write on every path, and each conflicting pair is still ordered"
# Instructions by which a kernel may tell others of global memory; and what makes accesses strong.
_TELLS = frozenset({"atom", "red", "membar", "griddepcontrol", "multimem"})
_STRONG = frozenset({"volatile", "relaxed", "acquire", "release"})
_NOTHING = Given()


def advise_ptx(text: str, given: Given = _NOTHING, *, seconds: float = 0) -> Report:
    """Audits PTX text as `audit_ptx` does, and adds advice. `seconds`: of CPU time for both."""
    started = time.process_time()
    given = given.filled()
    try:
        with within(seconds):
            module = read_ptx(text)
    except Spent as spent:
        raise UnsupportedError(f"reading this text met {spent}") from None
    report = audit_module(module, given, evidence=True, seconds=seconds)
    entries = [entry for entry in module.entries if given.kernel in ("", entry.name)]
    until = started + seconds if seconds else inf
    done = [
        _advised(text, replace(module, entries=(entry,)), given, one, until)
        for entry, one in zip(entries, report.entries, strict=True)
    ]
    return replace(report, entries=tuple(done))


def _advised(
    text: str, module: Module, given: Given, report: EntryReport, until: float
) -> EntryReport:
    """The report of the module's one entry, with advice. `until`: of the process's CPU time."""
    if errors := of(report.findings, ERROR):
        first = errors[0]
        return replace(report, unadvised=f"it has errors ({first.rule} at line {first.line})")
    if report.unfollowed:
        return replace(report, unadvised=f"no path of it was followed: {report.unfollowed}")
    search = _Search(text, module, given, report, until)
    search.run()
    found = sorted(search.found, key=lambda one: one.line)
    findings = (placed(one, module, given.beside) for one in found)
    return replace(report, findings=(*report.findings, *findings), unadvised=search.unadvised)


class _Search:
    """The search for advice in one entry: waits are weakened before anything is removed, and that
    from the end on, so that the indices before it stay.

    `text`, `report`: with all that was found applied.
    """

    def __init__(
        self, text: str, module: Module, given: Given, report: EntryReport, until: float
    ) -> None:
        facts = report.facts
        self.text, self.report, self.until = text, report, until
        self.instructions = module.entries[0].instructions
        self.given = replace(
            given,
            boxes={**given.boxes, **facts.get("boxes", {})},
            cluster=facts.get("cluster", given.cluster),
            trips=facts.get("rounds", given.trips),
            kernel=report.function,
        )
        self.found: list[Finding] = []
        self.unadvised = ""
        self.let_be: dict[Kind, tuple[str, str]] = {}
        self.at = len(self.instructions)  # all from here on were tried

    def run(self) -> None:
        """Looks at all."""
        self._register_fences()
        if why := self._not_known():
            self.unadvised = f"only wgmma.fence was looked at: {why}"
            return
        if self.found:
            self.report = self._audited(self.text)
        self.let_be, self.at = self._let_be(), len(self.instructions)
        for index in range(self.at):
            one = self.instructions[index]
            if kind_of(one) in _WAITS and self._wanted(one) and self._seconds:
                self._weaken(one)
        while self.at and self._seconds:
            self.at -= 1
            if self._wanted(self.instructions[self.at]):
                self._remove(self.instructions[self.at])
        if left := [one for one in self.instructions[: self.at] if self._wanted(one)]:
            self.unadvised = f"time ran out before {len(left)} fences, barriers and waits"
            return
        kinds = {kind_of(one) for one in self.instructions}
        told = [f"{name} were let be: {why}" for kind, (name, why) in self.let_be.items()
                if kind in kinds]  # fmt: skip
        self.unadvised = "; ".join(told)

    @property
    def _seconds(self) -> float:
        """Of CPU time that are left."""
        return max(self.until - time.process_time(), 0)

    def _let_be(self) -> dict[Kind, tuple[str, str]]:
        """Kinds that may order global memory in this kernel: what they are called, and why."""
        evidence = self.report.evidence
        found = {}
        if evidence is not None and evidence.through_global:
            why = "its threads may read global memory that others of them wrote"
            found[Kind.ASYNC_WAIT] = "waits for cp.async", why
        if why := _tells(self.instructions):
            found[Kind.BARRIER] = "barriers", why
        if any(_stores_global(one) for one in self.instructions):
            why = "it stores to global memory"
            found[Kind.PROXY_FENCE] = "fences of all proxies' memory", why
        return found

    def _wanted(self, one: Instruction) -> bool:
        """Whether it orders shared memory, or registers, alone: what the audit follows."""
        kind = kind_of(one)
        if kind is Kind.BULK_WAIT:  # else for what a store brings to global memory
            return "read" in one.parts
        if kind is Kind.PROXY_FENCE and self._of_inits(one):
            return False
        if kind is Kind.PROXY_FENCE and any(part.startswith("shared") for part in one.parts):
            return True
        if kind is Kind.BARRIER and "sync" not in one.parts:
            return False
        return kind in _TRIED and kind not in self.let_be

    def _of_inits(self, fence: Instruction) -> bool:
        """Whether a proxy fence stands behind initialised mbarriers: once a block, and whether
        fence.mbarrier_init does without a cluster's barrier is written nowhere."""
        before = reversed(self.instructions[: fence.index])
        kinds = (kind for kind in map(kind_of, before) if kind is not Kind.PLAIN)
        return next((kind for kind in kinds if kind is not Kind.INIT_FENCE), None) is (
            Kind.MBARRIER_INIT
        )

    def _register_fences(self) -> None:
        """wgmma.fence, by its own analysis of all paths."""
        told = "no register of a wgmma after it was accessed since the last one: it can go"
        at = len(self.instructions)
        while spare := [one for one in self._spare() if one.index < at]:
            at = spare[-1].index
            self._take(_FENCE, Change(spare[-1], "", ""), told)

    def _spare(self) -> list[Instruction]:
        """Each wgmma.fence that the others make needless."""
        program = EntryProgram(self._entry(self.text))
        return wgmma.check(program.graph, program.wgmma, Notes(self.report.function))

    def _not_known(self) -> str:
        """Why nobody knows whether a change alters what a read sees; "" where that is known."""
        evidence = self.report.evidence
        if evidence is None or evidence.blind:
            return "not all of its paths and accesses were followed"
        return ""

    def _weaken(self, wait: Instruction) -> None:
        """Tries a wait with more groups that it leaves: as many as will do, where some are too
        many. Where none are, it may go."""
        asked = wait.operands[0] if wait.operands else None
        if not isinstance(asked, int):
            return
        source = self.text[slice(*wait.span)]

        def leaving(groups: int) -> Change:
            return Change(wait, "", last_number(source, groups - asked))

        held = dict[int, EntryReport]()
        if self._holds(leaving(asked + _FURTHEST)) is None:
            for groups in range(asked + 1, asked + _FURTHEST):
                after = self._holds(leaving(groups))
                if after is None:
                    break
                held[groups] = after
        if held:
            most = max(held)
            needs = f"{wait.opcode.removesuffix('.sync.aligned')} {most}"
            told = f"it asks for more than is needed: with {needs} {_SAME}"
            self._take(_WAIT, leaving(most), told, held[most], needs=needs)

    def _remove(self, at: Instruction) -> None:
        """Tries to do without an instruction."""
        kind, evidence = kind_of(at), self.report.evidence
        if kind is Kind.PROXY_FENCE and evidence and at.line not in evidence.spare_fences:
            return
        change = Change(at, "", "")
        if after := self._holds(change):
            rule = {Kind.PROXY_FENCE: _FENCE, Kind.BARRIER: _BARRIER}.get(kind, _WAIT)
            self._take(rule, change, f"it can go: without it {_SAME}", after)

    def _holds(self, change: Change) -> EntryReport | None:
        """The audit of the changed kernel; None where it may do something else."""
        after = self._audited(change.apply(self.text))
        more = set(after.unchecked) - set(self.report.unchecked)
        held = same(self.report, after, shared=True)
        return after if held and not more else None

    def _audited(self, text: str) -> EntryReport:
        """The audit of a text of the kernel, as far as time lets it."""
        left = max(self._seconds, 0.1) if isfinite(self.until) else 0
        given, module = self.given, read_ptx(text)
        return audit_module(module, given, first=True, evidence=True, seconds=left).entries[0]

    def _entry(self, text: str) -> Entry:
        return next(e for e in read_ptx(text).entries if e.name == self.report.function)

    def _take(
        self, rule: str, change: Change, message: str, after: EntryReport | None = None,
        *, needs: str = "",
    ) -> None:  # fmt: skip
        """Keeps a piece of advice, and goes on with the kernel that follows it."""
        at = change.instruction
        self.found.append(
            Finding(
                rule, self.report.function, at.line, at.text, message, needs=needs,
                severity=ADVICE, change=at.line,
            )
        )  # fmt: skip
        self.text = change.apply(self.text)
        self.instructions = self._entry(self.text).instructions
        self.report = after or self.report


def _tells(instructions: Sequence[Instruction]) -> str:
    """Why a kernel's barriers may order global memory; "" where they cannot."""
    strong = next((i for i in instructions if i.name in _TELLS or _is_strong(i)), None)
    if strong is not None:
        return f"line {strong.line} may tell others of global memory"
    stores = any(_stores_global(i) or kind_of(i) is Kind.BULK_STORE for i in instructions)
    if stores and any(_loads_global(i) for i in instructions):
        return "it reads and writes global memory"
    return ""


def _loads_global(instruction: Instruction) -> bool:
    """Whether it may read global memory that the kernel may write."""
    if instruction.name == "ld":
        spaces = (".shared", ".local", ".param", ".const", ".nc")
        return not any(one in instruction.opcode for one in spaces)
    return kind_of(instruction) in (Kind.BULK_LOAD, Kind.ASYNC_COPY)


def _stores_global(instruction: Instruction) -> bool:
    spaces = (".shared", ".local", ".param")
    return instruction.name == "st" and not any(one in instruction.opcode for one in spaces)


def _is_strong(instruction: Instruction) -> bool:
    """Whether it may tell others something by way of memory: an access that is more than weak, or a
    fence of a scope."""
    if instruction.name == "fence":
        return not {"proxy", "mbarrier_init"} & set(instruction.parts)
    shared = "shared" in instruction.opcode
    return (
        instruction.name in ("ld", "st") and not shared and bool(_STRONG & set(instruction.parts))
    )
