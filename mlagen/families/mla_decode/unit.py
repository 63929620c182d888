"""What a plan is for: a kernel's block of threads, and how many of them a GPU runs at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlagen.artifact import Manifest
from mlagen.attention.latent.split_work import BLOCK_ROWS, H200_SMS, MOST_SLICES
from mlagen.errors import ConfigError

B200_SMS = 148
MI355X_CUS = 256
WAVES = 4  # of a workgroup on gfx950, each with rows of its own


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
DENSE = "MlaDecodeConfig"  # whose row blocks are as large as a pair's
NVIDIA = {unit.target: unit for unit in (HOPPER, BLACKWELL)}
MERGE_KERNELS = {  # what merges split work
    "sm_90a": "mla_decode_merge_sm90",
    "sm_100a": "mla_decode_merge_sm100",
    "gfx950": "mla_decode_merge_gfx950",
}


def unit_of(manifest: Manifest) -> Unit:
    """The unit of a decode kernel."""
    pair = any(dim.clusters == PAIR.ctas for dim in manifest.grid)
    if manifest.problem_type == DENSE and pair:
        return PAIR
    if manifest.target != "gfx950":
        few, roles = bool(manifest.knobs.get("keys_as_rows")), math_roles(manifest)
        together = MOST_SLICES // roles if puts_together(manifest) else 1
        return replace(NVIDIA[manifest.target], few=few, together=together)
    return Unit(manifest.target, WAVES * int(manifest.knobs["rows"]), MI355X_CUS)


def math_roles(manifest: Manifest) -> int:
    """Roles of a block that have columns of O each."""
    return 1 if manifest.knobs.get("keys_as_rows") else 2


def puts_together(manifest: Manifest) -> bool:
    """Whether blocks of a decode kernel put parts of row blocks together."""
    named = {arg.name for arg in manifest.args}
    return "arrivals" in named and "shares" not in named


def cannot_put_together(together: int) -> ConfigError:
    """The error where parts are to be put together, and the kernel's blocks put none together."""
    return ConfigError(
        f"together={together}: blocks of this kernel put no parts together",
        hint="kernels of few query rows on Hopper do",
    )
