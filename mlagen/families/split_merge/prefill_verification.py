"""Merging split MLA prefill work as a kind of problem that can be verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.errors import ConfigError
from mlagen.families.split_merge.prefill_exact import exact
from mlagen.families.split_merge.prefill_inputs import MlaReduceInputs
from mlagen.families.split_merge.prefill_kernel import MlaReduceKernel, launched
from mlagen.families.split_merge.prefill_made_up import MLA_REDUCE_KINDS, mla_reduce_inputs
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.family.covering import Call, Covering, tile_counts
from mlagen.family.kinds import Chosen, ProblemKind, Size, Trial
from mlagen.launch import Launcher, LaunchReport
from mlagen.problem.arrays import untouched
from mlagen.problem.expected import Expected, Worst
from mlagen.problem.formats import ELEMENT_TYPES

LEFT = 7.0  # what rows hold that the kernel must leave alone
ROWS = 37  # of a group that is to reach all code: a wave's last lines do not exist


@dataclass(frozen=True)
class MlaReduceTrial(Trial):
    """A call of a reduce kernel. One oracle: partial results are given as they are, so that all
    that a kernel rounds is fp32, and the exact one's bound holds nothing else. Rows that no group
    with partials has hold `LEFT` before, and must after."""

    inputs: MlaReduceInputs
    compared: bool = True

    def uncompared(self) -> MlaReduceTrial:
        return replace(self, compared=False)

    @property
    def sizes(self) -> Mapping[str, Size]:
        groups = self.inputs.groups
        return {
            "rows": tuple(group.end - group.first for group in groups),
            "partials": tuple(len(group.slots) for group in groups),
        }

    def oracles(self) -> tuple[Expected, ...]:
        expected = exact(self.inputs)
        both = (self._with_rows_left(expected.output), self._with_rows_left(expected.lse))
        return both if self.inputs.config.lse else both[:1]

    def _with_rows_left(self, expected: Expected) -> Expected:
        """With the rows that the kernel leaves alone."""
        left = np.setdiff1d(np.arange(self.inputs.rows), expected.rows)
        shape = (1, len(left), *expected.values.shape[2:])
        return replace(
            expected,
            values=np.concatenate([expected.values, np.full(shape, LEFT)], axis=1),
            bounds=np.concatenate([expected.bounds, np.zeros(shape)], axis=1),
            rows=np.concatenate([expected.rows, left]),
        )

    def run(
        self, artifact: Artifact, launcher: Launcher
    ) -> tuple[Mapping[str, npt.NDArray[Any]], LaunchReport]:
        config, rows = self.inputs.config, self.inputs.rows
        kind = ELEMENT_TYPES[config.output_dtype]
        make = partial(np.full, fill_value=LEFT) if self.compared else untouched
        out = make((rows, config.num_heads, config.depth), dtype=kind)
        lse = make((rows, config.num_heads), dtype=np.float32) if config.lse else None
        run = MlaReduceKernel(artifact, launcher).run(self.inputs, out=out, lse=lse)
        if run.report is None:
            raise ConfigError("no group has a partial: there is nothing to verify")
        outputs = {"o": run.output[None]}
        if run.lse is not None:
            outputs["lse"] = run.lse[None, ..., None]
        return outputs, run.report

    def place(self, worst: Worst) -> str:
        group = next(g for g in self.inputs.groups if g.first <= worst.row < g.end)
        where = f"group {group.index} of {len(group.slots)} partials, row {worst.row}"
        if worst.output == "lse":
            return f"LSE of {where}, head {worst.head}"
        return f"{where}, head {worst.head}, depth {worst.depth}"


class MlaReduceKind(ProblemKind):
    """Inputs from `mlagen.attention.made_up`: partial results of the plan for some sequences."""

    sizes = ("seq_len", "num_keys", "workgroups", "tile_q", "partials")
    data = tuple(MLA_REDUCE_KINDS)
    lists = ("seq_len", "num_keys", "partials")  # one number, or one a sequence: 300,513
    uneven: ClassVar[Mapping[str, Any]] = {"seq_len": 77, "num_keys": 331}

    def inputs(
        self, problem: Mapping[str, Any], *, data: str, seed: int, **shape: Any
    ) -> MlaReduceInputs:
        return mla_reduce_inputs(
            MlaReduceConfig.from_fields(problem), data=data, seed=seed, **shape
        )

    def simulated(
        self, artifact: Artifact, chosen: Chosen, *, seed: int, **shape: Any
    ) -> MlaReduceInputs:
        made = self.made(artifact, data="realistic", seed=seed, **shape, only=())
        groups = chosen(artifact.manifest.grid_for(launched(made)))
        only = {group[1] for group in groups}
        return self.made(artifact, data="realistic", seed=seed, **shape, only=only)

    def trial(self, inputs: MlaReduceInputs) -> Trial:
        return MlaReduceTrial(inputs)

    def covering(self, artifact: Artifact) -> Covering:
        """A group for every number of partials that the text tells apart, on each kind of data."""
        counts = tuple(tile_counts(artifact.manifest))
        shape = {"partials": counts, "seq_len": ROWS}
        return Covering(
            tuple(Call(data, shape) for data in ("realistic", "every_partial", "unseen"))
        )


KIND = MlaReduceKind()
