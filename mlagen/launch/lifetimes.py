"""How long the memory lives that a launch uses.

torch hands the memory of a tensor that nobody holds to the next one of the same stream. What
another stream still does there it must be told, by `record_stream`: then the memory waits for that
stream. A captured graph says nothing of what it uses, so it gets what it uses to hold: a user
object of the driver, which the driver gives up with the graph and with all that were made of it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import ref

from mlagen.launch.device_tensor import is_torch

# What a graph is given: the address of a function of C and the one number that the driver calls it
# with when the graph is gone.
Retain = Callable[[int, int], None]
_SEMAPHORE = 64  # bytes, of which a `sem_t` takes 32


class Weak:
    """A tensor that somebody else keeps alive, as long as that is so."""

    __slots__ = ("_ref",)

    def __init__(self, tensor: Any) -> None:
        self._ref = ref(tensor)

    def __call__(self) -> Any:
        return self._ref()


def alive(tensors: Iterable[Any]) -> list[Any]:
    """The tensors, of the weak ones those that are still there."""
    found = (one() if isinstance(one, Weak) else one for one in tensors)
    return [one for one in found if one is not None]


def tell(tensors: Iterable[Any], stream: int, ordinal: int) -> None:
    """Tells torch that this stream of GPU `ordinal` uses the memory of its tensors, until it is
    done with what has been enqueued when they are let go. Other libraries' are left alone."""
    own = [tensor for tensor in alive(tensors) if is_torch(tensor)]
    if not own or not hasattr(own[0], "record_stream"):
        return
    torch = sys.modules["torch"]
    used = torch.cuda.current_stream(ordinal)
    if int(used.cuda_stream) != stream:
        used = torch.cuda.default_stream(ordinal)
        if int(used.cuda_stream) != stream:
            used = torch.cuda.ExternalStream(stream, device=ordinal)
    for tensor in own:
        tensor.record_stream(used)


class _Flag:
    """A semaphore of the C library that the driver posts when a graph is gone.

    No function of Python: graphs may go when the interpreter has. Its memory is C's for the same
    reason.
    """

    def __init__(self) -> None:
        self._c = ctypes.CDLL(None)
        self._c.calloc.restype = ctypes.c_void_p
        self.function = ctypes.cast(self._c.sem_post, ctypes.c_void_p).value or 0
        self.place = int(self._c.calloc(1, _SEMAPHORE) or 0)
        self._c.sem_init(ctypes.c_void_p(self.place), 0, 0)

    def posted(self) -> bool:
        """Whether the graph is gone; once it has said so, the memory is given back."""
        gone = self._c.sem_trywait(ctypes.c_void_p(self.place)) == 0
        if gone:
            self._c.free(ctypes.c_void_p(self.place))
        return gone


class Held:
    """Tensors by the number of the capture whose graph uses them."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[_Flag | None, dict[int, Any]]] = {}

    def hold(self, capture: int, tensors: Sequence[Any], retain: Retain | None) -> None:
        """Holds tensors until the graph of this capture is gone, whose `retain` it is; without one
        for as long as the process lives."""
        if capture not in self._held:
            self.sweep()
            flag = None
            if retain is not None:
                flag = _Flag()
                retain(flag.function, flag.place)
            self._held[capture] = flag, {}
        _, own = self._held[capture]
        own.update((id(tensor), tensor) for tensor in alive(tensors))

    def sweep(self) -> None:
        """Lets go of what graphs used that are gone."""
        for capture, (flag, _) in list(self._held.items()):
            if flag is not None and flag.posted():
                del self._held[capture]

    def __len__(self) -> int:
        return len(self._held)


HELD = Held()  # by all graphs of this process
