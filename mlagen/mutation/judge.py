"""One mutant's verdict: assembled, run in the emulator, compared with the original.

* killed: the sanitizer reports a finding, the run does not end, or the output differs.
* equivalent: no access is ordered differently (the text shows it), or no run shows any
  difference: the same bits in latest and earliest mode and in 100 random legal interleavings
  for each number of tiles, without findings, with the mutated line executed.
* missed: everything else, false alarms on mutants that change no order included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.attention.prefill.kernel import PrefillKernel
from mlagen.binary import CodeObject, load_code_object
from mlagen.emulator import (
    Argument,
    Buffer,
    EmulationResult,
    Finding,
    Launch,
    Mode,
    Settings,
    emulate,
)
from mlagen.errors import FindingsError, UnsupportedError
from mlagen.family import family_of
from mlagen.launch.launcher import LaunchReport, bind
from mlagen.mutation.listing import Listing, read_listing
from mlagen.mutation.mutant import Mutant, apply, original_line
from mlagen.mutation.shapes import Shape, make_inputs, mutable, shapes_for
from mlagen.targets.gfx950.assemble import assemble

RANDOM_RUNS = 100  # random legal interleavings a number of tiles, for a mutant that survives
ENDLESS = 4  # times the original's instructions, after which a mutant does not end
_MARKER = "s_sleep"  # executed without effect, and no kernel of ours has one
# What kills without a finding of the sanitizer.
NO_FINDINGS = ("values", "no end", "assembler", "decoder", "exact oracle", "rounding oracle",
               "exact LSE oracle", "rounding LSE oracle")  # fmt: skip
_SILENT = ("barrier-unequal",)  # findings that name no place
Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant.

    `outcome`: "killed", "equivalent" or "missed". `by`: the kind of the sanitizer's finding,
    "values" or "no end" of a killed mutant; "order" or "runs" of an equivalent one. `located`: the
    mutated place lies between the two instructions of a finding. `why` is for people.
    """

    mutant: Mutant
    outcome: str
    by: str
    why: str
    shape: str = ""
    mode: str = ""
    located: bool = False

    @property
    def by_finding(self) -> bool:
        """Whether the sanitizer itself saw it, whatever the values."""
        return self.outcome == "killed" and self.by not in NO_FINDINGS


@dataclass(frozen=True, slots=True)
class _Run:
    bits: Bits  # [copies, bytes of one copy's output]
    result: EmulationResult


