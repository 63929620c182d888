"""What fetches listed rows to registers on Hopper, where K is operand A there.

`RegisterLoads`: a thread loads what it has of its two keys, 64 columns after another, as their
registers become free. `Bulk`: one instruction fetches a row, a bulk copy to SMEM. Loads of 16 bytes
find a row's page anew each time, which takes longer than its bytes where rows lie in gigabytes. A
warp fetches its own rows, eight at a time: the first keys of its threads for the next tile but one
while it converts the next one, then their second keys during the softmax. From SMEM threads take
the numbers that they keep. Of the first tile both halves are fetched at once, the second one to
where values will lie.

Half of a tile is on its way at a time. Where an SM has one block that is too little: `Either` loads
rows unless the kernel's argument `bulk` is 1. The numbers are the same.
"""

from __future__ import annotations

from typing import ClassVar

from mlagen.attention.latent.sm_90a.swap_ab.k_in_registers import OwnKeys
from mlagen.attention.latent.sm_90a.swap_ab.kernel import SwapAbKernel
from mlagen.attention.latent.sm_90a.swap_ab.scales import ScaledNumbers, ScaledSums
from mlagen.dsl import Tile, Value, at_least, touched
from mlagen.errors import ScheduleError

PITCH = 704  # bytes from row to row: eight lanes' 16 bytes of two rows meet no bank twice
WARPS, AT_ONCE = 4, 8  # rows of a warp
ROOM = PITCH * WARPS * AT_ONCE
BARRIERS = 8 * WARPS  # bytes
FOLDER = "swap_ab/rows/listed"
Scales = ScaledNumbers | ScaledSums


class RegisterLoads:
    """Rows that are loaded to registers. What `scales` loads with them is loaded when that of the
    tile before is done with. `template`: of the loads of 64 columns."""

    bulk: ClassVar[bool] = False  # whether rows may be fetched whole
    halves: ClassVar[tuple[str, ...]] = ("raw",)
    second: tuple[str, ...] = ()  # of the plain order: takes second keys
    first: tuple[str, ...] = ()

    def __init__(
        self, kernel: SwapAbKernel, keys: OwnKeys, scales: Scales, template: str = "fetch_box"
    ) -> None:
        self.kernel, self.keys, self.scales, self.template = kernel, keys, scales.loads, template
        kernel.context |= {"loads": True, "by_bulk": ""}

    def after(self, box: int) -> tuple[str, ...]:
        """Of the plain order, after products of 64 columns."""
        return (f"fetch {box}",)

    @property
    def last(self) -> tuple[str, ...]:
        """And after all of them."""
        return ("fetch_scales",) if self.scales else ()

    def fetch_first(self) -> None:
        """Load the first tile's numbers, and what rows the second one has."""
        raws = tuple(raw for box in self.keys.boxes for raw in self.keys.raws(box))
        self.kernel.record(f"{FOLDER}/fetch_first", None, every=self.keys.every, defines=raws)

    def locate(self, tile: Tile) -> None:
        """Find where the rows of the tile after `tile` lie."""
        self.kernel.record(f"{FOLDER}/locate", tile)

    def take_second(self, tile: Tile) -> None:
        """Loads are on their way."""

    def fetch_after(self, tile: Tile, box: int) -> None:
        """Load 64 columns of the tile after `tile`, in the place of its own."""
        self.kernel.record(
            f"{FOLDER}/{self.template}", tile, name="fetch", of=str(box),
            numbers=self.keys.numbers(box), defines=self.keys.raws(box),
        )  # fmt: skip

    def take_first(self, tile: Tile) -> None:
        """Loads are on their way."""

    def fetch_scales(self, tile: Tile) -> None:
        """Load what the tile after `tile` needs besides its rows: scales, of columns or of keys."""
        if self.scales:
            self.kernel.record(f"{FOLDER}/fetch_scales", tile)


