"""MLA of 17 to 32 query rows over rows of e4m3 whose columns have scales, on Hopper, keys as rows:
numbers of a row are f16, in multiples of a key's grain (`latent.grains`).

As `KeysAsRows`, but a number times its scale is not rounded to bf16. Who converts a row finds its
grain, and leaves it in SMEM with the numbers. Scores are multiplied by it, and P by it over the
largest one so far; where that grows O is divided by what it grows by, together with what the
maximum does. Q is f16, a row times a power of two, and so is P. Columns that are bf16 in memory
stay that, divided by the grain.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.row_form import LANES
from mlagen.attention.latent.sm_90a.grained import SCALE_BITS
from mlagen.attention.latent.sm_90a.keys_as_rows import KeysAsRows
from mlagen.attention.latent.sm_90a.registers import FLOAT
from mlagen.attention.latent.sm_90a.seesaw import QUERY_LOADS
from mlagen.dsl import Tile, Value, at_least, touched
from mlagen.targets.nvidia.dsl import PipelineSpace


class GrainedKeys(KeysAsRows):
    """The operations of one kernel over the schedule's tiles and registers, as `KeysAsRows`."""

    grained = True

    @property
    def reads_queries(self) -> str:
        return "lift_queries"

    def _registers(self, s: PipelineSpace) -> dict[str, Any]:
        found = super()._registers(s)
        why = "bits of what O is a multiple of: the largest grain so far"
        found["grain"] = s.named("grain", ".b32", 1, why)[0]
        self.rooms = tuple(
            touched(s.smem.scratches[f"grains {group}"],
                    at_least("bytes", FLOAT * self.keys[0][group].rows, "grains of keys"))
            for group in range(self.groups)
        )  # fmt: skip
        if self.k.dtype == "bf16":
            found["factors"] = touched(
                s.smem.scratches["of queries"],
                at_least("bytes", FLOAT * self.rows, "a factor of each query row"),
            )
            found["of_scores"] = [f"%own_c{n}" for n in range(self.rows // 4)]
        return found | {
            "rooms": self.rooms, "sigma": ["%of_key0", "%of_key1"], "values_of": "f16",
            **SCALE_BITS,
        }  # fmt: skip

    def _of_queries(self) -> dict[str, Any]:
        assert self.stored
        return {
            "groups": 1, "tiles_": self.queries, "pipelines": (self.query,),
            "together": QUERY_LOADS, "row_threads": self.math.threads // self.rows,
            "f16_tiles": self.stored.boxes,
        }  # fmt: skip

    def _scale_registers(self) -> list[tuple[str, str, int, str]]:
        return [("scale", ".f32", LANES, "scales of the row that this thread has loaded")]

    def measure(self, tile: Tile, group: int) -> None:
        """Store the grains of rows that were loaded, for the softmax of `tile`; make of their
        scales, and of columns of bf16, multiples of these."""
        name, raw = self.cache[group].name, Value(f"raw {group % self.raw_sets}")
        self._record("measure", tile, template="measure_rows", of=name, group=group,
                     words=self._words(group), uses=(raw,),
                     defines=(raw, Value(self.rooms[group].name, tile)))  # fmt: skip

    def _measured(self, tile: Tile) -> tuple[Value, ...]:
        return tuple(Value(room.name, tile) for room in self.rooms)
