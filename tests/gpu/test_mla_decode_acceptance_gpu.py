"""Published shapes of dense decoding (H100): 128 and 16 heads, batches of 0, 27 and 128, 50 to 4096
keys. All numbers against attention in fp32 on the GPU, some against both oracles."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from test_mla_decode_gpu import passes

import mlagen
from mlagen.attention.latent.scales import MODEL_SCALE
from mlagen.bench.torch_arrays import to_host
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.ops import MlaDecodeKernel

# The tolerance of those tests.
ATOL, RTOL = 1e-1, 1e-3


@cache
def built(heads: int, page: int) -> MlaDecodeKernel:
    made = mlagen.build("mla_decode_sm90", num_heads=heads, page_size=page)
    assert isinstance(made, MlaDecodeKernel)
    return made


def reference(q: Any, rows: Any) -> Any:
    """[B, 1, H, 512] in fp32 from q [B, 1, H, 576] and each sequence's rows [B, keys, 576]."""
    import torch

    scores = torch.einsum("bqhd,bkd->bqhk", q.float(), rows.float()) * MODEL_SCALE
    return torch.einsum("bqhk,bkd->bqhd", torch.softmax(scores, -1), rows[..., :512].float())


@pytest.mark.parametrize("keys", [50, 1024, 2048, 4096])
@pytest.mark.parametrize("batch", [27, 128, 0])
@pytest.mark.parametrize("heads", [128, 16])
def test_published_shapes(heads: int, batch: int, keys: int) -> None:
    import torch

    torch.manual_seed(keys + batch)
    kernel = built(heads, 64)
    config: MlaDecodeConfig = kernel.config
    pages = config.pages(keys)
    whole = torch.randn(max(batch, 1) * pages, 64, 1, 576, device="cuda").bfloat16()
    table = torch.randperm(len(whole), device="cuda").int()[: batch * pages].view(batch, pages)
    for b in range(batch):  # what is past a length is NaN
        whole[table[b, -1].long(), (keys - 1) % 64 + 1 :] = float("nan")
    lengths = torch.full((batch,), keys, device="cuda", dtype=torch.int32)
    q = torch.randn(batch, 1, heads, 576, device="cuda").bfloat16()
    out = torch.full((batch, 1, heads, 512), float("nan"), device="cuda", dtype=torch.bfloat16)
    lse = torch.full((batch, heads, 1), float("nan"), device="cuda")
    plan = kernel.plan(lengths)
    plan.partial_o.fill_(float("nan"))
    plan.partial_lse.fill_(float("nan"))
    given = (q, whole, table, lengths)
    kernel(*given, scale=MODEL_SCALE, plan=plan, out=out, lse=lse, checked=True)
    torch.cuda.synchronize()
    if not batch:
        return
    rows = whole[table.long()].view(batch, -1, 576)[:, :keys]
    torch.testing.assert_close(out.float(), reference(q, rows), atol=ATOL, rtol=RTOL)
    some = [0, batch - 1]
    pool = whole[table[some].long()].view(-1, 64, 1, 576)
    inputs = MlaDecodeInputs(
        config, to_host(q[some]), to_host(pool),
        np.arange(2 * pages, dtype=np.int32).reshape(2, pages),
        np.full(2, keys, np.int32), MODEL_SCALE,
    )  # fmt: skip
    passes(inputs, to_host(out[some]), to_host(lse[some]), heads=[0, heads - 1],
           splits=[plan.splits[b] for b in some])  # fmt: skip
