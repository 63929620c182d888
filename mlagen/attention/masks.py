"""Masks: which keys a query sees, on absolute positions, and what that makes of a tile.

A query's absolute position is `start_pos` plus its row of this call; a key's is its index. Every
mask here lets a query see one interval of keys, `[first_key(q), end_key(q))`, whose two ends never
go back as q grows. So the keys that a block of consecutive queries sees are one interval too, and
the tiles it needs are consecutive. The bound `key < num_keys` is no part of a mask: it is passed
in, and cuts every interval.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mlagen.errors import ConfigError

WINDOW = "W >= 1 is a key count"
LEGAL_MASKS = f"null, causal, sliding_window_causal[W], chunked_causal[W]; {WINDOW}"
MAX_POSITION = 2**31 - 1  # kernels compare positions as signed 32-bit integers


def _numpy() -> Any:
    """For masks of whole arrays. A build needs none, and saves a tenth of a second."""
    import numpy

    return numpy


class TileStatus(Enum):
    """What a block of queries sees of a tile of keys."""

    FULLY_HIDDEN = "fully hidden"  # no query sees any key: neither loaded nor computed
    PARTIAL = "partial"  # scores need the mask
    FULLY_VISIBLE = "fully visible"  # every query sees every key: no mask code runs


class Mask(ABC):
    """A visibility predicate with its tile arithmetic. Values; `str()` is what `parse` reads."""

    name: str

    @abstractmethod
    def visible(self, q: Any, k: Any) -> Any:
        """Whether query position `q` sees key position `k`: bool, broadcast over int arrays."""

    def first_key(self, q: int) -> int:
        """The first key that the query at position `q` sees."""
        return 0

    def end_key(self, q: int) -> int | None:
        """One past the last key that the query at `q` sees; None: all there are."""
        return q + 1

    def __str__(self) -> str:
        return self.name

    def keys(self, q: int, rows: int, num_keys: int) -> range:
        """All keys that some query of `q .. q + rows - 1` sees; empty when there is none."""
        last = self.end_key(q + rows - 1)
        end = num_keys if last is None else min(last, num_keys)
        first = self.first_key(q)
        return range(first, end) if first < end else range(0)

    def common_keys(self, q: int, rows: int, num_keys: int) -> range:
        """The keys that every query of `q .. q + rows - 1` sees; empty when there is none."""
        first_end = self.end_key(q)
        end = num_keys if first_end is None else min(first_end, num_keys)
        first = self.first_key(q + rows - 1)
        return range(first, end) if first < end else range(0)

    def status(self, q: int, rows: int, k: int, keys: int, num_keys: int) -> TileStatus:
        """What queries `q .. q + rows - 1` see of the tile of keys `k .. k + keys - 1`.

        Keys from `num_keys` on do not exist, so a tile that reaches past it is never fully visible.
        """
        seen = self.keys(q, rows, num_keys)
        if not seen or k >= seen.stop or k + keys <= seen.start:
            return TileStatus.FULLY_HIDDEN
        common = self.common_keys(q, rows, num_keys)
        if common and common.start <= k and k + keys <= common.stop:
            return TileStatus.FULLY_VISIBLE
        return TileStatus.PARTIAL

    def tiles(self, q: int, rows: int, num_keys: int, kv_block: int) -> range:
        """Indices of the tiles that are not fully hidden from queries `q .. q + rows - 1`."""
        seen = self.keys(q, rows, num_keys)
        return range(seen.start // kv_block, -(-seen.stop // kv_block))

    @staticmethod
    def parse(text: str) -> Mask:
        """The mask that `text` names. Raises ConfigError with the legal ones."""
        match = re.fullmatch(r"\s*([a-z_]+)\s*(?:\[\s*([^\]]*?)\s*\])?\s*", text)
        kind = _KINDS.get(match[1]) if match else None
        if match is None or kind is None:
            raise ConfigError(f"unknown mask {text!r}", hint=f"masks: {LEGAL_MASKS}")
        window = match[2]
        if not issubclass(kind, _Windowed):
            if window is not None:
                raise ConfigError(f"mask {text!r}: {kind.name} has no window", hint=kind.name)
            return kind()
        if not window:
            raise ConfigError(f"mask {text!r} needs a window", hint=f"{kind.name}[512]")
        if not re.fullmatch(r"[+-]?\d+", window):
            raise ConfigError(
                f"mask {text!r}: the window {window!r} is no integer", hint=f"{kind.name}[512]"
            )
        return kind(int(window))


@dataclass(frozen=True, slots=True)
class Null(Mask):
    """Every key that exists."""

    name = "null"

    def visible(self, q: Any, k: Any) -> Any:
        np = _numpy()
        return np.broadcast_to(True, np.broadcast_shapes(np.shape(q), np.shape(k)))

    def end_key(self, q: int) -> int | None:
        return None


@dataclass(frozen=True, slots=True)
class Causal(Mask):
    """Keys up to the query's own position."""

    name = "causal"

    def visible(self, q: Any, k: Any) -> Any:
        return _numpy().less_equal(k, q)


@dataclass(frozen=True, slots=True)
class _Windowed(Mask):
    window: int

    def __post_init__(self) -> None:
        if isinstance(self.window, bool) or not isinstance(self.window, int):
            raise ConfigError(f"{self.name}: the window {self.window!r} is no integer")
        if not 1 <= self.window <= MAX_POSITION:
            raise ConfigError(
                f"{self.name}[{self.window}]: a window is 1 to {MAX_POSITION} keys",
                hint="1 lets a query see its own position only",
            )

    def __str__(self) -> str:
        return f"{self.name}[{self.window}]"


@dataclass(frozen=True, slots=True)
class SlidingWindowCausal(_Windowed):
    """The last `window` keys up to the query's own position."""

    name = "sliding_window_causal"

    def visible(self, q: Any, k: Any) -> Any:
        np = _numpy()
        return np.less_equal(k, q) & np.greater(k, np.subtract(q, self.window))

    def first_key(self, q: int) -> int:
        return max(q - self.window + 1, 0)


@dataclass(frozen=True, slots=True)
class ChunkedCausal(_Windowed):
    """Keys up to the query's own position that lie in the same chunk of `window` positions."""

    name = "chunked_causal"

    def visible(self, q: Any, k: Any) -> Any:
        np = _numpy()
        same = np.floor_divide(q, self.window) == np.floor_divide(k, self.window)
        return np.less_equal(k, q) & same

    def first_key(self, q: int) -> int:
        return q // self.window * self.window


_KINDS: dict[str, type[Mask]] = {
    kind.name: kind for kind in (Null, Causal, SlidingWindowCausal, ChunkedCausal)
}

CAUSAL = Causal()
