"""How much a call reads."""

from __future__ import annotations

from typing import Any


def bytes_of(inputs: Any) -> int:
    """Of a call's arrays."""
    return sum(getattr(value, "nbytes", 0) for value in vars(inputs).values())
