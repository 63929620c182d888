"""Words that an H200 gave, as benchmarks/hopper_tables.py kept them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from hopper_arithmetic.packing import unpacked

PATH = Path(__file__).parent / "data" / "words.npz"


@functools.cache
def arrays() -> dict[str, Any]:
    """All kept arrays by name."""
    with np.load(PATH) as found:
        return {name: unpacked(found[name]) for name in found.files if name != "about"}


def names(kind: str) -> list[str]:
    """Names behind `kind/`, in order."""
    with np.load(PATH) as found:
        return sorted(
            name.removeprefix(f"{kind}/") for name in found.files if name.startswith(kind + "/")
        )
