"""One mutant's verdict: run in the emulator, audited, and both compared with the original.

* killed: the sanitizer or the audit has an error that the kernel itself has not, the reader or the
  emulator refuses the text, the run does not end, or the output is wrong: other bits, or for
  mutants of values an oracle's bound.
* equivalent: the same bits and no finding in modes latest and earliest and in random ones of each
  call that executes the change, and, where the audit is asked about what synchronises, a reason of
  the audit's: it follows all paths, and its clocks are not the emulator's.
  Also what is told by the letter of the ISA alone, which hardware is known to order ("letter").
* missed: everything else, what is unproved included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from mlagen.emulator import Mode, PtxFinding, SanitizerFinding
from mlagen.errors import BinaryError, ConfigError, FindingsError, MlagenError, UnsupportedError
from mlagen.family import MutantCall
from mlagen.mutation.ptx.auditing import AuditJudge, MutantAudit
from mlagen.mutation.ptx.mutant import PtxMutant
from mlagen.mutation.ptx.runs import Outputs, Runs, same_bits
from mlagen.mutation.verdict import BY_LETTER, Verdict
from mlagen.severity import ERROR, LETTER, any_error, of

RANDOM_RUNS = 6  # random legal interleavings a call, for a mutant that survives
ENDLESS = 4  # times the original's instructions, after which a mutant does not end
# Where a finding is looked for in all runs before other values are taken: right values by luck are
# no merit, and neither are wrong ones.
_SYNCHRONISING = ("waits", "arrivals", "fences", "barriers", "registers", "phases")
Key = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class _Original:
    """A call of the unmutated kernel. `known`: its findings, by kind, severity and lines."""

    outputs: Outputs
    known: frozenset[Key]
    executed: frozenset[int]
    instructions: int


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a run shows: how it kills, "" for not at all; `same`: the same bits."""

    by: str
    why: str
    same: bool
    located: bool = False
    letter: str = ""  # the first new finding by the letter of the ISA


