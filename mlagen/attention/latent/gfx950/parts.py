"""What a kernel over latent rows on gfx950 is made of: where rows come from, how they are stored,
how they are multiplied, how M follows the scores, and where O goes.

A part is made for one loop (`LatentLoop`), which it asks for registers and for the other parts. It
declares what it needs, says what its templates may name, and has the operations that a table calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mlagen.attention.latent.gfx950.key_tile import Bf16Tile, E4m3Tile
from mlagen.attention.latent.gfx950.shape import Shape
from mlagen.dsl import Binding, Extent, Operation, Signature, Tile, Value
from mlagen.targets.gfx950.dsl import EntryRegisters, Regs, Space

Request = tuple[str, int, str]  # of registers: name, count, what they hold
Context = Callable[[Binding], Mapping[str, Any]]


class Rows(Protocol):
    """Where rows come from: pages of a sequence, or a list of rows; with it, which of them a query
    sees, and where a work item's results go."""

    name: str  # of its folders of templates
    looked_up: tuple[str, str]  # register of where a lane finds the row that it fetches
    persistent: bool  # whether a workgroup takes several work items
    keeps_largest: bool  # whether the largest score of a row is stored
    work: tuple[str, ...]  # operations once a persistent workgroup
    finding: tuple[str, ...]  # those that look up where a tile's rows lie
    masks: tuple[str, ...]
    storing: tuple[str, ...]

    @property
    def signature(self) -> Signature:
        """What the host passes."""

    @property
    def loaded(self) -> Signature:
        """What of it the kernel itself loads."""

    def entry(self, s: Space) -> EntryRegisters:
        """Declares the registers that the kernel starts with."""

    def lane(self) -> dict[str, Request]:
        """Row state and addresses of a lane."""

    def scalars(self) -> dict[str, tuple[str, int, str, int]]:
        """Those of a work item, and temporaries, with their alignment."""

    def declare(self) -> None:
        """Declares what else it needs."""

    def context(self) -> Mapping[str, Any]:
        """What templates may name of it."""

    def found(self, tile: Tile) -> tuple[Value, ...]:
        """What a look-up of the tile's rows has left."""

    def row(self, at: Binding) -> Mapping[str, Any]:
        """Its registers."""

    def mask(self, tile: Tile) -> None:
        """Scores of keys that a row does not see become -inf."""


class Scales(Protocol):
    """One scale a key: S is multiplied by it before the softmax, and P after the row sum has it."""

    weights: str  # the template that multiplies P

    def load(self, tile: Tile) -> None:
        """Scales come to registers, where they do not come with the rows."""

    def scale_scores(self, tile: Tile) -> None:
        """S times the scales of its keys."""

    def weighing(self, tile: Tile) -> dict[str, Any]:
        """Context, used values and access of the operation that multiplies P."""


class Unscaled:
    """What a table calls where rows have no scales of their own: nothing is recorded."""

    def load(self, tile: Tile) -> None: ...

    def scale_scores(self, tile: Tile) -> None: ...


UNSCALED = Unscaled()


class Storage(Protocol):
    """How rows are stored, and how they come to LDS. A format of rows is a class of this kind."""

    tile: Bf16Tile | E4m3Tile  # what LDS has
    look_up: int  # tiles from a look-up of rows to their copy, in the serial table
    page_slots: int  # tiles whose rows are looked up, or on their way
    scale_bytes: int  # of a tile, behind it in LDS
    scales: Scales | None
    staging: tuple[Request, ...]  # register tiles beside S, O, Q and the bands, in one bank
    apart: bool  # or not in one bank
    fetched: tuple[Request, ...]  # those of accumulation registers
    fetching: tuple[str, ...]  # operations that bring rows to registers

    def lane(self) -> dict[str, Request]:
        """Row state of a lane."""

    def extents(self) -> dict[str, Extent]:
        """What operations touch of the register tiles."""

    def declare(self) -> None:
        """Declares what else it needs."""

    def context(self) -> Mapping[str, Any]:
        """What templates may name of it."""

    def copy(self, tile: Tile) -> Operation:
        """A tile's rows come to its slot of the ring."""

    def fetch(self, tile: Tile) -> None:
        """A tile's rows come to registers, where copies take them from there."""


class Products(Protocol):
    """S^T = K Q^T and O^T = V^T P, and the reads of LDS that feed them."""

    multiplied: str  # the type of P and V

    def extents(self) -> dict[str, Extent]:
        """What operations touch of the register tiles."""

    def read(self, tile: Tile) -> Operation:
        """The first reads of K."""


class Softmax(Protocol):
    """P of a tile's scores; M, the row sum and O follow."""

    def lane(self) -> dict[str, Request]:
        """Row state of a lane."""

    def context(self) -> Mapping[str, Any]:
        """What templates may name of it."""


class Output(Protocol):
    """Where O lies, and where it goes."""

    quads: tuple[Regs, ...]  # of O in accumulation registers

    def extents(self) -> dict[str, Extent]:
        """What operations touch of the register tiles."""

    def block(self, number: int) -> Regs:
        """O of a block of columns, as many as the wave has rows."""


Made = Callable[[Any], Any]  # of a part, for a loop


@dataclass(frozen=True)
class LatentForm:
    """A form of the kernel. `shape`: query rows of a wave. `slots`, `bands`: choices of tiles in
    LDS, and of units of K, or of V, in registers on their way to products, the usual ones first."""

    shape: Shape
    rows: Made
    storage: Made
    products: Made
    softmax: Made
    output: Made
    slots: tuple[int, ...]
    bands: tuple[int, ...]
