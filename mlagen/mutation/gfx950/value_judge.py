"""What becomes of a mutant of values: does anybody who verifies the kernel notice?

It runs as `mlagen verify` would run the kernel where nobody says how: on the calls that reach all
code, under the sanitizer, against both oracles.

* killed: the sanitizer has a finding, the run does not end, the assembler or the decoder refuses
  it, or an element lies outside of an oracle's bound.
* equivalent: the output has the same bits in all those calls, and in calls of the same sizes on
  every other kind of data and two more seeds, as far as they execute the changed lines.
* missed: everything else. Other bits within every bound are a miss, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.binary import load_code_object
from mlagen.emulator import SanitizerFinding
from mlagen.errors import BinaryError, FindingsError, MlagenError, UnsupportedError
from mlagen.family import Call, Trial
from mlagen.launch import EmulatedLauncher
from mlagen.mutation.gfx950.judging import ENDLESS
from mlagen.mutation.gfx950.listing import Listing, read_listing
from mlagen.mutation.gfx950.mutant import Mutant, assembled
from mlagen.mutation.verdict import Verdict
from mlagen.problem.expected import Expected, compare
from mlagen.severity import ERROR, of
from mlagen.verify import kind_of
from mlagen.verify.run import DATA, trial_of

SEEDS = (1, 2)  # beside 0, for a mutant that survives
Outputs = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class _Known:
    """A call of the unmutated kernel."""

    call: Call
    name: str
    trial: Trial
    oracles: tuple[Expected, ...]  # none of calls whose bits alone are compared
    outputs: Outputs
    lines: frozenset[int]  # of the text, executed
    instructions: int


class ValueJudge:
    """Judges mutants of values of one artifact, of any kind of problem that can be verified."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.listing: Listing = read_listing(artifact.text, artifact.manifest.symbol)
        self._calls = tuple(
            self._known(call, call.data or DATA, 0, judged=True)
            for call in kind_of(artifact).covering(artifact).calls
        )
        self._reached = frozenset().union(*(call.lines for call in self._calls))
        self._more: dict[tuple[int, str, int], _Known] = {}

    @property
    def reached(self) -> frozenset[int]:
        """Lines of the text that some call executes. Others have no mutants: verify tells them."""
        return self._reached

    def judge(self, mutant: Mutant) -> Verdict:
        """Runs a mutant until it is decided."""
        try:
            changed = dataclasses.replace(
                self.artifact, code=assembled(self.artifact, mutant.edits)
            )
        except MlagenError as error:
            why = error.message.partition("\n")[0]
            return Verdict(mutant, "killed", "assembler", why)
        lines = set(mutant.edits)
        differs = ""
        calls = [call for call in self._calls if call.lines & lines]
        for call in sorted(calls, key=lambda call: call.instructions):
            verdict, same = self._one(mutant, changed, call)
            if verdict:
                return verdict
            differs = differs or ("" if same else call.name)
        if differs:
            return Verdict(mutant, "missed", "within bounds", "other bits, all of them within the "
                           "bounds of both oracles", differs)  # fmt: skip
        count = len(calls)
        for call in self._more_calls(calls or self._calls):
            if not call.lines & lines:
                continue
            count += 1
            verdict, same = self._one(mutant, changed, call)
            if verdict or not same:
                why = "no call of verify shows it, but other data does"
                return Verdict(mutant, "missed", "weak data", why, call.name)
        if not count:
            return Verdict(mutant, "missed", "not executed", "no call executes the mutated line")
        return Verdict(mutant, "equivalent", "runs", f"the same bits in {count} calls")

    # ---- runs -----------------------------------------------------------------------------------

    def _known(self, call: Call, data: str, seed: int, *, judged: bool) -> _Known:
        kind = kind_of(self.artifact)
        inputs = kind.made(self.artifact, data=data, seed=seed, **call.shape)
        trial = trial_of(self.artifact, inputs, thin=call.thin)
        outputs, findings, lines, count = self._run(self.artifact, trial, None)
        oracles = tuple(trial.oracles()) if judged else ()
        wrong = [o for o in oracles if not compare(o, outputs[o.output]).passed]
        if findings or wrong:
            what = findings[0] if findings else f"wrong by the {wrong[0].oracle} oracle"
            raise FindingsError(
                f"{self.artifact.manifest.kernel}, {dict(call.shape)}, {data}: the unmutated "
                f"kernel does not pass, so no mutant can be judged: {what}"
            )
        shape = ", ".join(f"{name} {size}" for name, size in call.shape.items())
        return _Known(
            call, f"{shape}; {data}, seed {seed}", trial, oracles, outputs, frozenset(lines), count
        )

    def _more_calls(self, calls: Sequence[_Known]) -> Iterator[_Known]:
        """The same sizes on other data, each made when a mutant first needs it."""
        kinds = [(name, 0) for name in kind_of(self.artifact).data]
        for known in calls:
            call = known.call
            for data, seed in [*kinds, *((call.data or DATA, seed) for seed in SEEDS)]:
                key = (self._calls.index(known), data, seed)
                if (data, seed) == (call.data or DATA, 0):
                    continue
                if key not in self._more:
                    self._more[key] = self._known(call, data, seed, judged=False)
                yield self._more[key]

    def _run(
        self, artifact: Artifact, trial: Trial, limit: int | None
    ) -> tuple[Outputs, tuple[SanitizerFinding, ...], set[int], int]:
        launcher = EmulatedLauncher(
            workgroups=trial.workgroups,
            allow_unproved=True,
            threads=1,
            max_instructions=limit,
        )
        made, report = trial.run(artifact, launcher)
        outputs: Outputs = made if isinstance(made, Mapping) else {"o": made}
        emulation = report.emulation
        assert emulation is not None
        lines: set[int] = set()
        if artifact is self.artifact:
            code = load_code_object(artifact.code)
            kernel = code.kernel(artifact.manifest.symbol)
            lines = {code.line_of(kernel, pc) or 0 for pc in emulation.executions}
        return outputs, of(emulation.findings, ERROR), lines, emulation.wave_instructions

    def _one(self, mutant: Mutant, changed: Artifact, call: _Known) -> tuple[Verdict | None, bool]:
        """How one call tells the mutant from the original, or None and whether the bits agree."""
        try:
            outputs, findings, _, _ = self._run(changed, call.trial, ENDLESS * call.instructions)
        except UnsupportedError as error:
            return Verdict(mutant, "killed", "no end", error.message, call.name, "latest"), False
        except BinaryError as error:
            return Verdict(mutant, "killed", "decoder", error.message, call.name, "latest"), False
        if findings:
            finding = findings[0]
            return (
                Verdict(mutant, "killed", finding.kind, finding.message, call.name, "latest"),
                False,
            )
        if all(np.array_equal(_bits(call.outputs[name]), _bits(outputs[name])) for name in outputs):
            return None, True
        for oracle in call.oracles:
            found = compare(oracle, outputs[oracle.output])
            if not found.passed:
                why = f"{found.failures} of {found.elements} elements outside of the bound"
                by = f"{oracle.oracle} oracle"
                return Verdict(mutant, "killed", by, why, call.name, "latest"), False
        return None, False


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).view(np.uint8)
