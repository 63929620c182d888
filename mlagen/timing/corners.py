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
MODEL_ERROR: Final = 0.067  # mean error of the held-out points (docs/timing.md)
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
        """Explains the calibration points, with a clock that the chip can have."""
        return self.misfit <= WORST_FIT and self.sustain <= 1.0

    def machine(self, base: Machine) -> Machine:
        """`base` with this corner's values and clock."""
        return base.changed(**dict(self.values), sustain=self.sustain)


# (exp, co_issue, lds_bytes, tr_phases, mfma_port): sustain, misfit. Measured.
_FITTED: Final[Mapping[tuple[int, ...], tuple[float, float]]] = {
    (8, 0, 128, 2, 4): (0.761, 0.021),
    (8, 0, 128, 2, 16): (0.827, 0.008),
    (8, 0, 128, 4, 4): (0.904, 0.177),
    (8, 0, 128, 4, 16): (0.945, 0.138),
    (8, 0, 256, 2, 4): (0.695, 0.080),
    (8, 0, 256, 2, 16): (0.790, 0.081),
    (8, 0, 256, 4, 4): (0.709, 0.062),
    (8, 0, 256, 4, 16): (0.791, 0.080),
    (8, 1, 128, 2, 4): (0.748, 0.040),
    (8, 1, 128, 2, 16): (0.792, 0.084),
    (8, 1, 128, 4, 4): (0.903, 0.179),
    (8, 1, 128, 4, 16): (0.923, 0.193),
    (8, 1, 256, 2, 4): (0.683, 0.050),
    (8, 1, 256, 2, 16): (0.757, 0.068),
    (8, 1, 256, 4, 4): (0.696, 0.033),
    (8, 1, 256, 4, 16): (0.757, 0.068),
    (16, 0, 128, 2, 4): (0.854, 0.099),
    (16, 0, 128, 2, 16): (0.951, 0.064),
    (16, 0, 128, 4, 4): (0.985, 0.069),
    (16, 0, 128, 4, 16): (1.048, 0.070),
    (16, 0, 256, 2, 4): (0.816, 0.139),
    (16, 0, 256, 2, 16): (0.923, 0.127),
    (16, 0, 256, 4, 4): (0.816, 0.138),
    (16, 0, 256, 4, 16): (0.923, 0.126),
    (16, 1, 128, 2, 4): (0.827, 0.044),
    (16, 1, 128, 2, 16): (0.917, 0.030),
    (16, 1, 128, 4, 4): (0.962, 0.093),
    (16, 1, 128, 4, 16): (1.012, 0.106),
    (16, 1, 256, 2, 4): (0.789, 0.082),
    (16, 1, 256, 2, 16): (0.889, 0.086),
    (16, 1, 256, 4, 4): (0.789, 0.081),
    (16, 1, 256, 4, 16): (0.890, 0.085),
}


def corners() -> tuple[Corner, ...]:
    """All corners of the grid."""
    found = []
    for values in product(*AXES.values()):
        sustain, misfit = _FITTED.get(values, (machine().sustain, 1.0))
        found.append(Corner(tuple(zip(AXES, values, strict=True)), sustain, misfit))
    return tuple(found)
