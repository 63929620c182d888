"""What hosts and oracles know of a kernel that merges the parts of MLA decode."""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.artifact import Artifact
from mlagen.attention.manifest_facts import read_facts


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """`running`: parts are added with the largest LSE so far, not with that of all. `slot_rows`:
    query rows of a slot; 0: the call says how many."""

    running: bool
    slot_rows: int


def facts_of(artifact: Artifact) -> MergeFacts:
    """Those of a kernel; see `read_facts`."""
    return read_facts(artifact.manifest, MergeFacts)
