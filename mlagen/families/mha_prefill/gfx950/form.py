"""MHA prefill in fp8 as streamed prefill takes it: one area of K, which is as wide as V."""

from __future__ import annotations

from mlagen.attention.prefill.gfx950.fragments import FORMATS
from mlagen.attention.prefill.gfx950.streamed_form import (
    KeyArea,
    Operands,
    StreamedForm,
    row_tensors,
)
from mlagen.attention.prefill.gfx950.tensors import PrefillTensors, RowTensor
from mlagen.families.mha_prefill.gfx950.signature import refuse_unsupported, signature
from mlagen.families.mha_prefill.problem import MhaConfigV2


def streamed_form(k: MhaConfigV2) -> StreamedForm:
    """The problem's operands and arguments, those of the other MHA kernels. ConfigError for a
    problem that no kernel is generated for."""
    refuse_unsupported(k)
    head = k.depth * k.element_bytes
    keys, values = (RowTensor(name, name.lower(), k.num_kv_heads * head, head) for name in "KV")
    tensors = PrefillTensors(*row_tensors(k), (keys, values))
    areas = (KeyArea("K", k.depth, keys, 0),)
    return StreamedForm(Operands(FORMATS[k.dtype], tensors, areas, values, k.depth), signature(k))
