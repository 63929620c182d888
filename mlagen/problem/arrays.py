"""What every array of a call is checked for: its kind, element type and shape."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.problem.formats import ELEMENT_TYPES

INT32 = np.dtype(np.int32)
_NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux: only what is touched counts as memory


def check_type(name: str, array: Any, dtype: np.dtype[Any], called: str, spelling: str) -> None:
    """Raises ConfigError unless `array` is an ndarray of `dtype`, which the problem calls `called`
    and Python `spelling`."""
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"{name} is a {type(array).__name__}, not a numpy array")
    if isinstance(array, np.ma.MaskedArray):
        raise ConfigError(
            f"{name} is a masked array, whose mask no kernel sees", hint=f"{name}.filled(..)"
        )
    if array.dtype != dtype:
        # Formats that numpy lacks travel as their bits.
        bits = dtype.kind == "V" and array.dtype == np.dtype(f"u{dtype.itemsize}")
        how = "view" if bits else "astype"
        raise ConfigError(
            f"{name} has dtype {array.dtype}, the kernel wants {called}",
            hint=f"{name}.{how}({spelling})" + (", if these are its bits" if bits else ""),
        )


def check_int32(name: str, array: Any, shape: tuple[int | None, ...], *, least: int = 0) -> None:
    """Raises ConfigError unless `array` is an int32 ndarray of this shape (see `check_shape`)."""
    check_type(name, array, INT32, "int32", "np.int32")
    check_shape(name, array.shape, shape, least=least)


def check_pages(
    names: tuple[str, str, str],
    table: npt.NDArray[Any],
    lengths: npt.NDArray[Any],
    *,
    page_size: int,
    pool: int,
    of: str,
) -> None:
    """Raises ConfigError for a length that is negative or that its table row cannot hold, and for a
    used page that the pool of `pool` pages does not have.

    Entries past a sequence's pages are not looked at. `names`: of the lengths, of the table, and
    what the table is called; `of`: what pages hold.
    """
    of_lengths, of_table, called = names
    max_pages = table.shape[1]
    most = max_pages * page_size
    wrong = np.flatnonzero((lengths < 0) | (lengths > most))
    if wrong.size:
        first = int(wrong[0])
        raise ConfigError(
            f"{of_lengths}[{first}]={lengths[first]} is not in 0 .. {most}: {called} has "
            f"{max_pages} pages of {page_size} {of} a sequence"
        )
    taken = -(-lengths.astype(np.int64) // page_size)
    used = np.arange(max_pages) < taken[:, None]
    bad = np.argwhere(used & ((table < 0) | (table >= pool)))
    if bad.size:
        sequence, page = (int(index) for index in bad[0])
        raise ConfigError(
            f"{of_table}[{sequence}, {page}]={table[sequence, page]} is not in 0 .. {pool - 1}, "
            f"the pool's pages; sequence {sequence} has {lengths[sequence]} {of} in "
            f"{taken[sequence]} pages"
        )


def check_shape(
    name: str, given: tuple[int, ...], shape: tuple[int | None, ...], *, least: int = 1
) -> None:
    """Raises ConfigError unless `given` is `shape` (None: any extent of at least `least`)."""
    wanted = ", ".join("*" if extent is None else str(extent) for extent in shape)
    fits = len(given) == len(shape) and all(
        extent == have or (extent is None and have >= least)
        for extent, have in zip(shape, given, strict=True)
    )
    if not fits:
        raise ConfigError(
            f"{name} has shape {given}, the kernel wants ({wanted})",
            hint=f"*: any extent of at least {least}" if least and None in shape else None,
        )


def check_offsets(name: str, offsets: npt.NDArray[Any], rows: int, of: str) -> None:
    """Raises ConfigError unless `offsets` lead from 0 to `rows`, the rows of `of`, without falling.

    One entry more than there are sequences, and at least one sequence.
    """
    if len(offsets) < 2:
        raise ConfigError(
            f"{name} has {len(offsets)} entries: one a sequence and one more are needed",
            hint="at least one sequence, which may be empty",
        )
    if offsets[0] != 0:
        raise ConfigError(f"{name}[0]={offsets[0]}: offsets start at 0")
    falls = np.flatnonzero(np.diff(offsets.astype(np.int64)) < 0)
    if falls.size:
        at = int(falls[0])
        raise ConfigError(
            f"{name}[{at + 1}]={offsets[at + 1]} is below {name}[{at}]={offsets[at]}: offsets must "
            f"not fall",
            hint="an empty sequence has equal offsets",
        )
    if offsets[-1] != rows:
        raise ConfigError(
            f"{name}[{len(offsets) - 1}]={offsets[-1]}: the last offset is the number of rows of "
            f"{of}, {rows}"
        )


def check_tensor(
    name: str, array: Any, shape: tuple[int | None, ...], dtype: str, *, rows: int | None = None
) -> None:
    """Raises ConfigError unless `array` is an ndarray of this shape (None: any, at least 1).

    `rows`: the axis that may be 0 too.
    """
    check_type(name, array, ELEMENT_TYPES[dtype], dtype, _spelling(dtype))
    check_shape(name, array.shape, shape, least=0)
    wanted = ", ".join("*" if extent is None else str(extent) for extent in shape)
    if any(extent == 0 and axis != rows for axis, extent in enumerate(array.shape)):
        raise ConfigError(
            f"{name} has shape {array.shape}: every extent must be at least 1",
            hint=f"the kernel wants ({wanted})",
        )


def check_contiguous(name: str, array: npt.NDArray[Any]) -> None:
    """Raises ConfigError unless `array` is C-contiguous."""
    if not array.flags.c_contiguous:
        raise ConfigError(
            f"{name} is not C-contiguous (strides {array.strides})",
            hint=f"np.ascontiguousarray({name}) makes a copy that is",
        )


def check_output(
    name: str, given: Any, shape: tuple[int, ...], dtype: str, others: Mapping[str, Any]
) -> None:
    """Raises ConfigError for an output that is no C-contiguous array of this shape and type, that
    is read-only, or that overlaps one of the `others`, contiguous tensors of the call by their
    arguments' names."""
    check_tensor(name, given, shape, dtype, rows=shape.index(0) if 0 in shape else None)
    check_contiguous(name, given)
    if not given.flags.writeable:
        raise ConfigError(f"{name} is read-only")
    for other, tensor in others.items():
        if np.may_share_memory(given, tensor):  # exact: both are contiguous
            called = {"o": "out", "start_positions": "start_pos"}.get(other, other)
            raise ConfigError(f"{name} overlaps {called} in memory", hint="pass another array")


