"""Products whose operands lie in SMEM, but for V^T of e4m3.

S^T = K Q^T takes both operands from SMEM. wgmma reads e4m3 there only along the products that it
adds, and rows of the cache lie across them for V: then O^T += V^T P^T has V^T in registers, which
`ldmatrix` reads across the rows of K. So keys may be given back before their P is known. Rows g and
g + 8 of operand A, 16 a warp, are columns 2 g and 2 g + 1; a word has keys 2 q, 2 q + 1, 2 q + 8
and 2 q + 9 of 16, of P as of V.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from mlagen.attention.latent.nvidia.sizes import COLUMNS, TILE
from mlagen.attention.latent.order import HOPPER_E4M3, Order
from mlagen.attention.latent.sm_90a.swap_ab.kernel import SwapAbKernel
from mlagen.attention.latent.sm_90a.swap_ab.queries import OwnQueries, SwapAbQueries
from mlagen.attention.latent.sm_90a.swap_ab.softmax import WeightForm
from mlagen.attention.latent.sm_90a.swap_ab.storage import BOX, KeyRing
from mlagen.dsl import Tile, Value, exactly
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import Pipeline

STEP = 16  # keys of a matrix instruction
BLOCK = 64  # columns of O that an instruction has
WORDS = TILE * BOX // 4 // 128  # registers of a thread for 128 columns of 64 keys
# wgmma descriptor of P of e4m3: 64-byte swizzle, 8 rows are 512 bytes (PTX ISA, matrix descriptor).
P_BYTES = TILE
P_BITS = 2 << 62 | 8 * P_BYTES >> 4 << 32 | 1 << 16
# A register of roles that read V^T across the rows of K.
VALUES_AT = ("values_at", ".b32", "row of K and 16 columns that this lane reads of 32 keys")


def fp32(number: float) -> str:
    """A number as PTX writes its bits."""
    return f"0f{struct.pack('>f', number).hex().upper()}"


def maxima(order: Order) -> dict[str, Any]:
    """What templates need to know of M."""
    return {"bias": order.bias, "stays": order.slack, "fine": order.fine, "fp32": fp32}


def check_products(kernel: SwapAbKernel, compute: str) -> None:
    """ScheduleError where the problem has products of other numbers than `compute`."""
    if kernel.k.compute != compute:
        raise ScheduleError(
            f"products of {compute}; the problem's are of compute={kernel.k.compute}",
            hint="E4m3 serves compute=fp8, Bf16 all others",
        )


class Bf16:
    """Products of bf16, a group for the columns of each barrier. `early`, `late`: columns of V that
    are read to registers before P is known, and after; `frees`: the ones that keys are done with
    after, or the "last" product."""

    weights = WeightForm(2 * TILE, context={"values_of": "bf16"})
    early = late = ()
    frees = "last"

    def __init__(self, kernel: SwapAbKernel, queries: SwapAbQueries, keys: KeyRing) -> None:
        check_products(kernel, "bf16")
        self.kernel, self.query, self.keys = kernel, queries.pipeline.name, keys
        kernel.context |= {
            "steps": TILE // STEP, "parts_a_weight": kernel.k.d_v // COLUMNS, "neighbours": False,
            "addresses": "",
        }  # fmt: skip

    @property
    def of_scores(self) -> tuple[str, ...]:
        """Of the plain order."""
        return tuple(f"qk {pipeline.name}" for pipeline in self.keys.pipelines)

    @property
    def of_values(self) -> tuple[str, ...]:
        return tuple(f"pv {self.keys.pipelines[n].name}" for n in self.keys.valued)

    def qk(self, tile: Tile) -> None:
        """S^T = K Q^T."""
        for n, pipeline in enumerate(self.keys.pipelines):
            self.kernel.record(
                "swap_ab/products/qk", tile, of=pipeline.name, columns=self.keys.part(n),
                asynchronous=True, defines=(Value("S"),),
                uses=(Value(pipeline.name, tile), Value(self.query)),
            )  # fmt: skip

    def read_values(self, tile: Tile, boxes: Iterable[range]) -> None:
        """Values are read by their products."""

    def pv(self, tile: Tile) -> None:
        """O^T += V^T P^T."""
        for n in self.keys.valued:
            name = self.keys.pipelines[n].name
            self.kernel.record(
                "swap_ab/products/pv", tile, of=name, group=0, parts=self.keys.values_of(n),
                asynchronous=True, defines=(Value("O"),),
                uses=(Value("P", tile), Value(name, tile)),
            )  # fmt: skip


class E4m3:
    """Products of e4m3 over registers v, V^T: of its tiles of columns the first `held` are read
    before P is known. P, M and alpha are those of `HOPPER_E4M3` (`latent.order`)."""

    weights = WeightForm(
        P_BYTES, "swap_ab/softmax/weights_e4m3",
        context={"p_bits": hex(P_BITS), "p_bytes": P_BYTES, **maxima(HOPPER_E4M3)},
    )  # fmt: skip

    def __init__(self, kernel: SwapAbKernel, queries: SwapAbQueries, keys: KeyRing) -> None:
        check_products(kernel, "fp8")
        held = kernel.s.choice("held", *((4, 2) if kernel.rows <= 24 else (2,)),
                               comment="tiles of columns of V read before P is known")  # fmt: skip
        self.kernel, self.query, self.keys = kernel, queries.pipeline.name, keys
        last = kernel.k.d_v // BOX
        self.early, self.late = (range(held),), (range(held, last),) if held < last else ()
        self.frees = "late" if self.late else "early"
        self.values = (*self.early, *self.late)
        kernel.context |= {
            "v": kernel.s.names("v", exactly("registers", last * WORDS, "V^T of a tile")),
            "keys_": keys.tiles, "neighbours": True,
            "addresses": "latent/setup_values.ptx.j2",
        }  # fmt: skip
        kernel.name(
            VALUES_AT,
            ("remaining", ".b32", "keys left from the next tile of V on"),
            ("moved", ".b32", "whether some row of this warp has another M than before"),
        )

    @property
    def of_scores(self) -> tuple[str, ...]:
        """Of the plain order."""
        return ("qk",)

    @property
    def of_values(self) -> tuple[str, ...]:
        return tuple(f"{does} {x.start}" for x in self.values for does in ("load_values", "pv"))

    def qk(self, tile: Tile) -> None:
        """S^T = K Q^T."""
        self.kernel.record(
            "swap_ab/products/qk_e4m3", tile, name="qk", asynchronous=True, defines=(Value("S"),),
            uses=(*(Value(x.name, tile) for x in self.keys.pipelines), Value(self.query)),
        )  # fmt: skip

    def read_values(self, tile: Tile, boxes: Iterable[range]) -> None:
        """Read some columns of V^T, those of tiles of each of `boxes`, as operand A; keys past the
        sequence's end as 0: P is 0 there, but 0 * NaN is not."""
        for some in boxes:
            self.kernel.record(
                "latent/load_values", tile, of=str(some.start), first_tile=some.start,
                counts=some == self.values[-1], v=self._operand(some),
                defines=(Value(f"V {some.start}"),),
                uses=tuple(Value(self.keys.pipelines[n].name, tile) for n in self.keys.valued),
            )  # fmt: skip

    def pv(self, tile: Tile) -> None:
        """O^T += V^T P^T."""
        for boxes in self.values:
            blocks = range(boxes.start * BOX // BLOCK, boxes.stop * BOX // BLOCK)
            self.kernel.record(
                "swap_ab/products/pv_e4m3", tile, name="pv", of=str(boxes.start), blocks=blocks,
                asynchronous=True, v=self._operand(boxes), defines=(Value("O"),),
                uses=(Value(f"V {boxes.start}"), Value("P", tile)),
            )  # fmt: skip

    def _operand(self, boxes: range) -> list[str]:
        """Registers of these columns of V^T."""
        held: list[str] = self.kernel.context["v"][WORDS * boxes.start : WORDS * boxes.stop]
        return held


class Grouped:
    """Products over tiles whose keys come in groups: K and V are given back group by group."""

    def __init__(
        self, kernel: SwapAbKernel, queries: OwnQueries, groups: Sequence[Pipeline]
    ) -> None:
        self.kernel, self.queries, self.groups = kernel, queries, groups
        tiles = [list(column) for column in zip(*(x.tiles for x in groups), strict=True)]
        kernel.context |= {
            "tiles_": tiles, "slots": 1, "steps": TILE // STEP // len(groups), "held": False,
            "parts_a_weight": kernel.k.d_v // COLUMNS,
        }  # fmt: skip

    def qk(self, tile: Tile) -> None:
        """S^T = K Q^T."""
        self.kernel.record(
            "swap_ab/products/qk", tile, asynchronous=True, columns=range(len(self.queries.tiles)),
            uses=(*(Value(x.name, tile) for x in self.groups), Value(self.queries.pipeline.name)),
            defines=(Value("S"),),
        )  # fmt: skip

    def pv(self, tile: Tile, group: int) -> None:
        """O^T += V^T P^T over the keys of a group."""
        name = self.groups[group].name
        self.kernel.record(
            "swap_ab/products/pv", tile, of=name, group=group, asynchronous=True,
            parts=range(self.kernel.k.d_v // COLUMNS), defines=(Value("O"),),
            uses=(Value("P", tile), Value(name, tile)),
        )  # fmt: skip
