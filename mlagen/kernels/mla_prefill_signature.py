"""What an MLA prefill kernel takes, and which problems it is not generated for."""

from __future__ import annotations

from mlagen.dsl import Signature
from mlagen.kernels.prefill_signature import prefill_signature, refuse_wide_pages
from mlagen.problem import MlaConfig


def signature(k: MlaConfig) -> Signature:
    """Pointers first, then numbers, as `prefill_signature` lays them out; shapes are those of
    `MlaConfig`.

    `scale_log2e` takes dot products of the stored Q and K to log2 units: the softmax scale times
    q_scale, k_scale and log2(e). `out_scale`, fp8 only, is v_scale.
    """
    fp8 = k.dtype == "fp8_e4m3"
    tensors = [
        ("q", "pointer", "read", True),
        ("k", "pointer", "read", True),
        ("v", "pointer", "read", k.kv_form != "latent"),
        ("k_rope", "pointer", "read", k.kv_form == "nope_rope"),
        ("o", "pointer", "write", True),
        ("lse", "pointer:fp32", "write", k.lse),
    ]
    return prefill_signature(
        k,
        [(name, kind, access) for name, kind, access, there in tensors if there],
        ["scale_log2e", "out_scale"] if fp8 else ["scale_log2e"],
    )


def refuse_unsupported(k: MlaConfig) -> None:
    """ConfigError for a valid problem that this kernel is not generated for, naming what it is."""
    refuse_wide_pages(k, max(k.k_row_stride, k.v_row_stride))
