"""How fast a gfx950 binary will be, and where its time goes: a cycle model of a compute unit.

from mlagen.timing import Job, simulate
result = emulate(code, ..., record=True, workgroups=[(0, 0, 0)])
report = simulate(Job(kernel, result.streams, grid, lds_bytes))

It reads machine code and what the emulator executed; it knows of no generator. docs/timing.md says
how far its predictions are from published measurements.
"""

from mlagen.errors import MissingError
from mlagen.extras import install

try:
    import numba as _numba  # noqa: F401
except ModuleNotFoundError:
    raise MissingError(
        "the cycle model's compiler is not installed: numba",
        hint=install("emulator"),
    ) from None

from mlagen.timing.constants import CONSTANTS, Constant, Machine, machine
from mlagen.timing.model import ScheduleSource, Simulation
from mlagen.timing.simulate import Job, simulate

__all__ = [
    "CONSTANTS",
    "Constant",
    "Job",
    "Machine",
    "ScheduleSource",
    "Simulation",
    "machine",
    "simulate",
]
