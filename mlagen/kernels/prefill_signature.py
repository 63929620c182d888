"""The part of a prefill kernel's arguments that does not depend on the kind of attention."""

from __future__ import annotations

from collections.abc import Iterable

from mlagen.dsl import Signature
from mlagen.dsl.signature import pack
from mlagen.errors import ConfigError
from mlagen.problem.prefill import PrefillConfig

U32_MOST = 2**32 - 1


def prefill_signature(
    k: PrefillConfig, tensors: Iterable[tuple[str, str, str]], scales: Iterable[str]
) -> Signature:
    """`tensors` (name, kind, access), then where rows and keys lie, the sizes, the f32 `scales`.

    An argument exists only where the problem needs it. `seq_len`: query rows of every batch entry;
    where they are ragged, of the longest sequence. `max_pages`: entries of a row of the page table.
    A workgroup computes `q_tile` query rows of one head.
    """
    paged = k.page_size > 0
    more = [
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
    ]
    return Signature(
        pack(
            *tensors,
            *((name, kind, access) for name, kind, access, there in more if there),
            *((name, "f32", "value") for name in scales),
        ),
        grid=(("num_heads", 1), ("seq_len", k.q_tile), ("batch", 1)),
        block=(k.threads, 1, 1),
    )


def refuse_wide_pages(k: PrefillConfig, row_stride: int) -> None:
    """ConfigError where a page of rows of `row_stride` elements outgrows a buffer resource."""
    page_bytes = k.page_size * row_stride * k.element_bytes
    if page_bytes > U32_MOST:
        raise ConfigError(
            f"page_size={k.page_size}: a page of {page_bytes} bytes; a buffer resource holds at "
            f"most {U32_MOST}"
        )
