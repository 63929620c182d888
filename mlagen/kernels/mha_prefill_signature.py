"""What an MHA prefill kernel takes, and which problems it is not generated for."""

from __future__ import annotations

from mlagen.dsl import Signature
from mlagen.dsl.signature import pack
from mlagen.errors import ConfigError
from mlagen.problem import MhaConfig

U32_MOST = 2**32 - 1


def signature(k: MhaConfig) -> Signature:
    """Pointers first, then numbers; an argument exists only where the problem needs it. Shapes are
    those of `MhaConfig`.

    `seq_len`: query rows of every batch entry; where they are ragged, of the longest sequence. A
    workgroup computes `q_tile` query rows of one head. `max_pages`: entries of a row of the page
    table. `scale_log2e` is the softmax scale times log2(e).
    """
    paged = k.page_size > 0
    arguments = [
        ("q", "pointer", "read", True),
        ("k", "pointer", "read", True),
        ("v", "pointer", "read", True),
        ("o", "pointer", "write", True),
        ("lse", "pointer:fp32", "write", k.lse),
        ("sinks", "pointer:fp32", "read", k.sink),
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
    ]
    return Signature(
        pack(*((name, kind, access) for name, kind, access, there in arguments if there)),
        grid=(("num_heads", 1), ("seq_len", k.q_tile), ("batch", 1)),
        block=(64 * k.num_warps, 1, 1),
    )


def refuse_unsupported(k: MhaConfig) -> None:
    """ConfigError for a valid problem that this kernel is not generated for, naming what it is."""
    if k.dtype != "bf16":
        raise ConfigError(
            f"dtype={k.dtype} is a valid MhaConfig, but the fp8 operations (32x32x64 MFMA, "
            f"ds_read_b64_tr_b8, in-place fp8 P) of mha_prefill_v2 are missing",
            hint="dtype=bf16 is generated",
        )
    if k.num_warps != 8:
        raise ConfigError(
            f"num_warps={k.num_warps} is a valid MhaConfig, but mha_prefill_v2 staggers two "
            f"halves of 8 waves",
            hint="num_warps=8 is generated",
        )
    page_bytes = k.page_size * k.kv_row_stride * k.element_bytes
    if page_bytes > U32_MOST:
        raise ConfigError(
            f"page_size={k.page_size}: a page of {page_bytes} bytes; a buffer resource holds at "
            f"most {U32_MOST}"
        )
