"""Scales of columns, by which feeders multiply before they round to bf16: a value a place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mlagen.attention.latent.nvidia.row_form import RowForm


@dataclass(frozen=True)
class Scales:
    """`template`: of `storage/scales`, with macros `load_scales(part)`, of a thread's row `part`,
    `find_factor(part, column)` and `factor(part, column)`, what the numbers of a box are multiplied
    by. `count(form, columns)` registers of `type` hold those of a row, where a thread converts
    boxes with these first columns."""

    template: str
    type: str
    count: Callable[[RowForm, Iterable[int]], int]


# None, one for all, or one a row: the softmax has these.
NONE = Scales("none", ".b32", lambda form, columns: 0)
# fp32, in the row or in a tensor of their own: those of a thread's boxes.
FLOATS = Scales("floats", ".f32", lambda form, columns: len({x // form.block for x in columns}))
# ue8m0, behind all rows of a page: all of a row's, a byte each.
PAGED_EXPONENTS = Scales("paged_exponents", ".b32", lambda form, columns: form.paged_exponents // 4)

# The same in the row, four a word, of two boxes.
EXPONENTS = Scales(
    "exponents", ".b32", lambda form, columns: len({x // form.block // 4 for x in columns})
)


def scales_of(form: RowForm) -> Scales:
    """Where a row's scales of columns lie."""
    if form.scales != "blocks":
        return NONE
    if form.powers:
        return EXPONENTS
    return PAGED_EXPONENTS if form.paged_exponents else FLOATS
