"""Tensor maps in the words of cuTensorMapEncodeTiled, held to its rules."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlagen.emulator.buffer import Buffer
from mlagen.errors import ConfigError

BYTES = 128  # of a tensor map, wherever it lies
ALIGN = 64
DTYPES = {
    "u8": 1, "u16": 2, "u32": 4, "i32": 4, "u64": 8, "i64": 8, "f16": 2, "f32": 4, "f64": 8,
    "bf16": 2, "f32_ftz": 4, "tf32": 4, "tf32_ftz": 4,
}  # fmt: skip
_FLOATS = ("f16", "f32", "f64", "bf16", "f32_ftz", "tf32", "tf32_ftz")
INTERLEAVES = ("none", "16B", "32B")
SWIZZLES = {"none": 0, "32B": 32, "64B": 64, "128B": 128}
L2 = ("none", "64B", "128B", "256B")
FILLS = ("zeros", "nan")
_DIM_MAX, _STRIDE_END, _BOX_MAX, _STEP_MAX, _STEP = 1 << 32, 1 << 40, 256, 8, 16


@dataclass(frozen=True, eq=False)
class TensorMap:
    """A buffer seen as a tensor of one to five dimensions, the innermost first.

    `dims`: elements; `strides`: bytes from one to the next in all dimensions but the innermost;
    `box`: elements that a copy moves; `element_strides`: steps in the tensor (default 1). What lies
    outside the tensor arrives as `fill`: "zeros" or "nan". `buffer_offset`: bytes from the buffer's
    begin to the tensor's. 8-bit floats are "u8".
    """

    buffer: Buffer
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    interleave: str = "none"
    swizzle: str = "none"
    l2: str = "none"
    fill: str = "zeros"
    buffer_offset: int = 0

    @property
    def element_bytes(self) -> int:
        return DTYPES[self.dtype]

    @property
    def steps(self) -> tuple[int, ...]:
        """Element strides, one a dimension."""
        return tuple(self.element_strides) or (1,) * len(self.dims)

    @property
    def nbytes(self) -> int:
        """From the tensor's first byte to past its last."""
        last = sum((n - 1) * step for n, step in zip(self.dims[1:], self.strides, strict=True))
        return last + self.dims[0] * self.element_bytes

    def check(self, what: str, address: int) -> None:
        """ConfigError for what cuTensorMapEncodeTiled refuses at that address of the tensor, and
        for a tensor that its buffer does not hold."""
        self._check_words(what)
        rank = len(self.dims)
        if not 1 <= rank <= 5 or (self.interleave != "none" and rank < 3):
            raise ConfigError(
                f"{what} has {rank} dimensions", hint="1 to 5; 3 to 5 with an interleave"
            )
        for name, given, wanted in (
            ("strides", self.strides, rank - 1),
            ("box", self.box, rank),
            ("element_strides", self.steps, rank),
        ):
            if len(given) != wanted:
                raise ConfigError(
                    f"{what}: {len(given)} {name} for {rank} dimensions; {wanted} belong to them"
                )
        self._check_numbers(what, address)
        end = self.buffer_offset + self.nbytes
        if self.buffer_offset < 0 or end > self.buffer.array.nbytes:
            raise ConfigError(
                f"{what} reaches over bytes {self.buffer_offset}..{end - 1} of buffer "
                f"{self.buffer.name}, which has {self.buffer.array.nbytes}"
            )

    def _check_words(self, what: str) -> None:
        known = {
            "dtype": tuple(DTYPES), "interleave": INTERLEAVES, "swizzle": tuple(SWIZZLES),
            "l2": L2, "fill": FILLS,
        }  # fmt: skip
        for name, words in known.items():
            if getattr(self, name) not in words:
                raise ConfigError(
                    f"{what}: unknown {name} {getattr(self, name)!r}",
                    hint="one of: " + ", ".join(words),
                )
        if self.fill == "nan" and self.dtype not in _FLOATS:
            raise ConfigError(f'{what}: fill "nan" of {self.dtype}', hint='"zeros"')

    def _check_numbers(self, what: str, address: int) -> None:
        if not all(1 <= n <= _DIM_MAX for n in self.dims):
            raise ConfigError(f"{what}: dims {list(self.dims)}; each is from 1 to 2^32")
        coarse = 32 if self.interleave == "32B" else _STEP
        if address % coarse:
            raise ConfigError(
                f"{what} begins at address {address:#x}, no multiple of {coarse} bytes",
                hint="buffer_offset, or the buffer's address",
            )
        for n, stride in enumerate(self.strides):
            if stride % coarse or not 0 < stride < _STRIDE_END:
                raise ConfigError(
                    f"{what}: the stride of dimension {n + 1} is {stride} bytes; it is a multiple "
                    f"of {coarse} below 2^40"
                )
        if not all(1 <= n <= _BOX_MAX for n in self.box):
            raise ConfigError(f"{what}: box {list(self.box)}; each is from 1 to {_BOX_MAX}")
        if not all(1 <= n <= _STEP_MAX for n in self.steps):
            raise ConfigError(
                f"{what}: element_strides {list(self.steps)}; each is from 1 to {_STEP_MAX}"
            )
        row = self.box[0] * self.element_bytes
        span = SWIZZLES[self.swizzle]
        if self.interleave == "none" and (row % _STEP or (span and row > span)):
            most = f", at most {span} with swizzle {self.swizzle}" if span else ""
            raise ConfigError(
                f"{what}: a box row has {row} bytes; it is a multiple of {_STEP}{most}"
            )
        if self.interleave == "32B" and self.swizzle != "32B":
            raise ConfigError(f'{what}: interleave "32B" goes with swizzle "32B"')

    @property
    def box_bytes(self) -> int:
        """That a copy of a whole box brings."""
        # The innermost step is ignored without an interleave.
        steps = (1 if self.interleave == "none" else self.steps[0], *self.steps[1:])
        counts = (-(-n // step) for n, step in zip(self.box, steps, strict=True))
        return math.prod(counts) * self.element_bytes
