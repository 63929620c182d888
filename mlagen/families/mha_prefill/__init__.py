"""MHA and GQA prefill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlagen.family import Builder, Family, Kind

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
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


FAMILY = MhaPrefill()
