"""An MHA kernel as a function: numpy arrays in, numpy array out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.artifact import Artifact
from mlagen.errors import ConfigError
from mlagen.launch import EmulatedLauncher, Launcher, LaunchReport
from mlagen.ops.findings import findings_error, findings_of
from mlagen.problem import MhaConfig, MhaInputs, default_scale
from mlagen.problem.formats import scale_log2e
from mlagen.problem.mha_inputs import ELEMENT_TYPES, check_tensor

U32 = 2**32  # buffer resources hold sizes, and kernels offsets and row numbers, in 32 bits


@dataclass(frozen=True, slots=True)
class MhaRun:
    """One call's output [batch, seq_len, num_heads, depth] and what the launch reported."""

    output: npt.NDArray[Any]
    report: LaunchReport


class MhaKernel:
    """A built MHA kernel. `kernel(q, k, v)` runs it, in the emulator unless told otherwise.

    Raises ConfigError for an artifact of another kind of problem.
    """

    def __init__(self, artifact: Artifact, launcher: Launcher | None = None) -> None:
        self.artifact = artifact
        self.config = config_of(artifact)
        self.launcher: Launcher = launcher if launcher is not None else EmulatedLauncher()

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value}" for name, value in self.config.to_fields().items())
        return f"MhaKernel({self.artifact.manifest.kernel}: {fields})"

    def __call__(
        self,
        q: npt.NDArray[Any],
        k: npt.NDArray[Any],
        v: npt.NDArray[Any],
        *,
        scale: float | None = None,
        start_pos: int = 0,
        out: npt.NDArray[Any] | None = None,
    ) -> npt.NDArray[Any]:
        """Attention of `q` [B, S, H, D] over `k`, `v` [B, num_keys, H_kv, D]: [B, S, H, D].

        C-contiguous arrays of the problem's dtype (`ml_dtypes.bfloat16`). `scale` multiplies the
        dot products, 1 / sqrt(D) where it is not given; query row i stands at `start_pos + i`.
        `out` is written to and returned; it is filled with NaN first, so nothing old survives.

        Raises ConfigError for tensors and numbers that the kernel cannot serve, before anything is
        run, and FindingsError when the emulator's sanitizer found a defect in the run.
        """
        inputs = MhaInputs(
            self.config, q, k, v, default_scale(self.config) if scale is None else scale, start_pos
        )
        run = self.run(inputs, out=out)
        found = findings_of(self.artifact, run.report)
        if found:
            raise findings_error(self.artifact, found)
        return run.output

    def run(self, inputs: MhaInputs, *, out: npt.NDArray[Any] | None = None) -> MhaRun:
        """Like a call, but findings are left in the report. For checkers."""
        config = self.config
        if inputs.config != config:
            raise ConfigError(f"the inputs are those of {inputs.config}, the kernel's is {config}")
        if inputs.keys != inputs.k.shape[1] or inputs.keys < 1:
            raise ConfigError(
                f"num_keys={inputs.keys} of {inputs.k.shape[1]} rows: the kernel takes all rows of "
                f"k and v as keys, and at least one",
                hint="pass contiguous k and v that hold the keys only",
            )
        check_extents(config, batch=inputs.batch, seq_len=inputs.seq_len, num_keys=inputs.keys)
        tensors = {"q": inputs.q, "k": inputs.k, "v": inputs.v}
        for name, tensor in tensors.items():
            _require_contiguous(name, tensor)
        tensors["o"] = self._output(inputs, out)
        report = self.launcher.launch(
            self.artifact,
            tensors=tensors,
            scalars={
                "seq_len": inputs.seq_len,
                "num_keys": inputs.keys,
                "start_pos": inputs.start_pos,
                "batch": inputs.batch,
                "scale_log2e": scale_log2e(inputs.scale),
            },
            sizes={
                "num_heads": config.num_heads,
                "seq_len": inputs.seq_len,
                "batch": inputs.batch,
            },
        )
        return MhaRun(tensors["o"], report)

    def _output(self, inputs: MhaInputs, out: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
        if out is None:
            out = np.empty(inputs.q.shape, ELEMENT_TYPES[self.config.output_dtype])
        else:
            check_tensor("out", out, inputs.q.shape, self.config.output_dtype)
            _require_contiguous("out", out)
            if not out.flags.writeable:
                raise ConfigError("out is read-only")
            for name, tensor in (("q", inputs.q), ("k", inputs.k), ("v", inputs.v)):
                if np.may_share_memory(out, tensor):  # exact: both are contiguous
                    raise ConfigError(f"out overlaps {name} in memory", hint="pass another array")
        out.fill(np.nan)
        return out


def config_of(artifact: Artifact) -> MhaConfig:
    """The problem that an artifact solves. Raises ConfigError for one that is not MHA."""
    manifest = artifact.manifest
    if manifest.problem_type != MhaConfig.__name__:
        raise ConfigError(
            f"{manifest.kernel} solves a {manifest.problem_type}, not an {MhaConfig.__name__}"
        )
    return MhaConfig.from_fields(manifest.problem)


def check_extents(config: MhaConfig, *, batch: int, seq_len: int, num_keys: int) -> None:
    """Raises ConfigError for tensors that 32-bit sizes and offsets do not reach."""
    kv_bytes = config.kv_row_stride * config.element_bytes
    q_bytes = config.q_row_stride * config.element_bytes
    o_bytes = config.q_row_stride * config.output_bytes
    # K and V are fetched in whole tiles: the offsets of a tile's missing rows must not wrap round.
    tile = config.kv_block
    for name, rows, row_bytes, step in (
        ("k and v", num_keys, kv_bytes, tile),
        ("q", seq_len, q_bytes, 1),
        ("out", seq_len, o_bytes, 1),
    ):
        most = (U32 - 1) // (row_bytes * step) * step
        if rows > most:
            raise ConfigError(
                f"{name}: {rows} rows of {row_bytes} bytes in a batch entry are "
                f"{rows * row_bytes} bytes; buffer offsets are 32 bits",
                hint=f"at most {most} rows",
            )
    for name, rows in (("query rows", batch * seq_len), ("keys", batch * num_keys)):
        if rows >= U32:
            raise ConfigError(f"{rows} {name} in all batch entries: row numbers are 32 bits")
    for name, count in (("query tiles", config.q_tiles(seq_len)), ("batch entries", batch)):
        if count > 65535:
            raise ConfigError(f"{count} {name}: a grid has at most 65535 in this dimension")


def _require_contiguous(name: str, array: npt.NDArray[Any]) -> None:
    if not array.flags.c_contiguous:
        raise ConfigError(
            f"{name} is not C-contiguous (strides {array.strides})",
            hint=f"np.ascontiguousarray({name}) makes a copy that is",
        )
