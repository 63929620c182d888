"""Merging the partial results of split work, of MLA prefill and of MLA decode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlagen.family.base import Builder, Family
from mlagen.family.kinds import ProblemKind

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.launch import Launcher

PREFILL = "MlaReduceConfig"  # the problem whose kernels are called and verified by themselves


class SplitMerge(Family):
    """Kernels that merge. Those of decode are launched by the kernel that splits its work."""

    name = "split_merge"

    def kernel(
        self, artifact: Artifact, launcher: Launcher | None = None, build: Builder | None = None
    ) -> Any:
        """A `MlaReduceKernel`."""
        if artifact.manifest.problem_type != PREFILL:
            return super().kernel(artifact, launcher, build)
        from mlagen.families.split_merge.prefill_kernel import MlaReduceKernel

        return MlaReduceKernel(artifact, launcher)

    def kind(self, problem_type: str) -> ProblemKind:
        """Of `MlaReduceConfig`, and of `MlaDecodeMergeConfig`."""
        if problem_type == PREFILL:
            from mlagen.families.split_merge import prefill_verification

            return prefill_verification.KIND
        from mlagen.families.split_merge import decode_verification

        return decode_verification.KIND


FAMILY = SplitMerge()
