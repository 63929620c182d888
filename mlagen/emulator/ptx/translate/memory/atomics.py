"""Rows."""

from __future__ import annotations

from mlagen.emulator.ptx.translate.rows import Translation

TRANSLATIONS: dict[str, Translation] = {}
