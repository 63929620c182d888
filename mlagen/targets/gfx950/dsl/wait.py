"""A wait: derived, or placed by hand on the barrier that closes a cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wait:
    """An `s_waitcnt`; None leaves that counter alone. In a schedule: before the barrier that closes
    a cluster.

    A cluster without a `Wait` gets the derived one. With a `Wait`, nothing is derived for that
    point: a count weaker than what the schedule needs fails the proof, a stronger one is reported
    with the slack it loses.
    """

    vm: int | None = None
    lgkm: int | None = None

    def stricter(self, other: Wait) -> Wait:
        """What waits for all that either of both waits for."""
        vm, lgkm = (self.vm, other.vm), (self.lgkm, other.lgkm)
        return Wait(
            *(min((n for n in given if n is not None), default=None) for given in (vm, lgkm))
        )

    def __str__(self) -> str:
        parts = [
            f"{name}({count})"
            for name, count in (("vmcnt", self.vm), ("lgkmcnt", self.lgkm))
            if count is not None
        ]
        return " ".join(parts) or "none"
