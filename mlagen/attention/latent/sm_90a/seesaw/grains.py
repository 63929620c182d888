"""Rows of e4m3 whose columns have scales: numbers are f16, in multiples of a key's grain
(`latent.grains`), for the two math warpgroups.

A number times its scale is not rounded to bf16. Divided by its key's grain, a power of two, it
becomes f16: exactly where its scale is a power of two, and else with one rounding, in half as many
instructions. Scores and P are multiplied by grains, P over the largest so far. Where that grows O
is divided by what it grows by, together with what the maximum does. Q is f16, a row times a power
of two, and so is P. Columns that are bf16 in memory stay that, divided by the grain, as do theirs
of Q: products of both kinds add to the same sums.

The feeder measures a key where it converts it, and leaves its grain in SMEM. A math warpgroup reads
those of a tile whose scores it has, and takes the largest so far with the other one's maximum.
"""

from __future__ import annotations

from typing import Literal

from mlagen.attention.latent.grains import LEAST_SCALE, LIFT
from mlagen.attention.latent.nvidia.row_form import LANES, RowForm
from mlagen.attention.latent.nvidia.sizes import COLUMNS, ROWS, TILE
from mlagen.attention.latent.sm_90a.registers import FLOAT, SLOTS
from mlagen.attention.latent.sm_90a.seesaw.kernel import SeesawKernel
from mlagen.dsl import Tile, Value
from mlagen.targets.nvidia.dsl import Pipeline, acquire

FP32_BIAS, FP32_FRACTION = 127, 23  # of an exponent; bits below it
# Bits of the least scale that counts, and what is taken off a scale's exponent.
SCALE_BITS = {
    "least": hex(FP32_BIAS + LEAST_SCALE << FP32_FRACTION), "lift": LIFT << FP32_FRACTION
}  # fmt: skip
OWN_TEMPLATES = ("measure", "store_grains", "lift_queries")


def has_grains(stored: RowForm | None) -> bool:
    """Whether a row's numbers can be multiples of a grain: four groups of columns with fp32 scales
    in the row, in front of columns of bf16."""
    return stored is not None and stored.blocks == LANES and stored.rope == COLUMNS and (
        stored.scales_at is not None and not stored.paged_exponents
    )  # fmt: skip


class Grains:
    """What numbers of `fed.Fed` become."""

    does: Literal["measure"] = "measure"
    scales_come = published = False
    found = (Value("scales"),)
    by = (Value("grains"),)

    def __init__(self, kernel: SeesawKernel, stored: RowForm) -> None:
        self.kernel, self.stored, s = kernel, stored, kernel.s
        self.weights = tuple(s.smem.room(f"grains {slot}", TILE * FLOAT) for slot in range(SLOTS))
        # Rows of e4m3 are multiplied by no power of two: their c is the same.
        self.factors = s.smem.room("factors of queries", FLOAT * ROWS) if (
            kernel.k.dtype == "bf16"
        ) else None  # fmt: skip

    def declare(self, rows: int) -> None:
        s, found = self.kernel.s, self.kernel.context
        # A thread with one row has registers for all of its scales, unless there are second lists
        # or positions; else four threads exchange theirs.
        whole = rows == 1 and not (found["extra"] or found["causal"])
        each = LANES if whole else 1
        for name, type, count, why in (
            ("next_scales", ".f32", rows * each, "scales of this thread's next rows"),
            ("ratios", ".b32", rows * each, "of rows to convert, these over the grain"),
            ("grains", ".b32", rows, "bits of what numbers of these rows are multiples of"),
        ):
            found[name] = s.named(name, type, count, why)
        for name, why in (
            ("grain", "bits of what O is a multiple of: the largest grain so far"),
            ("largest", "bits of the largest grain of this warpgroup's tile"),
        ):
            found[name] = s.named(name, ".b32", 1, why)[0]
        if self.factors:
            below = s.named("c_below", ".f32", 1, "c of the second row")
            found["c"] = [found["c"][0], *below]
        found |= {
            "f16_tiles": self.stored.boxes, "factors": self.factors, "whole_scales": whole,
            "grain_at": FLOAT * ROWS, "row_threads": 2, **SCALE_BITS,
        }  # fmt: skip

    def measure(self, tile: Tile) -> None:
        """Find the grains of rows of `tile`, and what their scales are in multiples of them."""
        self.kernel.record("measure", tile, uses=(Value("scales"),), defines=self.by)

    def before_last(self, pipeline: Pipeline, tile: Tile) -> None:
        """With the columns that have no scale the grains go to SMEM: both math roles have given
        these back, so nobody reads those before."""
        acquire(pipeline, tile)
        room = self.weights[tile.offset % SLOTS]
        self.kernel.record("store_grains", tile, room=room, pipeline=pipeline,
                           index=tile.offset % SLOTS, uses=self.by,
                           defines=(Value(room.name, tile),))  # fmt: skip