def _spelling(dtype: str) -> str:
    name = ELEMENT_TYPES[dtype].name
    return f"np.{name}" if dtype == "fp32" else f"ml_dtypes.{name}"


def untouched(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """Zeros that take no memory until somebody looks at them, of more bytes than a machine may
    have. They are no part of what RLIMIT_DATA bounds: whoever makes them fills a part.
    MemoryError for more bytes than addresses.

    They end inside of a page, so that the emulator need not copy them: it reads a little further.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if not size:
        return np.zeros(shape, dtype)
    room = mmap.PAGESIZE // 4
    first = 0 if 0 < size % mmap.PAGESIZE <= mmap.PAGESIZE - room else room
    whole = _pages(size + mmap.PAGESIZE)
    return whole[first : first + size].view(dtype).reshape(shape)


def _pages(size: int) -> npt.NDArray[np.uint8]:
    """Pages of zeros that nobody has touched."""
    try:
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _NO_RESERVE
        return np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"{size} bytes: {error}") from None


def unwritten(shape: tuple[int, ...], dtype: Any, *, compared: bool = True) -> npt.NDArray[Any]:
    """An output before a call: NaN, so that what nobody writes shows. Where it is not `compared`,
    `untouched`."""
    return np.full(shape, np.nan, dtype) if compared else untouched(shape, dtype)
