"""An MLA decode kernel as a function: tensors of a GPU in, output and log-sum-exp out."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlagen.artifact import Artifact
from mlagen.errors import ConfigError
from mlagen.launch import CudaLauncher, Launcher, LaunchReport
from mlagen.launch.device_tensor import is_torch
from mlagen.problem import MlaDecodeConfig
from mlagen.problem.arrays import check_shape
from mlagen.problem.formats import scale_log2e
from mlagen.problem.mla_decode_inputs import check_pages, check_scale

# What tensors call the types that the kernel takes (torch's names carry a prefix more).
TYPE_NAMES = {"bf16": "bfloat16", "int32": "int32", "fp32": "float32"}
# TMA coordinates are signed 32-bit numbers (PTX ISA, cp.async.bulk.tensor).
MAX_ROWS = 2**31


@dataclass(frozen=True, slots=True)
class MlaDecodeArguments:
    """What a launcher is given for one call: `launcher.launch(artifact, tensors=.., ..)`."""

    tensors: dict[str, Any]
    scalars: dict[str, int | float]
    sizes: dict[str, int]


@dataclass(frozen=True, slots=True)
class MlaDecodeRun:
    """One call's output [batch, q_len, num_heads, 512], its log-sum-exp [batch, num_heads, q_len]
    (natural logarithm, -inf for a row without keys) and what the launch reported; no report for an
    empty batch, which launches nothing."""

    output: Any
    lse: Any
    report: LaunchReport | None


class MlaDecodeKernel:
    """A built MLA decode kernel. `kernel(q, cache, block_table, cache_lengths, scale=..)` runs it,
    on the GPU that holds the tensors unless a launcher says otherwise.

    Raises ConfigError for an artifact of another kind of problem.
    """

    def __init__(self, artifact: Artifact, launcher: Launcher | None = None) -> None:
        manifest = artifact.manifest
        if manifest.problem_type != MlaDecodeConfig.__name__:
            raise ConfigError(
                f"{manifest.kernel} solves a {manifest.problem_type}, not an "
                f"{MlaDecodeConfig.__name__}"
            )
        self.artifact = artifact
        self.config = MlaDecodeConfig.from_fields(manifest.problem)
        self.launcher: Launcher = launcher if launcher is not None else CudaLauncher()

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value}" for name, value in self.config.to_fields().items())
        return f"MlaDecodeKernel({self.artifact.manifest.kernel}: {fields})"

    def __call__(
        self,
        q: Any,
        cache: Any,
        block_table: Any,
        cache_lengths: Any,
        *,
        scale: float,
        out: Any = None,
        lse: Any = None,
        checked: bool = False,
    ) -> tuple[Any, Any]:
        """Attention of `q` over the paged cache: (output, log-sum-exp).

        `q` [B, q_len, H, 576] and `cache` [num_blocks, page_size, 1, 576] bf16, `block_table`
        [B, max_pages] and `cache_lengths` [B] int32, contiguous, on one GPU; see `MlaDecodeInputs`.
        `scale` multiplies the dot products. It has no default: it is the model's (192 ** -0.5 for
        128 + 64 columns a head), which the width 576 does not tell.

        `out` [B, q_len, H, 512] bf16 and `lse` [B, H, q_len] fp32 are written to and returned. They
        are made where they are not given, which torch tensors only allow. `checked` copies the
        table and the lengths to the host first, waiting for the GPU, and refuses what leads out of
        the pool; without it the call waits for nothing.

        Raises ConfigError for tensors and numbers that the kernel cannot serve, before anything is
        launched.
        """
        run = self.run(
            q, cache, block_table, cache_lengths, scale=scale, out=out, lse=lse, checked=checked
        )
        return run.output, run.lse

    def run(
        self,
        q: Any,
        cache: Any,
        block_table: Any,
        cache_lengths: Any,
        *,
        scale: float,
        out: Any = None,
        lse: Any = None,
        checked: bool = False,
    ) -> MlaDecodeRun:
        """Like a call, with the launch's report."""
        made = self.arguments(
            q, cache, block_table, cache_lengths, scale=scale, out=out, lse=lse, checked=checked
        )
        report = None
        if made.sizes["batch"]:
            report = self.launcher.launch(
                self.artifact, tensors=made.tensors, scalars=made.scalars, sizes=made.sizes
            )
        return MlaDecodeRun(made.tensors["o"], made.tensors["lse"], report)

    def arguments(
        self,
        q: Any,
        cache: Any,
        block_table: Any,
        cache_lengths: Any,
        *,
        scale: float,
        out: Any = None,
        lse: Any = None,
        checked: bool = False,
    ) -> MlaDecodeArguments:
        """What a call hands to the launcher, checked: for `CudaLauncher.prepare`."""
        config = self.config
        tensors = {
            "q": q, "cache": cache, "block_table": block_table, "cache_lengths": cache_lengths
        }  # fmt: skip
        self._require_device(tensors)
        batch = _batch(q)
        shapes = {
            "q": (batch, config.q_len, config.num_heads, config.d_qk),
            "cache": (None, config.page_size, config.num_kv_heads, config.d_qk),
            "block_table": (batch, None),
            "cache_lengths": (batch,),
            "o": (batch, config.q_len, config.num_heads, config.d_v),
            "lse": (batch, config.num_heads, config.q_len),
        }
        types = {
            "q": config.dtype, "cache": config.dtype, "block_table": "int32",
            "cache_lengths": "int32", "o": config.output_dtype, "lse": "fp32",
        }  # fmt: skip
        for name, tensor in tensors.items():
            _check(name, tensor, shapes[name], types[name])
        num_blocks, max_pages = int(cache.shape[0]), int(block_table.shape[1])
        _check_rows("q", batch, config.q_len * config.num_heads)
        _check_rows("cache", num_blocks, config.page_size)
        for name, label, given in (("o", "out", out), ("lse", "lse", lse)):
            if given is None:
                given = _made(label, q, shapes[name], types[name])
            self._require_device({label: given})
            _check(label, given, shapes[name], types[name])
            for other, tensor in tensors.items():
                if _overlap(given, tensor):
                    what = "out" if other == "o" else other
                    raise ConfigError(f"{label} overlaps {what} in memory", hint="pass another")
            tensors[name] = given
        number = check_scale(scale)
        if checked and batch:
            check_pages(
                config,
                _on_host("block_table", block_table),
                _on_host("cache_lengths", cache_lengths),
                num_blocks,
            )
        scalars: dict[str, int | float] = {
            "max_pages": max_pages,
            "num_heads": config.num_heads,
            "scale_log2e": scale_log2e(number),
            "scale": number,
        }
        # A kernel may have fixed the heads when it was generated: it takes what it names.
        named = {arg.name for arg in self.artifact.manifest.args}
        return MlaDecodeArguments(
            tensors,
            {name: value for name, value in scalars.items() if name in named},
            {
                "batch": batch,
                "q_len": config.q_len,
                "num_heads": config.num_heads,
                "num_blocks": num_blocks,
                "max_pages": max_pages,
            },
        )

    def _require_device(self, tensors: dict[str, Any]) -> None:
        """ConfigError for what is no tensor, and for arrays of the host: nothing here runs them."""
        manifest = self.artifact.manifest
        for name, tensor in tensors.items():
            if not hasattr(tensor, "shape") or not hasattr(tensor, "dtype"):
                raise ConfigError(f"{name} is a {type(tensor).__name__}, no tensor")
            if isinstance(tensor, np.ndarray) or (is_torch(tensor) and not tensor.is_cuda):
                raise ConfigError(
                    f"{name} lies in the host's memory: {manifest.kernel} is for "
                    f"{manifest.target}, which no emulator here runs, so it takes tensors of a GPU "
                    f"only",
                    hint="torch: tensor.to('cuda'); a numpy array: torch.from_numpy first",
                )


