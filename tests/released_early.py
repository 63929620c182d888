"""The feeder of e4m3 tiles as it was once: it gives the place of a tile's columns back right after
the loads to registers, and converts these afterwards. The results were wrong on an H200 under load.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from mlagen.artifact import Artifact
from mlagen.attention.latent.sm_90a.swap_ab.storage import DequantizedKeys
from mlagen.codegen import build
from mlagen.dsl import Tile, copy
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.nvidia.dsl import release
from mlagen.targets.nvidia.ptxas import PtxasResult

PLANTED = MlaDecodeConfig(num_heads=16, cache_dtype="fp8_e4m3")
KNOBS = {"variant": "swap_ab"}  # where a feeder converts
_UNASSEMBLED = PtxasResult(b"", "", 0, 0, 0, 0, ())


@contextmanager
def released_early() -> Iterator[None]:
    """A `with` in which swap-AB has that feeder."""

    def convert(storage: DequantizedKeys, tile: Tile) -> None:
        for n, (raw, keys) in enumerate(zip(storage.arriving, storage.keys.pipelines, strict=True)):
            storage.read(tile, n)
            release(raw, tile)
            copy(keys, tile)

    with patch.object(DequantizedKeys, "convert", convert):
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
