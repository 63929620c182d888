"""A kernel that a compiler makes, with one launch of it: what goes in, and what must come out.

Nothing here imports a compiler, so that a case can be described where none is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

Arrays = dict[str, np.ndarray]

# numpy's element types, as Triton names them.
TRITON_TYPES = {
    np.dtype(kind): name
    for kind, name in {
        np.int8: "i8",
        np.uint8: "u8",
        np.int16: "i16",
        np.int32: "i32",
        np.uint32: "u32",
        np.int64: "i64",
        np.float16: "fp16",
        ml_dtypes.bfloat16: "bf16",
        np.float32: "fp32",
        np.float64: "fp64",
        ml_dtypes.float8_e4m3fn: "fp8e4nv",
        ml_dtypes.float8_e5m2: "fp8e5",
    }.items()
}


@dataclass(frozen=True)
class Tiles:
    """An argument that is a host's tensor descriptor: `buffer`, seen in tiles of `block` elements.

    `layout`: Gluon's layout of a tile in shared memory; Triton chooses its own. `nan`: what lies
    outside of the buffer is NaN, not zero.
    """

    buffer: str
    block: tuple[int, ...]
    layout: Any = None
    nan: bool = False


@dataclass(frozen=True)
class Expected:
    """What an output must hold: `value` within `bound`, element by element, NaN where that is NaN.

    `value`: float64, or integers. `bound`: the largest absolute error, broadcast to the value;
    0 asks for equality.
    """

    value: np.ndarray
    bound: np.ndarray | float = 0.0

    def beside(self, before: np.ndarray) -> Expected:
        """The same in the first columns of a wider array, whose others stay as they were."""
        value, bound = before.astype(np.float64), np.zeros(before.shape)
        columns = self.value.shape[1]
        value[:, :columns], bound[:, :columns] = self.value, self.bound
        return Expected(value, bound)

    def misses(self, got: np.ndarray) -> int:
        """Elements of `got` that are not within the bound. ValueError where shapes differ."""
        if got.shape != self.value.shape:
            raise ValueError(f"an output of shape {got.shape}; {self.value.shape} was expected")
        if got.dtype.kind in "iu":
            return int((got != self.value).sum())
        wide = got.astype(np.float64)
        met = (np.abs(wide - self.value) <= self.bound) | (np.isnan(wide) & np.isnan(self.value))
        return int((~met).sum())


@dataclass(frozen=True)
class Case:
    """One kernel, compiled once and launched once.

    `kernel`: a jitted function. `arguments`: of each parameter that is no constant, by name and in
    order: the name of a buffer, a `Tiles`, or a number (int: i32, np.int64: i64, float: fp32).
    `make`: the buffers before the launch, from a seeded generator. `expect`: from these buffers,
    what each output holds after it. `approximate`: the opcodes with `.approx`, or otherwise without
    a defined last bit, that its results pass through; () where bits are defined. `unordered`: its
    result depends on the order in which atomics come, so that only the bound holds. `flaw`: what
    is wrong in the compiler's PTX, though no chip shows it; a sanitizer has to find it. `machine`:
    for which it is compiled: 90 for sm_90a, 100 for sm_100a.
    """

    name: str
    kernel: Any
    arguments: Mapping[str, str | Tiles | int | float | np.integer]
    make: Callable[[np.random.Generator], Arrays]
    expect: Callable[[Arrays], dict[str, Expected]]
    grid: tuple[int, int, int]
    constants: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    gluon: bool = False
    approximate: tuple[str, ...] = ()
    unordered: bool = False
    flaw: str = ""
    machine: int = 90
    seed: int = 0

    def buffers(self) -> Arrays:
        """The buffers before the launch, the same at each call."""
        return self.make(np.random.default_rng(self.seed))
