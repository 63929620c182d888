"""A machine with a GPU, through torch."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy.typing as npt

from mlagen.bench.torch_arrays import to_host
from mlagen.bench.torch_clock import TorchClock
from mlagen.errors import ConfigError, MissingError, required
from mlagen.family.benchmark import DeviceClock, Work

# What a process needs of a driver: NVIDIA's, AMD's, and that of Windows under Linux.
DEVICES = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))
MATMUL = 8192
COPIED = 4 << 30  # bytes


class TorchLab:
    """torch's current GPU, NVIDIA's or AMD's: what all labs share. A family's own adds `case`,
    `ours` and `judge`. MissingError without torch or a GPU."""

    def __init__(self) -> None:
        if sys.platform == "linux" and not any(device.exists() for device in DEVICES):
            raise MissingError(
                "this machine has no GPU that a driver knows",
                hint="`mlagen doctor` shows what is there",
            )
        torch = required("torch", "the benchmark's tensors are torch's", "pip install torch")
        if not torch.cuda.is_available():
            raise MissingError("torch finds no GPU", hint="`mlagen doctor` shows what is there")
        self.torch = torch
        self.clock: DeviceClock = TorchClock(torch)

    def facts(self) -> dict[str, str]:
        properties = self.torch.cuda.get_device_properties(self.torch.cuda.current_device())
        units = "CUs" if self.torch.version.hip else "SMs"
        return {
            "device": f"{properties.name}, {properties.multi_processor_count} {units}",
            "torch": str(self.torch.__version__),
        }

    def ceilings(self) -> dict[str, tuple[Callable[[], Any], float, str]]:
        torch = self.torch
        a, b = (torch.randn(MATMUL, MATMUL, device="cuda").bfloat16() for _ in range(2))
        product = torch.empty_like(a)
        source = torch.empty(COPIED, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        multiply: Callable[[], Any] = partial(torch.matmul, a, b, out=product)
        return {
            "matmul": (multiply, 2.0 * MATMUL**3 / 1e12, "TFLOP/s"),
            "copy": (partial(target.copy_, source), 2.0 * COPIED / 1e9, "GB/s"),
        }

    def new_cache(self, work: Work, shape: tuple[int, ...], kind: Any) -> Any:
        """A tensor with any content. ConfigError: this GPU has not the memory for it."""
        try:
            return self.torch.empty(shape, dtype=kind, device="cuda")
        except self.torch.cuda.OutOfMemoryError as error:
            size = math.prod(shape) * kind.itemsize / 2**30
            raise ConfigError(
                f"{work}: a cache of about {size:.0f} GiB does not fit this GPU's memory",
                hint="fewer sequences or keys",
            ) from error

    def host(self, tensor: Any) -> npt.NDArray[Any]:
        """A copy of a tensor; bf16 and e4m3 in ml_dtypes' types. Waits."""
        return to_host(tensor)

    def wait(self) -> None:
        self.torch.cuda.synchronize()
