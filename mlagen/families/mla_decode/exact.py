"""The exact oracle of MLA decode; see `mlagen.attention.latent.exact`."""

from __future__ import annotations

from mlagen.attention.latent import exact as latent
from mlagen.families.mla_decode.expected import DecodeOracle

exact = DecodeOracle("exact", latent.exact)
