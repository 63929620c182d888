"""Top-k sparse MLA in the absorbed form: queries attend to the rows of a cache that lists name.

It has problems, inputs and oracles; no schedule solves them yet.
"""

from __future__ import annotations

from mlagen.family import Family


class MlaSparse(Family):
    """Prefill and decode over listed rows. What it does not bring is refused by name."""

    name = "mla_sparse"


FAMILY = MlaSparse()
