"""The registers of kernels over latent rows, of all roles: ptxas drops what a role does not use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.attention.latent.nvidia.sizes import TILE
from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.form import Form
from mlagen.attention.latent.sm_90a.paged_copy import PagedCopy
from mlagen.dsl import exactly
from mlagen.targets.nvidia.dsl import PipelineSpace

SLOTS = 2  # the even and the odd tile
RAW_WORDS = TILE * 128 // 4  # of the numbers that are turned into bf16 together
FLOAT = 4  # bytes
# wgmma descriptors: 128-byte swizzle, 8 rows are 1024 bytes (PTX ISA, matrix descriptor). Across
# the rows, the distance to the next 64 columns is added.
COLUMN_MAJOR = 1 << 62 | 1024 >> 4 << 32
ROW_MAJOR = COLUMN_MAJOR | 1 << 16
SEEN_FROM = ("seen_from", ".b32", "first key that some new token of the sequence sees")


def registers(
    k: LatentProblem,
    s: PipelineSpace,
    paged: PagedCopy,
    *,
    slanted: bool,
    converters: int,
    extents: Mapping[str, int],
    by_map: bool | None = None,
) -> dict[str, Any]:
    """Declares the registers of a kernel besides the schedule's own: names of all of them, as
    templates write them, by what they are. `slanted`: rows see different keys; `converters`:
    threads that turn e4m3 into bf16 in place; `extents`: the schedule's registers, and how many of
    them operations touch; `by_map`: whether a tensor map has all
    queries; None: where they are bf16."""
    found: dict[str, Any] = {
        name: s.names(name, exactly("registers", count)) for name, count in extents.items()
    }
    for name, why in (
        ("cm", "c times the running maximum of this thread's two rows"),
        ("l", "row sums of this warpgroup's tiles"),
        ("alpha", "what the last maxima do to O and l"),
        ("top", "row maxima of this warpgroup's tile"),
    ):
        found[name] = s.named(name, ".f32", 2, why)
    # Queries with scales of their own have a factor each.
    own = s.named("c", ".f32", 2 if k.rope_aware_queries else 1, "scale * log2(e)")
    found["c"] = [own[0], own[-1]]
    pages = s.named("page", ".b32", SLOTS * paged.lookups, "pages of the next two copies")
    found["pages"] = [
        pages[slot * paged.lookups : (slot + 1) * paged.lookups] for slot in range(SLOTS)
    ]
    found["ahead"] = s.named("ahead", ".b32", SLOTS, "tiles to look up next")
    if converters:
        each = RAW_WORDS // converters
        found["words"] = s.named("raw", ".b32", each, "e4m3 numbers that become bf16")
    if k.rope_aware:
        found["weight"] = s.named("weight", ".f32", SLOTS, "scales of the next rows")
        found["entry"] = s.named("entry", ".b32", SLOTS, "pages of those after them")
    singles = [
        ("query_row", ".b32", "first query row of this block"),
        ("valid", ".b32", "keys left from this warpgroup's next tile on"),
        ("row", ".b32", "first of this thread's two rows"),
        ("fragment", ".b32", "row and 16-byte column that this lane moves of an operand A"),
        ("row_major", ".b64", "descriptor of SMEM read along its rows (K-major)"),
        ("column_major", ".b64", "descriptor of SMEM read across its rows (MN-major)"),
        ("table", ".b64", "this sequence's row of the block table"),
        ("entries", ".b32", "entries of that row which the sequence uses"),
        ("cache", ".b64", "the cache, this KV head's columns of a thread" if paged.producer_threads
         else "tensor map of the cache"),
    ]  # fmt: skip
    if k.dtype == "bf16" if by_map is None else by_map:
        singles.append(("map_q", ".b64", "tensor map of q"))
    if paged.producer_threads or k.rope_aware:
        singles.append(("keys", ".b32", "keys of the sequence"))
    if k.window and k.rope_aware:
        singles.append(SEEN_FROM)
    if k.num_kv_heads > 1 and not paged.producer_threads:
        singles.append(("kv_column", ".b32", "first column of this block's KV head"))
    if slanted:
        singles.append(("slack", ".b32", "keys that this block's first row does not see"))
        found["unseen"] = s.named(
            "unseen", ".b32", 2, "keys at the end that this thread's two rows do not see"
        )
    for name, type, why in singles:
        found[name] = s.named(name, type, 1, why)[0]
    return found


def own_registers(s: PipelineSpace, form: Form) -> dict[str, Any]:
    """Declares a family's own registers: one's name, or the names of several."""
    made = {r.operand: s.named(r.name, r.type, r.count, r.comment) for r in form.registers}
    return {operand: names[0] if len(names) == 1 else names for operand, names in made.items()}
