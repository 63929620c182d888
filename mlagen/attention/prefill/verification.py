"""MHA and MLA prefill as kinds of problems that can be verified."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.attention.prefill.calls import prefill_covering
from mlagen.attention.prefill.exact import exact
from mlagen.attention.prefill.inputs import PrefillInputs
from mlagen.attention.prefill.kernel import PrefillKernel
from mlagen.attention.prefill.plan import WorkPlan
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.attention.prefill.rounded import rounded
from mlagen.attention.prefill.selection import Workgroup
from mlagen.errors import ConfigError
from mlagen.families.mha_prefill.made_up import KINDS, mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfig
from mlagen.families.mla_prefill.call import plan_inputs
from mlagen.families.mla_prefill.inputs import MlaPrefillInputs
from mlagen.families.mla_prefill.kernel import MlaPrefillKernel
from mlagen.families.mla_prefill.made_up import MLA_PREFILL_KINDS, mla_prefill_inputs
from mlagen.families.mla_prefill.problem import MlaConfig
from mlagen.launch import Launcher, LaunchReport
from mlagen.ops import kernel_of
from mlagen.problem import Expected, Worst
from mlagen.verify.covering import Covering
from mlagen.verify.kinds import Sample, Size, Trial, register

PLANNED_WORKGROUPS = 5


@dataclass(frozen=True)
class PrefillTrial:
    """A call of a prefill kernel. `workgroups`: those that run and are compared; None: all.
    `plan`: the work of a persistent kernel."""

    inputs: PrefillInputs
    workgroups: tuple[Workgroup, ...] | None = None
    plan: WorkPlan | None = None

    def planned(self, artifact: Artifact, workgroups: int = PLANNED_WORKGROUPS) -> PrefillTrial:
        """With the work of a persistent kernel divided over a few workgroups, so that each walks
        several items and some tiles are cut."""
        if not self._persistent(artifact) or not isinstance(self.inputs, MlaPrefillInputs):
            return self
        names = {arg.name for arg in artifact.manifest.args}
        plan = plan_inputs(self.inputs, workgroups, listed="page_list" in names)
        return replace(self, plan=plan)

    @staticmethod
    def _persistent(artifact: Artifact) -> bool:
        return any(arg.name == "work_indptr" for arg in artifact.manifest.args)

    @property
    def sizes(self) -> Mapping[str, Size]:
        inputs = self.inputs
        if not inputs.config.by_sequence:
            return {
                "batch": inputs.batch,
                "seq_len": inputs.seq_len,
                "num_keys": inputs.keys,
                "start_pos": inputs.sequences[0].start_pos,
            }
        sequences = inputs.sequences
        sizes: dict[str, Size] = {"batch": inputs.batch}
        if inputs.config.ragged:
            sizes["lengths"] = tuple(s.rows for s in sequences)
        else:
            sizes["seq_len"] = inputs.seq_len
        sizes["num_keys"] = tuple(s.keys for s in sequences)
        sizes["start_pos"] = tuple(s.start_pos for s in sequences)
        return sizes

    @property
    def numbers(self) -> Mapping[str, float]:
        inputs = self.inputs
        found = {"scale": inputs.scale}
        if inputs.config.dtype == "fp8_e4m3":
            found |= {name: getattr(inputs, name) for name in ("q_scale", "k_scale", "v_scale")}
        return found

    @property
    def sample(self) -> Sample | None:
        if self.workgroups is None:
            return None
        return Sample(len(self.workgroups), len(self._with_rows()))

    def thinned(self, artifact: Artifact) -> PrefillTrial:
        """With one head of each query tile, another one each time: all of the code runs. One
        workgroup of a persistent kernel walks everything, so that no item is cut."""
        groups = self._with_rows()
        if self._persistent(artifact):
            return self.planned(artifact, 1)
        if not len(groups):
            return self
        heads = self.inputs.config.num_heads
        tiles = np.unique(groups[:, 1:], axis=0).tolist()
        chosen = [(number % heads, y, z) for number, (y, z) in enumerate(tiles)]
        # One workgroup without rows, which must leave everything alone.
        chosen += [(0, 0, s.index) for s in self.inputs.sequences if not s.rows][:1]
        return replace(self, workgroups=tuple(sorted(chosen)))

    def sampled(self, count: int, seed: int) -> PrefillTrial:
        """Some workgroups that have rows, drawn from `seed`; the last query tile of the longest
        sequence, which may be partial, is always among them. All, where there are no more."""
        if count < 1:
            raise ConfigError(f"sample={count} must be at least 1 workgroup")
        groups = self._with_rows()
        if not len(groups):
            raise ConfigError("no sequence has a query row: there is no workgroup to sample")
        if count >= len(groups):
            return self
        rng = np.random.default_rng(seed)
        longest = max(self.inputs.sequences, key=lambda sequence: sequence.rows)
        last = self.inputs.config.q_tiles(longest.rows) - 1
        is_last = (groups[:, 1] == last) & (groups[:, 2] == longest.index)
        first = rng.choice(np.flatnonzero(is_last))
        others = np.delete(np.arange(len(groups)), first)
        chosen = [first, *rng.choice(others, count - 1, replace=False)]
        drawn = [(int(x), int(y), int(z)) for x, y, z in groups[chosen]]
        return replace(self, workgroups=tuple(sorted(drawn)))

    def _with_rows(self) -> npt.NDArray[np.int64]:
        """Grid x, y, z of all workgroups that have rows, [workgroups, 3]."""
        config = self.inputs.config
        heads = np.arange(config.num_heads)
        per_sequence = [
            np.stack(np.meshgrid(heads, np.arange(config.q_tiles(s.rows)), [s.index]), axis=-1)
            for s in self.inputs.sequences
        ]
        return np.concatenate([groups.reshape(-1, 3) for groups in per_sequence])

    def oracles(self) -> tuple[Expected, ...]:
        found = [
            exact(self.inputs, workgroups=self.workgroups),
            rounded(self.inputs, workgroups=self.workgroups, plan=self.plan),
        ]
        outputs = tuple(expected.output for expected in found)
        if self.inputs.config.lse:
            return outputs + tuple(expected.lse for expected in found)
        return outputs

    def run(
        self, artifact: Artifact, launcher: Launcher
    ) -> tuple[Mapping[str, npt.NDArray[Any]], LaunchReport]:
        kernel = kernel_of(artifact, launcher)
        assert isinstance(kernel, PrefillKernel)
        if self.workgroups is not None and getattr(kernel, "persistent", False):
            raise ConfigError(
                f"{artifact.manifest.kernel} is persistent: a workgroup computes rows of many "
                f"query tiles, and parts of some",
                hint="leave out the sample: all workgroups are run",
            )
        if self.plan is None:
            run = kernel.run(self.inputs)
        else:
            assert isinstance(kernel, MlaPrefillKernel)
            run = kernel.run(self.inputs, plan=self.plan)
        if run.report is None:
            raise ConfigError("no sequence has a query row: there is nothing to verify")
        outputs = {"o": self.inputs.output_view(run.output)}
        if run.lse is not None:
            outputs["lse"] = self.inputs.lse_view(run.lse)
        return outputs, run.report

    def place(self, worst: Worst) -> str:
        where = f"batch {worst.batch}, row {worst.row}"
        if self.inputs.config.ragged:
            offsets = [sequence.first_row for sequence in self.inputs.sequences if sequence.rows]
            number = int(np.searchsorted(offsets, worst.row, side="right")) - 1
            owner = [sequence for sequence in self.inputs.sequences if sequence.rows][number]
            where = f"sequence {owner.index}, row {worst.row - owner.first_row}"
        if worst.output == "lse":
            return f"LSE of {where}, head {worst.head}"
        return f"{where}, head {worst.head}, depth {worst.depth}"


class PrefillKind:
    """Inputs as `attention.made_up` says; `num_keys` is `start_pos` plus the rows if not given.
    `lengths` are for ragged kernels. Tensors of fp8 are quantised: divided by scales not 1."""

    sizes = ("batch", "seq_len", "lengths", "num_keys", "start_pos")
    lists = ("lengths", "num_keys", "start_pos")  # one number, or one a sequence: 300,0,1

    def __init__(
        self,
        config_type: type[PrefillConfig],
        make: Callable[..., PrefillInputs],
        data: tuple[str, ...],
    ) -> None:
        self.config_type, self.make, self.data = config_type, make, data

    def inputs(
        self, problem: Mapping[str, Any], *, data: str, seed: int, **shape: Any
    ) -> PrefillInputs:
        if isinstance(shape.get("lengths"), int):
            shape["lengths"] = [shape["lengths"]]
        config = self.config_type.from_fields(problem)
        shape.setdefault("quantise", config.dtype == "fp8_e4m3")
        return self.make(config, data=data, seed=seed, **shape)

    def trial(self, inputs: PrefillInputs) -> Trial:
        return PrefillTrial(inputs)

    def covering(self, artifact: Artifact) -> Covering:
        """Every number of tiles that the text tells apart, as the mask allows."""
        config = self.config_type.from_fields(artifact.manifest.problem)
        return prefill_covering(config, artifact)


register(MhaConfig, PrefillKind(MhaConfig, mha_inputs, tuple(KINDS)))
register(MlaConfig, PrefillKind(MlaConfig, mla_prefill_inputs, tuple(MLA_PREFILL_KINDS)))
