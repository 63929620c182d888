"""What a plan is for: a kernel's block of threads, and how many of them a GPU runs at once."""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.artifact import Manifest
from mlagen.attention.latent.block_sizes import BLOCK_ROWS, H200_SMS, MOST_SLICES
from mlagen.attention.latent.facts import facts_of
from mlagen.errors import ConfigError

B200_SMS = 148
MI355X_CUS = 256


@dataclass(frozen=True, slots=True)
class Unit:
    """`rows`: query rows that a block, or a CTA pair, has at most, and a slot has room for.
    `blocks`: blocks or pairs of a whole GPU, one an SM or compute unit, or two SMs. `ctas`: blocks
    of threads that take a work item together, 2 of a CTA pair. `few`: products have keys as their
    rows; `together`: parts of a row block that blocks put together, at most."""

    target: str
    rows: int
    blocks: int
    ctas: int = 1
    few: bool = False
    together: int = 1

    def grid(self, items: int) -> dict[str, int]:
        """The size that says how many blocks a launch of so many items has."""
        return {"items": items} if self.ctas == 1 else {"blocks": self.ctas * items}

    def filling(self, sms: int) -> int:
        """How many items fill so many SMs."""
        return max(sms // self.ctas, min(sms, 1))


HOPPER = Unit("sm_90a", BLOCK_ROWS, H200_SMS)
BLACKWELL = Unit("sm_100a", BLOCK_ROWS, B200_SMS)
PAIR = Unit("sm_100a", 2 * BLOCK_ROWS, B200_SMS // 2, ctas=2)
SMS = {"sm_90a": H200_SMS, "sm_100a": B200_SMS, "gfx950": MI355X_CUS}
MERGE_KERNELS = {  # what merges split work
    "sm_90a": "mla_decode_merge_sm90",
    "sm_100a": "mla_decode_merge_sm100",
    "gfx950": "mla_decode_merge_gfx950",
}


def unit_of(manifest: Manifest) -> Unit:
    """The unit of a decode kernel."""
    facts = facts_of(manifest)
    together = MOST_SLICES // facts.roles if facts.combine == "blocks" else 1
    blocks = SMS[manifest.target] // facts.ctas
    return Unit(manifest.target, facts.rows, blocks, facts.ctas, facts.swap_ab, together)


def cannot_put_together(together: int) -> ConfigError:
    """The error where parts are to be put together, and the kernel's blocks put none together."""
    return ConfigError(
        f"together={together}: blocks of this kernel put no parts together",
        hint="kernels of few query rows on Hopper do",
    )
