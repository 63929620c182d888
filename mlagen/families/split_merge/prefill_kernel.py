"""A reduce kernel as a function: numpy arrays in and out, in the emulator unless told otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.errors import ConfigError
from mlagen.families.split_merge.prefill_inputs import MlaReduceInputs
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.launch import EmulatedLauncher, Launcher, LaunchReport
from mlagen.launch_findings import findings_error, findings_of
from mlagen.problem.arrays import check_contiguous, check_output
from mlagen.problem.formats import ELEMENT_TYPES
from mlagen.targets.gfx950.limits import GFX950

LINE_BYTES = 512  # of a partial O: byte offsets inside a group are 32 bits

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class MlaReduceRun:
    """One call's output [rows, num_heads, depth], its log-sum-exp [rows, num_heads] where the
    kernel writes it, and what the launch reported: nothing where there was no group."""

    output: Array
    lse: Array | None
    report: LaunchReport | None


class MlaReduceKernel:
    """A built reduce kernel. `kernel(partial_o, partial_lse, indptr, final_map, partial_map, ..)`.

    Raises ConfigError for an artifact of another kind of problem.
    """

    choice = "given"  # whose knobs it has: see `mlagen.build`

    def __init__(self, artifact: Artifact, launcher: Launcher | None = None) -> None:
        manifest = artifact.manifest
        if manifest.problem_type != MlaReduceConfig.__name__:
            raise ConfigError(
                f"{manifest.kernel} solves a {manifest.problem_type}, not an "
                f"{MlaReduceConfig.__name__}"
            )
        self.artifact = artifact
        self.config = MlaReduceConfig.from_fields(manifest.problem)
        self.launcher: Launcher = launcher if launcher is not None else EmulatedLauncher()

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value}" for name, value in self.config.to_fields().items())
        return f"MlaReduceKernel({self.artifact.manifest.kernel}: {fields})"

    def __call__(
        self,
        partial_o: Any,
        partial_lse: Any,
        reduce_indptr: Any,
        reduce_final_map: Any,
        reduce_partial_map: Any,
        *,
        out: Any = None,
        lse: Any = None,
        rows: int | None = None,
    ) -> Any:
        """The merged O, or (O, LSE) where the kernel is built for it. Arrays are those of
        `MlaReduceInputs`, C-contiguous.

        `out` [rows, num_heads, depth] and `lse` fp32 [rows, num_heads] are written to and returned.
        Only the rows of groups with partials change; they are filled with NaN first, so nothing old
        survives. Where `out` is not given it is made with `rows` rows, or up to the last group's
        end, and NaN in all rows that are not merged.

        Raises ConfigError for arrays that the kernel cannot serve, before anything is run, and
        FindingsError when the emulator's sanitizer found a defect in the run.
        """
        if out is not None and rows is not None:
            raise ConfigError(f"rows={rows} and out are both given", hint="out says its rows")
        if isinstance(out, np.ndarray) and out.ndim:
            rows = len(out)
        if rows is None:
            ends = np.asarray(reduce_final_map)
            rows = int(ends[:, 1].max()) if ends.ndim == 2 and ends.size else 0
        inputs = MlaReduceInputs(
            self.config,
            partial_o,
            partial_lse,
            reduce_indptr,
            reduce_final_map,
            reduce_partial_map,
            rows,
        )
        run = self.run(inputs, out=out, lse=lse)
        found = findings_of(self.artifact, run.report) if run.report else ()
        if found:
            raise findings_error(self.artifact, found)
        return (run.output, run.lse) if self.config.lse else run.output

    def run(
        self, inputs: MlaReduceInputs, *, out: Array | None = None, lse: Array | None = None
    ) -> MlaReduceRun:
        """Like a call, but findings are left in the report. For checkers."""
        config = self.config
        if inputs.config != config:
            raise ConfigError(f"the inputs are those of {inputs.config}, the kernel's is {config}")
        sizes = launched(inputs)
        tensors = {
            name: getattr(inputs, name)
            for name in (
                "partial_o", "partial_lse", "reduce_indptr", "reduce_final_map",
                "reduce_partial_map",
            )
        }  # fmt: skip
        for name, tensor in tensors.items():
            check_contiguous(name, tensor)
        shape = (inputs.rows, config.num_heads, config.depth)
        output = _written("out", out, shape, config.output_dtype, inputs, tensors)
        tensors["o"] = output
        if config.lse:
            lse = _written("lse", lse, shape[:2], "fp32", inputs, tensors)
            tensors["lse"] = lse
        elif lse is not None:
            raise ConfigError("lse is given, but the kernel does not write it", hint="lse=true")
        report = None
        if inputs.merged:
            report = self.launcher.launch(self.artifact, tensors=tensors, scalars={}, sizes=sizes)
        return MlaReduceRun(output, lse, report)


def launched(inputs: MlaReduceInputs) -> dict[str, int]:
    """The sizes that a launch's grid is told by. ConfigError as `check_extents`."""
    lines = inputs.most_rows * inputs.config.num_heads * inputs.config.head_lines
    check_extents(inputs, lines)
    return {"lines": lines, "groups": len(inputs.groups)}


def check_extents(inputs: MlaReduceInputs, lines: int) -> None:
    """Raises ConfigError for groups that 32-bit offsets and the grid do not reach. Where a partial
    begins is a 64-bit number."""
    most = GFX950.buffer_bytes_max // LINE_BYTES
    if lines > most:
        heads = inputs.config.num_heads * inputs.config.head_lines
        raise ConfigError(
            f"a group of {inputs.most_rows} rows of {inputs.config.num_heads} heads: offsets "
            f"inside a group are 32 bits",
            hint=f"at most {most // heads} rows a group",
        )
    if len(inputs.groups) > GFX950.grid_most:
        raise ConfigError(
            f"{len(inputs.groups)} groups: a grid has at most {GFX950.grid_most} in this dimension"
        )


def _written(
    label: str,
    given: Array | None,
    shape: tuple[int, ...],
    dtype: str,
    inputs: MlaReduceInputs,
    others: dict[str, Array],
) -> Array:
    """An output, made where it is not given, with NaN in the rows that the kernel writes."""
    if given is None:
        return np.full(shape, np.nan, ELEMENT_TYPES[dtype])
    check_output(label, given, shape, dtype, others)
    for group in inputs.merged:
        given[group.first : group.end] = np.nan
    return given
