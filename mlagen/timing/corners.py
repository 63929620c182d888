"""The sensitivity grid: what nobody has measured, at both ends of its range.

The clock under load is not published either, and it hangs on what else is assumed: a machine with
a slower `exp` needs a higher clock to explain the same measured kernels. So each corner has its
own: that which fits the three calibration points best (docs/timing.md; `mlagen simulate
--validate FOLDER` prints this table). How far the three points lie apart there says how well the
corner explains them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from mlagen.timing.constants import Machine, machine

AXES: Final[Mapping[str, tuple[int, ...]]] = {
    "exp": (8, 16),
    "co_issue": (0, 1),
    "lds_bytes": (128, 256),
    "tr_phases": (2, 4),
    "mfma_port": (4, 16),
}
MODEL_ERROR: Final = 0.05  # mean error of the held-out points (docs/timing.md)
WORST_FIT: Final = 0.10  # corners whose calibration points lie further apart explain nothing


@dataclass(frozen=True, slots=True)
class Corner:
    """One combination of AXES. `sustain`: clock under load, as a part of the maximum. `misfit`:
    the largest of the calibration points' errors that remain."""

    values: tuple[tuple[str, int], ...]
    sustain: float
    misfit: float

    @property
    def name(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.values)

    @property
    def plausible(self) -> bool:
        return self.misfit <= WORST_FIT

    def machine(self, base: Machine) -> Machine:
        """`base` with this corner's values and clock."""
        return base.changed(**dict(self.values), sustain=self.sustain)


# (exp, co_issue, lds_bytes, tr_phases, mfma_port): sustain, misfit. Measured.
_FITTED: Final[Mapping[tuple[int, ...], tuple[float, float]]] = {}


def corners() -> tuple[Corner, ...]:
    """All corners of the grid."""
    found = []
    for values in product(*AXES.values()):
        sustain, misfit = _FITTED.get(values, (machine().sustain, 1.0))
        found.append(Corner(tuple(zip(AXES, values, strict=True)), sustain, misfit))
    return tuple(found)
