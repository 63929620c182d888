"""Top-k sparse MLA in the absorbed form: queries attend to the rows of a cache that lists name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlagen.family import Builder, Family, Kind

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.launch import Launcher


class MlaSparse(Family):
    """Prefill and decode over listed rows. What it does not bring is refused by name."""

    name = "mla_sparse"

    def kernel(
        self, artifact: Artifact, launcher: Launcher | None = None, build: Builder | None = None
    ) -> Any:
        """A `MlaSparsePrefillKernel`, or a `MlaSparseDecodeKernel`, which builds the merge when a
        call first splits work."""
        from mlagen.families.mla_sparse.kernel import sparse_kernel

        return sparse_kernel(artifact, launcher, build)

    def kind(self, problem_type: str) -> Kind:
        """Of `MlaSparsePrefillConfig` and of `MlaSparseDecodeConfig`."""
        from mlagen.families.mla_sparse.verification import DECODE, PREFILL

        return DECODE if problem_type == "MlaSparseDecodeConfig" else PREFILL


FAMILY = MlaSparse()
