"""A prefill kernel as a function: what its families have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.attention.prefill.gpu import PrefillArguments, gpu_arguments
from mlagen.attention.prefill.host import check_extents, host_call
from mlagen.attention.prefill.inputs import PrefillInputs
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.attention.prefill.scales import checked_scales, default_scale
from mlagen.errors import ConfigError
from mlagen.launch import EmulatedLauncher, Launcher, LaunchReport, gpu_launcher, is_on_gpu
from mlagen.launch_findings import findings_error, findings_of


@dataclass(frozen=True, slots=True)
class PrefillRun:
    """One call's output, its log-sum-exp where the kernel writes it, and what the launch reported:
    nothing where no sequence had a query, which launches nothing. Shapes as in the problem."""

    output: npt.NDArray[Any]
    lse: npt.NDArray[Any] | None
    report: LaunchReport | None


class PrefillKernel:
    """A built prefill kernel, run in the emulator unless told otherwise.

    Raises ConfigError for an artifact of another kind of problem.
    """

    config_type: ClassVar[type[PrefillConfig]]
    inputs_type: ClassVar[Any]  # of PrefillInputs; the classes differ in what they are made of
    config: PrefillConfig
    choice = "given"  # whose knobs it has: see `mlagen.build`

    def __init__(self, artifact: Artifact, launcher: Launcher | None = None) -> None:
        manifest = artifact.manifest
        solved = self.config_type.problem_type.__name__
        if manifest.problem_type != solved:
            raise ConfigError(
                f"{manifest.kernel} solves a {manifest.problem_type}, not an {solved}"
            )
        self.artifact = artifact
        self.config = self.config_type.of(manifest.problem, manifest.knobs)
        self._given = launcher
        self.launcher: Launcher = launcher if launcher is not None else EmulatedLauncher()

    @cached_property
    def gpu_launcher(self) -> Any:
        """What runs it on tensors of a GPU: the launcher it was given, or its target's own."""
        return self._given or gpu_launcher(self.artifact.manifest.target)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value}" for name, value in self.config.to_fields().items())
        return f"{type(self).__name__}({self.artifact.manifest.kernel}: {fields})"

    def run(
        self,
        inputs: PrefillInputs,
        *,
        out: npt.NDArray[Any] | None = None,
        lse: npt.NDArray[Any] | None = None,
    ) -> PrefillRun:
        """Like a call, but findings are left in the report. For checkers."""
        self._require_own(inputs)
        call = host_call(inputs, out, lse)
        report = None
        if inputs.seq_len:  # no rows: nothing to write
            report = self.launcher.launch(
                self.artifact, tensors=call.tensors, scalars=call.scalars, sizes=call.sizes
            )
        return PrefillRun(call.output, call.lse, report)

    def _require_own(self, inputs: PrefillInputs) -> None:
        """ConfigError for inputs of another problem."""
        if inputs.config != self.config:
            raise ConfigError(
                f"the inputs are those of {inputs.config}, the kernel's is {self.config}"
            )

    def _call(
        self,
        tensors: Mapping[str, Any],
        scales: Mapping[str, float],
        *,
        start_pos: Any,
        out: Any,
        lse: Any,
        max_seq_len: int | None,
    ) -> Any:
        """A call on `tensors`, those of `inputs_type`, None where one is not given; `scales`: the
        call's numbers by the same names."""
        if any(is_on_gpu(tensor) for tensor in (*tensors.values(), out)):
            made = self._arguments(
                tensors, scales, start_pos=start_pos, out=out, lse=lse, max_seq_len=max_seq_len
            )
            self.gpu_launcher.launch(
                self.artifact, tensors=made.tensors, scalars=made.scalars, sizes=made.sizes
            )
            return self._returned(made.tensors["o"], made.tensors.get("lse"))
        if max_seq_len is not None:
            raise ConfigError(
                f"max_seq_len={max_seq_len} is for tensors of a GPU; these are arrays of the host",
                hint="leave it out",
            )
        inputs = self.inputs_type(config=self.config, start_pos=start_pos, **tensors, **scales)
        run = self.run(inputs, out=out, lse=lse)
        found = findings_of(self.artifact, run.report) if run.report else ()
        if found:
            raise findings_error(self.artifact, found)
        return self._returned(run.output, run.lse)

    def _returned(self, output: Any, lse: Any) -> Any:
        return (output, lse) if self.config.lse else output

    def _scales(
        self, scale: float | None, q_scale: float, k_scale: float, v_scale: float
    ) -> dict[str, float]:
        return {
            "scale": default_scale(self.config) if scale is None else scale,
            "q_scale": q_scale,
            "k_scale": k_scale,
            "v_scale": v_scale,
        }

    def _checked_scales(self, scales: Mapping[str, float]) -> tuple[float, float]:
        """The score scale and the value scale of a call's numbers. ConfigError: one is illegal."""
        made = checked_scales(self.config, **scales)
        return made.score_scale, made.v_scale

    def _arguments(
        self,
        tensors: Mapping[str, Any],
        scales: Mapping[str, float],
        *,
        start_pos: Any,
        out: Any,
        lse: Any,
        max_seq_len: int | None,
    ) -> PrefillArguments:
        """What a call on tensors of a GPU passes to the launcher, checked."""
        made = gpu_arguments(
            self.inputs_type,
            self.config,
            tensors,
            self._checked_scales(scales),
            start_pos=start_pos,
            max_seq_len=max_seq_len,
            out=out,
            lse=lse,
        )
        if not self.config.by_sequence:
            check_extents(
                self.config,
                batch=made.sizes["batch"],
                seq_len=made.sizes["seq_len"],
                num_keys=int(made.scalars["num_keys"]),
            )
        return made
