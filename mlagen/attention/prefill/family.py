"""What the families of prefill bring to tools alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlagen.family.base import Family
from mlagen.family.mutants import MutantInputs

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.attention.prefill.verification import PrefillKind


class PrefillFamily(Family):
    """A family of prefill."""

    def kind(self, problem_type: str) -> PrefillKind:
        raise NotImplementedError

    def mutants(self, artifact: Artifact) -> MutantInputs:
        """One workgroup whose inputs show every tile."""
        from mlagen.attention.prefill.mutants import PrefillMutants

        return PrefillMutants(self.kind(artifact.manifest.problem_type), artifact)
