"""MLA decode on gfx950 over stored rows with 32 query rows a wave."""

from __future__ import annotations

from mlagen.attention.latent.gfx950.wide import WideOutput
from mlagen.families.mla_decode.gfx950.stored_operations import StoredDecode


class WideStoredDecode(WideOutput, StoredDecode):
    """The operations of stored rows, over O and OA, with an M that seldom moves."""
