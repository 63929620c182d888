"""The feeder of e4m3 tiles as it was once: it gives the place of a tile's columns back right after
the loads to registers, and converts these afterwards. The results were wrong on an H200 under load.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from mlagen.artifact import Artifact
from mlagen.attention.latent.sm_90a.few_rows import FewRows
from mlagen.codegen import build
from mlagen.dsl import Tile, Value, copy
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.nvidia.dsl import release
from mlagen.targets.nvidia.ptxas import PtxasResult

PLANTED = MlaDecodeConfig(num_heads=16, cache_dtype="fp8_e4m3")
KNOBS = {"variant": "swap_ab"}  # where a feeder converts
_UNASSEMBLED = PtxasResult(b"", "", 0, 0, 0, 0, ())


@contextmanager
def released_early() -> Iterator[None]:
    """A `with` in which schedules of few rows have that feeder."""

    def convert(rows: FewRows, tile: Tile) -> None:
        for n, (raw, columns) in enumerate(zip(rows.fetched_by, rows.cache, strict=True)):
            rows._record(
                "read_e4m3", tile, tile_=raw.tiles[0], of=raw.name, role=rows.feeder,
                narrow=len(columns.tiles) == 1, words=rows._words(n),
                uses=(Value(raw.name, tile),), defines=(Value(rows._numbers(n)),),
            )  # fmt: skip
            release(raw, tile)
            copy(columns, tile)

    with patch.object(FewRows, "convert", convert):
        yield


def planted() -> Artifact:
    """The artifact of that schedule, unproved and not assembled."""
    with (
        released_early(),
        patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=_UNASSEMBLED),
    ):
        return build("mla_decode_sm90", PLANTED, knobs=KNOBS, allow_unproved=True)


def right() -> Artifact:
    """The artifact of the schedule as it is, not assembled."""
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=_UNASSEMBLED):
        return build("mla_decode_sm90", PLANTED, knobs=KNOBS)
