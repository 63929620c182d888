"""A call of MLA prefill as the persistent kernel's work sees it: packed rows, and blocks of keys.

Query rows are numbered through all sequences, also where each has `seq_len` of them. Blocks are
keys, numbered likewise, or pages: then block `b * max_pages + i` is entry i of row b of the page
table, so that a block's number is where its page number lies. `listed` numbers pages without the
table's unused entries, as AITER's page list has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from mlagen.attention.masks import CAUSAL
from mlagen.attention.prefill.plan import WorkPlan, plan_shape
from mlagen.attention.prefill.work import WorkShape
from mlagen.families.mla_prefill.inputs import MlaPrefillInputs
from mlagen.families.mla_prefill.problem import require_plain_mask


def work_shape(inputs: MlaPrefillInputs, *, listed: bool = False) -> WorkShape:
    """The call's rows and keys. ConfigError for a mask with a window."""
    config, sequences = inputs.config, inputs.sequences
    require_plain_mask(config.mask)
    keys = [sequence.keys for sequence in sequences]
    size = max(config.page_size, 1)
    blocks = [-(-count // size) for count in keys]
    if inputs.page_table is not None and not listed:
        blocks = [inputs.page_table.shape[1]] * inputs.batch
    return WorkShape(
        qo_indptr=_indptr([sequence.rows for sequence in sequences]),
        kv_indptr=_indptr(blocks),
        kv_lengths=tuple(keys),
        start_pos=tuple(sequence.start_pos for sequence in sequences),
        heads=config.num_heads,
        causal=config.mask == CAUSAL,
        tile_q=config.q_tile,
        block_size=size,
    )


def plan_inputs(inputs: MlaPrefillInputs, workgroups: int, *, listed: bool = False) -> WorkPlan:
    """The call's work, divided over `workgroups`; see `plan_shape`."""
    return plan_shape(work_shape(inputs, listed=listed), workgroups, inputs.config.kv_block)


def _indptr(counts: Sequence[int]) -> tuple[int, ...]:
    return (0, *accumulate(counts))
