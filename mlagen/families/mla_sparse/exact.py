"""The exact oracle of sparse MLA; see `mlagen.attention.latent.exact`.

Its values are those of the stored numbers. Where a kernel multiplies each number by its scale and
rounds it to bf16, the distance to what follows from the rounded numbers is part of the bound.
"""

from __future__ import annotations

from mlagen.attention.latent import exact as latent
from mlagen.families.mla_sparse.expected import SparseOracle

exact = SparseOracle("exact", latent.exact, exact=True)
