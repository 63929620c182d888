"""Launches of AITER's prefill kernels, by the names of their objects: for the validation.

The argument blocks are AITER's (csrc/cpp_itfs/mha_fwd.cu, csrc/py_itfs_cu/asm_mla.cu). A launch
here is small: cycles of a workgroup grow by the same amount with every tile of keys, so two short
sequences tell those of a long one (`workgroup_cycles`). The objects are the user's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlagen.binary import CodeObject, read_code_object
from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
from mlagen.emulator.streams import ExecutedStream
from mlagen.errors import MissingError

_FP8_ONE, _BF16_ONE = 0x38, 0x3F80


@dataclass(frozen=True, slots=True)
class Prefill:
    """A prefill object. `tile`: rows of queries and of keys; `depth`: of Q·K and of V."""

    name: str
    path: str  # below the folder
    depth: tuple[int, int]
    tile: tuple[int, int]
    fp8: bool
    causal: bool
    threads: int = 512

    @property
    def tiles_of_queries(self) -> int:
        """Query tiles that a workgroup does: with a mask, one and its mirror image."""
        return 2 if self.causal and not self.is_mla else 1

    @property
    def is_mla(self) -> bool:
        return self.path.startswith("mla/")


def _fmha(shape: str, depth: tuple[int, int], tile: tuple[int, int]) -> list[Prefill]:
    threads = 256 if depth[0] == 192 else 512
    return [
        Prefill(f"{shape}{mask}", f"fmha_v3_fwd/fwd_{shape}{mask}.co", depth, tile, "fp8" in shape,
                bool(mask), threads)
        for mask in ("", "_causal")
    ]  # fmt: skip


KERNELS: dict[str, Prefill] = {
    kernel.name: kernel
    for kernel in (
        *_fmha("hd128_bf16", (128, 128), (256, 64)),
        *_fmha("hd192_hd128_bf16", (192, 128), (128, 128)),
        *_fmha("hd128_fp8", (128, 128), (256, 128)),
        *(
            Prefill(f"mla_pfl{mask}", f"mla/mla_pfl_qh192_vh128_m32x8_n128x1_causal{number}.co",
                    (192, 128), (256, 128), True, bool(number))
            for number, mask in enumerate(("", "_causal"))
        ),
    )
}  # fmt: skip


def load(file: Path) -> CodeObject:
    """The object. MissingError where it is not there."""
    try:
        return read_code_object(file)
    except MissingError as error:
        hint = "a folder with AITER's hsa/gfx950: fmha_v3_fwd/ and mla/"
        raise MissingError(error.message, hint=hint) from None


def record(code: CodeObject, kernel: Prefill, length: int) -> ExecutedStream:
    """What the first workgroup executes on a sequence of `length` queries and keys, one head."""
    make = _mla_arguments if kernel.is_mla else _fmha_arguments
    arguments, grid = make(kernel, length)
    result = emulate(
        code,
        Launch(grid=grid, block=(kernel.threads, 1, 1), arguments=arguments),
        Settings(sanitize=False, workgroups=[(0, 0, 0)], threads=1, record=True),
    )
    return result.streams[0]


def rows_of(rows: int, depth: int, fp8: bool, seed: int) -> np.ndarray:
    """Values as stored: of magnitude one, random signs and a few fraction bits, so that no
    arithmetic meets NaN or Inf."""
    random = np.random.default_rng(seed)
    if fp8:
        return (_FP8_ONE - 8 * random.integers(0, 3, (rows, depth))).astype(np.uint8) | (
            random.integers(0, 2, (rows, depth), dtype=np.uint8) << 7
        )
    return (_BF16_ONE - random.integers(0, 256, (rows, depth))).astype(np.uint16) | (
        random.integers(0, 2, (rows, depth), dtype=np.uint16) << 15
    )


def _fmha_arguments(kernel: Prefill, length: int) -> tuple[list[Argument], tuple[int, int, int]]:
    depth, v_depth = kernel.depth
    size = 1 if kernel.fp8 else 2
    buffers = {
        0x00: Buffer("O", np.zeros((length, v_depth), np.uint16), "write"),
        0x10: Buffer("Q", rows_of(length, depth, kernel.fp8, 1), "read"),
        0x20: Buffer("K", rows_of(length, depth, kernel.fp8, 2), "read"),
        0x30: Buffer("V", rows_of(length, v_depth, kernel.fp8, 3), "read"),
        0x40: Buffer("LSE", np.zeros(length, np.float32), "write"),
    }
    pitch, v_pitch, o_pitch = depth * size, v_depth * size, v_depth * 2
    words = {
        0x60: length, 0x70: pitch, 0x80: kernel.tile[0] * pitch, 0x90: pitch,
        0xA0: length * pitch, 0xB0: 1, 0xC0: pitch, 0xD0: pitch, 0xE0: length * pitch, 0xF0: 0,
        0x100: 0, 0x110: length, 0x120: depth, 0x130: v_depth, 0x140: 1, 0x150: v_pitch,
        0x160: v_pitch, 0x170: length * v_pitch, 0x180: o_pitch, 0x190: o_pitch,
        0x1A0: length * o_pitch, 0x1D0: length * 4,
    }  # fmt: skip
    if kernel.fp8:
        for offset, name in ((0x200, "q"), (0x210, "k"), (0x220, "v")):
            buffers[offset] = Buffer(f"{name} descale", np.ones(1, np.float32), "read")
    arguments = [Argument(0x50, np.float32(depth**-0.5))]
    arguments += [Argument(offset, np.uint32(value)) for offset, value in words.items()]
    arguments += [Argument(offset, buffer) for offset, buffer in buffers.items()]
    tiles = -(-length // kernel.tile[0])
    return arguments, (-(-tiles // kernel.tiles_of_queries), 1, 1)


def _mla_arguments(kernel: Prefill, length: int) -> tuple[list[Argument], tuple[int, int, int]]:
    """One work item: the last tile of queries, whole or under its mask."""
    depth, v_depth = kernel.depth
    first = length - kernel.tile[0]
    info = np.array([[0, -1, first, length, 0, length, 0, 1 << 16]], np.int32)
    one = np.ones(1, np.float32)
    whole = np.array([0, length], np.int32)
    arrays = [
        ("Q", rows_of(length, depth, True, 1)), ("K", rows_of(length, depth, True, 2)),
        ("V", rows_of(length, v_depth, True, 3)), ("O", np.zeros((length, v_depth), np.uint16)),
        ("partial O", one.copy()), ("partial LSE", one.copy()),
        ("work_indptr", np.array([0, 1], np.int32)), ("work_info", info), ("qo_indptr", whole),
        ("kv_indptr", whole.copy()), ("pages", np.arange(length, dtype=np.int32)),
        ("q scale", one.copy()), ("k scale", one.copy()), ("v scale", one.copy()),
    ]  # fmt: skip
    outputs = ("O", "partial O", "partial LSE")
    arguments = [
        Argument(16 * i, Buffer(name, array, "write" if name in outputs else "read"))
        for i, (name, array) in enumerate(arrays)
    ]
    arguments.append(Argument(0xE0, np.float32(depth**-0.5)))
    counts = (length, 1, length, length)
    arguments += [Argument(0xF0 + 16 * i, np.uint32(count)) for i, count in enumerate(counts)]
    return arguments, (1, 1, 1)
