"""What hosts, planners and oracles know of a kernel over latent rows: its schedule's variant says
it, and its manifest carries it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from mlagen.artifact import Artifact, Manifest
from mlagen.attention.latent.order import Order
from mlagen.errors import BinaryError

# "one": a block has one work item; "several": those of its share of the plan; "aiter": the same,
# with the arguments of AITER's host code.
Items = Literal["one", "several", "aiter"]
# Who combines the parts of a row block. "kernel": a second one; "blocks": if the plan says so the
# blocks themselves, one slice each; "fix_up": the block that computes a sequence's last part.
Combine = Literal["kernel", "blocks", "fix_up"]


@dataclass(frozen=True, slots=True)
class Facts:
    """`order`: of the arithmetic. `rows`: query rows that a block has at most, or a CTA pair that
    takes items together, of `ctas` blocks. `roles`: warpgroups of a block that have columns of O
    each, which parts that blocks put together are cut by. `swap_ab`: products have keys as their
    rows."""

    order: Order
    rows: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    ctas: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    roles: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    swap_ab: bool = False
    items: Items = "one"
    combine: Combine = "kernel"

    @property
    def several(self) -> bool:
        """Whether a block takes several work items."""
        return self.items != "one"


def facts_of(manifest: Manifest) -> Facts:
    """Those of a kernel. BinaryError: its manifest has none, or none that a kernel can have."""
    try:
        return msgspec.convert(manifest.facts, Facts)
    except msgspec.ValidationError as error:
        raise BinaryError(
            f"the manifest of {manifest.kernel} does not say how its variant computes: {error}",
            hint="build it again with this version of mlagen",
        ) from error


def order_of(artifact: Artifact) -> Order:
    """The order in which an artifact's kernel computes."""
    return facts_of(artifact.manifest).order
