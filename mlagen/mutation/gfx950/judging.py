"""One mutant's verdict: assembled, run in the emulator, compared with the original.

* killed: the sanitizer reports an error, the run does not end, or the output differs.
* equivalent: no access is ordered differently (the text shows it), or no run shows any
  difference: the same bits in latest and earliest mode and in 100 random legal interleavings
  of each call, without findings, with the mutated line executed.
  Also what is told by the letter of the ISA alone, which hardware is known to order ("letter").
* missed: everything else, false alarms on mutants that change no order included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.binary import load_code_object
from mlagen.emulator import EmulationResult, Mode, SanitizerFinding
from mlagen.errors import FindingsError, UnsupportedError
from mlagen.family import MutantCall, family_of
from mlagen.launch import EmulatedLauncher
from mlagen.mutation.covering import CoveringInputs
from mlagen.mutation.gfx950.listing import Listing, read_listing
from mlagen.mutation.gfx950.mutant import Mutant, assembled, original_line
from mlagen.mutation.gfx950.tile_numbers import tiles_for
from mlagen.mutation.verdict import BY_LETTER, Verdict
from mlagen.severity import ERROR, LETTER, of

RANDOM_RUNS = 100  # random legal interleavings a call, for a mutant that survives
ENDLESS = 4  # times the original's instructions, after which a mutant does not end
_SILENT = ("barrier-unequal",)  # findings that name no place
Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Run:
    bits: Bits  # [copies, bytes of one copy's outputs]
    result: EmulationResult
    workgroups: int
    lines: frozenset[int] = frozenset()  # of the text, executed; of the original alone


class Judge:
    """Judges mutants of one artifact. Runs of the original are kept.

    Raises FindingsError when the unmutated kernel is not clean: nothing could be judged by it.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        own = family_of(artifact).mutants(artifact)
        self.inputs = CoveringInputs(artifact) if own is None else own
        self.listing: Listing = read_listing(artifact.text, artifact.manifest.symbol)
        self._originals: dict[MutantCall, _Run] = {}
        self._letter = ""  # the first finding by the letter of the mutant that is judged

    def judge(self, mutant: Mutant) -> Verdict:
        """Runs a mutant until it is decided."""
        self._letter = ""
        code = assembled(self.artifact, mutant.edits)
        calls = self.inputs.calls(tiles_for(self.listing, mutant.sections))
        if not calls:
            return Verdict(mutant, "missed", "not executed", "no number of tiles executes it")
        in_all_modes = [call for call in calls if not call.once]
        if mutant.unchanged:
            return self._unchanged(mutant, self._killed(mutant, code, [("latest", in_all_modes)]))
        return (
            self._killed(mutant, code, [("latest", calls), ("earliest", in_all_modes)])
            or self._killed_at_random(mutant, code, in_all_modes)
            or self._by_runs(mutant, calls)
        )

    # ---- the steps of a verdict -----------------------------------------------------------------

    def _killed(
        self,
        mutant: Mutant,
        code: bytes,
        runs: Sequence[tuple[Mode, Sequence[MutantCall]]],
    ) -> Verdict | None:
        """A finding in one of the runs; failing that, a value that differs in one of them."""
        differs: Verdict | None = None
        for mode, calls in runs:
            for call in calls:
                verdict = self._one(mutant, code, call, mode)
                if verdict is None:
                    continue
                if verdict.by_finding or mutant.kind == "swizzle":
                    return verdict
                differs = differs or verdict
        return differs

    def _killed_at_random(
        self, mutant: Mutant, code: bytes, calls: Sequence[MutantCall]
    ) -> Verdict | None:
        found = (self._one(mutant, code, call, "random", RANDOM_RUNS) for call in calls)
        return next((verdict for verdict in found if verdict is not None), None)

    def _one(
        self, mutant: Mutant, code: bytes, call: MutantCall, mode: Mode, copies: int = 1
    ) -> Verdict | None:
        """How one run of a call, or `copies` of them, tells the mutant from the original; None when
        it does not, or the call executes no mutated line."""
        original = self.original(call)
        if original.lines.isdisjoint(mutant.edits):
            return None
        limit = ENDLESS * original.result.wave_instructions
        # Workgroups of a call have completion times of their own.
        launches = 1 if self.inputs.side_by_side else -(-copies // original.workgroups)
        copies = copies if self.inputs.side_by_side else 1
        for seed in range(launches):
            try:
                run = self._run(code, call, mode, copies=copies, seed=seed, limit=limit)
            except UnsupportedError as error:
                return Verdict(mutant, "killed", "no end", error.message, str(call), mode)
            if errors := of(run.result.findings, ERROR):
                finding, located = self._told(mutant, code, errors)
                return Verdict(
                    mutant, "killed", finding.kind, finding.message, str(call), mode, located
                )
            if letters := of(run.result.findings, LETTER):
                self._letter = self._letter or letters[0].message
            wrong = int((run.bits != original.bits).any(axis=0).sum())
            if wrong:
                why = f"{wrong} of {original.bits.size} output bytes differ"
                return Verdict(mutant, "killed", "values", why, str(call), mode)
        return None

    def _unchanged(self, mutant: Mutant, told: Verdict | None) -> Verdict:
        """The text shows that no access moved: whatever is told of it is a false alarm.

        Except for wait states: every instruction is one, also the one that was taken away.
        """
        if told is None:
            return Verdict(mutant, "equivalent", "order", mutant.unchanged)
        if told.by == "wait-states":
            return told
        why = f"a false alarm: {mutant.unchanged}; yet {told.why}"
        return dataclasses.replace(told, outcome="missed", by="false alarm", why=why)

    def _by_runs(self, mutant: Mutant, calls: Sequence[MutantCall]) -> Verdict:
        reached = [call for call in calls if mutant.line in self.original(call).lines]
        if not reached:
            return Verdict(mutant, "missed", "not executed", "no run executes the mutated line")
        if self._letter:
            return Verdict(mutant, "equivalent", "letter", f"{BY_LETTER}: {self._letter}")
        if mutant.kind == "nops":
            # Values say nothing here: the emulator executes as if every result were there in time.
            return Verdict(mutant, "missed", "wait states", "no finding for a state less")
        return Verdict(
            mutant,
            "equivalent",
            "runs",
            f"the same bits and no finding in {len(reached)} calls in mode latest, and in "
            f"{sum(not call.once for call in reached)} of them in mode earliest and {RANDOM_RUNS} "
            f"random interleavings each",
        )

    # ---- runs -----------------------------------------------------------------------------------

    def original(self, call: MutantCall) -> _Run:
        """The unmutated kernel's run."""
        if call not in self._originals:
            code = self.artifact.code
            run = self._run(code, call, "latest")
            if errors := of(run.result.findings, ERROR):
                raise FindingsError(
                    f"{self.artifact.manifest.kernel}, {call}: the unmutated kernel has errors, "
                    f"so no mutant can be judged: {errors[0]}"
                )
            read = load_code_object(code)
            kernel = read.kernel(self.artifact.manifest.symbol)
            lines = {read.line_of(kernel, pc) or 0 for pc in run.result.executions}
            self._originals[call] = dataclasses.replace(run, lines=frozenset(lines))
        return self._originals[call]

    def _run(
        self,
        code: bytes,
        call: MutantCall,
        mode: Mode,
        *,
        copies: int = 1,
        seed: int = 0,
        limit: int | None = None,
    ) -> _Run:
        trial = self.inputs.trial(call, copies)
        launcher = EmulatedLauncher(
            mode=mode,
            seed=seed,
            workgroups=trial.workgroups,
            threads=1,
            allow_unproved=True,
            max_instructions=limit,
        )
        changed = dataclasses.replace(self.artifact, code=code)
        made, report = trial.run(changed, launcher)
        assert report.emulation is not None
        outputs = made.values() if isinstance(made, Mapping) else [made]
        bits = [np.ascontiguousarray(x).view(np.uint8).reshape(copies, -1) for x in outputs]
        x, y, z = report.grid
        count = x * y * z if trial.workgroups is None else len(trial.workgroups)
        return _Run(np.concatenate(bits, axis=1), report.emulation, count)

    # ---- where findings point -------------------------------------------------------------------

    def _told(
        self, mutant: Mutant, code: bytes, findings: Sequence[SanitizerFinding]
    ) -> tuple[SanitizerFinding, bool]:
        """The finding that tells most, and whether it points at the mutation."""
        for finding in findings:
            if self._points_at(mutant, code, finding):
                return finding, True
        spoken = [f for f in findings if f.kind not in _SILENT]
        return (spoken or list(findings))[0], False

    def _points_at(self, mutant: Mutant, code: bytes, finding: SanitizerFinding) -> bool:
        """The mutated line lies between the two instructions, give or take a cluster."""
        if finding.kind in _SILENT or finding.other_pc is None:
            return False
        read = load_code_object(code)
        kernel = read.kernel(self.artifact.manifest.symbol)
        lines = []
        for pc in (finding.other_pc, finding.pc):
            line = read.line_of(kernel, pc)
            if line is None:
                return False
            lines.append(original_line(mutant.edits, line))
        first, last = (self._step(line) for line in lines)
        at = self._step(mutant.line)
        if first <= last:
            return first - 1 <= at <= last + 1
        return at >= first - 1 or at <= last + 1  # round the loop

    def _step(self, line: int) -> int:
        """The number of clusters that begin at or before a line."""
        return sum(1 for block in self.listing.blocks if block.first <= line)