class Judge:
    """Judges mutants of one artifact. Runs of the original are kept.

    Raises FindingsError when the unmutated kernel is not clean: nothing could be judged by it.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        kernel = family_of(artifact).kernel(artifact)
        if not isinstance(kernel, PrefillKernel) or getattr(kernel, "persistent", False):
            raise UnsupportedError(
                f"mutants of {artifact.manifest.kernel} are not judged: it is no prefill kernel of "
                f"gfx950 with a workgroup for each query tile",
                hint="mha_prefill_v2, or mla_prefill_v2 with grid=static",
            )
        self.config = mutable(kernel.config)
        self.listing: Listing = read_listing(artifact.text, artifact.manifest.symbol)
        self._code = load_code_object(artifact.code)
        self._originals: dict[Shape, _Run] = {}

    def judge(self, mutant: Mutant) -> Verdict:
        """Runs a mutant until it is decided."""
        code = load_code_object(self.assemble(mutant.edits))
        shapes = shapes_for(self.listing, mutant.sections)
        if not shapes:
            return Verdict(mutant, "missed", "not executed", "no number of tiles executes it")
        # Whether the last tile is whole decides about the key mask alone, not about any order.
        partial = [shape for shape in shapes if shape.missing]
        if mutant.unchanged:
            return self._unchanged(mutant, self._killed(mutant, code, [("latest", partial)]))
        return (
            self._killed(mutant, code, [("latest", shapes), ("earliest", partial)])
            or self._killed_at_random(mutant, code, partial)
            or self._by_runs(mutant, shapes)
        )

    def assemble(self, edits: Mapping[int, tuple[str, ...]]) -> bytes:
        """The code object of the text with the edits made."""
        manifest = self.artifact.manifest
        return assemble(
            apply(self.artifact.text, edits),
            file_name=f"{manifest.symbol}.s",
            source_lines={},  # lines have moved, and a mutant has no source of its own
            schedule_file=manifest.schedule_file,
            target=manifest.target,
        )

    # ---- the steps of a verdict -----------------------------------------------------------------

    def _killed(
        self,
        mutant: Mutant,
        code: CodeObject,
        runs: Sequence[tuple[Mode, Sequence[Shape]]],
    ) -> Verdict | None:
        """A finding in one of the runs; failing that, a value that differs in one of them."""
        differs: Verdict | None = None
        for mode, shapes in runs:
            for shape in shapes:
                verdict = self._one(mutant, code, shape, mode)
                if verdict is None:
                    continue
                if verdict.by_finding or mutant.kind == "swizzle":
                    return verdict
                differs = differs or verdict
        return differs

    def _killed_at_random(
        self, mutant: Mutant, code: CodeObject, shapes: Sequence[Shape]
    ) -> Verdict | None:
        for shape in shapes:
            verdict = self._one(mutant, code, shape, "random", RANDOM_RUNS)
            if verdict is not None:
                return verdict
        return None

    def _one(
        self, mutant: Mutant, code: CodeObject, shape: Shape, mode: Mode, copies: int = 1
    ) -> Verdict | None:
        """How one run tells the mutant from the original; None when it does not."""
        original = self.original(shape)
        limit = ENDLESS * original.result.wave_instructions
        try:
            run = self._run(code, shape, mode, copies=copies, limit=limit)
        except UnsupportedError as error:
            return Verdict(mutant, "killed", "no end", error.message, str(shape), mode)
        if run.result.findings:
            finding, located = self._told(mutant, code, run.result.findings)
            return Verdict(
                mutant, "killed", finding.kind, finding.message, str(shape), mode, located
            )
        wrong = int((run.bits != original.bits).any(axis=0).sum())
        if wrong:
            why = f"{wrong} of {original.bits.size} output bytes differ"
            return Verdict(mutant, "killed", "values", why, str(shape), mode)
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

    def _by_runs(self, mutant: Mutant, shapes: Sequence[Shape]) -> Verdict:
        if not self._executes(mutant, shapes):
            return Verdict(mutant, "missed", "not executed", "no run executes the mutated line")
        tiles = sorted({shape.tiles for shape in shapes})
        if mutant.kind == "nops":
            # Values say nothing here: the emulator executes as if every result were there in time.
            return Verdict(mutant, "missed", "wait states", "no finding for a state less")
        return Verdict(
            mutant,
            "equivalent",
            "runs",
            f"the same bits and no finding with N = {_ranges(tiles)} in modes latest and earliest "
            f"and {RANDOM_RUNS} random interleavings each",
        )

    def _executes(self, mutant: Mutant, shapes: Sequence[Shape]) -> bool:
        """Whether some run reaches the mutated line, by a marker in front of it."""
        marked: tuple[str, ...] = (f"  {_MARKER} 0", f"  {self.listing.lines[mutant.line].code}")
        code = load_code_object(self.assemble({mutant.line: marked}))
        return any(
            self._run(code, shape, "latest").result.counts.get(_MARKER, 0) for shape in shapes
        )

    # ---- runs -----------------------------------------------------------------------------------

    def original(self, shape: Shape) -> _Run:
        """The unmutated kernel's run."""
        if shape not in self._originals:
            run = self._run(self._code, shape, "latest")
            if run.result.findings:
                raise FindingsError(
                    f"{self.artifact.manifest.kernel}, {shape}: the unmutated kernel has findings, "
                    f"so no mutant can be judged: {run.result.findings[0]}"
                )
            self._originals[shape] = run
        return self._originals[shape]

    def _run(
        self,
        code: CodeObject,
        shape: Shape,
        mode: Mode,
        *,
        copies: int = 1,
        limit: int | None = None,
    ) -> _Run:
        """`copies` workgroups on the same inputs, each with completion times of its own."""
        launcher = _OneHead(code, mode, copies, limit)
        inputs = make_inputs(self.config, shape, copies=copies)
        kernel = family_of(self.artifact).kernel(self.artifact, launcher)
        assert isinstance(kernel, PrefillKernel)
        run = kernel.run(inputs)
        assert run.report is not None and run.report.emulation is not None
        output = np.ascontiguousarray(run.output[..., 0, :])  # of the one head that was run
        return _Run(output.view(np.uint8).reshape(copies, -1), run.report.emulation)

    # ---- where findings point -------------------------------------------------------------------

    def _told(
        self, mutant: Mutant, code: CodeObject, findings: Sequence[Finding]
    ) -> tuple[Finding, bool]:
        """The finding that tells most, and whether it points at the mutation."""
        for finding in findings:
            if self._points_at(mutant, code, finding):
                return finding, True
        spoken = [f for f in findings if f.kind not in _SILENT]
        return (spoken or list(findings))[0], False

    def _points_at(self, mutant: Mutant, code: CodeObject, finding: Finding) -> bool:
        """The mutated line lies between the two instructions, give or take a cluster."""
        if finding.kind in _SILENT or finding.other_pc is None:
            return False
        kernel = code.kernel(self.artifact.manifest.symbol)
        lines = []
        for pc in (finding.other_pc, finding.pc):
            line = code.line_of(kernel, pc)
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


class _OneHead:
    """A launcher of a mutant: the first head of every batch entry, in the emulator."""

    def __init__(self, code: CodeObject, mode: Mode, copies: int, limit: int | None) -> None:
        self.code, self.mode, self.copies, self.limit = code, mode, copies, limit

    def launch(
        self,
        artifact: Artifact,
        *,
        tensors: Mapping[str, np.ndarray],
        scalars: Mapping[str, int | float],
        sizes: Mapping[str, int],
    ) -> LaunchReport:
        manifest = artifact.manifest
        grid = manifest.grid_for(sizes)
        arguments = [
            Argument(
                arg.offset,
                Buffer(arg.name, value, "write" if arg.access == "write" else "read")
                if isinstance(value, np.ndarray)
                else value,
            )
            for arg, value in bind(manifest, tensors, scalars)
        ]
        result = emulate(
            self.code,
            Launch(kernel=manifest.symbol, grid=grid, block=manifest.block, arguments=arguments),
            Settings(
                mode=self.mode,
                workgroups=[(0, 0, copy) for copy in range(self.copies)],
                threads=1,
                max_instructions=self.limit,
            ),
        )
        return LaunchReport("emulated", grid, manifest.block, result.seconds, result)


def _ranges(numbers: Sequence[int]) -> str:
    """1, 2, 3, 5 as "1..3, 5"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{p[0]}..{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


def verdict_fields(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain values."""
    fields = dataclasses.asdict(verdict.mutant)
    fields["edits"] = {str(line): list(lines) for line, lines in verdict.mutant.edits.items()}
    fields["name"] = verdict.mutant.name
    return {
        "outcome": verdict.outcome,
        "by": verdict.by,
        "why": verdict.why,
        "shape": verdict.shape,
        "mode": verdict.mode,
        "located": verdict.located,
        "mutant": fields,
    }
