"""Time on a GPU, by events of torch's current stream."""

from __future__ import annotations

from functools import cached_property
from typing import Any

FLUSHED = 256 << 20  # bytes, more than four times an H200's L2 cache
_HELD = 2_000_000  # cycles, about a millisecond


class TorchClock:
    """Events of CUDA or HIP, for calls that take turns: `mlagen.bench.timing`, `mlagen.tune`."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    @cached_property
    def _scratch(self) -> Any:
        return self._torch.empty(FLUSHED, dtype=self._torch.uint8, device="cuda")

    def flush(self) -> None:
        """Replace what the L2 cache holds."""
        self._scratch.zero_()

    def hold(self) -> None:
        """Keep the device busy while calls are enqueued."""
        self._torch.cuda._sleep(_HELD)

    def mark(self) -> Any:
        """An event after all work so far."""
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        """Until the device has done everything."""
        self._torch.cuda.synchronize()

    def seconds(self, begin: Any, end: Any) -> float:
        """Between two marks; waits for the second."""
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3
