"""How waves read tiles of K and V from LDS in streamed prefill on gfx950, and what fits there."""

from __future__ import annotations

from mlagen.attention.prefill.gfx950.fragments import (
    KEY_READ,
    VALUE_READ,
    column_fragments,
    transposed_fragments,
)
from mlagen.attention.prefill.gfx950.page_plan import unit_of
from mlagen.attention.prefill.gfx950.streamed_form import Operands
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.targets.gfx950.dsl import Padded, Reads, Subtiled, Xor
from mlagen.targets.gfx950.dsl.layout import DMA_BLOCK

PADDED_BLOCKS = 8  # of 1024 bytes: a read takes 8 rows of fp8, each of another block


def value_layouts(k: PrefillConfig) -> tuple[str, ...]:
    """The layouts of V that fit the problem, best first. Transposing reads of bf16 take rows that
    `plain` keeps on different banks; those of fp8 need padding, or a swizzle. `padded` spreads
    8 blocks over as many consecutive keys as fill them: a tile must divide into those, and what a
    page look-up serves, which is what one block's DMA fetches from."""
    if k.dtype == "bf16":
        return ("plain",)
    spread = PADDED_BLOCKS * DMA_BLOCK // (k.v_width * k.element_bytes)
    unit = unit_of(k)
    if k.kv_block % spread or (unit > 1 and unit % spread):
        return ("swizzled", "plain")
    return ("padded", "swizzled", "plain")


def key_slots(k: PrefillConfig) -> tuple[int, ...]:
    """Numbers of K tiles in LDS, best first. The loop goes round once for each slot of K and V, so
    as many slots as V has make half the code that two would."""
    return (3, 2) if value_slots(k)[0] == 3 else (2, 3)


def value_slots(k: PrefillConfig) -> tuple[int, ...]:
    """Numbers of V tiles in LDS, best first. Two tiles of 128 bf16 keys fill what K leaves."""
    return (2,) if k.kv_block * k.element_bytes > 128 else (3, 2, 4)


def key_reads(k: PrefillConfig, held: Operands) -> Reads:
    """K as operand A of S^T = K Q^T; nope and rope are an area each."""
    fragments = [column_fragments(held.form, k.kv_block, area.columns) for area in held.keys]
    return Reads(fragments, KEY_READ, "keys x columns, read by ds_read_b128")


def value_reads(k: PrefillConfig, held: Operands) -> Reads:
    """V^T as operand A of O^T = V^T P, by transposing reads."""
    fragments = transposed_fragments(held.form, k.kv_block, held.depth)
    return Reads(fragments, VALUE_READ, f"keys x depth, read by {held.form.transposing}")


def value_layout(name: str, keys: int, row: int) -> Padded | Subtiled:
    """V in LDS: the rows of a transposing read lie on different banks, in blocks that are 1040
    bytes apart, or in sub-blocks of 16 keys whose halves change places with every eighth key."""
    if name == "padded":
        return Padded(keys, row, spread=8, stride=1040)
    if name == "swizzled":
        return Subtiled(keys, row, 16, 64, Xor((9,), (5,)))
    return Subtiled(keys, row, 8, 64)
