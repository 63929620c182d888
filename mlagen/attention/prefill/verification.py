"""Prefill as a kind of problem that can be verified: what its families share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.attention.prefill.calls import prefill_covering
from mlagen.attention.prefill.exact import exact
from mlagen.attention.prefill.facts import facts_of
from mlagen.attention.prefill.inputs import PrefillInputs
from mlagen.attention.prefill.kernel import PrefillKernel, PrefillRun
from mlagen.attention.prefill.plan import WorkPlan
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.attention.prefill.rounded import rounded
from mlagen.attention.prefill.selection import Workgroup
from mlagen.errors import ConfigError
from mlagen.family.covering import Covering
from mlagen.family.kinds import Chosen, ProblemKind, Sample, Size, TileWalk, Trial
from mlagen.launch import Launcher, LaunchReport
from mlagen.problem.expected import Expected, Worst


@dataclass(frozen=True)
class PrefillTrial(Trial):
    """A call of a prefill kernel. `workgroups`: those that run and are compared; None: all.
    `plan`: the work of a persistent kernel."""

    inputs: PrefillInputs
    kernel_type: type[PrefillKernel]
    workgroups: tuple[Workgroup, ...] | None = None
    plan: WorkPlan | None = None
    compared: bool = True
    samples = True

    def uncompared(self) -> Self:
        return replace(self, compared=False)

    def heads(self, groups: Iterable[Workgroup], artifact: Artifact) -> dict[int, set[int]]:
        """The query heads, of each sequence, that some workgroups of a launch compute."""
        found: dict[int, set[int]] = {}
        for x, _, sequence in groups:
            if x < self.inputs.config.num_heads and sequence < self.inputs.batch:
                found.setdefault(sequence, set()).add(self.inputs.config.head_of(x))
        return found

    def grid(self, artifact: Artifact) -> Workgroup:
        """The workgroups of a launch."""
        return self.inputs.config.grid(self.inputs.seq_len, self.inputs.batch)

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
    def walk(self) -> TileWalk:
        config = self.inputs.config
        counts = (
            len(config.tiles(q, seq_len=s.rows, start_pos=s.start_pos, num_keys=s.keys))
            for s in self.inputs.sequences
            for q in range(config.q_tiles(s.rows))
        )
        return TileWalk(max(counts, default=0), "num_keys", config.kv_block)

    @property
    def sample(self) -> Sample | None:
        if self.workgroups is None:
            return None
        return Sample(len(self.workgroups), len(self._with_rows()))

    def planned(self, artifact: Artifact) -> Self:
        """With the artifact's tiles."""
        inputs: Any = self.inputs
        config = inputs.config.tiled(facts_of(artifact))
        return replace(self, inputs=replace(inputs, config=config))

    def thinned(self, artifact: Artifact) -> Self:
        """With one head of each query tile, another one each time: all of the code runs."""
        groups = self._with_rows()
        if not len(groups):
            return self
        heads = self.inputs.config.num_heads
        tiles = np.unique(groups[:, 1:], axis=0).tolist()
        chosen = [(number % heads, y, z) for number, (y, z) in enumerate(tiles)]
        # One workgroup without rows, which must leave everything alone.
        chosen += [(0, 0, s.index) for s in self.inputs.sequences if not s.rows][:1]
        return replace(self, workgroups=tuple(sorted(chosen)))

    def sampled(self, count: int, seed: int) -> Self:
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
        run = self._run(self.kernel_type(artifact, launcher))
        if run.report is None:
            raise ConfigError("no sequence has a query row: there is nothing to verify")
        outputs = {"o": self.inputs.output_view(run.output)}
        if run.lse is not None:
            outputs["lse"] = self.inputs.lse_view(run.lse)
        return outputs, run.report

    def _run(self, kernel: PrefillKernel) -> PrefillRun:
        return kernel.run(self.inputs, compared=self.compared)

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


class PrefillKind(ProblemKind):
    """Inputs as `attention.made_up` says; `num_keys` is `start_pos` plus the rows if not given.
    `lengths` are for ragged kernels. Tensors of fp8 are quantised: divided by scales not 1."""

    sizes = ("batch", "seq_len", "lengths", "num_keys", "start_pos")
    lists = ("lengths", "num_keys", "start_pos")  # one number, or one a sequence: 300,0,1
    uneven: ClassVar[Mapping[str, Any]] = {"seq_len": 77, "num_keys": 331}

    def __init__(
        self,
        config_type: type[PrefillConfig],
        kernel_type: type[PrefillKernel],
        make: Callable[..., PrefillInputs],
        data: tuple[str, ...],
        trial_type: type[PrefillTrial] = PrefillTrial,
    ) -> None:
        self.config_type, self.kernel_type, self.make = config_type, kernel_type, make
        self.data, self.trial_type = data, trial_type

    def fields(self, artifact: Artifact) -> Mapping[str, Any]:
        return self.config_type.of(artifact.manifest.problem, facts_of(artifact)).to_fields()

    def has_planned_work(self, artifact: Artifact) -> bool:
        return facts_of(artifact).persistent

    def inputs(
        self, problem: Mapping[str, Any], *, data: str, seed: int, **shape: Any
    ) -> PrefillInputs:
        if isinstance(shape.get("lengths"), int):
            shape["lengths"] = [shape["lengths"]]
        config = self.config_type.from_fields(problem)
        shape.setdefault("quantise", config.dtype == "fp8_e4m3")
        return self.make(config, data=data, seed=seed, **shape)

    def simulated(
        self, artifact: Artifact, chosen: Chosen, *, seed: int, **shape: Any
    ) -> PrefillInputs:
        trial = self.trial(self._simulated(artifact, seed, {}, shape))
        only = trial.heads(chosen(trial.grid(artifact)), artifact)
        return self._simulated(artifact, seed, only, shape)

    def _simulated(self, artifact: Artifact, seed: int, only: Any, shape: Any) -> Any:
        return self.made(artifact, data="realistic", seed=seed, **shape, only=only)

    def trial(self, inputs: PrefillInputs) -> PrefillTrial:
        return self.trial_type(inputs, self.kernel_type)

    def covering(self, artifact: Artifact) -> Covering:
        """Every number of tiles that the text tells apart, as the mask allows."""
        return prefill_covering(self.config_type.from_fields(self.fields(artifact)), artifact)