class PtxJudge:
    """Judges the mutants of one text. Runs of the original are kept.

    `clean`: FindingsError where the unmutated kernel has errors or is wrong; else its findings
    are known, and a mutant's are new or nothing.
    """

    def __init__(
        self,
        text: str,
        runs: Runs,
        audit: AuditJudge | None,
        *,
        emulate: bool = True,
        clean: bool = True,
    ) -> None:
        self.text, self.runs, self.emulate, self.clean = text, runs, emulate, clean
        self._audit = audit
        self._originals: dict[MutantCall, _Original] = {}

    @property
    def reached(self) -> frozenset[int]:
        """Instructions that some call executes."""
        known = (self.original(call).executed for call in self.runs.calls)
        return frozenset().union(*known)

    def judge(self, mutant: PtxMutant) -> Verdict:
        """Runs a mutant until it is decided."""
        text = mutant.apply(self.text)
        audited = self._audit.judge(mutant, text) if self._audit else None
        if not self.emulate:
            assert audited is not None
            return self._by_audit_alone(mutant, audited)
        verdict = self._emulated(mutant, text)
        return self._joined(verdict, audited) if audited else verdict

    # ---- the emulator ---------------------------------------------------------------------------

    def _emulated(self, mutant: PtxMutant, text: str) -> Verdict:
        calls = [c for c in self.runs.calls if mutant.index in self.original(c).executed]
        if not calls:
            return Verdict(mutant, "missed", "not executed", "no call executes the changed line",
                           emulator="")  # fmt: skip
        several = [call for call in calls if not call.once]
        plan: list[tuple[Mode, int, Sequence[MutantCall]]] = [("latest", 0, calls)]
        plan.append(("earliest", 0, several))
        plan += [("random", seed, several) for seed in range(RANDOM_RUNS)]
        differs: Verdict | None = None
        letter = ""
        for mode, seed, own in plan:
            for call in own:
                seen = self._one(mutant, text, call, mode, seed)
                letter = letter or seen.letter
                if not seen.by:
                    continue
                told = f"{seen.by}: {seen.why}"
                verdict = Verdict(mutant, "killed", seen.by, seen.why, str(call), mode,
                                  seen.located, told)  # fmt: skip
                if seen.by != "values" or mutant.kind not in _SYNCHRONISING:
                    return verdict
                differs = differs or verdict
            if mode == "earliest" and differs:
                return differs
        if letter and not differs:
            why = f"{BY_LETTER}: {letter}"
            return Verdict(mutant, "equivalent", "letter", why, emulator="")
        return differs or self._silent(mutant, text, calls, len(several))

    def _silent(
        self, mutant: PtxMutant, text: str, calls: Sequence[MutantCall], several: int
    ) -> Verdict:
        if mutant.kind == "values" and self.runs.judged:
            for call in calls:
                if not self._one(mutant, text, call, "latest", 0).same:
                    why = "other bits, all of them within the bounds of both oracles"
                    return Verdict(mutant, "missed", "within bounds", why, str(call), emulator="")
            for call in self.runs.more:
                if mutant.index not in self.original(call).executed:
                    continue
                seen = self._one(mutant, text, call, "latest", 0)
                if seen.by or not seen.same:
                    why = "no call of verify shows it, but other data does"
                    return Verdict(mutant, "missed", "weak data", why, str(call), emulator="")
        why = (
            f"the same bits and no finding in {len(calls)} calls in mode latest, and in {several} "
            f"of them in mode earliest and {RANDOM_RUNS} random ones each"
        )
        if mutant.excuse:
            return Verdict(mutant, "equivalent", "text", mutant.excuse, emulator="")
        return Verdict(mutant, "equivalent", "runs", why, emulator="")

    def _one(self, mutant: PtxMutant, text: str, call: MutantCall, mode: Mode, seed: int) -> _Seen:
        original = self.original(call)
        limit = ENDLESS * original.instructions + 100_000
        try:
            outputs, result = self.runs.run(call, text, mode, seed, limit)
        except (UnsupportedError, ConfigError, BinaryError) as error:
            return _Seen(_refusal(error), error.message.partition("\n")[0], same=False)
        new = [f for f in result.findings if _key(f) not in original.known]
        letters = of(new, LETTER)
        letter = letters[0].message if letters else ""
        if errors := of(new, ERROR):
            first = next((f for f in errors if _near(mutant, f)), errors[0])
            return _Seen(first.kind, first.message, same=False, located=_near(mutant, first))
        same = same_bits(original.outputs, outputs)
        if same:
            return _Seen("", "", same=True, letter=letter)
        if mutant.kind != "values" or not self.runs.judged:
            return _Seen("values", "output bits differ from the original's", same=False)
        oracle = self.runs.wrong(call, outputs)
        return _Seen(oracle, "an output is outside of the bound" if oracle else "", same=False)

    def original(self, call: MutantCall) -> _Original:
        """The unmutated kernel's run."""
        if call not in self._originals:
            outputs, result = self.runs.run(call, self.text, "latest", 0, None)
            wrong = self.runs.wrong(call, outputs)
            if self.clean and ((found := of(result.findings, ERROR)) or wrong):
                what = found[0] if found else f"wrong by the {wrong}"
                raise FindingsError(
                    f"{call}: the unmutated kernel has errors or is wrong, so no mutant can be "
                    f"judged: {what}"
                )
            known = frozenset(_key(f) for f in result.findings) | self._also(call, outputs)
            self._originals[call] = _Original(
                {name: array.copy() for name, array in outputs.items()},
                known,
                frozenset(i for i, count in result.executions.items() if count),
                result.wave_instructions,
            )
        return self._originals[call]

    def _also(self, call: MutantCall, outputs: Outputs) -> frozenset[Key]:
        """Findings of the original in the other modes; its outputs have the same bits there."""
        found: set[Key] = set()
        modes: list[tuple[Mode, int]] = [("earliest", 0)]
        modes += [("random", seed) for seed in range(0 if self.clean else RANDOM_RUNS)]
        for mode, seed in () if call.once else modes:
            also, result = self.runs.run(call, self.text, mode, seed, None)
            found |= {_key(f) for f in result.findings}
            wrong = self.clean and any_error(result.findings)
            if wrong or not same_bits(outputs, also):
                raise FindingsError(
                    f"{call}, mode {mode}: the unmutated kernel has errors or other bits, so no "
                    f"mutant can be judged"
                )
        return frozenset(found)

    # ---- the audit ------------------------------------------------------------------------------

    def _by_audit_alone(self, mutant: PtxMutant, audited: MutantAudit) -> Verdict:
        if audited.finding:
            rule = audited.finding.partition(" ")[0]
            return Verdict(mutant, "killed", rule, audited.finding, audit=audited.finding)
        excuse = audited.excuse if mutant.kind in _SYNCHRONISING else ""
        if excuse := excuse or mutant.excuse:
            return Verdict(mutant, "equivalent", "audit", excuse, audit="")
        if audited.letter:
            why = f"{BY_LETTER}: {audited.letter}"
            return Verdict(mutant, "equivalent", "letter", why, audit="")
        return Verdict(mutant, "missed", "audit", "no finding, and no reason for that", audit="")

    def _joined(self, verdict: Verdict, audited: MutantAudit) -> Verdict:
        """What both say. The audit decides nothing about values."""
        both = dataclasses.replace(verdict, audit=audited.finding)
        if verdict.outcome == "killed":
            return both
        if audited.finding:
            rule = audited.finding.partition(" ")[0]
            return dataclasses.replace(both, outcome="killed", by=rule, why=audited.finding)
        if verdict.outcome == "missed":
            if verdict.by == "not executed" and audited.excuse:
                return dataclasses.replace(
                    both, outcome="equivalent", by="audit", why=audited.excuse
                )
            return both
        if verdict.by == "text" or verdict.mutant.kind not in _SYNCHRONISING:
            return both
        if audited.excuse:
            why = f"{audited.excuse}; {verdict.why}"
            return dataclasses.replace(both, by="audit and runs", why=why)
        if audited.letter or verdict.by == "letter":
            why = f"{BY_LETTER}: {audited.letter}" if audited.letter else verdict.why
            return dataclasses.replace(both, by="letter", why=why)
        return dataclasses.replace(both, outcome="missed", by="no reason", why=verdict.why)


def _key(finding: SanitizerFinding) -> Key:
    """Kind, severity and lines; mutants keep lines."""
    assert isinstance(finding, PtxFinding)
    return finding.kind, finding.severity, finding.line, finding.other_line


def _near(mutant: PtxMutant, finding: SanitizerFinding) -> bool:
    """Whether the mutated line is one of a finding's, or lies between them."""
    *_, line, other = _key(finding)
    lines = sorted((line, other)) if other else [line, line]
    return lines[0] <= mutant.line <= lines[1]


def _refusal(error: MlagenError) -> str:
    """How a text that is refused counts."""
    return "no end" if "limit" in error.message and "instructions" in error.message else "reader"
