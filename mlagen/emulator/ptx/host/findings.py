"""Raw findings of clusters joined."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlagen.emulator.ptx import layout as y


def merge(tables: Sequence[np.ndarray]) -> list[list[int]]:
    """The findings of all clusters: one row a (kind, instruction, other instruction), that of the
    first cluster with the count of all."""
    merged: dict[tuple[int, int, int], list[int]] = {}
    for table in tables:
        for row in table.tolist():
            key = (row[y.F_KIND], row[y.F_ROW], row[y.F_OTHER])
            if key in merged:
                merged[key][y.F_COUNT] += row[y.F_COUNT]
            else:
                merged[key] = row
    return sorted(merged.values(), key=lambda row: (row[y.F_ROW], row[y.F_KIND], row[y.F_OTHER]))
