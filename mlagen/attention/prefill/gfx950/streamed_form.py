"""What a streamed prefill kernel multiplies: columns of Q and K, V, and where they lie in memory.

K's tile has one or two areas. Two where its columns do not lie side by side: the part without
position (nope) and the rotary one (rope) of MLA. A family says its problem in these words.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.attention.prefill.facts import PrefillFacts
from mlagen.attention.prefill.gfx950.fragments import MatrixFormat
from mlagen.attention.prefill.gfx950.tensors import PrefillTensors, RowTensor
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.dsl import Signature


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


@dataclass(frozen=True, slots=True)
class StreamedForm:
    """What a family says of a problem to a streamed kernel."""

    operands: Operands
    signature: Signature
    facts: PrefillFacts


def row_tensors(k: PrefillConfig) -> tuple[RowTensor, RowTensor]:
    """Q and O."""
    size, o_head = k.element_bytes, k.v_width * k.output_bytes
    q = RowTensor("Q", "q", k.num_heads * k.qk_width * size, k.qk_width * size)
    return q, RowTensor("O", "o", k.num_heads * o_head, o_head)
