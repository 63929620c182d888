"""Scales of columns, by which numbers are multiplied before they are rounded to bf16: how a thread
that has them in registers finds that of its columns."""

from __future__ import annotations

from mlagen.attention.latent.nvidia.row_form import RowForm

FOLDER = "latent/scales"


def scales_template(stored: RowForm) -> str:
    """The template with the macros `find_scale` and `own_scale`, of a row's form."""
    return f"{FOLDER}/{'exponents' if stored.powers else 'floats'}.ptx.j2"
