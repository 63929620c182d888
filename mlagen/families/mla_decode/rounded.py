"""The rounding oracle of MLA decode; see `mlagen.attention.latent.rounded`."""

from __future__ import annotations

from mlagen.attention.latent import rounded as latent
from mlagen.families.mla_decode.expected import DecodeOracle

rounded = DecodeOracle("rounding", latent.rounded)
