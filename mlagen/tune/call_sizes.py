"""Sizes of the calls that judge a variant."""

from __future__ import annotations

from typing import Any


def bytes_of(inputs: Any) -> int:
    """Of a call's arrays."""
    return sum(getattr(value, "nbytes", 0) for value in vars(inputs).values())


def odd_sizes(names: tuple[str, ...]) -> dict[str, Any]:
    """Sizes that no tile divides, as far as the kind of problem has them."""
    return {name: size for name, size in (("seq_len", 77), ("num_keys", 331)) if name in names}
