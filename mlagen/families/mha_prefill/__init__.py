"""MHA and GQA prefill."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from mlagen.attention.prefill.family import PrefillFamily
from mlagen.family import Builder

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.attention.prefill.verification import PrefillKind
    from mlagen.launch import Launcher


class MhaPrefill(PrefillFamily):
    """Prefill with K and V of one width."""

    name = "mha_prefill"
    beside: ClassVar[Mapping[str, str]] = {"bf16": "hd128_bf16", "fp8_e4m3": "hd128_fp8"}

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
