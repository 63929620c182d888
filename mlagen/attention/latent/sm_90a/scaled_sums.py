"""MLA of few query rows over rows of e4m3 whose columns have scales, on Hopper: scales multiply
sums, not numbers.

As `keys_in_registers`, but e4m3 numbers become f16, which holds them exactly, in one instruction
for two of them. Columns that share a scale are added up by themselves, and each key's sum is
multiplied by its scale in fp32; P is multiplied by the scales of each group of values and rounded
to f16, a tile of P a group. So no number of a key is rounded.

f16 ends at 2^16. Rows of Q are multiplied by a power of two, which c undoes; P by 2^14 over the
largest power of two that is not above a scale so far, of the group's columns, which O is divided by
in the end. A lane has one of four groups' scales of its two keys.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.row_form import LANES, RowForm
from mlagen.attention.latent.nvidia.sizes import COLUMNS, TILE
from mlagen.attention.latent.sm_90a.keys_as_rows import WARPS
from mlagen.attention.latent.sm_90a.keys_in_registers import OWN_KEYS, KeysInRegisters
from mlagen.attention.latent.sm_90a.registers import FLOAT
from mlagen.dsl import Tile, Value, at_least, exactly, touched
from mlagen.targets.nvidia.dsl import PipelineSpace

OWN_TEMPLATES = ("fragments", "spread_queries", "rescale", "add_group", "undo")


def has_scaled_sums(stored: RowForm) -> bool:
    """Whether scales can multiply sums: four groups of columns, which are the values."""
    return stored.blocks == LANES and stored.block % COLUMNS == 0 and stored.rope > 0


class ScaledSums(KeysInRegisters):
    """The operations of one kernel over the schedule's tiles, as `KeysInRegisters`, and registers
    (o, s, raw, a, and sums: of a group of columns)."""

    scaled_sums = True

    @property
    def p_bytes(self) -> int:  # type: ignore[override]
        """A tile of P for each group of columns."""
        assert self.stored
        return 2 * TILE * self.stored.blocks

    _at_last = ("undo",)

    def _registers(self, s: PipelineSpace) -> dict[str, Any]:
        found = super()._registers(s)
        each = self.rows // 4
        found["group_sums"] = s.names("sums", exactly("registers", self.rows // 2, "S^T of a tile"))
        found["of_scores"] = [f"%own_c{n}" for n in range(each)]
        for name, type, why in (
            ("largest", ".b32", "the largest power of two of this lane's scales"),
            ("lowered", ".f32", "what its growth does to O"),
        ):
            found[name] = s.named(name, type, 1, why)[0]
        assert self.stored
        found["factors"], found["powers"] = (
            touched(s.smem.scratches[name], at_least("bytes", size, what))
            for name, size, what in (
                ("of queries", FLOAT * self.rows, "a factor of each query row"),
                ("of scales", WARPS * FLOAT * self.stored.blocks, "a power of each warp and group"),
            )
        )
        found["values_of"] = "f16"
        found["parts_a_weight"] = self.k.d_v // COLUMNS // LANES
        return found

    def _next_registers(self) -> list[tuple[str, str, int, str]]:
        more = ("next_scale", ".f32", OWN_KEYS, "scales of the next tile's two keys")
        return [more, *super()._next_registers()]

    def group_of(self, box: int) -> int:
        """The group of columns, which share a scale, that 64 columns are of."""
        assert self.stored
        return COLUMNS * box // self.stored.block

    def qk_of(self, tile: Tile, box: int) -> None:
        """S^T = K Q^T over 64 columns of bf16; of e4m3 the sums of their group, which its first
        ones set."""
        if not self.converted(box):
            super().qk_of(tile, box)
            return
        self._products(
            tile, box, "sums", sums=self.supply["group_sums"], products_of="f16",
            overwrites=self.group_of(box) != self.group_of(box - 1) or box == 0,
        )  # fmt: skip

    def _group_before(self, box: int | None) -> int | None:
        """The group whose sums are complete before those of 64 columns begin, None: after all."""
        assert self.stored
        last = self.stored.boxes - 1 if box is None else box - 1
        new = box is None or self.group_of(box) != self.group_of(last)
        return self.group_of(last) if new and last >= 0 and box != self.boxes[0] else None

    def _before(self, box: int | None) -> list[str]:
        group = self._group_before(box)
        return [] if group is None else [f"add_group {group}"]

    def add_group(self, tile: Tile, before: int | None) -> None:
        """S^T += the sums of the group before that of the columns `before`, times its scales, if
        these begin another one; None: of the last group."""
        group = self._group_before(before)
        if group is None:
            return
        self._record(
            "add_group", tile, of=str(group), group=group,
            uses=(Value("sums"), Value("S")), defines=(Value("S"),),
        )  # fmt: skip

    def undo(self) -> None:
        """O times what P was divided by."""
        self._record("undo", None, uses=(Value("O"),), defines=(Value("O"),))
