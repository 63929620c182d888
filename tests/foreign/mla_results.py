"""Outputs of a launch against the expectation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from aiter import Error, Outcome
from mla_oracle import Rows
from mla_problem import Array

from mlagen.emulator import EmulationResult
from mlagen.problem.expected import Expected, compare


def check(output: str, rows: Rows, got_o: Array, got_lse: Array | None) -> list[Error]:
    """Rows' O [rows, d_v], and their LSE [rows], against the expectation.

    A row of a part that sees none of its keys has no O; its LSE is -inf or NaN, which `merged`
    takes for the same.
    """
    if output == "partial " and got_lse is not None:
        got_lse = np.where(np.isneginf(rows.lse) & np.isnan(got_lse), -np.inf, got_lse)
        got_o = np.where(np.isneginf(rows.lse)[:, None], rows.o, got_o).astype(np.float32)
    errors = [_check(f"{output}O", rows.o, rows.o_bound, got_o)]
    if got_lse is not None:
        bound = rows.lse_bound[:, None]
        errors.append(_check(f"{output}LSE", rows.lse[:, None], bound, got_lse[:, None]))
    return errors


def _check(output: str, values: Array, bounds: Array, got: Array) -> Error:
    expected = Expected(
        oracle="exact",
        values=values[None, :, None],
        bounds=bounds[None, :, None],
        rows=np.arange(len(values)),
        heads=np.array([0]),
        output=output,
    )
    found = compare(expected, got[None, :, None])
    return Error(output, found.max_error, found.max_ratio, found.nans)


def worst(errors: Sequence[Error]) -> tuple[Error, ...]:
    """One error an output: the worst ratio, the largest error, all NaNs."""
    names = dict.fromkeys(e.output for e in errors)
    of = {name: [e for e in errors if e.output == name] for name in names}
    return tuple(
        Error(
            name,
            float(np.nanmax([0.0, *(e.error for e in some)])),
            max(e.ratio for e in some),
            sum(e.nans for e in some),
        )
        for name, some in of.items()
    )


def outcome(errors: Sequence[Error], result: EmulationResult) -> Outcome:
    return Outcome(worst(errors), result.findings, result.wave_instructions, result.seconds)
