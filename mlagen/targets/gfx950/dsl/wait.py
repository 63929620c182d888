"""A wait placed by hand on the barrier that closes a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wait:
    """`s_waitcnt` before a cluster's closing barrier. `None` leaves that counter alone.

    A cluster without a `Wait` gets the derived one. With a `Wait`, nothing is derived for that
    point: a count weaker than what the schedule needs fails the proof, a stronger one is reported
    with the slack it loses.
    """

    vm: int | None = None
    lgkm: int | None = None

    def __str__(self) -> str:
        parts = [
            f"{name}({count})"
            for name, count in (("vmcnt", self.vm), ("lgkmcnt", self.lgkm))
            if count is not None
        ]
        return " ".join(parts) or "none"
