"""The rounding oracle of sparse MLA; see `mlagen.attention.latent.rounded`."""

from __future__ import annotations

from mlagen.attention.latent import rounded as latent
from mlagen.families.mla_sparse.expected import SparseOracle

rounded = SparseOracle("rounding", latent.rounded, exact=False)
