"""Top-k sparse MLA in the absorbed form: queries attend to the rows of a cache that lists name."""

from __future__ import annotations

from mlagen.family import Family, Kind


class MlaSparse(Family):
    """Prefill and decode over listed rows. What it does not bring is refused by name."""

    name = "mla_sparse"

    def kind(self, problem_type: str) -> Kind:
        """Of `MlaSparsePrefillConfig` and of `MlaSparseDecodeConfig`."""
        from mlagen.families.mla_sparse.verification import DECODE, PREFILL

        return DECODE if problem_type == "MlaSparseDecodeConfig" else PREFILL


FAMILY = MlaSparse()
