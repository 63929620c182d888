"""One workload's tensors, and the machine that makes and times them: the seam to the GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from mlagen.bench.timing import Clock
from mlagen.bench.workload import Workload
from mlagen.families.mla_decode.inputs import MODEL_SCALE

Call = Callable[[], Any]


@dataclass(frozen=True, eq=False)
class Case:
    """Tensors that all contenders of a workload share: `q` [B, q_len, H, 576], `cache` [pages,
    page, KV heads, 576], `table` [B, pages] and `lengths` [B] int32; `kv_scales` [pages, page] of
    rope-aware rows, `q_scales` [B, q_len] of such queries."""

    workload: Workload
    q: Any
    cache: Any
    table: Any
    lengths: Any
    scale: float = MODEL_SCALE
    kv_scale: float = 1.0
    q_scale: float = 1.0
    kv_scales: Any = None
    q_scales: Any = None

    @property
    def scales(self) -> dict[str, Any]:
        """What our call is given by name besides its tensors."""
        return {
            "scale": self.scale, "kv_scale": self.kv_scale, "q_scale": self.q_scale,
            "kv_scales": self.kv_scales, "q_scales": self.q_scales,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Ours:
    """Our call of a case: it returns (O, LSE). `splits`: for the oracles."""

    call: Call
    splits: tuple[tuple[int, ...], ...]


class Lab(Protocol):
    """A machine with a GPU."""

    clock: Clock

    def facts(self) -> dict[str, str]:
        """The device and the versions of what runs on it."""
        ...

    def case(self, workload: Workload) -> Case:
        """The workload's tensors."""
        ...

    def ours(self, case: Case) -> Ours:
        """Our kernel, all checked and packed; its outputs are poisoned."""
        ...

    def ceilings(self) -> dict[str, tuple[Call, float, str]]:
        """What bounds every kernel: (call, amount, unit a second) by name."""
        ...

    def host(self, tensor: Any) -> npt.NDArray[Any]:
        """A copy of a tensor; bf16 and e4m3 in ml_dtypes' types. Waits."""
        ...

    def wait(self) -> None:
        """Until the GPU is idle. Raises what a kernel failed with."""
        ...
