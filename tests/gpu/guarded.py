"""Memory of a GPU around which a call must neither write nor read: outputs and workspaces between
canaries, inputs in the midst of NaN."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mlagen.attention.latent.call_tensors import TYPE_NAMES, TorchMemory

EDGE = 4096  # bytes on either side
CANARY, NAN = 0xA5, 0xFF  # bytes; the second is NaN in bf16, e4m3, ue8m0 and fp32, and -1 in int32
TORCH_NAMES = {
    np.dtype(ml_dtypes.bfloat16): "bfloat16",
    np.dtype(ml_dtypes.float8_e4m3fn): "float8_e4m3fn",
}


class Guarded(TorchMemory):
    """Makes tensors of NaN between canaries; as a `Memory`, workspaces of kernels too."""

    def __init__(self, device: Any = "cuda") -> None:
        import torch

        super().__init__(torch.device(device))
        self._edges: list[Any] = []

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        torch = self.torch
        kind = getattr(torch, TYPE_NAMES[dtype])
        size = math.prod(shape) * kind.itemsize
        memory = torch.full((size + 2 * EDGE,), CANARY, dtype=torch.uint8, device=self.device)
        inside = memory[EDGE : EDGE + size].fill_(NAN)
        self._edges += [memory[:EDGE], memory[EDGE + size :]]
        return inside.view(kind).view(shape)

    def untouched(self) -> bool:
        """Whether all canaries are there. Waits for the GPU."""
        self.torch.cuda.synchronize()
        return all(bool((edge == CANARY).all()) for edge in self._edges)


def placed(array: npt.NDArray[Any], ahead: int = 0) -> Any:
    """The array on the GPU with the strides that it has, and NaN wherever it has no element; the
    first one lies `ahead` bytes further from the start."""
    import torch

    strides = array.strides
    size = sum((n - 1) * step for n, step in zip(array.shape, strides, strict=True))
    flat = np.lib.stride_tricks.as_strided(array, (size // array.itemsize + 1,), (array.itemsize,))
    bits = np.ascontiguousarray(flat).view(np.uint8)
    start = EDGE + ahead
    memory = torch.full((start + len(bits) + EDGE,), NAN, dtype=torch.uint8, device="cuda")
    memory[start : start + len(bits)] = torch.from_numpy(bits).cuda()
    kind = getattr(torch, TORCH_NAMES.get(array.dtype, array.dtype.name))
    inside = memory[start : start + len(bits)].view(kind)
    return inside.as_strided(array.shape, [step // array.itemsize for step in strides])
