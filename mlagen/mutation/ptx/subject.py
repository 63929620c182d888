"""A PTX kernel with its mutants and their judge: an artifact, or a text and launch files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from mlagen.artifact import Artifact
from mlagen.audit.ptx import Given
from mlagen.audit.ptx.source import beside_of
from mlagen.disk import read_file
from mlagen.emulator.launching import Files, read_launch_file
from mlagen.errors import ConfigError, MissingError, UnsupportedError
from mlagen.mutation.ptx import ORDER
from mlagen.mutation.ptx.auditing import AuditJudge
from mlagen.mutation.ptx.judging import PtxJudge
from mlagen.mutation.ptx.makers import make_mutants
from mlagen.mutation.ptx.mutant import PtxMutant
from mlagen.mutation.ptx.mutated_kernel import MutatedKernel
from mlagen.mutation.ptx.runs import ArtifactRuns, LaunchRuns, Runs
from mlagen.mutation.subject import Subject, SubjectSource
from mlagen.mutation.verdict import Verdict
from mlagen.ptx import Entry, Module, read_ptx

JUDGES = ("emulator", "audit")


class PtxSubject(Subject):
    """One entry of a text. `runs`: on what it runs; `given`: what the audit is told of it."""

    suffix = ".ptx"

    def __init__(
        self,
        kernel: MutatedKernel,
        runs: Runs,
        given: Given,
        judges: tuple[str, ...],
        *,
        clean: bool,
    ) -> None:
        self.judges = tuple(judges) or JUDGES
        if unknown := set(self.judges) - set(JUDGES):
            raise ConfigError(
                f"unknown judge {sorted(unknown)[0]!r}", hint=f"judges: {', '.join(JUDGES)}"
            )
        self._kernel, self.text, self.kernel = kernel, kernel.text, kernel.entry.name
        self.problem = runs.problem
        audit = AuditJudge(self.text, self.kernel, given) if "audit" in self.judges else None
        emulate = "emulator" in self.judges
        self._judge = PtxJudge(self.text, runs, audit, emulate=emulate, clean=clean)

    def mutants(self, classes: Sequence[str]) -> list[PtxMutant]:
        """All of the classes; of values, tiles and addresses those that some call executes."""
        mutants = make_mutants(self._kernel, classes)
        if not self._judge.emulate:
            return mutants
        reached = self._judge.reached
        return [m for m in mutants if m.index in reached or m.kind in _EVERYWHERE]

    def judge(self, mutant: PtxMutant) -> Verdict:
        return self._judge.judge(mutant)


# What synchronises is mutated also where no call comes: the audit follows all paths.
_EVERYWHERE = ("waits", "arrivals", "fences", "barriers", "registers", "phases")


def artifact_subject(artifact: Artifact, judges: tuple[str, ...]) -> PtxSubject:
    """An artifact of PTX on the calls of its kind of problem."""
    manifest = artifact.manifest
    module = read_ptx(artifact.text)
    entry = next(entry for entry in module.entries if entry.name == manifest.symbol)
    places = {}
    for line in manifest.source:
        where = f"{line.role}: {line.section}" if line.role not in ("", "all") else line.section
        cluster = f", cluster {line.cluster}" if line.cluster else ""
        operation = f": {line.operation}" if line.operation else ""
        places[line.asm_line] = (where + cluster + operation, line.schedule_line)
    given = Given(beside=beside_of(msgspec.json.decode(msgspec.json.encode(manifest))))
    kernel = MutatedKernel(artifact.text, entry, places)
    return PtxSubject(kernel, ArtifactRuns(artifact), given, judges, clean=True)


@dataclass(frozen=True)
class LaunchSource(SubjectSource):
    """A PTX file with launch files of one of its entries. What the kernel itself is found to do is
    known, and what a mutant adds is new; all buffers are outputs, whose bits are the original's or
    wrong."""

    path: Path
    launches: tuple[Path, ...]
    files: Files = field(default_factory=Files)
    given: Given = field(default_factory=Given)
    judges: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[str, ...]:
        return ORDER

    def subject(self) -> PtxSubject:
        text = text_of(self.path)
        launches = {str(path): read_launch_file(path) for path in self.launches}
        try:
            module = read_ptx(text)
        except (MissingError, UnsupportedError) as error:
            raise type(error)(f"{self.path}: {error.message}", hint=error.hint) from None
        wanted = {launch.kernel for launch in launches.values()}
        kernel = MutatedKernel(text, self._entry(module, wanted))
        runs = LaunchRuns(launches, self.files)
        return PtxSubject(kernel, runs, self.given, self.judges, clean=False)

    def _entry(self, module: Module, wanted: set[str | None]) -> Entry:
        """The one that all launch files name, or the only one there is."""
        names = [entry.name for entry in module.entries]
        if len(wanted) > 1:
            named = ", ".join(sorted(name or "none" for name in wanted))
            raise ConfigError(
                f"the launch files name several kernels: {named}"[:400], hint="mutate one at a time"
            )
        (told,) = wanted
        if told is None and len(names) > 1:
            raise ConfigError(
                f"{self.path} has {len(names)} entries", hint="kernel = in the launch file"
            )
        name = told or names[0]
        if name not in names:
            raise ConfigError(f"{self.path} has no entry {name}", hint=f"{', '.join(names)}"[:400])
        return module.entries[names.index(name)]


def text_of(path: Path) -> str:
    """The text of a PTX file. MissingError where it cannot be read."""
    try:
        return read_file(path).decode().replace("\r\n", "\n")
    except UnicodeDecodeError as why:
        raise MissingError(f"{path} cannot be read: {why}") from None
