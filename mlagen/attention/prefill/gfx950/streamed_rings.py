"""The K and V rings of streamed prefill on gfx950: how their tiles lie in LDS."""

from __future__ import annotations

from mlagen.attention.prefill.gfx950.fragments import column_fragments, transposed_fragments
from mlagen.attention.prefill.gfx950.page_plan import unit_of
from mlagen.attention.prefill.gfx950.streamed_operands import operands
from mlagen.dsl import Padded, Ring, Space, Subtiled, TileLayout, Xor
from mlagen.errors import ScheduleError
from mlagen.families.mha_prefill.gfx950.rings import SWIZZLES
from mlagen.families.mha_prefill.problem import MhaConfig
from mlagen.families.mla_prefill.problem import MlaConfig

# A read takes 8 rows of fp8, each of another block: of 1024 bytes, and 16 more.
PADDED_BLOCKS, PADDED_BLOCK, PADDED_STRIDE = 8, 1024, 1040


def value_layouts(k: MhaConfig | MlaConfig) -> tuple[str, ...]:
    """The layouts of V that fit the problem, best first. Transposing reads of bf16 take rows that
    `plain` keeps on different banks; those of fp8 need padding, or a swizzle. `padded` spreads
    8 blocks over as many consecutive keys as fill them: a tile must divide into those, and what a
    page look-up serves, which is what one block's DMA fetches from."""
    if k.dtype == "bf16":
        return ("plain",)
    spread = PADDED_BLOCKS * PADDED_BLOCK // (k.v_width * k.element_bytes)
    unit = unit_of(k)
    if k.kv_block % spread or (unit > 1 and unit % spread):
        return ("swizzled", "plain")
    return ("padded", "swizzled", "plain")


def key_slots(k: MhaConfig | MlaConfig) -> tuple[int, ...]:
    """Numbers of K tiles in LDS, best first. The loop goes round once for each slot of K and V, so
    as many slots as V has make half the code that two would."""
    return (3, 2) if value_slots(k)[0] == 3 else (2, 3)


def value_slots(k: MhaConfig | MlaConfig) -> tuple[int, ...]:
    """Numbers of V tiles in LDS, best first. Two tiles of 128 bf16 keys fill what K leaves."""
    return (2,) if k.kv_block * k.element_bytes > 128 else (3, 2, 4)


def key_ring(s: Space, k: MhaConfig | MlaConfig, *, slots: int, waves: int, swizzle: str) -> Ring:
    """K in LDS: sub-blocks of 32 keys x 64 bytes, swizzled; nope and rope an area each."""
    held = operands(k)
    size = held.form.element_bytes
    return s.lds.ring(
        "K",
        layout=[
            Subtiled(k.kv_block, area.columns * size, 32, 64, SWIZZLES[swizzle])
            for area in held.keys
        ],
        fragments=[column_fragments(held.form, k.kv_block, area.columns) for area in held.keys],
        slots=slots,
        waves=waves,
        width=16,
        comment="keys x columns, read by ds_read_b128",
    )


def value_ring(s: Space, k: MhaConfig | MlaConfig, *, slots: int, waves: int, layout: str) -> Ring:
    """V in LDS, for transposing reads."""
    held = operands(k)
    return s.lds.ring(
        "V",
        layout=_value_layout(k.kv_block, held.depth * held.form.element_bytes, layout),
        fragments=transposed_fragments(held.form, k.kv_block, held.depth),
        slots=slots,
        waves=waves,
        width=8,
        comment=f"keys x depth, read by {held.form.transposing}",
    )


def _value_layout(keys: int, row_bytes: int, name: str) -> TileLayout:
    """`padded`: rows that one read takes lie in blocks 1040 bytes apart. `swizzled`: sub-blocks of
    16 keys x 64 bytes whose halves change places with every eighth key. `plain`: 8 x 64 bytes."""
    if name == "padded":
        return Padded(keys, row_bytes, PADDED_BLOCKS, PADDED_STRIDE)
    if name == "swizzled":
        return Subtiled(keys, row_bytes, 16, 64, Xor((9,), (5,)))
    if name == "plain":
        return Subtiled(keys, row_bytes, 8, 64)
    raise ScheduleError(f"V layout {name!r} is not one of padded, swizzled, plain")
