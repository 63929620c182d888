"""What is a family's own of a kernel over latent rows on Hopper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlagen.attention.latent.nvidia.row_form import RowForm
from mlagen.dsl import Signature


@dataclass(frozen=True, slots=True)
class OwnRegisters:
    """`count` registers `%NAME0 ..` of a family's own, which templates know as `operand`."""

    operand: str
    name: str
    type: str
    comment: str
    count: int = 1


@dataclass(frozen=True)
class Form:
    """What is a family's own of a kernel over latent rows.

    `symbol`: the entry's name. `templates`: files of operations, by the operation's template, that
    are others than the shared ones. `registers`: those of its work items and lists. `operands`:
    what templates take besides. `listed`: a query has a list of rows; a warp keeps that of its next
    tile. `item_bytes`: of a work item's record. `arrivals`: what the count of a part that another
    block takes in ends with. `stored`: how listed rows of e4m3 lie in memory; None: they are bf16.
    """

    signature: Signature
    symbol: str
    templates: Mapping[str, str] = field(default_factory=dict)
    registers: tuple[OwnRegisters, ...] = ()
    listed: bool = False
    operands: Mapping[str, object] = field(default_factory=dict)
    stored: RowForm | None = None
    item_bytes: int = 0
    arrivals: int = 0
