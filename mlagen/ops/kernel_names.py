"""The kernels of each operator of torch, by target."""

from __future__ import annotations

from collections.abc import Mapping

Kernels = Mapping[str, str]  # names of one operator's kernels by target
AITER_TARGET = "gfx950"  # the one that AITER is for
DENSE: Mapping[str, Kernels] = {
    "mla_decode": {
        "sm_90a": "mla_decode_sm90",
        "sm_100a": "mla_decode_sm100",
        "gfx950": "mla_decode_gfx950",
    }
}
SPARSE: Mapping[str, Kernels] = {
    "mla_sparse_prefill": {
        "sm_90a": "mla_sparse_prefill_sm90",
        "sm_100a": "mla_sparse_prefill_sm100",
        "gfx950": "mla_sparse_prefill_gfx950",
    },
    "mla_sparse_decode": {
        "sm_90a": "mla_sparse_decode_sm90",
        "sm_100a": "mla_sparse_decode_sm100",
        "gfx950": "mla_sparse_decode_gfx950",
    },
}
