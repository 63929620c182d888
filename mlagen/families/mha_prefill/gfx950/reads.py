"""How waves read tiles of K and V from LDS in MHA prefill on gfx950."""

from __future__ import annotations

from mlagen.attention.prefill.gfx950.fragments import FORMATS, key_fragments, transposed_fragments
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.targets.gfx950.dsl import Reads


def key_reads(k: MhaConfigV2) -> Reads:
    """K as operand A of S^T = K Q^T."""
    fragments = key_fragments(k.kv_block, k.depth)
    return Reads(fragments, 16, "keys x depth, read by ds_read_b128")


def value_reads(k: MhaConfigV2) -> Reads:
    """V^T as operand A of O^T = V^T P."""
    form = FORMATS["bf16"]
    fragments = transposed_fragments(form, k.kv_block, k.depth)
    return Reads(fragments, 8, f"keys x depth, read transposed by {form.transposing}")
