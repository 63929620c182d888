"""The part of a prefill kernel's arguments that does not depend on the kind of attention."""

from __future__ import annotations

from collections.abc import Iterable

from mlagen.attention.prefill.problem import PAGE_STEP, PrefillConfig
from mlagen.dsl import Signature
from mlagen.dsl.signature import pack
from mlagen.errors import ConfigError
from mlagen.targets.gfx950.limits import GFX950


def prefill_signature(k: PrefillConfig, tensors: Iterable[tuple[str, str, str, bool]]) -> Signature:
    """`tensors` (name, kind, access, whether the problem needs it), then where rows and keys lie,
    the sizes and the scales. An argument exists only where the problem needs it.

    `seq_len`: query rows of every batch entry; where they are ragged, of the longest sequence.
    `max_pages`: entries of a row of the page table. `scale_log2e` takes dot products of the stored
    Q and K to log2 units: the softmax scale times log2(e) and the scales of Q and K, which fp8
    has. `out_scale`, fp8 only, is that of V. A workgroup computes `q_tile` query rows of one head.
    """
    paged = k.page_size > 0
    arguments = [
        *tensors,
        ("q_offsets", "pointer:int32", "read", k.ragged),
        ("kv_offsets", "pointer:int32", "read", k.ragged and not paged),
        ("kv_lengths", "pointer:int32", "read", paged),
        ("start_positions", "pointer:int32", "read", k.by_sequence),
        ("page_table", "pointer:int32", "read", paged),
        ("seq_len", "u32", "value", True),
        ("num_keys", "u32", "value", not k.by_sequence),
        ("start_pos", "u32", "value", not k.by_sequence),
        ("batch", "u32", "value", True),
        ("max_pages", "u32", "value", paged),
        ("scale_log2e", "f32", "value", True),
        ("out_scale", "f32", "value", k.dtype == "fp8_e4m3"),
    ]
    return Signature(
        pack(*((name, kind, access) for name, kind, access, there in arguments if there)),
        grid=(("num_heads", 1), ("seq_len", k.q_tile), ("batch", 1)),
        block=(k.threads, 1, 1),
    )


def refuse_wide_pages(k: PrefillConfig, row_stride: int) -> None:
    """ConfigError where a page of rows of `row_stride` elements outgrows a buffer resource."""
    page_bytes = k.page_size * row_stride * k.element_bytes
    if page_bytes > GFX950.buffer_bytes_max:
        most = GFX950.buffer_bytes_max // (row_stride * k.element_bytes) // PAGE_STEP * PAGE_STEP
        raise ConfigError(
            f"page_size={k.page_size}: a page of {page_bytes} bytes; a buffer resource holds at "
            f"most {GFX950.buffer_bytes_max}",
            hint=f"page_size is at most {most}",
        )
