"""What the cycle model's tables ask of a family: kernels that stand beside those of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LadderCase:
    """A kernel whose workgroups take as many more cycles for every further tile of keys.

    `name`: in tables; `calls`: sizes of a call by its tokens, at least two lengths that lie whole
    iterations of the loop apart; `tile`: rows of queries and of keys; `depth`: columns of Q·K and
    of V; `beside`: the measured kernel for the same problem, as `mlagen.timing.aiter` names it.
    """

    name: str
    kernel: str
    fields: Mapping[str, Any]
    calls: Mapping[int, Mapping[str, Any]]
    tile: tuple[int, int]
    depth: tuple[int, int]
    beside: str
