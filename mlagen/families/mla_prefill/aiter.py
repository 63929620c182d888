"""A call in the arguments of AITER's persistent MLA prefill: for its binary, or a kernel of ours
that takes them (`arguments=aiter`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.errors import ConfigError
from mlagen.families.mla_prefill.inputs import MlaPrefillInputs
from mlagen.families.mla_prefill.workspace import WorkCall

Array = npt.NDArray[Any]


def aiter_arguments(
    inputs: MlaPrefillInputs, call: WorkCall, output: Array
) -> tuple[dict[str, Array], dict[str, int | float]]:
    """Tensors and numbers by the names of `kernels.mla_prefill_signature.aiter_signature`.

    The call is ragged, of fp8 K and V of as many heads as Q; keys are packed, or in pages of one.
    Raises ConfigError for another call, and for causal rows that do not end where the keys do.
    """
    config = inputs.config
    if not config.ragged or config.page_size > 1 or config.kv_form != "k_and_v":
        raise ConfigError(
            f"{config.form}: AITER's kernel takes packed rows and k and v in pages of one key",
            hint="ragged=true, kv_form=k_and_v and page_size 0 or 1",
        )
    if config.num_heads != config.num_kv_heads or config.dtype != "fp8_e4m3":
        raise ConfigError(
            f"num_heads={config.num_heads}, num_kv_heads={config.num_kv_heads}, "
            f"dtype={config.dtype}: AITER's kernel has a K/V head for each query head, in fp8",
            hint="num_kv_heads=num_heads, dtype=fp8_e4m3",
        )
    for s in inputs.sequences:
        if call.plan.shape.causal and s.start_pos != s.keys - s.rows:
            raise ConfigError(
                f"start_pos[{s.index}]={s.start_pos}: in AITER's causal mask the last of "
                f"{s.rows} rows stands at the last of {s.keys} keys",
                hint=f"start_pos[{s.index}]={s.keys - s.rows}",
            )
    assert inputs.v is not None and inputs.q_offsets is not None
    pages, offsets = _page_list(inputs)
    tensors = {
        "q": inputs.q,
        "k": inputs.k,
        "v": inputs.v,
        "o": output,
        **call.tensors,
        "q_offsets": inputs.q_offsets,
        "kv_offsets": offsets,
        "page_list": pages,
        **{
            name: np.array([getattr(inputs, name)], np.float32)
            for name in ("q_scale", "k_scale", "v_scale")
        },
    }
    scalars: dict[str, int | float] = {
        "scale": inputs.scale,
        "q_rows": len(inputs.q),
        "num_heads": config.num_heads,
        "pages": len(inputs.k),
        "listed": len(pages),
    }
    return tensors, scalars


def _page_list(inputs: MlaPrefillInputs) -> tuple[Array, Array]:
    """The pages of all sequences, one key each, and where each sequence's begin."""
    if inputs.page_table is None:
        assert inputs.kv_offsets is not None
        return np.arange(len(inputs.k), dtype=np.int32), inputs.kv_offsets
    keys = [s.keys for s in inputs.sequences]
    rows = [inputs.page_table[b, :count] for b, count in enumerate(keys)]
    return np.concatenate(rows), np.cumsum([0, *keys], dtype=np.int32)
