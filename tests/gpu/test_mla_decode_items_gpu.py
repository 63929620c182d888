"""MLA decode with blocks that take several items (`persistent=1`) on a Hopper GPU: both oracles,
the bits of the kernel with one item a block, many calls, a graph."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from test_mla_decode_gpu import CORNERS, bits_under_load, check, launched, passes, poisoned

import mlagen
from mlagen.attention.latent.order import SEESAW
from mlagen.attention.latent.sm_90a.swap_ab.kernel import is_few
from mlagen.bench.torch_arrays import to_gpu, to_host
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.ops import MlaDecodeKernel

FORMS: tuple[dict[str, Any], ...] = (
    {"num_heads": 128},
    {"num_heads": 16},
    {"num_heads": 128, "q_len": 2},
    {"num_heads": 40, "q_len": 3, "page_size": 192, "mask": "sliding_window_causal[100]"},
    {"num_heads": 32, "num_kv_heads": 8, "q_len": 2, "mask": "null"},
    {"num_heads": 40, "page_size": 16, "q_len": 2},
    {"num_heads": 24, "page_size": 1},
)


@cache
def persistent(**fields: Any) -> MlaDecodeKernel:
    made = mlagen.build("mla_decode_sm90", knobs={"persistent": 1}, **fields)
    assert isinstance(made, MlaDecodeKernel)
    return made


@pytest.mark.parametrize("data", ["randn", "late_max"])
@pytest.mark.parametrize("fields", FORMS, ids=str)
def test_every_length_behind_every_other(fields: dict[str, Any], data: str) -> None:
    """One block with all items, then few with parts, then as many as there are SMs."""
    kernel = persistent(**fields)
    rng = np.random.default_rng(5)
    lengths = tuple(int(n) for n in rng.permutation(CORNERS * 2))
    inputs = mla_decode_inputs(kernel.config, lengths=lengths, data=data)
    for planned in (
        {"blocks": 1},
        {"blocks": 5},
        {"split_keys": 128, "blocks": 7},
        {"blocks": 132},
    ):
        check(kernel, inputs, **planned)


@pytest.mark.parametrize("fields", FORMS, ids=str)
def test_the_bits_of_one_item_a_block(fields: dict[str, Any]) -> None:
    several = persistent(**fields)
    same_form = {"variant": "seesaw"} if is_few(several.config) else {}
    one = mlagen.build("mla_decode_sm90", knobs=same_form, **fields)
    inputs = mla_decode_inputs(one.config, batch=40, max_length=2000, data="realistic", seed=4)
    found = [
        launched(kernel, inputs, poisoned(kernel.plan(inputs.cache_lengths, **planned)))
        for kernel, planned in (
            (one, {"split_keys": 512}),
            (several, {"split_keys": 512}),
            (several, {"split_keys": 512, "blocks": 6}),
        )
    ]
    for out, lse in found[1:]:
        assert out.tobytes() == found[0][0].tobytes()
        assert lse.tobytes() == found[0][1].tobytes()


@pytest.mark.parametrize("data", ["randn", "late_max"])
@pytest.mark.parametrize("fields", [f for f in FORMS if "mask" not in f], ids=str)
def test_parts_that_the_last_one_takes_in(fields: dict[str, Any], data: str) -> None:
    """Of blocks side by side and of a line that is cut, also with lengths of another call: without
    keys in the second part, in both, or in some rows."""
    kernel = persistent(**fields)
    config = kernel.config
    for lengths in ((1900,) * 60, (700,) * 30):
        inputs = mla_decode_inputs(config, lengths=lengths, data=data)
        blocks = 132
        while not (plan := kernel.plan(lengths, blocks=blocks)).work.items[:, 10].any():
            blocks -= 1
        rng = np.random.default_rng(1)
        other = rng.choice([0, 1, 100, 448, 449, lengths[0]], len(lengths)).astype(np.int32)
        for given in (inputs, replace(inputs, cache_lengths=other), inputs):
            out, lse = launched(kernel, given, poisoned(plan))
            passes(given, out, lse, order=SEESAW, heads=[0, config.num_heads - 1],
                   splits=plan.splits)  # fmt: skip
            assert not to_host(plan.arrivals).any()


@pytest.mark.parametrize("planned", [{}, {"split_keys": 1024}, {"blocks": 66}], ids=str)
@pytest.mark.parametrize("fields", FORMS, ids=str)
def test_the_same_bits_under_load(fields: dict[str, Any], planned: dict[str, Any]) -> None:
    kernel = persistent(**fields)
    inputs = mla_decode_inputs(kernel.config, batch=200, max_length=3000, seed=3)
    bits_under_load(kernel, inputs, **planned)


def test_parts_taken_in_under_load() -> None:
    kernel = persistent(num_heads=128)
    lengths = (2000,) * 128
    assert (kernel.plan(lengths, blocks=120).work.items[:, 10] > 0).any()
    inputs = mla_decode_inputs(kernel.config, lengths=lengths, seed=3)
    bits_under_load(kernel, inputs, blocks=120)


def test_a_graph_with_lengths_that_change() -> None:
    """Captured once; then other lengths without a new plan, and with one in the same tensors."""
    import torch

    kernel = persistent(num_heads=128)
    most = (1500,) * 90
    inputs = mla_decode_inputs(kernel.config, lengths=most, data="realistic")
    tensors = [to_gpu(a) for a in (inputs.q, inputs.cache, inputs.block_table)]
    lengths = to_gpu(inputs.cache_lengths)
    plan = kernel.plan((900,) * 90, room=most)
    call = kernel.prepare(*tensors, lengths, scale=inputs.scale, plan=plan)
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    rng = np.random.default_rng(2)
    for update in (False, False, True, True):
        now = rng.integers(0, 1501, 90)
        shorter = replace(inputs, cache_lengths=now.astype(np.int32))
        lengths.copy_(torch.from_numpy(now.astype(np.int32)))
        if update:
            plan.update(now)
        for tensor in (call.output, call.lse, plan.partial_o, plan.partial_lse):
            tensor.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        passes(shorter, to_host(call.output), to_host(call.lse), heads=[0, 127],
               splits=plan.splits)  # fmt: skip
