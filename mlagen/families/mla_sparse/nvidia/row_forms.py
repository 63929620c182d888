"""How kernels on NVIDIA's GPUs read each format of a cache row."""

from __future__ import annotations

from dataclasses import replace

from mlagen.attention.latent.nvidia.row_form import RowForm
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig

ROW_FORMS = {
    "e4m3": RowForm(576),
    "e4m3_row": RowForm(576, scales="key"),
    "e4m3_block32": RowForm(576, scales="blocks", block=32),
    "e4m3_block64": RowForm(576, scales="blocks", block=64),
    "e4m3_block128": RowForm(576, scales="blocks", block=128),
    "v32": RowForm(512, rope=64, rope_at=528, scales="blocks", block=128, scales_at=512),
    "model1": RowForm(448, rope=64, rope_at=448, scales="blocks", block=64, paged_exponents=8),
    "v41": RowForm(512, scales="blocks", block=32, scales_at=512, powers=True),
    "rope_aware": RowForm(512, rope=64, rope_at=512, scales="key"),
}


def row_form(k: MlaSparsePrefillConfig | MlaSparseDecodeConfig) -> RowForm | None:
    """How a kernel reads the problem's rows; None: bf16, as they are."""
    form = ROW_FORMS.get(k.rows)
    return replace(form, latent=k.d_qk - form.rope) if form else None
