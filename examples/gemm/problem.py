"""The problem: C[M, N] = A[M, K] . B[N, K]^T, both operands contiguous along K.

A problem holds what a kernel is generated for; M, N and K are given at run time, tiles are knobs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.problem.fields import from_fields, listed

BF16 = 2  # bytes
OUTPUT_TYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp32": np.dtype(np.float32)}

K_STEP = 8  # 8 bf16 are the 16 bytes that a lane fetches: the tail of K ends between two fetches
# A lane that must not fetch is sent to byte 2^31: K and N stop where a block's rows would reach
# it.
FAR = 1 << 31
MAX_TILE = 256
K_MAX = FAR // (MAX_TILE * BF16) - K_STEP
N_MAX = FAR // (MAX_TILE * 4) - MAX_TILE
M_MAX = 65535 * 128  # blocks along M are the grid's y: 16 bits (HIP), also with the smallest m_tile


@dataclass(frozen=True)
class Tiles:
    """A workgroup computes `m` x `n` of C, `k` of K at a time. They are knobs of a schedule."""

    m: int
    n: int
    k: int


@dataclass(frozen=True)
class GemmConfig:
    """What a GEMM kernel computes. Raises ConfigError for a value that no kernel can have."""

    family: ClassVar[str] = "gemm"

    dtype: str = "bf16"  # A and B
    output_dtype: str = "bf16"  # C; sums are fp32

    def __post_init__(self) -> None:
        self._require("dtype", ("bf16",))
        self._require("output_dtype", tuple(OUTPUT_TYPES))

    def _require(self, name: str, legal: tuple[Any, ...]) -> None:
        if getattr(self, name) not in legal:
            raise ConfigError(
                f"{name}={getattr(self, name)} is not supported",
                hint=f"{name} is {listed(legal)}",
            )

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> GemmConfig:
        """The problem that named values describe; see `mlagen.problem.fields`."""
        return from_fields(cls, fields)

    @classmethod
    def example(cls) -> GemmConfig:
        """A legal problem, for describing what solves this type."""
        return cls()

    def to_fields(self) -> dict[str, str]:
        """Every field as a plain value. `from_fields` reads it back."""
        return dataclasses.asdict(self)

    @property
    def output_bytes(self) -> int:
        return OUTPUT_TYPES[self.output_dtype].itemsize


@dataclass(frozen=True, eq=False)
class GemmInputs:
    """A [M, K] and B [N, K] of one call, contiguous bf16. ConfigError for what does not fit."""

    config: GemmConfig
    a: npt.NDArray[Any]
    b: npt.NDArray[Any]

    def __post_init__(self) -> None:
        for name, array in (("a", self.a), ("b", self.b)):
            if not isinstance(array, np.ndarray) or array.ndim != 2:
                raise ConfigError(f"{name} is no two-dimensional numpy array")
            if array.dtype != OUTPUT_TYPES[self.config.dtype]:
                raise ConfigError(f"{name} has dtype {array.dtype}, not {self.config.dtype}")
            if not array.flags.c_contiguous:
                raise ConfigError(
                    f"{name} is not C-contiguous (strides {array.strides})",
                    hint=f"np.ascontiguousarray({name}) makes a copy that is",
                )
        if self.a.shape[1] != self.b.shape[1]:
            raise ConfigError(f"a is {self.a.shape} and b is {self.b.shape}: their K differ")
        check_sizes(**self.sizes)

    @property
    def sizes(self) -> dict[str, int]:
        """m, n and k."""
        return {"m": self.a.shape[0], "n": self.b.shape[0], "k": self.a.shape[1]}


def check_sizes(m: int, n: int, k: int) -> None:
    """ConfigError for sizes that the kernels cannot serve, naming the nearest that they can."""
    for name, size, most in (("m", m, M_MAX), ("n", n, N_MAX), ("k", k, K_MAX)):
        if not 1 <= size <= most:
            raise ConfigError(f"{name}={size} is not in 1 .. {most}")
    if k % K_STEP:
        near = [x for x in (k // K_STEP * K_STEP, (k // K_STEP + 1) * K_STEP) if 0 < x <= K_MAX]
        raise ConfigError(
            f"k={k} is not a multiple of {K_STEP}: rows are fetched in pieces of 16 bytes",
            hint=f"k={listed(near)}; columns of zeros change no result",
        )
