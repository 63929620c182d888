"""What a kernel of sparse MLA rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.artifact.manifest import Rounding
from mlagen.attention.latent.facts import Facts
from mlagen.attention.latent.numerics import roundings
from mlagen.families.mla_sparse.rows import row_format


def roundings_for(problem: Mapping[str, Any], facts: Facts | None) -> tuple[Rounding, ...]:
    """What such a kernel rounds, but for what all kernels do: O to bf16, and sums in fp32."""
    if facts is None:
        return ()
    row = row_format(problem["rows"], problem["d_qk"])
    return roundings(facts.order, blocks=row.block > 0, exact_blocks=row.exact)
