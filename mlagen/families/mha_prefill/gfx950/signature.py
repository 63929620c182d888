"""What an MHA prefill kernel takes, and which problems it is not generated for."""

from __future__ import annotations

from mlagen.attention.prefill.gfx950.signature import prefill_signature, refuse_wide_pages
from mlagen.dsl import Signature
from mlagen.families.mha_prefill.problem import MhaConfigV2


def signature(k: MhaConfigV2) -> Signature:
    """Pointers first, then numbers, as `prefill_signature` lays them out; shapes are those of
    `MhaConfigV2`."""
    tensors = [
        ("q", "pointer", "read", True),
        ("k", "pointer", "read", True),
        ("v", "pointer", "read", True),
        ("o", "pointer", "write", True),
        ("lse", "pointer:fp32", "write", k.lse),
        ("sinks", "pointer:fp32", "read", k.sink),
    ]
    return prefill_signature(k, tensors)


def refuse_unsupported(k: MhaConfigV2) -> None:
    """ConfigError for a valid problem that this kernel is not generated for, naming what it is."""
    refuse_wide_pages(k, k.kv_row_stride)
