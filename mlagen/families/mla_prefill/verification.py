"""MLA prefill as a kind of problem that can be verified, planned work included."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mlagen.artifact import Artifact
from mlagen.attention.prefill.facts import facts_of
from mlagen.attention.prefill.kernel import PrefillKernel, PrefillRun
from mlagen.attention.prefill.plan import WorkPlan
from mlagen.attention.prefill.selection import Workgroup
from mlagen.attention.prefill.verification import PrefillKind, PrefillTrial
from mlagen.attention.prefill.work import WorkItem
from mlagen.errors import ConfigError
from mlagen.families.mla_prefill.call import plan_inputs
from mlagen.families.mla_prefill.inputs import MlaPrefillInputs
from mlagen.families.mla_prefill.kernel import COMPUTE_UNITS, MlaPrefillKernel
from mlagen.families.mla_prefill.made_up import MLA_PREFILL_KINDS, mla_prefill_inputs
from mlagen.families.mla_prefill.problem import MlaConfigV2

PLANNED_WORKGROUPS = 5


@dataclass(frozen=True)
class MlaPrefillTrial(PrefillTrial):
    """A call of a MLA prefill kernel, which may be persistent."""

    def planned(self, artifact: Artifact, workgroups: int = PLANNED_WORKGROUPS) -> MlaPrefillTrial:
        """With the artifact's tiles, and the work of a persistent kernel divided over a few
        workgroups, so that each walks several items and some tiles are cut."""
        tiled = super().planned(artifact)
        if not facts_of(artifact).persistent:
            return tiled
        assert isinstance(tiled.inputs, MlaPrefillInputs)
        listed = facts_of(artifact).aiter
        plan = plan_inputs(tiled.inputs, workgroups, listed=listed)
        return replace(tiled, plan=plan)

    def thinned(self, artifact: Artifact) -> MlaPrefillTrial:
        """One workgroup of a persistent kernel walks everything, so that no item is cut."""
        if facts_of(artifact).persistent:
            return self.planned(artifact, 1)
        return super().thinned(artifact)

    def _run(self, kernel: PrefillKernel) -> PrefillRun:
        assert isinstance(kernel, MlaPrefillKernel)
        if self.workgroups is not None and kernel.persistent:
            raise ConfigError(
                f"{kernel.artifact.manifest.kernel} is persistent: a workgroup computes rows of "
                f"many query tiles, and parts of some",
                hint="leave out the sample: all workgroups are run",
            )
        return kernel.run(self.inputs, plan=self.plan, compared=self.compared)

    def heads(self, groups: Iterable[Workgroup], artifact: Artifact) -> dict[int, set[int]]:
        if not facts_of(artifact).persistent:
            return super().heads(groups, artifact)
        plan, found = self._whole_plan(artifact), dict[int, set[int]]()
        for group, _, _ in groups:
            for words in plan.work_info[slice(*plan.work_indptr[group : group + 2])]:
                item = WorkItem.of_words(words)
                found.setdefault(item.batch, set()).add(item.head)
        return found

    def grid(self, artifact: Artifact) -> Workgroup:
        return (COMPUTE_UNITS, 1, 1) if facts_of(artifact).persistent else super().grid(artifact)

    def _whole_plan(self, artifact: Artifact) -> WorkPlan:
        """The plan for a whole GPU."""
        assert isinstance(self.inputs, MlaPrefillInputs)
        listed = facts_of(artifact).aiter
        return plan_inputs(self.inputs, COMPUTE_UNITS, listed=listed)


KIND = PrefillKind(
    MlaConfigV2, MlaPrefillKernel, mla_prefill_inputs, tuple(MLA_PREFILL_KINDS), MlaPrefillTrial
)
