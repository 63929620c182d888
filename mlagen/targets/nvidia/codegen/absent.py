"""Instructions of tcgen05 that the language does not have: they read or move columns of tensor
memory that no operation names, so the proof would not see them."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ABSENT = (
    (r"tcgen05\.shift\b", "rows that are shifted in tensor memory"),
    (r"tcgen05\.mma\S*(\.block_scale|\.kind::mx)", "scales of blocks"),
    (r"tcgen05\.mma\S*\.sp\b", "sparse products"),
    (r"tcgen05\.mma\S*\.ashift\b", "operands that are shifted"),
)
_HAS = "products of kind::f16 and kind::f8f6f4, dense and without scales"


def absent(text: Iterable[str]) -> str:
    """What the lines of an operation have that is refused; "" for nothing."""
    for line in text:
        for pattern, what in _ABSENT:
            if re.search(pattern, line):
                return f"has `{line.strip()}`: {what} are not in the language, which has {_HAS}"
    return ""
