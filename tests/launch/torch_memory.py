"""A stand-in for torch whose allocator gives memory away as torch's does: to the next tensor of the
same stream, as soon as nobody holds it and no other stream that was told of is still at work."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from fake_cuda import TorchTensor

_BYTES = {"bfloat16": 2, "float32": 4, "int32": 4, "float8_e4m3fn": 1, "int64": 8}


@dataclass(eq=False)
class Block:
    """Memory of a stream; `users`: other streams that were told of."""

    pointer: int
    size: int
    stream: int
    users: set[int] = field(default_factory=set)


class Allocator:
    """`now`: the current stream; `busy`: streams that have work queued; `capturing`: whether the
    current one is captured."""

    def __init__(self) -> None:
        self.now, self.busy, self.capturing = 0, set[int](), False
        self.free: list[Block] = []
        self._end = 1 << 20

    def take(self, size: int) -> Block:
        """Memory of the current stream: what was let go last comes first."""
        for block in reversed(self.free):
            if block.stream == self.now and block.size >= size and not block.users & self.busy:
                self.free.remove(block)
                block.users.clear()
                return block
        block = Block(self._end, size, self.now)
        self._end += -(-size // 512) * 512
        return block

    @contextmanager
    def stream(self, number: int) -> Iterator[None]:
        """Within it another stream is the current one."""
        before, self.now = self.now, number
        try:
            yield
        finally:
            self.now = before


class Tensor(TorchTensor):
    """A tensor of the allocator."""

    def __init__(self, allocator: Allocator, shape: Any, dtype: str) -> None:
        size = int(np.prod(tuple(shape))) * _BYTES[dtype]
        self.allocator, self.block = allocator, allocator.take(max(size, 512))
        super().__init__(tuple(int(n) for n in shape), dtype, self.block.pointer)
        weakref.finalize(self, allocator.free.append, self.block)

    def record_stream(self, stream: Any) -> None:
        if stream.cuda_stream != self.block.stream:
            self.block.users.add(stream.cuda_stream)

    def dim(self) -> int:
        return len(self.shape)

    def get_device(self) -> int:
        return 0

    def is_contiguous(self) -> bool:
        return True

    def element_size(self) -> int:
        return _BYTES[self.dtype.removeprefix("torch.")]

    def as_strided(self, _shape: Any, _strides: Any) -> Tensor:
        return self

    def new_empty(self, shape: Any, dtype: str) -> Tensor:
        return Tensor(self.allocator, shape, dtype)


class Memory:
    """A caller's own memory, of torch's tensors."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator

    def upload(self, array: Any) -> Tensor:
        kinds = {"float32": "float32", "int64": "int64"}
        dtype = kinds.get(str(array.dtype), "int32" if array.dtype.itemsize == 4 else "bfloat16")
        return Tensor(self.allocator, array.shape, dtype)

    def empty(self, shape: Any, dtype: str) -> Tensor:
        return Tensor(self.allocator, shape, {"fp32": "float32", "bf16": "bfloat16"}[dtype])

    def write(self, tensor: Any, array: Any) -> None:
        raise AssertionError("nothing is written anew")


def module(allocator: Allocator) -> SimpleNamespace:
    """What mlagen asks of torch."""
    stream = SimpleNamespace
    torch = SimpleNamespace(
        Tensor=TorchTensor, float32="float32", bfloat16="bfloat16", int32="int32"
    )
    torch._C = SimpleNamespace(
        _cuda_getCurrentRawStream=lambda _: allocator.now,
        _cuda_isCurrentStreamCapturing=lambda: allocator.capturing,
    )
    torch.cuda = SimpleNamespace(
        current_stream=lambda _=0: stream(cuda_stream=allocator.now),
        default_stream=lambda _=0: stream(cuda_stream=0),
        ExternalStream=lambda handle, device: stream(cuda_stream=handle),
    )
    torch.empty = lambda shape, dtype, device: Tensor(allocator, shape, dtype)
    return torch
