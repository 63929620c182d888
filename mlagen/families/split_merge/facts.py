"""What hosts and oracles know of a kernel that merges the parts of MLA decode."""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.artifact import Artifact
from mlagen.attention.manifest_facts import read_facts
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """`running`: parts are added with the largest LSE so far, not with that of all. `slot_rows`:
    query rows of a slot; 0: the call says how many."""

    running: bool
    slot_rows: int


def merge_arguments(k: MlaDecodeMergeConfig, slot_rows: int) -> tuple[tuple[str, str, str], ...]:
    """Name, type and use of each argument of a kernel that merges parts of MLA decode. `slot_rows`:
    as `MergeFacts` has it."""
    return (
        ("merges", "pointer:int32", "read"),
        ("partial_o", "pointer:fp32", "read"),
        ("partial_lse", "pointer:fp32", "read"),
        *((("sink", "pointer:fp32", "read"),) if k.sink else ()),
        ("o", f"pointer:{k.output_dtype}", "write"),
        ("lse", "pointer:fp32", "write"),
        ("lse_stride", "u32", "value"),
        *((("slot_rows", "u32", "value"),) if not slot_rows else ()),
        *((("empty_lse", "u32", "value"),) if k.sink else ()),
        ("row_count", "rows:lse", "value"),
        ("slot_count", "rows:partial_lse@0", "value"),
    )


def facts_of(artifact: Artifact) -> MergeFacts:
    """Those of a kernel; see `read_facts`."""
    return read_facts(artifact.manifest, MergeFacts)
