"""The clock that a power limit allows.

Watts are what the chip takes when idle, and for every cycle what a compute unit does in it, times
the energy of each of these (`constants`, `e_*`). Energy grows with the clock as the square of the
voltage does: by the exponent `voltage`, from 1.6 GHz on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mlagen.timing.activity import Activity
from mlagen.timing.constants import Machine

REFERENCE: Final = 1.6  # GHz at which the energies hold: what published kernels run at


@dataclass(frozen=True, slots=True)
class Rates:
    """What a compute unit does a cycle, mean over a launch and all of them."""

    each: Activity

    @staticmethod
    def of(total: Activity, cycles: float, on: Machine) -> Rates:
        """Of a launch that does `total` in `cycles`."""
        return Rates(total * (1 / (max(cycles, 1.0) * on.cus)))


def energy_of_a_cycle(rates: Rates, on: Machine) -> float:
    """pJ of a compute unit's cycle at the reference clock."""
    each = rates.each
    return (
        on.e_cycle
        + each.bf16 * on.e_bf16
        + each.f16 * on.e_f16
        + each.f8 * on.e_f8
        + each.f4 * on.e_f4
        + each.vector * on.e_vector
        + each.lds * on.e_lds
        + each.l2 * on.e_l2
        + each.hbm * on.e_hbm
    )


def watts(rates: Rates, clock: float, on: Machine) -> float:
    """Of the whole chip at a clock in GHz. A pJ a cycle is a mW at a GHz."""
    dynamic = energy_of_a_cycle(rates, on) * clock * on.cus * 1e-3
    return on.idle_power + dynamic * (clock / REFERENCE) ** on.voltage


def clock_of(rates: Rates, on: Machine) -> float:
    """GHz that the power limit allows, at most the maximum.

    `watts` grows with the clock, so there is one, and it has a closed form. A limit that is hardly
    above the idle power would stop the chip: half of the reference is the least that is answered.
    """
    at_reference = energy_of_a_cycle(rates, on) * REFERENCE * on.cus * 1e-3
    if at_reference <= 0:
        return on.max_clock
    budget = max(on.power_limit - on.idle_power, 0.0)
    clock = REFERENCE * (budget / at_reference) ** (1 / (1 + on.voltage))
    return min(on.max_clock, max(clock, REFERENCE / 2))
