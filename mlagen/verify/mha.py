"""Multi-head attention as a kind of problem that can be verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.launch import Launcher, LaunchReport
from mlagen.ops.mha import MhaKernel
from mlagen.problem import Expected, MhaConfig, MhaInputs, Worst, exact, rounded
from mlagen.testdata import mha_inputs
from mlagen.verify.kinds import Trial, register


@dataclass(frozen=True)
class MhaTrial:
    """A call of an MHA kernel."""

    inputs: MhaInputs

    @property
    def sizes(self) -> Mapping[str, int]:
        return {
            "batch": self.inputs.batch,
            "seq_len": self.inputs.seq_len,
            "num_keys": self.inputs.keys,
            "start_pos": self.inputs.start_pos,
        }

    @property
    def numbers(self) -> Mapping[str, float]:
        return {"scale": self.inputs.scale}

    def oracles(self) -> tuple[Expected, ...]:
        return exact(self.inputs).expected, rounded(self.inputs)

    def run(self, artifact: Artifact, launcher: Launcher) -> tuple[npt.NDArray[Any], LaunchReport]:
        run = MhaKernel(artifact, launcher).run(self.inputs)
        return run.output, run.report

    def place(self, worst: Worst) -> str:
        return f"batch {worst.batch}, row {worst.row}, head {worst.head}, depth {worst.depth}"


class MhaKind:
    """Inputs from `mlagen.testdata`; `num_keys` is `start_pos + seq_len` where it is not given."""

    sizes = ("batch", "seq_len", "num_keys", "start_pos")

    def inputs(
        self, problem: Mapping[str, Any], *, data: str, seed: int, **shape: Any
    ) -> MhaInputs:
        return mha_inputs(MhaConfig.from_fields(problem), data=data, seed=seed, **shape)

    def trial(self, inputs: MhaInputs) -> Trial:
        return MhaTrial(inputs)


register(MhaConfig, MhaKind())
