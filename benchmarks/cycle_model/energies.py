"""The energies that explain the clocks of published kernels: bounded least squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from mlagen.timing.constants import Machine
from mlagen.timing.fitted import NAMES
from mlagen.timing.power import REFERENCE, Rates


@dataclass(frozen=True, slots=True)
class Observed:
    """A kernel's rates and the GHz at which it ran, on a chip that its power limit held there."""

    rates: Rates
    clock: float
    chip: Machine


def fit_energies(seen: Sequence[Observed], on: Machine) -> dict[str, float]:
    """Energies of `NAMES`; what `on` says of the others stays.

    They minimise the sum of squares of relative errors of a cycle's energy. None is below zero,
    and a byte of the LDS costs no more than one of the L2. The problem is convex and small, so the
    best of all choices of what lies on a bound is found by trying them.
    """
    rows = np.array([_row(each) for each in seen])
    rest = np.array([_budget(each) - _fixed(each.rates, on) for each in seen])
    scaled, ones = rows / rest[:, None], np.ones(len(seen))
    best: tuple[float, np.ndarray] | None = None
    limits = [(0.0, on.e_l2) if name == "e_lds" else (0.0,) for name in NAMES]
    for choice in product(*((None, *bounds) for bounds in limits)):
        held = np.array([0.0 if value is None else value for value in choice])
        free = [i for i, value in enumerate(choice) if value is None]
        found = held.copy()
        if free:
            wanted = ones - scaled @ held
            found[free] = np.linalg.lstsq(scaled[:, free], wanted, rcond=None)[0]
        if (found < 0).any() or found[-1] > on.e_l2:
            continue
        error = float(((scaled @ found - ones) ** 2).sum())
        if best is None or error < best[0] - 1e-12:
            best = (error, found)
    assert best is not None  # all on a bound is always possible
    return dict(zip(NAMES, map(float, best[1]), strict=True))


def _row(seen: Observed) -> list[float]:
    each = seen.rates.each
    return [1.0, each.bf16, each.f16, each.f8, each.f4, each.vector, each.lds]


def _fixed(rates: Rates, on: Machine) -> float:
    return rates.each.l2 * on.e_l2 + rates.each.hbm * on.e_hbm


def _budget(seen: Observed) -> float:
    """pJ that the limit left a compute unit's cycle, at the reference clock."""
    chip, clock = seen.chip, seen.clock
    share = (chip.power_limit - chip.idle_power) / (clock * chip.cus * 1e-3)
    return share / (clock / REFERENCE) ** chip.voltage
