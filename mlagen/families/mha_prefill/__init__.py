"""MHA and GQA prefill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlagen.attention.prefill.family import PrefillFamily
from mlagen.family.base import Builder

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.attention.prefill.verification import PrefillKind
    from mlagen.launch import Launcher


class MhaPrefill(PrefillFamily):
    """Prefill with K and V of one width."""

    name = "mha_prefill"

    def kernel(
        self, artifact: Artifact, launcher: Launcher | None = None, build: Builder | None = None
    ) -> Any:
        """A `MhaKernel`."""
        from mlagen.families.mha_prefill.kernel import MhaKernel

        return MhaKernel(artifact, launcher)

    def kind(self, problem_type: str) -> PrefillKind:
        """Of `MhaConfigV2`."""
        from mlagen.families.mha_prefill.verification import KIND

        return KIND


FAMILY = MhaPrefill()
