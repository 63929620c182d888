"""MLA decode on Hopper: the operations of `Seesaw` over a paged cache and planned work items."""

from __future__ import annotations

from mlagen.attention.latent.sm_90a.form import Form, OwnRegisters
from mlagen.attention.latent.sm_90a.seesaw.kernel import SeesawKernel, SeesawKnobs
from mlagen.attention.latent.sm_90a.seesaw.math_roles import Seesaw
from mlagen.attention.latent.sm_90a.seesaw.pages import SeesawPaged
from mlagen.errors import UnsupportedError
from mlagen.families.mla_decode.problem import ARRIVALS, ITEM_BYTES, MlaDecodeConfig
from mlagen.families.mla_decode.sm_90a.signature import (
    SYMBOL,
    can_persist,
    refuse_chunks,
    signature,
)
from mlagen.targets.nvidia.dsl import PipelineSpace, WarpRole

ITEM = OwnRegisters("item", "item", ".b64", "work item of this block")
# What a block of several items holds of the next one, in an item's last pass.
NEXT = tuple(
    OwnRegisters(name, f"next_{name}", ".b32", f"of the next item: {why}")
    for name, why in (
        ("sequence", "its number"),
        ("behind", "tokens of the sequence before its last"),
        ("first", "first tile of its range"),
        ("end", "end of its range"),
        ("kv_head", "its KV head"),
        ("length", "keys of its sequence"),
        ("reach", "keys left, as `valid`"),
    )
)


def mla_decode(
    k: MlaDecodeConfig,
    s: PipelineSpace,
    left: WarpRole,
    right: WarpRole,
    feeder: WarpRole | None,
    knobs: SeesawKnobs,
) -> Seesaw:
    """The operations of one decode kernel. Raises UnsupportedError for chunks, and for problems
    that have no persistent form, where `knobs` ask for it."""
    refuse_chunks(k)
    if knobs.persistent and not can_persist(k):
        raise UnsupportedError(
            f"persistent=1 with dtype={k.dtype}, cache_dtype={k.cache_dtype}",
            hint="blocks take several items with bf16 queries over a bf16 cache",
        )
    threads = s.roles[-1].warps.stop * 32
    form = Form(
        signature(k, threads, persistent=knobs.persistent),
        SYMBOL,
        templates={"finish": "output/seesaw"},
        registers=(ITEM, *(NEXT if knobs.persistent else ())),
        item_bytes=ITEM_BYTES,
        arrivals=ARRIVALS,
    )
    return Seesaw(SeesawKernel(k, s, left, right, feeder, knobs, form), SeesawPaged)
