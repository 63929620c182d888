"""What the scales of quantised columns multiply, where K is in registers: numbers, or sums.

`ScaledNumbers`: a number times its scale is rounded to bf16. `ScaledSums`: e4m3 numbers become f16,
which holds them exactly, in one instruction for two of them. Columns that share a scale are added
up by themselves, and each key's sum is multiplied by its scale in fp32; P is multiplied by the
scales of each group of values and rounded to f16, a tile of P a group. So no number of a key is
rounded.

f16 ends at 2^16. Rows of Q are multiplied by a power of two, which c undoes; P by 2^14 over the
largest power of two that is not above a scale so far, of the group's columns, which O is divided by
in the end. A lane has one of four groups' scales of its two keys.
"""

from __future__ import annotations

from typing import Any, Protocol

from mlagen.attention.latent.nvidia.row_form import LANES, RowForm
from mlagen.attention.latent.nvidia.sizes import COLUMNS, TILE
from mlagen.attention.latent.sm_90a.column_scales import scales_template
from mlagen.attention.latent.sm_90a.registers import FLOAT
from mlagen.attention.latent.sm_90a.swap_ab.kernel import SwapAbKernel
from mlagen.attention.latent.sm_90a.swap_ab.softmax import WARPS, WeightForm
from mlagen.dsl import Tile, Value, at_least, exactly, touched

OWN_KEYS = 2  # of a thread


class ColumnBlocks(Protocol):
    """Columns by 64, `boxes`, in the order in which they are added up."""

    boxes: list[int]

    def quantized(self, box: int) -> bool: ...


def has_scaled_sums(stored: RowForm) -> bool:
    """Whether scales can multiply sums: four groups of columns, which are the values."""
    return stored.blocks == LANES and stored.block % COLUMNS == 0 and stored.rope > 0


class ScaledNumbers:
    """Scales multiply numbers; a key's one scale its scores, and P."""

    sums = False
    fragments = "swap_ab/k_in_registers/fragments"
    queries = "swap_ab/k_in_registers/spread_queries"
    at_last: tuple[str, ...] = ()  # of the plain order, before the output is stored

    def __init__(self, kernel: SwapAbKernel, stored: RowForm) -> None:
        self.kernel, key = kernel, stored.scales == "key"
        self.weights = WeightForm(2 * TILE, context={"values_of": "bf16"})
        kernel.context |= {
            "parts_a_weight": kernel.k.d_v // COLUMNS, "key_scales": key,
            "scales": scales_template(stored),
        }  # fmt: skip
        if key:
            kernel.names(
                ("sigma", ".f32", OWN_KEYS, "scales of this thread's two keys"),
                ("next_sigma", ".f32", OWN_KEYS, "scales of the next tile's two keys"),
            )
        elif stored.scales == "blocks":
            kernel.names(("scale", ".f32", OWN_KEYS * stored.held_scales,
                          "scales of the rows that this thread fetches"))  # fmt: skip
        # Others are loaded when the tile before is done with them.
        kernel.context["loaded_scale"] = kernel.context.get("scale", ())
        self.loads = stored.scales != "none"

    def sums_of(self, box: int, keys: ColumnBlocks) -> tuple[str, dict[str, Any]]:
        """What the products of 64 columns add to, and what their template takes."""
        operands = {"sums": self.kernel.context["s"], "products_of": "bf16"}
        return "S", operands | {"overwrites": box == keys.boxes[0]}

    def before(self, box: int | None) -> list[str]:
        """Of the plain order, before the products of 64 columns, None: after all."""
        return []

    def add_group(self, tile: Tile, before: int | None) -> None:
        """Scales multiply each number."""

    def undo(self) -> None:
        """Nothing was multiplied that has to be undone."""


class ScaledSums:
    """Scales multiply sums (sums: of a group of columns), and P of each group."""

    sums = loads = True
    fragments = "swap_ab/scaled_sums/fragments"
    queries = "swap_ab/scaled_sums/spread_queries"
    at_last = ("undo",)

    def __init__(self, kernel: SwapAbKernel, stored: RowForm) -> None:
        self.kernel, self.stored, s, each = kernel, stored, kernel.s, kernel.held_rows
        self.weights = WeightForm(
            2 * TILE * stored.blocks, rescale="swap_ab/scaled_sums/rescale",
            context={"values_of": "f16", "scaled_sums": True},
        )  # fmt: skip
        size = exactly("registers", kernel.rows // 2, "S^T of a tile")
        factors, powers = (
            touched(s.smem.scratches[name], at_least("bytes", FLOAT * size, what))
            for name, size, what in (
                ("of queries", kernel.rows, "a factor of each query row"),
                ("of scales", WARPS * stored.blocks, "a power of each warp and group"),
            )
        )
        kernel.context |= {
            "group_sums": s.names("sums", size), "factors": factors, "powers": powers,
            "of_scores": [f"%own_c{n}" for n in range(each)], "key_scales": False,
            "parts_a_weight": kernel.k.d_v // COLUMNS // LANES,
        }  # fmt: skip
        # What is loaded later than the rows ptxas makes wait for them, too.
        kernel.names(
            ("scale", ".f32", OWN_KEYS * stored.held_scales,
             "scales of the rows that this thread fetches"),
            ("next_scale", ".f32", OWN_KEYS, "scales of the next tile's two keys"),
        )  # fmt: skip
        kernel.context["loaded_scale"] = kernel.context["next_scale"]
        kernel.name(
            ("largest", ".b32", "the largest power of two of this lane's scales"),
            ("lowered", ".f32", "what its growth does to O"),
        )

    def sums_of(self, box: int, keys: ColumnBlocks) -> tuple[str, dict[str, Any]]:
        """What the products of 64 columns add to, and what their template takes: of bf16 S^T, of
        e4m3 the sums of their group, which its first ones set."""
        if not keys.quantized(box):
            operands = {"sums": self.kernel.context["s"], "products_of": "bf16"}
            return "S", operands | {"overwrites": box == keys.boxes[0]}
        operands = {"sums": self.kernel.context["group_sums"], "products_of": "f16"}
        first = self.group_of(box) != self.group_of(box - 1) or box == 0
        return "sums", operands | {"overwrites": first}

    def group_of(self, box: int) -> int:
        """The group of columns, which share a scale, that 64 columns are of."""
        return COLUMNS * box // self.stored.block

    def before(self, box: int | None) -> list[str]:
        """Of the plain order, before the products of 64 columns, None: after all."""
        group = self._group_before(box)
        return [] if group is None else [f"add_group {group}"]

    def _group_before(self, box: int | None) -> int | None:
        """The group whose sums are complete before those of 64 columns begin, None: after all."""
        last = self.stored.boxes - 1 if box is None else box - 1
        if box is None or (
            0 < box < self.stored.boxes and self.group_of(box) != self.group_of(last)
        ):
            return self.group_of(last)
        return None

    def add_group(self, tile: Tile, before: int | None) -> None:
        """S^T += the sums of the group before that of the columns `before`, times its scales, if
        these begin another one; None: of the last group."""
        group = self._group_before(before)
        if group is not None:
            self.kernel.record(
                "swap_ab/scaled_sums/add_group", tile, of=str(group), group=group,
                uses=(Value("sums"), Value("S")), defines=(Value("S"),),
            )  # fmt: skip

    def undo(self) -> None:
        """O times what P was divided by."""
        self.kernel.record("swap_ab/scaled_sums/undo", None, uses=(Value("O"),),
                           defines=(Value("O"),))  # fmt: skip
