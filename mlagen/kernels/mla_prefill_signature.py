"""What an MLA prefill kernel takes, and which problems it is not generated for."""

from __future__ import annotations

from mlagen.dsl import Signature
from mlagen.kernels.prefill_signature import prefill_signature, refuse_wide_pages
from mlagen.problem import MlaConfig


def signature(k: MlaConfig) -> Signature:
    """Pointers first, then numbers, as `prefill_signature` lays them out; shapes are those of
    `MlaConfig`."""
    tensors = [
        ("q", "pointer", "read", True),
        ("k", "pointer", "read", True),
        ("v", "pointer", "read", k.kv_form != "latent"),
        ("k_rope", "pointer", "read", k.kv_form == "nope_rope"),
        ("o", "pointer", "write", True),
        ("lse", "pointer:fp32", "write", k.lse),
    ]
    return prefill_signature(k, tensors)


def refuse_unsupported(k: MlaConfig) -> None:
    """ConfigError for a valid problem that this kernel is not generated for, naming what it is."""
    refuse_wide_pages(k, max(k.k_row_stride, k.v_row_stride))
