"""A prefill kernel as a function: what its families have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.attention.prefill.call_scales import checked_scales, default_scale
from mlagen.attention.prefill.facts import facts_of
from mlagen.attention.prefill.gpu import gpu_arguments
from mlagen.attention.prefill.host import PrefillArguments, check_extents, host_call
from mlagen.attention.prefill.inputs import PrefillInputs
from mlagen.attention.prefill.problem import PrefillConfig
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


class PrefillCall(NamedTuple):
    """What a call is given. `tensors`: those of `inputs_type` by name, None where one is not given;
    `scales`: scale (None: the usual one), q_scale, k_scale, v_scale."""

    tensors: Mapping[str, Any]
    scales: tuple[float | None, float, float, float]
    start_pos: Any
    out: Any
    lse: Any
    max_seq_len: int | None


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
        self.config = self.config_type.of(manifest.problem, facts_of(artifact))
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
        compared: bool = True,
    ) -> PrefillRun:
        """Like a call, but findings are left in the report. For checkers. Not `compared`: outputs
        that are not given are not filled."""
        self._require_own(inputs)
        call = host_call(inputs, out, lse, compared=compared)
        report = None
        if inputs.seq_len:  # no rows: nothing to write
            report = self.launcher.launch(
                self.artifact, tensors=call.tensors, scalars=call.scalars, sizes=call.sizes
            )
        return PrefillRun(call.tensors["o"], call.tensors.get("lse"), report)

    def _require_own(self, inputs: PrefillInputs) -> None:
        """ConfigError for inputs of another problem."""
        if inputs.config != self.config:
            raise ConfigError(
                f"the inputs are those of {inputs.config}, the kernel's is {self.config}"
            )

    def _called(self, call: PrefillCall) -> Any:
        """What the call returns: O, or (O, LSE) where the kernel writes it."""
        if any(is_on_gpu(tensor) for tensor in (*call.tensors.values(), call.out)):
            made = self._arguments(call)
            self.gpu_launcher.launch(
                self.artifact, tensors=made.tensors, scalars=made.scalars, sizes=made.sizes
            )
            output, lse = made.tensors["o"], made.tensors.get("lse")
            return (output, lse) if self.config.lse else output
        if call.max_seq_len is not None:
            raise ConfigError(
                f"max_seq_len={call.max_seq_len} is for tensors of a GPU; these are arrays of the "
                f"host",
                hint="leave it out",
            )
        inputs = self.inputs_type(
            config=self.config, start_pos=call.start_pos, **call.tensors, **self._scales(call)
        )
        run = self.run(inputs, out=call.out, lse=call.lse)
        found = findings_of(self.artifact, run.report) if run.report else ()
        if found:
            raise findings_error(self.artifact, found)
        return (run.output, run.lse) if self.config.lse else run.output

    def _scales(self, call: PrefillCall) -> dict[str, float]:
        scale, *of_tensors = call.scales
        given = (default_scale(self.config) if scale is None else scale, *of_tensors)
        return dict(zip(("scale", "q_scale", "k_scale", "v_scale"), given, strict=True))

    def _arguments(self, call: PrefillCall) -> PrefillArguments:
        """What a call on tensors of a GPU passes to the launcher, checked."""
        scales = checked_scales(self.config, **self._scales(call))
        made = gpu_arguments(
            self.inputs_type,
            self.config,
            call.tensors,
            (scales.score_scale, scales.v_scale),
            start_pos=call.start_pos,
            max_seq_len=call.max_seq_len,
            out=call.out,
            lse=call.lse,
        )
        if not self.config.by_sequence:
            check_extents(
                self.config,
                batch=made.sizes["batch"],
                seq_len=made.sizes["seq_len"],
                num_keys=int(made.scalars["num_keys"]),
            )
        return made
