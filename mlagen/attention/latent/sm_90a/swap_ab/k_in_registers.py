"""Products whose operand A of S^T = K Q^T is in registers, over quantised rows.

A thread keeps the stored numbers of its own two keys of the next tile, those whose scores it will
have, and makes operand A of them: 16 keys a warp, rows lane / 4 and 8 further. The same numbers go
to SMEM, where O^T += V^T P^T reads them: columns that are no value never do. The tile after it is
loaded as soon as a register is free.

A lane loads 16 bytes of each 64 columns, 16 (lane % 4) .. of them. Step j of these columns takes
bytes 4 j .. 4 j + 3: so its 16 columns are four of each lane of a row, and Q lies in SMEM in that
order of columns (`latent.order`). V has the same, and O^T's rows with it, until they are stored.
"""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.row_form import RowForm
from mlagen.attention.latent.nvidia.sizes import COLUMNS, TILE
from mlagen.attention.latent.order import keys_in_registers
from mlagen.attention.latent.sm_90a.swap_ab.kernel import SwapAbKernel
from mlagen.attention.latent.sm_90a.swap_ab.queries import OwnQueries
from mlagen.attention.latent.sm_90a.swap_ab.scales import ScaledNumbers, ScaledSums
from mlagen.dsl import Tile, Value, exactly
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import tiles_of

OWN_KEYS = 2  # of a thread
SETS = 2  # of operands A, in turn
FRAGMENT = 16  # registers of operand A over 64 columns
FOLDER = "swap_ab/k_in_registers"


class OwnKeys:
    """Stored numbers of a thread's two keys in registers (raw), of rows of the form `stored`.
    `halves`: what they are called, of both keys or of each. `boxes`: columns, by 64, in the order
    in which they are added up: first those that are no values, or else the last ones, then the
    values' first half and their second one."""

    def __init__(self, kernel: SwapAbKernel, stored: RowForm, halves: tuple[str, ...]) -> None:
        self.stored, self.halves = stored, halves
        self.boxes = list(keys_in_registers(kernel.k.d_qk).boxes)
        size = exactly("registers", [OWN_KEYS * stored.words], "numbers of rows")
        self.raw = kernel.s.names("raw", size)
        kernel.context["stored"] = stored
        kernel.names(
            ("src", ".b64", OWN_KEYS, "where this thread's numbers of the next rows begin"),
            ("found", ".pred", OWN_KEYS, "whether they are rows"),
            ("seen", ".pred", OWN_KEYS, "whether those of this tile are"),
        )

    def numbers(self, box: int) -> dict[str, Any]:
        """Of 64 columns, `at` some byte of a row: registers of each of this thread's two keys, 16
        bytes of each after another."""
        count = 4 if self.quantized(box) else 8
        first = OWN_KEYS * (4 * min(box, self.stored.boxes) + 8 * max(box - self.stored.boxes, 0))
        raw = self.raw[first : first + OWN_KEYS * count]
        return {
            "words": [raw[:count], raw[count:]], "at": self.stored.byte_of(COLUMNS * box),
            "narrow": self.quantized(box),
        }  # fmt: skip

    @property
    def every(self) -> list[dict[str, Any]]:
        """Those of all columns."""
        return [self.numbers(box) for box in self.boxes]

    def quantized(self, box: int) -> bool:
        """Whether columns are e4m3; the others are bf16 in memory."""
        return box < self.stored.boxes

    def raws(self, box: int) -> tuple[Value, ...]:
        """The numbers of 64 columns, as operations define them."""
        return tuple(Value(f"{half} {box}") for half in self.halves)

    def half(self, n: int) -> tuple[Value, ...]:
        """All numbers of one key of two."""
        return tuple(self.raws(box)[n] for box in self.boxes)


