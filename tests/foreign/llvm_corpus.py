"""Kernels of our own that LLVM compiles for gfx950: code of a hand that knows nothing of mlagen.

The sources lie in `llvm/`; every kernel has a `Case`: how it is launched, and what numpy says its
buffers hold afterwards. Inputs are chosen so that results are exact wherever that can be.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gfx950_assembler import link

from mlagen.binary import CodeObject, load_code_object
from mlagen.emulator import Argument, Buffer, EmulationResult, Launch, Settings, emulate

SOURCES = Path(__file__).parent / "llvm"
LEVELS = {
    "-O1": ("-O1",),
    "-O2": ("-O2",),
    "-O3": ("-O3",),
    "-Os": ("-Os",),
    "preloaded": ("-O2", "-mllvm", "-amdgpu-kernarg-preload-count=8"),  # arguments in SGPRs
}
FILES = ("elementwise", "control", "shared", "wave", "matrix", "dma")


@functools.cache
def build(name: str, level: str) -> bytes:
    """The linked code object of one source file."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        for file in (SOURCES / f"{name}.c", SOURCES / "corpus.h"):
            (directory / file.name).write_text(file.read_text())
        return link(directory, ["-nogpulib", "-std=gnu11", *LEVELS[level]], f"{name}.c")


def code_object(name: str, level: str) -> CodeObject:
    return load_code_object(build(name, level))


@dataclass(frozen=True)
class Expected:
    """What a buffer holds afterwards; every element is compared. `relative`: 0 means exactly."""

    values: np.ndarray
    relative: float = 0.0


@dataclass(frozen=True)
class Case:
    """One launch. Arguments in the kernel's order: arrays are buffers, numpy scalars values."""

    arguments: tuple[np.ndarray | np.generic, ...]
    expected: dict[int, Expected]  # by position; buffers that are not named are read only
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (64, 1, 1)


Maker = Callable[[np.random.Generator], Case]


def blank(shape: int | tuple[int, ...], dtype: object) -> np.ndarray:
    """An output: no kernel leaves these bytes by chance."""
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[:] = 0xA5
    return array


def passed(arguments: Sequence[np.ndarray | np.generic], writes: set[int]) -> list[Argument]:
    """Arguments at their natural alignment, in order."""
    result, offset = [], 0
    for position, value in enumerate(arguments):
        size = 8 if isinstance(value, np.ndarray) else value.nbytes
        offset = -(-offset // size) * size
        if isinstance(value, np.ndarray):
            access = "readwrite" if position in writes else "read"
            result.append(Argument(offset, Buffer(f"a{position}", value, access)))
        else:
            result.append(Argument(offset, value))
        offset += size
    return result


def launch(code: CodeObject, kernel: str, case: Case, mode: str, seed: int = 0) -> EmulationResult:
    """Run a case; its output arrays hold the results."""
    return emulate(
        code,
        Launch(
            kernel=kernel,
            grid=case.grid,
            block=case.block,
            arguments=passed(case.arguments, set(case.expected)),
        ),
        Settings(mode=mode, seed=seed, threads=1, max_instructions=2_000_000),
    )


def mismatch(case: Case) -> str:
    """What is wrong with the outputs, "" for nothing."""
    for position, expected in case.expected.items():
        found, wanted = case.arguments[position], expected.values
        assert isinstance(found, np.ndarray) and found.shape == wanted.shape
        if expected.relative == 0:
            bits = f"u{found.dtype.itemsize}"
            wrong = found.view(bits) != np.ascontiguousarray(wanted, found.dtype).view(bits)
        else:
            difference = np.abs(found.astype(np.float64) - wanted)
            wrong = ~(difference <= expected.relative * np.abs(wanted))  # a NaN is wrong
        if wrong.any():
            first = np.unravel_index(int(wrong.argmax()), wrong.shape)
            return (
                f"argument {position}: {int(wrong.sum())} of {wrong.size} elements are wrong, "
                f"at {first}: {found[first]!r}, not {wanted[first]!r}"
            )
    return ""
