"""Rows of instructions that reach memory, and of those by which lanes exchange values."""

from __future__ import annotations

from mlagen.emulator.ptx.translate.memory import access, atomics, collectives, matrices
from mlagen.emulator.ptx.translate.memory.collectives import warp_barrier
from mlagen.emulator.ptx.translate.rows import Translation

__all__ = ["TRANSLATIONS", "warp_barrier"]

TRANSLATIONS: dict[str, Translation] = {
    **access.TRANSLATIONS,
    **atomics.TRANSLATIONS,
    **collectives.TRANSLATIONS,
    **matrices.TRANSLATIONS,
}
