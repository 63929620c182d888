"""What an MHA prefill kernel takes, and which problems it is not generated for."""

from __future__ import annotations

from mlagen.attention.prefill.facts import PrefillFacts
from mlagen.attention.prefill.gfx950.common_arguments import prefill_signature, refuse_wide_pages
from mlagen.attention.prefill.gfx950.fragments import FORMATS
from mlagen.attention.prefill.gfx950.streamed_form import (
    KeyArea,
    Operands,
    StreamedForm,
    row_tensors,
)
from mlagen.attention.prefill.gfx950.tensors import PrefillTensors, RowTensor
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


def operands(k: MhaConfigV2) -> Operands:
    """Both products' operands: K in one area, as wide as V."""
    head = k.depth * k.element_bytes
    keys, values = (RowTensor(name, name.lower(), k.num_kv_heads * head, head) for name in "KV")
    tensors = PrefillTensors(*row_tensors(k), (keys, values))
    areas = (KeyArea("K", k.depth, keys, 0),)
    return Operands(FORMATS[k.dtype], tensors, areas, values, k.depth)


def streamed_form(k: MhaConfigV2) -> StreamedForm:
    """The problem as streamed prefill takes it. ConfigError for a problem that no kernel is
    generated for."""
    refuse_unsupported(k)
    return StreamedForm(operands(k), signature(k), PrefillFacts.of(k))
