"""Forms of sparse MLA for `sanitizer_report.py`, and one small call of each."""

from __future__ import annotations

from typing import Any

DECODE_HEADS = "mla_sparse_decode_sm90 num_heads="
PREFILL_HEADS = "mla_sparse_prefill_sm90 num_heads="
FORMS = (
    f"{PREFILL_HEADS}16",
    f"{PREFILL_HEADS}8 rows=v32",
    f"{PREFILL_HEADS}32 rows=e4m3_block64",
    f"{PREFILL_HEADS}64",
    f"{PREFILL_HEADS}128 d_qk=512",
    f"{PREFILL_HEADS}128 rows=rope_aware",
    f"{DECODE_HEADS}24 q_len=2 causal=true",
    f"{DECODE_HEADS}16 rows=v32 q_len=2",
    f"{DECODE_HEADS}16 rows=v32 q_len=2 rows_by=bulk",
    f"{DECODE_HEADS}8 rows=v32 extra=true causal=true rows_by=bulk",
    f"{PREFILL_HEADS}16 rows=v32 rows_by=bulk",
    f"{DECODE_HEADS}8 rows=model1 d_qk=512 extra=true",
    f"{DECODE_HEADS}64 rows=v32",
    f"{DECODE_HEADS}128 rows=v32 q_len=2 extra=true causal=true shared_list=true",
    f"{DECODE_HEADS}64 rows=model1 d_qk=512 extra=true",
    f"{DECODE_HEADS}8 rows=v41 d_qk=512 extra=true",
    f"{DECODE_HEADS}24 rows=v41 d_qk=512",
    f"{DECODE_HEADS}64 rows=v41 d_qk=512",
    f"{DECODE_HEADS}128 rows=v41 d_qk=512 extra=true causal=true",
    f"{DECODE_HEADS}128 rows=e4m3_block128",
    f"{DECODE_HEADS}128",
)
LENGTHS, TOPK = (450, 130, 64, 1, 0, 449), 450
SPLITS = 2


def right(artifact: Any) -> bool:
    """Launches a call of lists of no tile up to eight, with invalid and repeated rows, in pages of
    a pool of two layers; decode's in two parts, which are merged. Whether both oracles agree."""
    from sparse_gpu import Found, on_gpu, passes

    from mlagen.app.build import callable_of
    from mlagen.bench.torch_arrays import to_host
    from mlagen.families.mla_sparse.made_up import (
        mla_sparse_decode_inputs,
        mla_sparse_prefill_inputs,
    )

    kernel: Any = callable_of(artifact)
    decode = "decode" in artifact.manifest.kernel
    shape: dict[str, Any] = {
        "topk": TOPK, "lengths": LENGTHS, "cache_rows": 512, "page_size": 32, "layers": 2,
        "data": "randn", "sink": [0.5] * kernel.config.num_heads,
    }  # fmt: skip
    if not decode:
        kernel._own_sms = 2  # blocks that take turns at queries have several each
        inputs: Any = mla_sparse_prefill_inputs(kernel.config, rows=len(LENGTHS), **shape)
    else:
        if kernel.config.extra:
            shape |= {"extra_topk": 100, "extra_lengths": (100, 0, 64, 1, 100, 65)}
        inputs = mla_sparse_decode_inputs(kernel.config, batch=len(LENGTHS), **shape)
    run = kernel.run(**on_gpu(inputs), **({"splits": SPLITS} if decode else {}))
    named = {"o": run.output, "lse": run.lse, "max_logits": run.max_logits}
    outputs = {name: to_host(tensor) for name, tensor in named.items() if tensor is not None}
    try:
        passes(kernel, inputs, Found(outputs, SPLITS if decode else 1))
    except AssertionError as error:
        print(error)
        return False
    return True
