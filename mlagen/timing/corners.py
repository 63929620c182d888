"""The sensitivity grid: what nobody has measured, at both ends of its range.

What energy each operation takes is not published either, and it hangs on what else is assumed: a
machine with a slower `exp` needs a higher clock, and so less energy, to explain the same measured
kernels. So each corner has energies of its own: those that explain the published clocks and the
three calibration points best (docs/timing.md; `mlagen simulate --validate FOLDER --fit` prints
them). How far the three points lie off there says how well the corner explains them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from mlagen.timing.constants import Machine
from mlagen.timing.fitted import CORNERS, NAMES

AXES: Final[Mapping[str, tuple[int, ...]]] = {
    "exp": (8, 16),
    "co_issue": (0, 1),
    "lds_bytes": (128, 256),
    "tr_phases": (2, 4),
    "mfma_port": (4, 16),
}
# Mean errors of the held-out points (docs/timing.md), by the length of the launch in seconds: what
# was published of short ones has the harness in it.
LONG: Final = 1e-3
MODEL_ERROR: Final = 0.034
SHORT_ERROR: Final = 0.255
CLOCK_ERROR: Final = 0.040  # mean error of the held-out kernels of `clocks` (docs/timing.md)
WORST_FIT: Final = 0.10  # corners whose calibration points lie further off explain nothing


@dataclass(frozen=True, slots=True)
class Corner:
    """One combination of AXES. `energies`: values of `energies.NAMES`. `misfit`: the largest of
    the calibration points' errors that remain."""

    values: tuple[tuple[str, int], ...]
    energies: tuple[float, ...]
    misfit: float

    @property
    def name(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.values)

    @property
    def plausible(self) -> bool:
        """Explains the calibration points."""
        return self.misfit <= WORST_FIT

    def machine(self, base: Machine) -> Machine:
        """`base` with this corner's values and energies."""
        return base.changed(**dict(self.values), **dict(zip(NAMES, self.energies, strict=True)))


def model_error(seconds: float) -> float:
    """Of a launch that takes this long."""
    return MODEL_ERROR if seconds >= LONG else SHORT_ERROR


def corners() -> tuple[Corner, ...]:
    """All corners of the grid."""
    found = []
    for values in product(*AXES.values()):
        *energies, misfit = CORNERS[values]
        found.append(Corner(tuple(zip(AXES, values, strict=True)), tuple(energies), misfit))
    return tuple(found)
