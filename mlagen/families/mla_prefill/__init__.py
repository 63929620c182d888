"""MLA prefill in the expanded form, 192 / 128."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlagen.attention.prefill.family import PrefillFamily
from mlagen.family.base import Builder

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.attention.prefill.verification import PrefillKind
    from mlagen.launch import Launcher


class MlaPrefill(PrefillFamily):
    """Prefill with K of 192 columns, 64 of them rotary, and V of 128."""

    name = "mla_prefill"

    def kernel(
        self, artifact: Artifact, launcher: Launcher | None = None, build: Builder | None = None
    ) -> Any:
        """A `MlaPrefillKernel`."""
        from mlagen.families.mla_prefill.kernel import MlaPrefillKernel

        return MlaPrefillKernel(artifact, launcher)

    def kind(self, problem_type: str) -> PrefillKind:
        """Of `MlaConfigV2`."""
        from mlagen.families.mla_prefill.verification import KIND

        return KIND


FAMILY = MlaPrefill()
