"""What tests of MLA decode share: what schedules declare for its operations, and calls in parts."""

from __future__ import annotations

from dataclasses import replace

from mlagen.attention.latent.sm_90a.seesaw.kernel import SeesawKnobs
from mlagen.families.mla_decode.sm_90a.operations import mla_decode


def decode_operations(k, s, left, right, feeder=None, **knobs):
    """The operations over tiles and registers for these knobs (`SeesawKnobs`)."""
    chosen = SeesawKnobs(**{"boxes": 4, "held": 1, **knobs})
    for tensor, name, slots in (("q", "Q", 1), ("cache", "K", 2)):
        for n in range(k.d_qk // 64):
            s.smem.tile(f"{name}{n}", tensor, rows=64, row_bytes=128, slots=slots)
    for name, type, count in (
        ("o", ".f32", k.d_v // 4), ("s", ".f32", 32), ("p", ".b32", 16),
        ("qr", ".b32", 16 * chosen.held),
    ):  # fmt: skip
        s.named(name, type, count, "")
    return mla_decode(k, s, left, right, feeder, chosen)


def alone(inputs, b):
    """The same call for one sequence."""
    own = slice(b, b + 1)
    table, lengths = inputs.block_table[own], inputs.cache_lengths[own]
    return replace(inputs, q=inputs.q[own], block_table=table, cache_lengths=lengths)
