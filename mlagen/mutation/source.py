"""Artifacts as sources of mutants: which target's subject an artifact is."""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.artifact import Artifact
from mlagen.codegen.schedules import load
from mlagen.errors import ConfigError
from mlagen.mutation import gfx950, ptx
from mlagen.mutation.gfx950.subject import Gfx950Subject
from mlagen.mutation.ptx.subject import artifact_subject
from mlagen.mutation.subject import Subject, SubjectSource
from mlagen.targets.registry import AMD, EMULATED, TARGETS, vendor_of


@dataclass(frozen=True)
class ArtifactSource(SubjectSource):
    """An artifact. `problem_file`: the schedule file that brings its kind of problem, where it is
    none of the shipped ones. `judges`: of PTX, who judges."""

    artifact: Artifact
    problem_file: str | None = None
    judges: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[str, ...]:
        return gfx950.ORDER if vendor_of(self.artifact.manifest.target) is AMD else ptx.ORDER

    def subject(self) -> Subject:
        if self.problem_file is not None:
            load(self.problem_file, self.artifact.manifest.target)  # registers its kind of problem
        target = self.artifact.manifest.target
        if target not in EMULATED:
            raise ConfigError(
                f"there is no emulator of {target}, so nothing judges a mutant of this kernel",
                hint=f"mutants are judged for {', '.join(EMULATED)}",
            )
        if vendor_of(target) is AMD:
            if self.judges not in ((), ("emulator",)):
                raise ConfigError(
                    f"judges {', '.join(self.judges)}: of gfx950 mutants the emulator judges",
                    hint="`mlagen audit KERNEL.co --mutate` asks the audit",
                )
            return Gfx950Subject(self.artifact)
        judges = self.judges
        if not TARGETS[target].followed:
            if "audit" in judges:
                raise ConfigError(
                    f"judge audit: it follows no path of a kernel for {target}",
                    hint="--judge emulator, which is what judges without it",
                )
            judges = ("emulator",)
        return artifact_subject(self.artifact, judges)
