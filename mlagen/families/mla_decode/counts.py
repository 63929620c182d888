"""How many there are of what a plan's records name: arguments that launchers count, by which every
kernel of MLA decode holds a record before it takes it for an address."""

from __future__ import annotations

from mlagen.families.mla_decode.problem import ITEM_BYTES

ITEM = ITEM_BYTES // 4  # elements of a work item's record
Count = tuple[str, str, str]


def counts(slots: str, *, persistent: bool) -> tuple[Count, ...]:
    """Sequences, rows of O (each has an LSE) and slots of the workspace; where blocks take several
    items, these too. `slots`: a tensor of the workspace, and elements that a slot has in it."""
    found: tuple[Count, ...] = (
        ("sequence_count", "rows:cache_lengths", "value"),
        ("row_count", "rows:lse", "value"),
        ("slot_count", f"rows:{slots}", "value"),
    )
    return (*found, ("item_count", f"rows:items@{ITEM}", "value")) if persistent else found
