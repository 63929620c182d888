"""Buffers of a launch file: arrays from files or fills, guard zones, and files after the run."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from mlagen.disk import write_file
from mlagen.emulator.buffer import Access, Buffer
from mlagen.emulator.launching.launch_file import BufferSpec
from mlagen.emulator.launching.scalars import DTYPES, number, poison
from mlagen.errors import ConfigError, MissingError


@dataclass(frozen=True, eq=False)
class Prepared:
    """A buffer in memory: `array` is the inner view of `memory`, between the guard zones."""

    name: str
    spec: BufferSpec
    memory: np.ndarray
    array: np.ndarray
    buffer: Buffer

    @property
    def guard(self) -> int:
        return self.spec.guard

    def damage(self) -> list[tuple[str, int, int]]:
        """(side, first byte from the buffer's near edge, how many) of guard zones written to."""
        if not self.guard:
            return []
        raw = self.memory
        fresh = poison(np.dtype(np.uint64), self.guard // 8).view(np.uint8)
        found = []
        for side, zone in (("before", raw[: self.guard]), ("after", raw[-self.guard :])):
            bad = np.flatnonzero(zone != fresh)
            if bad.size:
                first = self.guard - int(bad[-1]) if side == "before" else int(bad[0])
                found.append((side, first, int(bad.size)))
        return found


@dataclass(frozen=True)
class OutputReport:
    """What an output holds after a run. `minimum`, `maximum`: of finite elements, None without.

    `unwritten`: elements that still hold poison, bit by bit. `path`: the file, "" when not written.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nans: int
    infs: int
    minimum: float | None
    maximum: float | None
    unwritten: int
    path: str


def prepare_buffer(
    name: str, spec: BufferSpec, folder: Path, *, allow_outside: bool, room: int
) -> Prepared:
    """Make the array that a buffer's table asks for, of at most `room` bytes with its guards.

    MissingError for files, ConfigError else. See `inside` for `allow_outside`.
    """
    place = f"buffers.{name}"
    if _claimed(spec) + 2 * spec.guard > room:
        raise ConfigError(
            f"{place} asks for {_claimed(spec) + 2 * spec.guard} bytes; {room} are left of what "
            "all buffers of a launch may have",
            hint="--max-memory, or max_memory of run_launch, allows more",
        )
    try:
        content = _content(place, spec, folder, allow_outside, room)
        inner = content.nbytes
        # The address of the first element keeps an alignment of 16: guards are multiples of it.
        memory = np.empty(inner + 2 * spec.guard, np.uint8)
    except (MemoryError, OverflowError):
        raise ConfigError(f"{place} is larger than this machine's memory") from None
    if spec.guard:
        zone = poison(np.dtype(np.uint64), spec.guard // 8).view(np.uint8)
        memory[: spec.guard] = zone
        memory[spec.guard + inner :] = zone
    raw = memory[spec.guard : spec.guard + inner]
    raw[:] = content.reshape(-1).view(np.uint8)
    array = raw.view(content.dtype).reshape(content.shape)
    access = spec.access or _default_access(spec)
    address = None
    if spec.address is not None:
        address = spec.address - spec.guard
    held = memory if spec.guard else array
    return Prepared(name, spec, memory, array, Buffer(name, held, access, address, spec.late))


def inside(place: str, folder: Path, path: str, allow_outside: bool) -> Path:
    """`path` relative to `folder`. ConfigError where it leads out of it, by links too.

    A launch file may come from anybody: it reads and writes in its own folder only, unless its
    user allows more.
    """
    whole = folder / path
    try:
        leaves = not whole.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError) as why:
        raise ConfigError(f"{place}: {path!r} is no path: {why}") from None
    if leaves and not allow_outside:
        raise ConfigError(
            f"{place}: {path!r} lies outside of {folder}",
            hint="--allow-outside, or allow_outside of run_launch, lets a launch file do that",
        )
    return whole


def _claimed(spec: BufferSpec) -> int:
    """Bytes of a buffer that is made, 0 for a file's without a shape."""
    if spec.bytes is not None:
        return spec.bytes
    return math.prod(spec.shape or ()) * DTYPES[spec.dtype or "u8"].itemsize if spec.shape else 0


def _default_access(spec: BufferSpec) -> Access:
    if spec.output is None and spec.file is not None:
        return "read"
    return "readwrite"


def _content(
    place: str, spec: BufferSpec, folder: Path, allow_outside: bool, room: int
) -> np.ndarray:
    if spec.file is not None:
        path = inside(place, folder, spec.file, allow_outside)
        _check_file(place, path, room)
        return _from_file(place, spec, path)
    dtype = DTYPES[spec.dtype or "u8"]
    shape = tuple(spec.shape or ())
    if spec.bytes is not None:
        if spec.bytes % dtype.itemsize:
            raise ConfigError(
                f"{place}: {spec.bytes} bytes are no whole number of {spec.dtype} "
                f"({dtype.itemsize} bytes each)"
            )
        shape = (spec.bytes // dtype.itemsize,)
    count = math.prod(shape)
    if isinstance(spec.fill, str):
        return poison(dtype, count).reshape(shape)
    value = number(f"{place}: fill", dtype, spec.dtype or "u8", spec.fill)
    return np.full(shape, value, dtype)


def _check_file(place: str, path: Path, room: int) -> None:
    """A regular file of at most `room` bytes: a pipe would be waited for."""
    try:
        if not path.is_file():
            raise MissingError(f"{place}: {path} cannot be read: there is no such file")
        size = path.stat().st_size
        claimed = npy_bytes(path) if path.suffix == ".npy" else size
    except OSError as why:
        raise MissingError(f"{place}: {path} cannot be read: {why.strerror or why}") from None
    except (ValueError, EOFError, RecursionError, MemoryError) as why:
        raise ConfigError(f"{place}: {path} is no array of numbers: {why}") from None
    if max(size, claimed) > room:
        raise ConfigError(
            f"{place}: {path.name} holds {max(size, claimed)} bytes; {room} are left of what all "
            "buffers of a launch may have",
            hint="--max-memory, or max_memory of run_launch, allows more",
        )


def npy_bytes(path: Path) -> int:
    """Bytes of the array that the header of a .npy file declares."""
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise ValueError(f"version {version} of the format is not read")
        shape, _, dtype = read(file)
    return math.prod(shape) * int(dtype.itemsize)


def _from_file(place: str, spec: BufferSpec, path: Path) -> np.ndarray:
    try:
        if path.suffix == ".npy":
            array = np.load(path, allow_pickle=False)
        elif path.suffix == ".bin":
            if spec.dtype is None:
                raise ConfigError(f"{place}: {path.name} needs a dtype", hint=", ".join(DTYPES))
            raw = np.fromfile(path, np.uint8)
            array = _reinterpret(place, path, raw, DTYPES[spec.dtype], spec.dtype)
        else:
            raise ConfigError(f"{place}: {path.name} is neither .npy nor .bin")
    except OSError as why:
        raise MissingError(f"{place}: {path} cannot be read: {why.strerror or why}") from None
    except (ValueError, EOFError) as why:
        raise ConfigError(f"{place}: {path} is no array of numbers: {why}") from None
    array = np.ascontiguousarray(array)
    if spec.dtype is not None and array.dtype != DTYPES[spec.dtype]:
        if array.dtype.itemsize != DTYPES[spec.dtype].itemsize:
            raise ConfigError(
                f"{place}: {path.name} holds {array.dtype} ({array.dtype.itemsize} bytes an "
                f"element), which cannot be taken as {spec.dtype}",
                hint="dtypes of that size: " + ", ".join(_of_size(array.dtype.itemsize)),
            )
        array = array.view(DTYPES[spec.dtype])
    if array.dtype.kind not in "iuf" and array.dtype not in DTYPES.values():
        raise ConfigError(
            f"{place}: {path.name} holds {array.dtype}",
            hint="dtype says what its elements are: " + ", ".join(_of_size(array.dtype.itemsize)),
        )
    if spec.shape is not None:
        if math.prod(spec.shape) != array.size:
            raise ConfigError(
                f"{place}: {path.name} holds {array.size} elements (shape {array.shape}), which "
                f"do not fill the shape {tuple(spec.shape)}"
            )
        array = array.reshape(spec.shape)
    return array


def _reinterpret(place: str, path: Path, raw: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
    if raw.size % dtype.itemsize:
        raise ConfigError(
            f"{place}: {path.name} has {raw.size} bytes, no whole number of {name} "
            f"({dtype.itemsize} bytes each)"
        )
    return raw.view(dtype)


def _of_size(size: int) -> list[str]:
    return [name for name, dtype in DTYPES.items() if dtype.itemsize == size] or ["none"]


def report_output(prepared: Prepared, path: str) -> OutputReport:
    """Count what an output holds."""
    array = prepared.array
    integer = array.dtype.kind in "iu"
    nans = 0 if integer else int(np.isnan(array).sum())
    infs = 0 if integer else int(np.isinf(array).sum())
    finite = array.reshape(-1) if integer else array[np.isfinite(array)]
    wide = finite if integer else finite.astype(np.float64)
    fresh = poison(array.dtype, 1).view(np.uint8)
    same = array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize) == fresh
    name = next((n for n, d in DTYPES.items() if d == array.dtype), str(array.dtype))
    return OutputReport(
        name=prepared.name,
        dtype=name,
        shape=array.shape,
        nans=nans,
        infs=infs,
        minimum=float(wide.min()) if wide.size else None,
        maximum=float(wide.max()) if wide.size else None,
        unwritten=int(same.all(axis=1).sum()) if array.size else 0,
        path=path,
    )


def save(array: np.ndarray, path: Path) -> None:
    """Write a .npy file whole or not at all; formats that numpy lacks as u16 and u8 bits.

    WriteError when the file cannot be written.
    """
    data = io.BytesIO()
    np.save(data, _plain(array))
    write_file(path, data.getbuffer())


def npy_header(array: np.ndarray) -> bytes:
    """What a .npy file of such an array begins with."""
    data = io.BytesIO()
    fields = np.lib.format.header_data_from_array_1_0(_plain(array))
    np.lib.format.write_array_header_1_0(data, fields)
    return data.getvalue()


def _plain(array: np.ndarray) -> np.ndarray:
    if array.dtype == ml_dtypes.bfloat16:
        return array.view(np.uint16)
    if array.dtype in (DTYPES["e4m3"], DTYPES["e5m2"]):
        return array.view(np.uint8)
    return array
