"""MHA and GQA prefill."""

from __future__ import annotations

from typing import Any

from mlagen.artifact import Artifact
from mlagen.family import Builder, Family, Kind, MutantInputs
from mlagen.launch import Launcher


class MhaPrefill(Family):
    """Prefill with K and V of one width."""

    name = "mha_prefill"

    def kernel(
        self, artifact: Artifact, launcher: Launcher | None = None, build: Builder | None = None
    ) -> Any:
        """A `MhaKernel`."""
        from mlagen.families.mha_prefill.kernel import MhaKernel

        return MhaKernel(artifact, launcher)

    def kind(self, problem_type: str) -> Kind:
        """Of `MhaConfig`."""
        from mlagen.families.mha_prefill.verification import KIND

        return KIND

    def mutants(self, artifact: Artifact) -> MutantInputs:
        """One workgroup whose inputs show every tile."""
        from mlagen.attention.prefill.mutants import PrefillMutants
        from mlagen.families.mha_prefill.verification import KIND

        return PrefillMutants(KIND, artifact)


FAMILY = MhaPrefill()
