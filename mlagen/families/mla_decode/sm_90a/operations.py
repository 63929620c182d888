"""MLA decode on Hopper: the operations of `Seesaw` over a paged cache and planned work items, and
what is the family's own of kernels of few query rows."""

from __future__ import annotations

from collections.abc import Mapping

from mlagen.attention.latent.sm_90a.form import Form, OwnRegisters
from mlagen.attention.latent.sm_90a.seesaw import Seesaw, SeesawKnobs
from mlagen.attention.latent.split_work import BLOCK_ROWS
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
        registers=(ITEM, *(NEXT if knobs.persistent else ())),
        item_bytes=ITEM_BYTES,
        arrivals=ARRIVALS,
    )
    return Seesaw(k, s, left, right, feeder, knobs, form)


FEW = (
    "setup",
    "load_queries",
    "read_queries",
    "look_up",
    "prefetch",
    "softmax",
    "zero_tail",
    "finish",
    "copy",
    "gather",
)


def few_rows_form(k: MlaDecodeConfig, s: PipelineSpace) -> Form:
    """Of a kernel of few query rows over bf16, or over e4m3 that a feeder converts. Raises
    UnsupportedError for chunks, as all forms do."""
    return _few_form(k, s, {name: f"latent/{name}.ptx.j2" for name in ("read_e4m3", "convert")})


def few_e4m3_form(k: MlaDecodeConfig, s: PipelineSpace) -> Form:
    """Of one with products of e4m3."""
    own = {
        "setup": "few_rows/setup_e4m3.ptx.j2",
        "load_values": "mla_decode/load_values.ptx.j2",
        **_files("few_rows", "qk_e4m3", "pv_e4m3", "rescale_e4m3"),
    }
    return _few_form(k, s, own)


def few_widened_form(k: MlaDecodeConfig, s: PipelineSpace) -> Form:
    """Of one over e4m3 or rope-aware rows that are converted in registers."""
    own = _files(
        "few_rows/apart", "setup", "spread_queries", "next_scales", "read_keys", "qk", "qk_rope",
        "softmax", "hand_sums", "read_values", "rescale", "pv", "finish",
    )  # fmt: skip
    return _few_form(k, s, {**own, "nothing": "pipeline/nothing.ptx.j2"})


def _files(folder: str, *names: str) -> dict[str, str]:
    return {name: f"{folder}/{name}.ptx.j2" for name in names}


def _few_form(k: MlaDecodeConfig, s: PipelineSpace, templates: Mapping[str, str]) -> Form:
    """The form of a kernel of few query rows. Raises UnsupportedError for chunks."""
    refuse_chunks(k)
    rows = next(tile.rows for tile in s.smem.tiles.values() if tile.tensor == "q")
    return Form(
        signature(k, s.roles[-1].warps.stop * 32, rows=rows, together=True),
        SYMBOL,
        templates={**_files("few_rows", *FEW), **templates},
        operands={"slot_rows": BLOCK_ROWS},
        item_bytes=ITEM_BYTES,
    )
