"""Tensors of a device that calls share: what stands for arguments that are not given, tables.

Each is made once for its size, by a copy that is over when it returns, so that kernels of any
stream may read it. They are made from shapes alone and never change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlagen.attention.latent.call_tensors import Memory, Workspace
from mlagen.attention.latent.order import D_V
from mlagen.families.mla_sparse.splits import merges
from mlagen.problem.formats import ELEMENT_TYPES

ENDLESS = 2**31 - 1  # a length that no list reaches: all of its places count
ROOMS = 8  # of zeros, made at once


class Kept:
    """What calls on one device share; `memory`: where its tensors come from."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lengths: list[Any] = []  # older ones stay: prepared calls know them
        self._sinks: dict[int, Any] = {}
        self._zeros: dict[int, Any] = {}
        self._merges: dict[tuple[int, ...], Any] = {}
        self._spaces: dict[Any, Workspace] = {}
        self._arrivals: dict[Any, list[Any]] = {}
        self._rooms: list[Any] = []  # of zeros, that no stream has yet

    def lengths(self, count: int) -> Any:
        """Lengths of at least so many lists, of which all places count."""
        if not self._lengths or int(self._lengths[-1].shape[0]) < count:
            room = 1 << max(count - 1, 63).bit_length()
            self._lengths.append(self._memory.upload(np.full(room, ENDLESS, np.int32)))
        return self._lengths[-1]

    def no_sink(self, heads: int) -> Any:
        """Sinks that add nothing."""
        if heads not in self._sinks:
            self._sinks[heads] = self._memory.upload(np.full(heads, -np.inf, np.float32))
        return self._sinks[heads]

    def zeros(self, columns: int) -> Any:
        """A row of zeros, bf16: what is fetched in the place of a row that there is not."""
        if columns not in self._zeros:
            self._zeros[columns] = self._memory.upload(np.zeros(columns, ELEMENT_TYPES["bf16"]))
        return self._zeros[columns]

    def merges(self, batch: int, q_len: int, heads: int, splits: int, rows: int) -> Any:
        """The table of the merge kernel."""
        key = (batch, q_len, heads, splits, rows)
        if key not in self._merges:
            self._merges[key] = self._memory.upload(merges(*key))
        return self._merges[key]

    def arrivals(self, slots: int, stream: Any) -> Any:
        """Zeros by which the blocks of so many parts tell each other that they have come; they are
        zeros again after each call. Some streams more find theirs made: a graph is captured in a
        stream of its own, in which nothing can be copied."""
        own = self._arrivals.setdefault(stream, [])  # older ones stay: prepared calls know them
        if not own or int(own[-1].shape[0]) < slots:
            own.append(self._room(slots))
        return own[-1]

    def _room(self, slots: int) -> Any:
        if not self._rooms or int(self._rooms[-1].shape[0]) < slots:
            size = 1 << max(slots - 1, 255).bit_length()
            zeros = np.zeros((size, 2), np.int32)
            self._rooms = [self._memory.upload(zeros) for _ in range(ROOMS)]
        return self._rooms.pop()

    def partials(self, slots: int, rows: int, stream: Any) -> dict[str, Any]:
        """Room for what parts leave of so many rows. Calls of one stream come one after the other
        and share it."""
        space = self._spaces.setdefault(stream, Workspace(self._memory))
        return {
            "partial_o": space.empty((slots, rows, D_V), "fp32"),
            "partial_lse": space.empty((slots, rows), "fp32"),
        }
