"""The outputs of calls over latent rows that bring none.

`new_empty` takes 2.6 us for each, most of it to look at its arguments. Code that torch.compile
makes allocates by a function that does not, in 1.0 us; where torch has it, so is done here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from mlagen.launch.lifetimes import tell

Extents = tuple[int, ...]


class Sized(Protocol):
    """What a decode problem says of outputs."""

    @property
    def num_heads(self) -> int: ...
    @property
    def d_v(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Outputs:
    """Shapes and strides of the outputs, O bf16 and LSE fp32, both contiguous."""

    o: tuple[Extents, Extents]
    lse: tuple[Extents, Extents]

    @classmethod
    def of(cls, config: Sized, rows: Extents) -> Outputs:
        """Of calls with `rows` (batch, q_len), or (tokens,) where q is packed."""
        heads = config.num_heads
        lse = (heads, *rows) if len(rows) == 1 else (rows[0], heads, rows[1])
        return cls.contiguous((*rows, heads, config.d_v), lse)

    @classmethod
    def contiguous(cls, o: Extents, lse: Extents) -> Outputs:
        """Of these shapes."""
        return cls(_contiguous(o), _contiguous(lse))


class OutputMaker:
    """Makes outputs beside a tensor of the GPU. `stream`: that of all launches, where it is not
    torch's current one, in which torch takes outputs to be used."""

    __slots__ = ("_current_device", "_empty", "_lse_type", "_o_type", "_stream")

    def __init__(self, torch: Any, stream: int | None = None) -> None:
        self._stream = stream
        inner = getattr(torch, "_C", None)
        guards = getattr(getattr(inner, "_dynamo", None), "guards", None)
        self._empty: Any = getattr(guards, "_empty_strided_cuda", None)
        self._current_device: Any = getattr(inner, "_cuda_getDevice", None)
        self._o_type, self._lse_type = torch.bfloat16, torch.float32

    def __call__(self, like: Any, outputs: Outputs, out: Any, lse: Any) -> tuple[Any, Any]:
        """The outputs, those made that are None."""
        made = self._made(like, outputs, out, lse)
        if self._stream is not None:
            new = [own for own, given in zip(made, (out, lse), strict=True) if given is None]
            tell(new, self._stream, like.get_device())
        return made

    def _made(self, like: Any, outputs: Outputs, out: Any, lse: Any) -> tuple[Any, Any]:
        empty = self._empty
        # It allocates on the current device.
        if empty is None or self._current_device() != like.get_device():
            if out is None:
                out = like.new_empty(outputs.o[0], dtype=self._o_type)
            if lse is None:
                lse = like.new_empty(outputs.lse[0], dtype=self._lse_type)
            return out, lse
        if out is None:
            out = empty(*outputs.o, self._o_type)
        if lse is None:
            lse = empty(*outputs.lse, self._lse_type)
        return out, lse


def _contiguous(shape: Extents) -> tuple[Extents, Extents]:
    strides = [1]
    for extent in shape[:0:-1]:
        strides.append(strides[-1] * max(extent, 1))
    return shape, tuple(strides[::-1])
