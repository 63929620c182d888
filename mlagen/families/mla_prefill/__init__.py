"""MLA prefill in the expanded form, 192 / 128."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlagen.family import Builder, Family, Kind, LadderCase, MutantInputs

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.launch import Launcher


class MlaPrefill(Family):
    """Prefill with K of 192 columns, 64 of them rotary, and V of 128."""

    name = "mla_prefill"

    def kernel(
        self, artifact: Artifact, launcher: Launcher | None = None, build: Builder | None = None
    ) -> Any:
        """A `MlaPrefillKernel`."""
        from mlagen.families.mla_prefill.kernel import MlaPrefillKernel

        return MlaPrefillKernel(artifact, launcher)

    def kind(self, problem_type: str) -> Kind:
        """Of `MlaConfigV2`."""
        from mlagen.families.mla_prefill.verification import KIND

        return KIND

    def mutants(self, artifact: Artifact) -> MutantInputs:
        """One workgroup whose inputs show every tile."""
        from mlagen.attention.prefill.mutants import PrefillMutants
        from mlagen.families.mla_prefill.verification import KIND

        return PrefillMutants(KIND, artifact)

    def ladders(self) -> tuple[LadderCase, ...]:
        """Beside AITER's kernels for bf16 and for fp8."""
        from mlagen.attention.prefill.ladders import prefill_ladders
        from mlagen.families.mla_prefill.problem import MlaConfigV2

        beside = {"bf16": "hd192_hd128_bf16", "fp8_e4m3": "mla_pfl"}
        return prefill_ladders("mla_prefill_v2", MlaConfigV2, beside)


FAMILY = MlaPrefill()
