"""What a plan is for: a kernel's block of threads, and how many of them a GPU runs at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlagen.artifact import Manifest
from mlagen.attention.latent.block_sizes import BLOCK_ROWS, H200_SMS
from mlagen.attention.latent.costs import Costs
from mlagen.attention.latent.facts import facts_of
from mlagen.errors import BinaryError, ConfigError

B200_SMS = 148
MI355X_CUS = 256


@dataclass(frozen=True, slots=True)
class Unit:
    """`rows`: query rows that a block, or a CTA pair, has at most, and a slot has room for.
    `blocks`: blocks or pairs of a whole GPU, one an SM or compute unit, or two SMs. `costs`: of its
    work. `ctas`: blocks of threads that take a work item together, 2 of a CTA pair. `together`:
    parts of a row block that blocks put together, at most."""

    rows: int
    blocks: int
    costs: Costs = field(default_factory=Costs)
    ctas: int = 1
    together: int = 1

    def grid(self, items: int) -> dict[str, int]:
        """The size that says how many blocks a launch of so many items has."""
        return {"items": items} if self.ctas == 1 else {"blocks": self.ctas * items}

    def filling(self, sms: int) -> int:
        """How many items fill so many SMs."""
        return max(sms // self.ctas, min(sms, 1))


HOPPER = Unit(BLOCK_ROWS, H200_SMS)
SMS = {"sm_90a": H200_SMS, "sm_100a": B200_SMS, "gfx950": MI355X_CUS}
MERGE_KERNELS = {  # what merges split work
    "sm_90a": "mla_decode_merge_sm90",
    "sm_100a": "mla_decode_merge_sm100",
    "gfx950": "mla_decode_merge_gfx950",
}


def unit_of(manifest: Manifest) -> Unit:
    """The unit of a decode kernel. BinaryError: its manifest does not say what its work costs."""
    facts = facts_of(manifest)
    if facts.costs is None:
        raise BinaryError(
            f"the manifest of {manifest.kernel} does not say what its work costs, which plans are "
            f"made by",
            hint="build it again with this version of mlagen",
        )
    blocks = SMS[manifest.target] // facts.ctas
    return Unit(facts.rows, blocks, facts.costs, facts.ctas, facts.together)


def cannot_put_together(together: int) -> ConfigError:
    """The error where parts are to be put together, and the kernel's blocks put none together."""
    return ConfigError(
        f"together={together}: blocks of this kernel put no parts together",
        hint="kernels of few query rows on Hopper do",
    )
