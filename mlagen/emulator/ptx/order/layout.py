"""Sizes of what orders accesses: vector clocks, objects that carry them, records of accesses."""

from __future__ import annotations

from typing import Final

KINDS: Final = 6  # components of a warp
CTA_MBARRIERS: Final = 64  # components of a CTA beside its warps'
CELL: Final = 64  # bytes of record for each four bytes of shared memory


def components(ctas: int, cta_warps: int) -> int:
    """Of a vector clock."""
    return ctas * (KINDS * cta_warps + CTA_MBARRIERS)


def objects(ctas: int) -> int:
    """Vector clocks of barriers and mbarriers: two each, one being filled and one complete."""
    return ctas * 2 * (CTA_MBARRIERS + 17)