class Bulk:
    """Rows that are fetched whole, scales with them, over rooms for rows and barriers."""

    bulk: ClassVar[bool] = True
    halves: ClassVar[tuple[str, ...]] = ("first", "second")
    second: tuple[str, ...] = ("take_second",)
    first: tuple[str, ...] = ("take_first",)
    last: tuple[str, ...] = ()

    def __init__(self, kernel: SwapAbKernel, keys: OwnKeys, scales: Scales) -> None:
        self.kernel, self.keys, s = kernel, keys, kernel.s
        tiles = kernel.tiles("cache")
        self.landing = s.smem.scratch("first rows", *tiles[: -(-ROOM // tiles[0].bytes)])
        rows, arrivals = (
            touched(s.smem.scratches[name], at_least("bytes", size, what))
            for name, size, what in (
                ("rows", ROOM, "half of a tile's rows"),
                ("arrivals of rows", BARRIERS, "an mbarrier of each warp"),
            )
        )
        kernel.context |= {
            "loads": False, "by_bulk": "", "rows_at": rows, "first_rows": self.landing,
            "pitch": PITCH, "arrivals_of_rows": arrivals,
        }  # fmt: skip
        kernel.name(("row_phase", ".b32", "parity of what is awaited"))

    def after(self, box: int) -> tuple[str, ...]:
        """Of the plain order, after products of 64 columns."""
        return ()

    def fetch_first(self) -> None:
        """Fetch the first tile's rows, and load what rows the second one has."""
        raws = (raw for box in self.keys.boxes for raw in self.keys.raws(box))
        self.kernel.record(f"{FOLDER}/bulk/fetch_first", None, every=self.keys.every, joins=True,
                           defines=(*raws, Value(self.landing.name)))  # fmt: skip

    def locate(self, tile: Tile) -> None:
        """Find where the rows of the tile after `tile` lie, and ask for those of first keys."""
        self.kernel.record(f"{FOLDER}/bulk/locate", tile)

    def take_second(self, tile: Tile) -> None:
        """Take the second keys of `tile`, but of the first one, from SMEM."""
        self.kernel.record(f"{FOLDER}/bulk/take_second", tile, domain="rest", every=self.keys.every,
                           defines=self.keys.half(1))  # fmt: skip

    def fetch_after(self, tile: Tile, box: int) -> None:
        """Rows are fetched whole."""

    def take_first(self, tile: Tile) -> None:
        """Take the first keys of the tile after `tile`, and fetch its second ones."""
        self.kernel.record(f"{FOLDER}/bulk/take_first", tile, every=self.keys.every,
                           defines=self.keys.half(0))  # fmt: skip

    def fetch_scales(self, tile: Tile) -> None:
        """Scales come with the rows."""


class Either:
    """`Bulk`, or `RegisterLoads`: the argument says."""

    bulk: ClassVar[bool] = True
    halves, second, first = Bulk.halves, Bulk.second, Bulk.first

    def __init__(self, kernel: SwapAbKernel, keys: OwnKeys, scales: Scales) -> None:
        signature = kernel.s.signature
        if signature is None or all(one.name != "bulk" for one in signature.arguments):
            raise ScheduleError(
                "rows are fetched as the argument bulk says, which the kernel does not have",
                hint="Listed(.., bulk=True) declares it",
            )
        loads = RegisterLoads(kernel, keys, scales, template="bulk/fetch_box")
        bulk = Bulk(kernel, keys, scales)
        self.after, self.last = loads.after, loads.last
        self.fetch_after, self.fetch_scales = loads.fetch_after, loads.fetch_scales
        self.fetch_first, self.locate = bulk.fetch_first, bulk.locate
        self.take_second, self.take_first = bulk.take_second, bulk.take_first
        kernel.context["loads"] = True
        kernel.name(("by_bulk", ".pred", "whether rows are fetched whole"))


FETCHING: dict[str, type[RegisterLoads | Bulk | Either]] = {
    "loads": RegisterLoads,
    "bulk": Bulk,
    "either": Either,
}
