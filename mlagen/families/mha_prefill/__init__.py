"""MHA and GQA prefill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlagen.family import Builder, Family, Kind, LadderCase, MutantInputs

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
        """Of `MhaConfigV2`."""
        from mlagen.families.mha_prefill.verification import KIND

        return KIND

    def mutants(self, artifact: Artifact) -> MutantInputs:
        """One workgroup whose inputs show every tile."""
        from mlagen.attention.prefill.mutants import PrefillMutants
        from mlagen.families.mha_prefill.verification import KIND

        return PrefillMutants(KIND, artifact)

    def ladders(self) -> tuple[LadderCase, ...]:
        """Beside AITER's kernels for bf16 and for fp8."""
        from mlagen.attention.prefill.ladders import prefill_ladders
        from mlagen.families.mha_prefill.problem import MhaConfigV2

        beside = {"bf16": "hd128_bf16", "fp8_e4m3": "hd128_fp8"}
        return prefill_ladders("mha_prefill_v2", MhaConfigV2, beside)


FAMILY = MhaPrefill()
