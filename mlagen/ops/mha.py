"""An MHA kernel as a function: numpy arrays in and out (emulated), or tensors of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.errors import ConfigError
from mlagen.launch import EmulatedLauncher, Launcher, LaunchReport, gpu_launcher, is_on_gpu
from mlagen.ops.findings import findings_error, findings_of
from mlagen.ops.mha_gpu import MhaArguments, gpu_arguments
from mlagen.ops.mha_host import check_extents, host_call
from mlagen.problem import MhaConfig, MhaInputs, default_scale


@dataclass(frozen=True, slots=True)
class MhaRun:
    """One call's output, its log-sum-exp where the kernel writes it, and what the launch reported:
    nothing where no sequence had a query, which launches nothing. Shapes as in `problem.mha`."""

    output: npt.NDArray[Any]
    lse: npt.NDArray[Any] | None
    report: LaunchReport | None


class MhaKernel:
    """A built MHA kernel. `kernel(q, k, v)` runs it, in the emulator unless told otherwise.

    Raises ConfigError for an artifact of another kind of problem.
    """

    def __init__(self, artifact: Artifact, launcher: Launcher | None = None) -> None:
        self.artifact = artifact
        self.config = config_of(artifact)
        self._given = launcher
        self.launcher: Launcher = launcher if launcher is not None else EmulatedLauncher()

    @cached_property
    def gpu_launcher(self) -> Any:
        """What runs it on tensors of a GPU: the launcher it was given, or its target's own."""
        return self._given or gpu_launcher(self.artifact.manifest.target)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value}" for name, value in self.config.to_fields().items())
        return f"MhaKernel({self.artifact.manifest.kernel}: {fields})"

    def __call__(
        self,
        q: Any,
        k: Any,
        v: Any,
        *,
        scale: float | None = None,
        start_pos: Any = 0,
        q_offsets: Any = None,
        kv_offsets: Any = None,
        kv_lengths: Any = None,
        page_table: Any = None,
        sinks: Any = None,
        out: Any = None,
        lse: Any = None,
        max_seq_len: int | None = None,
    ) -> Any:
        """Attention of `q` over `k` and `v`: O, or (O, LSE) where the kernel is built for it.

        C-contiguous arrays of the problem's dtype (`ml_dtypes.bfloat16`), shapes and the arrays
        that each form takes as in `MhaInputs`: dense q [B, S, H, D] over k, v [B, num_keys, H_kv,
        D]; packed rows with `q_offsets`; keys packed with `kv_offsets` or in pages with
        `page_table` and `kv_lengths`. `scale` multiplies the dot products, 1 / sqrt(D) where it is
        not given; query row i stands at `start_pos + i`, a number or int32 [B] where lengths
        differ by sequence. `out` and `lse` are written to and returned; they are filled with NaN
        first, so nothing old survives.

        Tensors of a GPU (torch's, or with the array interface or DLPack) run on it, in its current
        stream, and nothing waits for them; `out` is then left as it is, and torch alone makes one.
        Ragged kernels then need `max_seq_len`, the query rows of the longest sequence; on arrays of
        the host `q_offsets` tells it.

        Raises ConfigError for tensors and numbers that the kernel cannot serve, before anything is
        run, and FindingsError when the emulator's sanitizer found a defect in the run.
        """
        arrays = {
            "q_offsets": q_offsets, "kv_offsets": kv_offsets, "kv_lengths": kv_lengths,
            "page_table": page_table, "sinks": sinks,
        }  # fmt: skip
        if any(is_on_gpu(tensor) for tensor in (q, k, v, out)):
            made = self.arguments(
                q, k, v, scale=scale, start_pos=start_pos, out=out, lse=lse,
                max_seq_len=max_seq_len, **arrays,
            )  # fmt: skip
            self.gpu_launcher.launch(
                self.artifact, tensors=made.tensors, scalars=made.scalars, sizes=made.sizes
            )
            return self._returned(made.tensors["o"], made.tensors.get("lse"))
        if max_seq_len is not None:
            raise ConfigError(
                f"max_seq_len={max_seq_len} is for tensors of a GPU; these are arrays of the host",
                hint="leave it out",
            )
        inputs = MhaInputs(
            self.config,
            q,
            k,
            v,
            default_scale(self.config) if scale is None else scale,
            start_pos,
            **arrays,
        )
        run = self.run(inputs, out=out, lse=lse)
        found = findings_of(self.artifact, run.report) if run.report else ()
        if found:
            raise findings_error(self.artifact, found)
        return self._returned(run.output, run.lse)

    def _returned(self, output: Any, lse: Any) -> Any:
        return (output, lse) if self.config.lse else output

    def run(
        self,
        inputs: MhaInputs,
        *,
        out: npt.NDArray[Any] | None = None,
        lse: npt.NDArray[Any] | None = None,
    ) -> MhaRun:
        """Like a call, but findings are left in the report. For checkers."""
        config = self.config
        if inputs.config != config:
            raise ConfigError(f"the inputs are those of {inputs.config}, the kernel's is {config}")
        call = host_call(inputs, out, lse)
        report = None
        if inputs.seq_len:  # no rows: nothing to write
            report = self.launcher.launch(
                self.artifact, tensors=call.tensors, scalars=call.scalars, sizes=call.sizes
            )
        return MhaRun(call.output, call.lse, report)

    def arguments(
        self,
        q: Any,
        k: Any,
        v: Any,
        *,
        scale: float | None = None,
        start_pos: Any = 0,
        out: Any = None,
        lse: Any = None,
        max_seq_len: int | None = None,
        **arrays: Any,
    ) -> MhaArguments:
        """What a call on tensors of a GPU hands to the launcher, checked: for
        `kernel.gpu_launcher.prepare`. `arrays` are those of MhaInputs; see `gpu_arguments`."""
        made = gpu_arguments(
            self.config,
            {"q": q, "k": k, "v": v, **arrays},
            scale=default_scale(self.config) if scale is None else scale,
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


def config_of(artifact: Artifact) -> MhaConfig:
    """The problem that an artifact solves. Raises ConfigError for one that is not MHA."""
    manifest = artifact.manifest
    if manifest.problem_type != MhaConfig.__name__:
        raise ConfigError(
            f"{manifest.kernel} solves a {manifest.problem_type}, not an {MhaConfig.__name__}"
        )
    return MhaConfig.from_fields(manifest.problem)
