"""Tensor maps in the words of cuTensorMapEncodeTiled, with its checks (CUDA driver API 13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from mlagen.emulator.ptx.agents import layout as a
from mlagen.errors import ConfigError

# Name, number of PTX's tensormap.replace .elemtype, bytes.
TYPES: Final = {
    "uint8": a.T_U8,
    "uint16": a.T_U16,
    "uint32": a.T_U32,
    "int32": a.T_S32,
    "uint64": a.T_U64,
    "int64": a.T_S64,
    "float16": a.T_F16,
    "float32": a.T_F32,
    "float32_ftz": a.T_F32_FTZ,
    "float64": a.T_F64,
    "bfloat16": a.T_BF16,
}
SWIZZLES: Final = {0: 0, 32: 1, 64: 2, 128: 3}
_REAL: Final = {a.T_F16, a.T_F32, a.T_F32_FTZ, a.T_F64, a.T_BF16}
_MOST_RANK: Final = 5
_MOST_BOX: Final = 256
_MOST_STEP: Final = 8
_ALIGN: Final = 16


@dataclass(frozen=True)
class TensorMap:
    """A tiled tensor map without its address. The first dimension is the one that lies together.

    `dims`: elements; `strides`: bytes from one element to the next in each dimension but the first;
    `box`: elements; `steps`: every how many elements one is taken (elementStrides). `swizzle`:
    bytes, 0 for none. `fill`: "zeros" or "nan" for what lies outside. ConfigError for what
    cuTensorMapEncodeTiled refuses, and for what the emulator does not model.
    """

    type: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...] = ()
    swizzle: int = 0
    interleave: int = 0
    fill: str = "zeros"

    def __post_init__(self) -> None:
        rank = len(self.dims)
        if self.type not in TYPES:
            known = ", ".join(TYPES)
            raise ConfigError(f"tensor map: type {self.type!r} is not modelled", hint=known)
        if not 1 <= rank <= _MOST_RANK:
            raise ConfigError(f"tensor map: {rank} dimensions; it has 1 to {_MOST_RANK}")
        for name, found, wanted in (
            ("strides", self.strides, rank - 1),
            ("box", self.box, rank),
            ("steps", self.steps or self.box, rank),
        ):
            if len(found) != wanted:
                raise ConfigError(
                    f"tensor map: {len(found)} {name} for {rank} dimensions; {wanted} would fit"
                )
        self._check_numbers()
        self._check_box()

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return a.ELEMENT_BYTES[TYPES[self.type]]

    @property
    def box_bytes(self) -> int:
        """Bytes of a box in shared memory: what an mbarrier has to expect."""
        steps = self.steps or (1,) * len(self.box)
        return self.element * int(
            np.prod([-(-box // step) for box, step in zip(self.box, steps, strict=True)])
        )

    def _check_numbers(self) -> None:
        for dim in self.dims:
            _within("a dimension", dim, 1, 1 << 32)
        for stride in self.strides:
            _within("a stride", stride, 0, (1 << 40) - 1)
            if stride % _ALIGN:
                raise ConfigError(f"tensor map: stride {stride} B is not a multiple of {_ALIGN} B")
        for box in self.box:
            _within("a box's extent", box, 1, _MOST_BOX)
        for step in self.steps:
            _within("an element stride", step, 1, _MOST_STEP)
        if self.swizzle not in SWIZZLES:
            raise ConfigError(f"tensor map: swizzle {self.swizzle} B; 0, 32, 64 and 128 exist")
        if self.interleave:
            raise ConfigError("tensor map: interleaved layouts are not modelled")
        if self.fill not in ("zeros", "nan"):
            raise ConfigError(f"tensor map: fill {self.fill!r}; it is zeros or nan")
        if self.fill == "nan" and TYPES[self.type] not in _REAL:
            raise ConfigError(f"tensor map: {self.type} has no NaN to fill with")

    def _check_box(self) -> None:
        inner = self.box[0] * self.element
        if inner % _ALIGN:
            raise ConfigError(
                f"tensor map: a box's row of {inner} B is not a multiple of {_ALIGN} B"
            )
        if self.swizzle and inner > self.swizzle:
            raise ConfigError(
                f"tensor map: a box's row of {inner} B is wider than the swizzle of "
                f"{self.swizzle} B"
            )

    def words(self, base: int) -> np.ndarray:
        """The map over a tensor at a global address, as the engine's table has it: 32 int64."""
        if base % _ALIGN:
            raise ConfigError(f"tensor map: address {base:#x} is not a multiple of {_ALIGN} B")
        found = np.zeros(a.M_SIZE, np.int64)
        rank = len(self.dims)
        found[a.M_BASE], found[a.M_RANK] = base, rank
        found[a.M_TYPE], found[a.M_ELEMENT] = TYPES[self.type], self.element
        found[a.M_SWIZZLE], found[a.M_FILL] = SWIZZLES[self.swizzle], int(self.fill == "nan")
        found[a.M_CHECKED] = 1
        for start, values in (
            (a.M_DIMS, self.dims),
            (a.M_STRIDES, (self.element, *self.strides)),
            (a.M_BOX, self.box),
            (a.M_STEPS, self.steps or (1,) * rank),
        ):
            found[start : start + 5] = 1
            found[start : start + rank] = values
        return found


def _within(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(f"tensor map: {what} of {value}; it is {low} to {high}")