def _batch(q: Any) -> int:
    if len(q.shape) != 4:
        raise ConfigError(
            f"q has shape {tuple(q.shape)}, the kernel wants (batch, q_len, num_heads, 576)"
        )
    return int(q.shape[0])


def _check(name: str, tensor: Any, shape: tuple[int | None, ...], dtype: str) -> None:
    """Raises ConfigError for another dtype or shape. The launcher checks place and layout."""
    given = str(tensor.dtype).removeprefix("torch.")
    if given != TYPE_NAMES[dtype]:
        raise ConfigError(f"{name} has dtype {given}, the kernel wants {TYPE_NAMES[dtype]}")
    check_shape(name, tuple(int(extent) for extent in tensor.shape), shape)


def _check_rows(name: str, extent: int, rows: int) -> None:
    """Raises ConfigError for more rows than coordinates reach: `extent` times `rows` of them."""
    if extent * rows > MAX_ROWS:
        raise ConfigError(
            f"{name} has {extent * rows} rows; TMA coordinates reach {MAX_ROWS} of them",
            hint=f"its first extent is at most {MAX_ROWS // rows}",
        )


def _made(name: str, like: Any, shape: tuple[int | None, ...], dtype: str) -> Any:
    """A new tensor beside `like`."""
    if not is_torch(like):
        raise ConfigError(
            f"{name} is not given, and mlagen cannot make a {type(like).__module__} tensor",
            hint=f"pass {name}= of shape {shape} and dtype {TYPE_NAMES[dtype]}",
        )
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=getattr(torch, TYPE_NAMES[dtype]), device=like.device)


def _span(tensor: Any) -> tuple[int, int] | None:
    """First and last address of a contiguous tensor; None where its maker does not say."""
    if is_torch(tensor):
        start, size = tensor.data_ptr(), tensor.element_size()
    elif hasattr(tensor, "__cuda_array_interface__"):
        interface = tensor.__cuda_array_interface__
        start, size = int(interface["data"][0] or 0), int(interface["typestr"][2:])
    else:
        return None
    return start, start + math.prod(int(extent) for extent in tensor.shape) * size - 1


def _overlap(one: Any, other: Any) -> bool:
    spans = _span(one), _span(other)
    if spans[0] is None or spans[1] is None:
        return False
    return spans[0][0] <= spans[1][1] and spans[1][0] <= spans[0][1]


def _on_host(name: str, tensor: Any) -> np.ndarray:
    """A copy in the host's memory."""
    if is_torch(tensor):
        return np.asarray(tensor.cpu().numpy())
    if hasattr(tensor, "get"):  # CuPy
        return np.asarray(tensor.get())
    raise ConfigError(
        f"checked: {name} is a {type(tensor).__name__}, which mlagen cannot copy to the host",
        hint="torch or CuPy tensors, or checked=False",
    )
