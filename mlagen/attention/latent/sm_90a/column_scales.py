"""Scales of columns, by which numbers are multiplied before they are rounded to bf16: how a thread
that has them in registers finds that of its columns. A value a place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlagen.attention.latent.nvidia.row_form import RowForm
from mlagen.attention.latent.nvidia.sizes import COLUMNS


def scales_template(stored: RowForm) -> str:
    """Where four lanes share a row's scales: the template with the macro `find_scale`."""
    return f"latent/scales/{'exponents' if stored.powers else 'floats'}.ptx.j2"


@dataclass(frozen=True)
class FedScales:
    """Where each thread of a feeder has those of its numbers. `name`: of the template with the
    macros `load_scales`, `find_scale` and `scale`. `count(form, blocks)`: registers for 128 columns
    of a row, where so many blocks share its conversion. `spreads(form)`: whether a thread may have
    numbers of both halves of 64 columns, which takes no more of them."""

    name: str
    count: Callable[[RowForm, int], int]
    spreads: Callable[[RowForm], bool]

    @property
    def template(self) -> str:
        return f"latent/scales/fed/{self.name}.ptx.j2"


# fp32, in the row or in a tensor of their own: those of a thread's numbers.
FLOATS = FedScales(
    "floats",
    lambda form, blocks: 1 if blocks > 1 and form.block >= 2 * COLUMNS else 2,
    lambda form: form.scales != "blocks" or form.block >= COLUMNS,
)
# ue8m0, behind all rows of a page: all of a row's are loaded when it is found.
PAGED_EXPONENTS = FedScales("paged_exponents", FLOATS.count, FLOATS.spreads)
# The same in the row, four a word, of 128 columns.
EXPONENTS = FedScales("exponents", lambda form, blocks: 1, lambda form: True)


def fed_scales(stored: RowForm) -> FedScales:
    """Where a row's scales of columns are."""
    if stored.powers:
        return EXPONENTS
    return PAGED_EXPONENTS if stored.paged_exponents else FLOATS
