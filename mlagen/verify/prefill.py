"""MHA and MLA prefill as kinds of problems that can be verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.errors import ConfigError
from mlagen.launch import Launcher, LaunchReport
from mlagen.ops import MlaPrefillKernel, PrefillKernel, kernel_of
from mlagen.problem import (
    Expected,
    MhaConfig,
    MhaInputs,
    MlaConfig,
    MlaPrefillInputs,
    PrefillInputs,
    Worst,
    exact,
    rounded,
)
from mlagen.problem.mha_selection import Workgroup
from mlagen.problem.mla_prefill_call import whole_tiles
from mlagen.testdata import mha_inputs, mla_prefill_inputs
from mlagen.verify.kinds import Sample, Size, Trial, register

WORKGROUPS = 6  # that share the query tiles where a kernel is persistent


@dataclass(frozen=True)
class PrefillTrial:
    """A call of a prefill kernel. `workgroups`: those that run and are compared; None: all."""

    inputs: PrefillInputs
    workgroups: tuple[Workgroup, ...] | None = None

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
        if isinstance(inputs, MlaPrefillInputs) and inputs.config.dtype == "fp8_e4m3":
            found |= {name: getattr(inputs, name) for name in ("q_scale", "k_scale", "v_scale")}
        return found

    @property
    def sample(self) -> Sample | None:
        if self.workgroups is None:
            return None
        return Sample(len(self.workgroups), len(self._with_rows()))

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
        found = [oracle(self.inputs, workgroups=self.workgroups) for oracle in (exact, rounded)]
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
        more: dict[str, Any] = {}
        if isinstance(kernel, MlaPrefillKernel) and kernel.persistent:
            # Whole tiles: the rounding oracle knows one running maximum a row, and each part of a
            # split tile has its own.
            assert isinstance(self.inputs, MlaPrefillInputs)
            listed = kernel.takes_aiters_arguments
            more["plan"] = whole_tiles(self.inputs, WORKGROUPS, listed=listed)
        run = kernel.run(self.inputs, **more)
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


class MhaKind:
    """Inputs from `mlagen.testdata`; `num_keys` is `start_pos` plus the rows where it is not given.
    `lengths` are for ragged kernels."""

    sizes = ("batch", "seq_len", "lengths", "num_keys", "start_pos")
    lists = ("lengths", "num_keys", "start_pos")  # one number, or one a sequence: 300,0,1

    def inputs(
        self, problem: Mapping[str, Any], *, data: str, seed: int, **shape: Any
    ) -> MhaInputs:
        if isinstance(shape.get("lengths"), int):
            shape["lengths"] = [shape["lengths"]]
        return mha_inputs(MhaConfig.from_fields(problem), data=data, seed=seed, **shape)

    def trial(self, inputs: MhaInputs) -> Trial:
        return PrefillTrial(inputs)


class MlaPrefillKind:
    """As `MhaKind`. Tensors of fp8 are quantised: divided by scales that are not 1."""

    sizes, lists = MhaKind.sizes, MhaKind.lists

    def inputs(
        self, problem: Mapping[str, Any], *, data: str, seed: int, **shape: Any
    ) -> MlaPrefillInputs:
        if isinstance(shape.get("lengths"), int):
            shape["lengths"] = [shape["lengths"]]
        config = MlaConfig.from_fields(problem)
        shape.setdefault("quantise", config.dtype == "fp8_e4m3")
        return mla_prefill_inputs(config, data=data, seed=seed, **shape)

    def trial(self, inputs: MlaPrefillInputs) -> Trial:
        return PrefillTrial(inputs)


register(MhaConfig, MhaKind())
register(MlaConfig, MlaPrefillKind())
