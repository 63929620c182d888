"""What hosts, planners and oracles know of a kernel over latent rows: its schedule's variant says
it, and its manifest carries it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from mlagen.artifact import Artifact, Manifest
from mlagen.attention.latent.block_sizes import MOST_SLICES
from mlagen.attention.latent.costs import Costs
from mlagen.attention.latent.order import Order
from mlagen.attention.manifest_facts import Items, read_facts

# Who combines the parts of a row block. "kernel": a second one; "blocks": if the plan says so the
# blocks themselves, one slice each; "fix_up": the block that computes a sequence's last part.
Combine = Literal["kernel", "blocks", "fix_up"]


@dataclass(frozen=True, slots=True)
class Facts:
    """`order`: of the arithmetic. `rows`: query rows that a block has at most, or a CTA pair that
    takes items together, of `ctas` blocks. `roles`: warpgroups of a block that have columns of O
    each, which parts that blocks put together are cut by. `costs`: what its work costs, where
    plans are made by that."""

    order: Order
    rows: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    ctas: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    roles: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    items: Items = "one"
    combine: Combine = "kernel"
    costs: Costs | None = None

    @property
    def several(self) -> bool:
        """Whether a block takes several work items."""
        return self.items != "one"

    @property
    def together(self) -> int:
        """Parts of a row block that blocks put together, at most."""
        return MOST_SLICES // self.roles if self.combine == "blocks" else 1


def facts_of(manifest: Manifest) -> Facts:
    """Those of a kernel over latent rows; see `read_facts`."""
    return read_facts(manifest, Facts)


def order_of(artifact: Artifact) -> Order:
    """The order in which an artifact's kernel computes."""
    return facts_of(artifact.manifest).order
