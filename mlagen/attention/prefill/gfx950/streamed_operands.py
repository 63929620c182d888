"""What a streamed prefill kernel multiplies: columns of Q and K, V, and where they lie in memory.

K's tile has one or two areas. Two where its columns do not lie side by side: the part without
position (nope) and the rotary one (rope) of MLA. Both kinds of problem are said in the same words
here, so that MHA is MLA without rope.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.attention.prefill.gfx950.fragments import FORMATS, MatrixFormat
from mlagen.attention.prefill.gfx950.tensors import PrefillTensors, RowTensor
from mlagen.families.mha_prefill.problem import MhaConfig
from mlagen.families.mla_prefill.problem import MlaConfig


@dataclass(frozen=True, slots=True)
class KeyArea:
    """`columns` of K that lie side by side: in tensor `tensor`, `first_byte` into its head."""

    name: str
    columns: int
    tensor: RowTensor
    first_byte: int


@dataclass(frozen=True, slots=True)
class Operands:
    """Both products' operands. `values` may be the tensor of K: latent rows are both."""

    form: MatrixFormat
    tensors: PrefillTensors
    keys: tuple[KeyArea, ...]
    values: RowTensor
    depth: int

    @property
    def qk_steps(self) -> int:
        """Matrix instructions of one block of 32 keys."""
        return sum(area.columns for area in self.keys) // self.form.k


def operands(k: MhaConfig | MlaConfig) -> Operands:
    """The operands of a problem."""
    form = FORMATS[k.dtype]
    size = form.element_bytes
    q = RowTensor("Q", "q", k.num_heads * k.qk_width * size, k.qk_width * size)
    o_head = k.v_width * k.output_bytes
    o = RowTensor("O", "o", k.num_heads * o_head, o_head)
    heads = k.num_kv_heads
    if isinstance(k, MhaConfig):
        head = k.depth * size
        keys, values = (
            RowTensor("K", "k", heads * head, head),
            RowTensor("V", "v", heads * head, head),
        )
        whole = KeyArea("K", k.depth, keys, 0)
        return Operands(form, PrefillTensors(q, o, (keys, values)), (whole,), values, k.depth)
    keys = RowTensor("K", "k", k.k_row_stride * size, k.k_width * size)
    rope, rope_byte = keys, k.depth * size
    if k.kv_form == "nope_rope":
        rope, rope_byte = RowTensor("R", "k_rope", k.d_rope * size, 0), 0
    elif k.kv_form == "latent":
        rope_byte = k.rope_cache_offset * size
    values = keys
    if k.kv_form != "latent":
        values = RowTensor("V", "v", k.v_row_stride * size, k.depth * size)
    parts = (KeyArea("nope", k.depth, keys, 0), KeyArea("rope", k.d_rope, rope, rope_byte))
    rows = tuple(dict.fromkeys((keys, rope, values)))
    return Operands(form, PrefillTensors(q, o, rows), parts, values, k.depth)
