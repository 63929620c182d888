"""What hosts know of a prefill kernel: its operations say it, and its manifest carries it."""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.artifact import Artifact
from mlagen.attention.facts import Items, read_facts


@dataclass(frozen=True, slots=True)
class PrefillFacts:
    """`items`: the work items of a workgroup: one query tile of a head, or those that a plan, or
    AITER's host code, gives it."""

    items: Items = "one"

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
