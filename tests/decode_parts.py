"""What schedules in tests declare for the operations of MLA decode, as `mla_decode_sm90` does."""

from __future__ import annotations

from mlagen.families.mla_decode.sm_90a.operations import DecodeKnobs, MlaDecode


def decode_operations(k, s, left, right, feeder=None, **knobs):
    """The operations over tiles and registers for these knobs (`DecodeKnobs`)."""
    chosen = DecodeKnobs(**{"boxes": 4, "held": 1, **knobs})
    for tensor, name, slots in (("q", "Q", 1), ("cache", "K", 2)):
        for n in range(k.d_qk // 64):
            s.smem.tile(f"{name}{n}", tensor, rows=64, row_bytes=128, slots=slots)
    for name, type, count in (
        ("o", ".f32", k.d_v // 4), ("s", ".f32", 32), ("p", ".b32", 16),
        ("qr", ".b32", 16 * chosen.held),
    ):  # fmt: skip
        s.named(name, type, count, "")
    return MlaDecode(k, s, left, right, feeder, chosen)
