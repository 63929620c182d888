"""Calls that were checked before.

Checks look at where tensors are, at their shapes, types and layout, and at numbers; a call that
agrees in all of these with an earlier one is launched as that one was, without looking again.
Reading a shape takes longer than anything else here, so a tensor object that was there the last
time is taken for what it was as long as its memory is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import ref

from mlagen.launch.gpu import PreparedLaunch

MOST = 4096  # calls remembered, about 2 KB each; then all are forgotten
Key = tuple[Any, ...]


class KnownCall:
    """What was launched, and what its tensors were. It keeps no tensor alive: a call's are its
    caller's, and a plan's those of who holds the plan."""

    __slots__ = ("facts", "launches", "tensors")

    def __init__(self, tensors: Sequence[Any], launches: tuple[PreparedLaunch, ...]) -> None:
        for launch in launches:
            launch.unowned()
        self.launches = launches
        self.facts = tuple(fact(tensor) for tensor in tensors)
        self.tensors = [ref(tensor) for tensor in tensors]

    def is_of(self, tensors: Sequence[Any]) -> bool:
        """Whether these tensors, which are where the call's were, are as those were."""
        for index, tensor in enumerate(tensors):
            if self.tensors[index]() is not tensor:
                if fact(tensor) != self.facts[index]:
                    return False
                self.tensors[index] = ref(tensor)
        return True


class KnownCalls:
    """Calls by the addresses of their tensors and by their numbers."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[Key, KnownCall] = {}

    def find(self, key: Key, tensors: Sequence[Any]) -> tuple[PreparedLaunch, ...] | None:
        """What an equal call launched; None for a new one. `tensors`: those whose place is in the
        key and who may be of another kind than the call's."""
        found = self._calls.get(key)
        return found.launches if found is not None and found.is_of(tensors) else None

    def add(self, key: Key, tensors: Sequence[Any], launches: tuple[PreparedLaunch, ...]) -> None:
        if len(self._calls) >= MOST:
            self._calls.clear()
        self._calls[key] = KnownCall(tensors, launches)


def fact(tensor: Any) -> Key:
    """Shape, type, device and layout of a torch tensor."""
    return tensor.shape, tensor.dtype, tensor.get_device(), tensor.stride()