class KInRegisters:
    """S^T = K Q^T with operands A in registers (a), in turn, and O^T += V^T P^T over tiles of
    values, 64 columns each, in so many `products`, each of some rows of O^T."""

    def __init__(
        self, kernel: SwapAbKernel, keys: OwnKeys, queries: OwnQueries,
        scales: ScaledNumbers | ScaledSums, products: int,
    ) -> None:  # fmt: skip
        self.kernel, self.keys, self.queries, self.scales = kernel, keys, queries, scales
        tiles, d_v = kernel.tiles("cache"), kernel.k.d_v
        if len(tiles) * COLUMNS != d_v or tiles[0].rows != TILE:
            raise ScheduleError(
                f"{len(tiles)} tiles of values",
                hint=f"a tile of {TILE} keys for each {COLUMNS} columns of V",
            )
        tiles_of("values", tiles, d_v // COLUMNS, rows=TILE, slots=1)
        self.values = [kernel.s.smem.scratch(f"values {n}", x) for n, x in enumerate(tiles)]
        self.a = kernel.s.names("a", exactly("registers", SETS * FRAGMENT, "operands A"))
        valued = [box for box in keys.boxes if self.valued(box)]
        each = len(valued) // products
        self.parts = [sorted(valued[n * each : (n + 1) * each]) for n in range(products)]
        kernel.context |= {
            "tiles_": [[tile] for tile in tiles], "slots": 1, "steps": TILE // 16, "held": True,
        }  # fmt: skip
        why = "where this lane's part of a row lies in 64 keys of 64 columns"
        kernel.name(("lane_at", ".b32", why))

    def valued(self, box: int) -> bool:
        """Whether columns are values."""
        return box * COLUMNS < self.kernel.k.d_v

    def convert(self, tile: Tile, box: int) -> None:
        """Make operand A of 64 columns, as the scales want it. Columns that are bf16 in memory are
        only put in order: an operand has its two keys' numbers in turn."""
        quantized = self.keys.quantized(box)
        self.kernel.record(
            self.scales.fragments if quantized else f"{FOLDER}/order_fragments", tile,
            name="convert", of=str(box), numbers=self.keys.numbers(box), box=box,
            a=self._operands(box), uses=self.keys.raws(box), defines=(Value(self._operand(box)),),
        )  # fmt: skip

    def qk(self, tile: Tile, box: int) -> None:
        """S^T += K Q^T over 64 columns; the first ones set it. Or to sums of their own, which
        scales multiply."""
        name, operands = self.scales.sums_of(box, self.keys)
        self.kernel.record(
            f"{FOLDER}/qk", tile, of=str(box), a=self._operands(box), asynchronous=True,
            query_tile=self.queries.tiles[box], defines=(Value(name),),
            uses=(Value(self._operand(box)), Value(self.queries.pipeline.name)), **operands,
        )  # fmt: skip

    def free_values(self, tile: Tile, part: int, *, before: int | None = None) -> None:
        """Wait until the product before is done with a part of its values, in all warps. `before`:
        the first 64 columns of them are these; otherwise that is done elsewhere."""
        if before is not None and before != self.parts[part][0]:
            return
        self.kernel.record(
            f"{FOLDER}/free_values", tile, of=str(part), joins=True,
            defines=tuple(Value(self.values[box].name, tile) for box in self.parts[part]),
        )  # fmt: skip

    def store_values(self, tile: Tile, box: int) -> None:
        """Store 64 columns of V to SMEM, where they are values."""
        if not self.valued(box):
            return
        scratch = self.values[box]
        self.kernel.record(
            f"{FOLDER}/store_values", tile, of=str(box), place_=scratch.base, a=self._operands(box),
            uses=(Value(self._operand(box)),), defines=(Value(scratch.name, tile),),
        )  # fmt: skip

    def pv(self, tile: Tile, part: int) -> None:
        """O^T += V^T P^T, a part of the rows of O^T."""
        self.kernel.record(
            "swap_ab/products/pv", tile, of=str(part), group=0, parts=self.parts[part],
            asynchronous=True, defines=(Value("O"),),
            uses=(Value("P", tile), *(Value(self.values[x].name, tile) for x in self.parts[part])),
        )  # fmt: skip

    def _turn(self, box: int) -> int:
        """The registers that 64 columns have as an operand."""
        return self.keys.boxes.index(box) % SETS

    def _operand(self, box: int) -> str:
        """What operand A of 64 columns is called."""
        return f"a {self._turn(box)}"

    def _operands(self, box: int) -> list[list[str]]:
        """Operand A of four steps: two keys' columns, then the two next columns of both."""
        first = FRAGMENT * self._turn(box)
        a = self.a[first : first + FRAGMENT]
        return [a[n : n + 4] for n in range(0, FRAGMENT, 4)]
