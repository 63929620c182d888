"""Arrays of words in few bytes: bz2 over planes of equal bytes, with dtype and shape ahead."""

from __future__ import annotations

import bz2
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray


def packed(words: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of an array of integers. Bytes of equal significance lie together."""
    words = np.ascontiguousarray(words)
    head = json.dumps({"dtype": words.dtype.str, "shape": words.shape}).encode()
    planes = words.view(np.uint8).reshape(-1, words.dtype.itemsize).T
    body = bz2.compress(np.ascontiguousarray(planes).tobytes(), 9)
    return np.frombuffer(len(head).to_bytes(2, "little") + head + body, np.uint8)


def unpacked(data: NDArray[np.uint8]) -> NDArray[Any]:
    """The array that `packed` was given."""
    raw = data.tobytes()
    start = 2 + int.from_bytes(raw[:2], "little")
    head = json.loads(raw[2:start])
    dtype = np.dtype(head["dtype"])
    planes = np.frombuffer(bz2.decompress(raw[start:]), np.uint8).reshape(dtype.itemsize, -1)
    return np.ascontiguousarray(planes.T).view(dtype).reshape(head["shape"])


def smooth(words: NDArray[np.uint32]) -> NDArray[Any]:
    """Words of a smooth function as few values: differences from word to word, or of those, folded
    to whole numbers from 0 on, in the least type that holds them. The first three values are how
    often differences were taken and the words they begin with."""
    first = np.diff(words)
    second = np.diff(first)
    order = 1 if int(_folded(first).max()) < 256 else 2
    taken = _folded(first if order == 1 else second)
    kind = next(one for one in (np.uint8, np.uint16, np.uint32) if int(taken.max()) <= _most(one))
    head = np.array([order, words[0], first[0]], np.uint32).view(np.uint8)
    return np.concatenate([head.view(kind), taken.astype(kind)])


def rough(values: NDArray[Any]) -> NDArray[np.uint32]:
    """The words that `smooth` was given."""
    width = 12 // values.dtype.itemsize
    order, word, step = (int(value) for value in values[:width].copy().view(np.uint32))
    folded = values[width:].astype(np.uint32)
    taken = (folded >> np.uint32(1)) ^ (np.uint32(0) - (folded & np.uint32(1)))
    if order == 2:
        taken = _summed(step, taken)
    return _summed(word, taken)


def _most(kind: Any) -> int:
    return int(np.iinfo(kind).max)


def _folded(values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """0, -1, 1, -2, … as 0, 1, 2, 3, …"""
    sign = np.uint32(0) - (values >> np.uint32(31))
    folded: NDArray[np.uint32] = (values << np.uint32(1)) ^ sign
    return folded


def _summed(start: int, steps: NDArray[np.uint32]) -> NDArray[np.uint32]:
    found = np.concatenate([np.array([start], np.uint32), steps])
    return np.cumsum(found, dtype=np.uint32)
