"""What a plan is for: a kernel's block of threads, and how many of them a GPU runs at once."""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.artifact import Manifest
from mlagen.attention.latent.split_work import BLOCK_ROWS, H200_SMS

B200_SMS = 148
MI355X_CUS = 256
WAVES = 4  # of a workgroup on gfx950, each with rows of its own


@dataclass(frozen=True, slots=True)
class Unit:
    """`rows`: query rows that a block has at most, and a slot has room for. `blocks`: of a whole
    GPU, one an SM or compute unit."""

    target: str
    rows: int
    blocks: int


HOPPER = Unit("sm_90a", BLOCK_ROWS, H200_SMS)
BLACKWELL = Unit("sm_100a", BLOCK_ROWS, B200_SMS)
NVIDIA = {unit.target: unit for unit in (HOPPER, BLACKWELL)}


def unit_of(manifest: Manifest) -> Unit:
    """The unit of a decode kernel."""
    if manifest.target != "gfx950":
        return NVIDIA[manifest.target]
    return Unit(manifest.target, WAVES * int(manifest.knobs["rows"]), MI355X_CUS)


def puts_together(manifest: Manifest) -> bool:
    """Whether blocks of a decode kernel put parts of row blocks together."""
    named = {arg.name for arg in manifest.args}
    return "arrivals" in named and "shares" not in named
