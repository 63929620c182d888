"""How the tensors of a sparse call lie in memory, and the numbers that kernels take of it."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.latent.call_tensors import TYPE_NAMES, check, on_host
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.paging import Paging, check_strides, extent
from mlagen.families.mla_sparse.rows import RowFormat
from mlagen.launch.device_tensor import device_tensor, is_torch, row_major
from mlagen.problem.arrays import check_shape
from mlagen.problem.formats import ELEMENT_TYPES

LARGEST_STRIDE = 2**32 - 1
BITS = {"bf16": "int16", "fp8_e4m3": "uint8"}  # types that numpy knows the bits of


@dataclass(frozen=True, slots=True, eq=False)
class LaidPool:
    """A cache of a call. `flat`: its memory as a tensor without gaps; `shape` [pages, page_size];
    `strides` in elements, of pages, rows and elements."""

    name: str
    row: RowFormat
    d_qk: int
    flat: Any
    shape: tuple[int, int]
    strides: tuple[int, int, int]
    paging: Paging

    @staticmethod
    def of(name: str, row: RowFormat, d_qk: int, cache: Any) -> LaidPool:
        """Of `cache` [pages, page_size, columns], [pages, page_size, 1, columns], or [rows,
        columns]. ConfigError for another shape or type, and for strides that no kernel takes."""
        pages, page_size = _shape(name, row.columns(d_qk), row.element, cache)
        strides = strides_of(name, cache)
        if len(strides) == 2:
            strides = (strides[0] * page_size, *strides)
        own = strides[0], strides[1], strides[-1]
        size = ELEMENT_TYPES[row.element].itemsize
        in_bytes = own[0] * size, own[1] * size, own[2] * size
        shape = (pages, page_size)
        check_strides(name, row, d_qk, shape, in_bytes)
        paging = Paging.of(row, d_qk, shape, in_bytes[:2])
        count = extent(row, d_qk, shape, in_bytes[:2]) // size
        return LaidPool(name, row, d_qk, _flat(name, cache, count), shape, own, paging)

    def on_host(self) -> npt.NDArray[Any]:
        """A copy in the host's memory, [pages, page_size, columns], that lies as this does."""
        memory = self.flat
        if not isinstance(memory, np.ndarray):
            memory = bits_on_host(self.name, memory, self.row.element)
        size = memory.itemsize
        return np.lib.stride_tricks.as_strided(
            memory.reshape(-1),
            (*self.shape, self.row.columns(self.d_qk)),
            tuple(stride * size for stride in self.strides),
        )


def _shape(name: str, columns: int, element: str, cache: Any) -> tuple[int, int]:
    """[pages, page_size] of a cache."""
    shape = tuple(int(n) for n in cache.shape)
    given = str(cache.dtype).removeprefix("torch.")
    if given != TYPE_NAMES[element]:
        raise ConfigError(f"{name} has dtype {given}, the kernel wants {TYPE_NAMES[element]}")
    wanted: dict[int, tuple[int | None, ...]] = {
        2: (None, columns), 4: (None, None, 1, columns)
    }  # fmt: skip
    check_shape(name, shape, wanted.get(len(shape), (None, None, columns)))
    return (1, shape[0]) if len(shape) == 2 else (shape[0], shape[1])


def laid_lists(name: str, lists: Any, shape: tuple[int | None, ...]) -> tuple[Any, int]:
    """The memory of `lists`, int32 of `shape`, as a tensor without gaps, and the elements from a
    list to the next one: they may lie any distance apart, the same one from each to the next.
    ConfigError for another shape or type, and for strides that no kernel takes."""
    check(name, lists, shape, "int32")
    strides, extents = strides_of(name, lists), tuple(int(n) for n in lists.shape)
    count = math.prod(extents[:-1])
    if not count:
        return lists, 0
    if strides[-1] != 1 and extents[-1] > 1:
        raise ConfigError(
            f"{name} has strides {strides}: the numbers of a list do not follow each other",
            hint="a last stride of 1",
        )
    stride, step = 0, -1  # -1: no dimension has been looked at
    for axis in range(len(extents) - 2, -1, -1):
        if extents[axis] == 1:
            continue
        if step < 0:
            stride = step = strides[axis]
        elif strides[axis] != step:
            raise ConfigError(
                f"{name} has shape {extents} and strides {strides}: lists are not all as far from "
                "the one before",
                hint=f"a stride of {step} in dimension {axis}, or {name}.contiguous()",
            )
        step *= extents[axis]
    if not 0 <= stride <= LARGEST_STRIDE:
        raise ConfigError(
            f"{name} has strides {strides}: lists lie {stride} numbers apart",
            hint=f"0 to {LARGEST_STRIDE}",
        )
    return _flat(name, lists, (count - 1) * stride + extents[-1]), stride


def check_packed(name: str, tensor: Any) -> None:
    """ConfigError for a tensor with gaps, where a kernel takes none."""
    if is_torch(tensor):
        packed = tensor.is_contiguous()
    elif isinstance(tensor, np.ndarray):
        packed = tensor.flags.c_contiguous
    else:
        shape, strides = tuple(tensor.shape), strides_of(name, tensor)
        packed = all(
            n == 1 or own == wanted
            for n, own, wanted in zip(shape, strides, row_major(shape), strict=True)
        )
    if not packed:
        raise ConfigError(
            f"{name} is not contiguous (shape {tuple(tensor.shape)}, strides "
            f"{strides_of(name, tensor)}); only caches and lists may have gaps",
            hint=f"{name}.contiguous(), or numpy.ascontiguousarray, makes a copy that is",
        )


def strides_of(name: str, tensor: Any) -> tuple[int, ...]:
    """Strides in elements."""
    if is_torch(tensor):
        return tuple(tensor.stride())
    if isinstance(tensor, np.ndarray):
        return tuple(stride // tensor.itemsize for stride in tensor.strides)
    return device_tensor(name, tensor, -1).strides  # -1: it is only looked at


def _flat(name: str, cache: Any, count: int) -> Any:
    """`count` elements from the first one on; the cache itself, where it has just these."""
    if math.prod(int(n) for n in cache.shape) == count:
        return cache
    if is_torch(cache):
        return cache.as_strided((count,), (1,))
    if isinstance(cache, np.ndarray):
        return np.lib.stride_tricks.as_strided(cache, (count,), (cache.itemsize,))
    raise ConfigError(
        f"{name} has gaps (strides {strides_of(name, cache)}), and is a "
        f"{type(cache).__module__} tensor",
        hint="torch's tensors and numpy's arrays may have gaps",
    )


def bits_on_host(name: str, tensor: Any, element: str) -> npt.NDArray[Any]:
    """A copy of a tensor of the GPU in the host's memory; waits for the GPU."""
    if not is_torch(tensor) or element not in BITS:
        return on_host(name, tensor)
    whole = getattr(sys.modules["torch"], BITS[element])
    return on_host(name, tensor.contiguous().view(whole)).view(ELEMENT_TYPES[element])
