"""What hosts know of a prefill kernel: its operations say it, and its manifest carries it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from mlagen.artifact import Artifact
from mlagen.attention.manifest_facts import Items, read_facts

# The knobs of every prefill schedule that host code reads: `PrefillConfig` says what they are.
TILES = ("kv_block", "num_warps", "q_block_size", "rescale_threshold", "fp8_mma_k_128")


@dataclass(frozen=True, slots=True)
class PrefillFacts:
    """`items`: the work items of a workgroup: one query tile of a head, or those that a plan, or
    AITER's host code, gives it. The others are the tiles, fields of `PrefillConfig`."""

    items: Items
    q_block_size: int
    kv_block: int
    num_warps: int
    rescale_threshold: float
    fp8_mma_k_128: bool

    @classmethod
    def of(cls, config: Any, items: Items = "one") -> Self:
        """Those of a kernel for this problem with its tiles."""
        return cls(items, **{name: getattr(config, name) for name in TILES})

    @property
    def persistent(self) -> bool:
        """Whether workgroups walk work items."""
        return self.items != "one"

    @property
    def aiter(self) -> bool:
        """Whether the arguments are those of AITER's host code."""
        return self.items == "aiter"


def facts_of(artifact: Artifact) -> PrefillFacts:
    """Those of a kernel; see `read_facts`."""
    return read_facts(artifact.manifest, PrefillFacts)
