"""Calls that were checked before.

Checks look at where tensors are, at their shapes, types and layout, and at numbers; a call that
agrees in all of these with an earlier one is launched as that one was, without looking again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from mlagen.launch.gpu import PreparedLaunch

MOST = 4096  # calls remembered, about 2 KB each; then all are forgotten
Key = tuple[Any, ...]


class KnownCalls:
    """Prepared launches by what their checks looked at. They keep no tensor alive."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[Key, tuple[PreparedLaunch, ...]] = {}

    def find(self, key: Key | None) -> tuple[PreparedLaunch, ...] | None:
        """What an equal call launched; None for a new one."""
        return None if key is None else self._calls.get(key)

    def add(self, key: Key, launches: tuple[PreparedLaunch, ...]) -> None:
        for launch in launches:
            launch.unowned()
        if len(self._calls) >= MOST:
            self._calls.clear()
        self._calls[key] = launches


def places(tensors: Sequence[Any]) -> Key | None:
    """Address, shape, type, device and layout of each tensor; None unless all are torch's."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    kind = torch.Tensor
    found = []
    for tensor in tensors:
        if not isinstance(tensor, kind):
            return None
        found.append(
            (
                tensor.data_ptr(),
                tensor.shape,
                tensor.dtype,
                tensor.get_device(),
                tensor.is_contiguous(),
            )
        )
    return tuple(found)
