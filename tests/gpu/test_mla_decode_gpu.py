"""MLA decode on a Hopper GPU: both oracles over lengths, heads, pages, masks, splits and data,
equal bits, graphs, refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from decode_parts import alone
from under_load import same_bits_under_load

import mlagen
from mlagen.attention.latent.facts import order_of
from mlagen.attention.latent.order import KEYS_AS_ROWS, SEESAW, Order
from mlagen.attention.latent.sm_90a.swap_ab.kernel import is_few
from mlagen.bench.torch_arrays import to_gpu, to_host
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.orders import FROM_REGISTERS
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded
from mlagen.ops import MlaDecodeKernel, MlaDecodePlan
from mlagen.problem.expected import compare

DATA = ("randn", "realistic", "late_max", "falling")
# Every number of tiles that has code of its own, odd and even, and both ends of a page.
CORNERS = (0, 1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 320, 321, 383, 384)
SHORT = (0, 1, 63, 65, 129, 450)
NATIVE = {"dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3", "compute": "fp8"}
# Kernels beside the plain ones: heads, KV heads, tokens, pages and masks, each with others.
VARIANTS: tuple[dict[str, Any], ...] = (
    {"num_heads": 8},
    {"num_heads": 12, "q_len": 2},
    {"num_heads": 24, "page_size": 1},
    {"num_heads": 40, "page_size": 16},
    {"num_heads": 128, "page_size": 32, "q_len": 2},
    {"num_heads": 16, "page_size": 192, "q_len": 8},
    {"num_heads": 32, "num_kv_heads": 8, "q_len": 3},
    {"num_heads": 16, "num_kv_heads": 2, "page_size": 1, "q_len": 2},
    {"num_heads": 128, "q_len": 3, "mask": "null"},
    {"num_heads": 64, "mask": "sliding_window_causal[100]"},
    {"num_heads": 16, "q_len": 4, "page_size": 128, "mask": "sliding_window_causal[64]"},
    {"num_heads": 128, "cache_dtype": "fp8_e4m3"},
    {"num_heads": 16, "cache_dtype": "fp8_e4m3", "page_size": 1, "q_len": 2},
    {"num_heads": 8, "num_kv_heads": 4, "cache_dtype": "fp8_e4m3", "page_size": 16},
    {"num_heads": 64, "cache_dtype": "fp8_e4m3", "page_size": 32, "mask": "null", "q_len": 2},
    {"num_heads": 128, "dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3"},
    {"num_heads": 12, "dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3", "page_size": 1, "q_len": 3},
    {"num_heads": 32, "num_kv_heads": 4, "dtype": "fp8_e4m3", "page_size": 16, "q_len": 2},
    {"num_heads": 128, **NATIVE},
    {"num_heads": 16, **NATIVE, "page_size": 16, "q_len": 3},
    {"num_heads": 12, **NATIVE, "page_size": 192, "num_kv_heads": 3, "mask": "null"},
    {"num_heads": 40, **NATIVE, "mask": "sliding_window_causal[100]", "q_len": 2},
    {"num_heads": 8, **NATIVE, "page_size": 1, "q_len": 4},
    {"num_heads": 24, **NATIVE},
    {"num_heads": 32, **NATIVE, "mask": "sliding_window_causal[100]", "page_size": 16},
    {"num_heads": 128, "cache_dtype": "fp8_rope_aware"},
    {"num_heads": 16, "cache_dtype": "fp8_rope_aware", "page_size": 1, "q_len": 2},
    {"num_heads": 24, "cache_dtype": "fp8_rope_aware", "page_size": 16, "mask": "null", "q_len": 3},
    {"num_heads": 10, "cache_dtype": "fp8_rope_aware", "page_size": 192, "q_len": 3,
     "mask": "sliding_window_causal[100]"},
    {"num_heads": 32, "cache_dtype": "fp8_e4m3", "page_size": 128},
    {"num_heads": 16, "dtype": "fp8_rope_aware", "cache_dtype": "fp8_rope_aware", "q_len": 2},
    {"num_heads": 32, "dtype": "fp8_e4m3", "cache_dtype": "fp8_rope_aware", "page_size": 16},
    {"num_heads": 40, "dtype": "fp8_rope_aware", "cache_dtype": "fp8_rope_aware", "q_len": 2},
    {
        "num_heads": 64, "dtype": "fp8_e4m3", "cache_dtype": "fp8_rope_aware", "page_size": 192,
        "mask": "sliding_window_causal[100]", "q_len": 2,
    },
)  # fmt: skip


# One kernel for each way that the cache's rows come.
FEEDS: tuple[dict[str, Any], ...] = (
    {"num_heads": 64},
    {"num_heads": 40, "page_size": 1},
    {"num_heads": 16},
    {"num_heads": 16, "page_size": 1},
    {"num_heads": 16, "cache_dtype": "fp8_e4m3"},
    {"num_heads": 40, "cache_dtype": "fp8_rope_aware"},
    {"num_heads": 40, "cache_dtype": "fp8_rope_aware", "page_size": 1},
    {"num_heads": 32, "cache_dtype": "fp8_e4m3"},
    {"num_heads": 32, "dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3"},
    {"num_heads": 16, "cache_dtype": "fp8_rope_aware"},
    {"num_heads": 16, "cache_dtype": "fp8_rope_aware", "page_size": 1},
    {"num_heads": 64, **NATIVE},
    {"num_heads": 16, **NATIVE},
    {"num_heads": 32, **NATIVE, "page_size": 1},
)


# What else is decided when a kernel is built.
FORMS: tuple[dict[str, Any], ...] = (
    {"num_heads": 128, "q_len": 2},
    {"num_heads": 32, "num_kv_heads": 8, "q_len": 3},
    {"num_heads": 40, "page_size": 16, "mask": "sliding_window_causal[700]"},
    {"num_heads": 128, "cache_dtype": "fp8_e4m3", "mask": "null", "q_len": 2},
    {"num_heads": 40, "dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3"},
    {"num_heads": 128, "q_len": 2, **NATIVE},
)


@cache
def built(**fields: Any) -> MlaDecodeKernel:
    made = mlagen.build("mla_decode_sm90", **fields)
    assert isinstance(made, MlaDecodeKernel)
    return made


@pytest.fixture(params=[64, 128])
def kernel(request: pytest.FixtureRequest) -> MlaDecodeKernel:
    return built(num_heads=request.param)


def poisoned(plan: MlaDecodePlan) -> MlaDecodePlan:
    plan.partial_o.fill_(float("nan"))
    plan.partial_lse.fill_(float("nan"))
    return plan


def on_gpu(inputs: MlaDecodeInputs, **other: Any) -> dict[str, Any]:
    """What a call is given by name, on the GPU; `other`: in place of the inputs' own arrays."""
    return {name: to_gpu(array) for name, array in {**inputs.tensors, **other}.items()}


def launched(
    kernel: MlaDecodeKernel, inputs: MlaDecodeInputs, plan: MlaDecodePlan | None = None
) -> tuple[Any, Any]:
    """Output and LSE of a launch into poisoned memory, on the host."""
    import torch

    config = inputs.config
    shape = (inputs.batch, config.q_len, config.num_heads, config.d_v)
    out = torch.full(shape, float("nan"), device="cuda", dtype=torch.bfloat16)
    lse = torch.full((inputs.batch, config.num_heads, config.q_len), float("nan"), device="cuda")
    kernel(**on_gpu(inputs), **inputs.scales, out=out, lse=lse, checked=True, plan=plan)
    torch.cuda.synchronize()
    return to_host(out), to_host(lse)


def passes(
    inputs: MlaDecodeInputs, out: Any, lse: Any, *, order: Order | None = None, **named: Any
) -> None:
    """Both oracles. `order`: the kernel's arithmetic, where it is not the default kernel."""
    few = FROM_REGISTERS.get(inputs.config.cache_dtype, KEYS_AS_ROWS)
    order = order or (few if is_few(inputs.config) else SEESAW)
    for oracle in (exact, rounded):
        expected = oracle(inputs, order=order, **named)
        found = compare(expected.output, out)
        assert found.passed, (expected.output.oracle, found.worst, found.nans, found.failures)
        found = compare_lse(expected.lse, lse)
        assert found.passed, (expected.lse.oracle, found.worst, found.nans, found.failures)


def check(
    kernel: MlaDecodeKernel, inputs: MlaDecodeInputs, heads: list[int] | None = None, **planned: Any
) -> None:
    """Both oracles, for the first and last heads of every block; without `planned`, the plan of one
    split a sequence."""
    planned = planned or {"blocks": 1}
    plan = poisoned(kernel.plan(inputs.cache_lengths, **planned))
    out, lse = launched(kernel, inputs, plan)
    count = inputs.config.num_heads
    heads = heads or sorted({h for b in range(0, count, 64) for h in (b, b + 7, b + 8, b + 63)})
    chosen = sorted({*(h for h in heads if h < count), count - 1})
    passes(inputs, out, lse, order=order_of(kernel.artifact), heads=chosen, splits=plan.splits)


@pytest.mark.parametrize("data", DATA)
def test_lengths_around_pages(kernel: MlaDecodeKernel, data: str) -> None:
    check(kernel, mla_decode_inputs(kernel.config, lengths=CORNERS, data=data))


@pytest.mark.parametrize("data", DATA)
def test_random_lengths(kernel: MlaDecodeKernel, data: str) -> None:
    check(kernel, mla_decode_inputs(kernel.config, batch=6, data=data, seed=1))


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_variants(fields: dict[str, Any]) -> None:
    kernel = built(**fields)
    for data in ("randn", "realistic"):
        inputs = mla_decode_inputs(kernel.config, lengths=SHORT, data=data)
        check(kernel, inputs)
        check(kernel, inputs, split_keys=64)


@pytest.mark.parametrize("planned", [{"split_keys": 64}, {"split_keys": 192}, {}], ids=str)
@pytest.mark.parametrize("data", ["realistic", "late_max"])
def test_splits(kernel: MlaDecodeKernel, data: str, planned: dict[str, Any]) -> None:
    lengths = (0, 64, 450, 1, 1999, 128)
    inputs = mla_decode_inputs(kernel.config, lengths=lengths, data=data)
    check(kernel, inputs, **(planned or {"blocks": 132}))


def test_a_plan_for_other_lengths_is_right() -> None:
    """Empty splits and a last split that is longer than planned."""
    kernel = built(num_heads=64)
    inputs = mla_decode_inputs(kernel.config, lengths=(0, 700, 130, 64), data="realistic")
    plan = poisoned(kernel.plan((500, 200, 1000, 64), split_keys=128))
    out, lse = launched(kernel, inputs, plan)
    passes(inputs, out, lse, heads=[0, 63], splits=plan.splits)


def test_the_usual_plan() -> None:
    kernel = built(num_heads=64)
    inputs = mla_decode_inputs(kernel.config, lengths=(3000, 5, 0), data="realistic")
    out, lse = launched(kernel, inputs)
    (plan,) = kernel._plans.values()
    assert plan.work.slots
    passes(inputs, out, lse, heads=[0, 63], splits=plan.splits)


def test_packed_queries() -> None:
    """Sequences of 0 to 4 new tokens, one after the other in q."""
    import torch

    kernel = built(num_heads=24, q_len=4)
    tokens, lengths = [3, 0, 4, 1, 2], (300, 64, 129, 700, 1)
    whole = mla_decode_inputs(kernel.config, lengths=lengths, data="realistic")
    starts = np.concatenate([[0], np.cumsum(tokens)])
    q = np.concatenate([whole.q[b, :n] for b, n in enumerate(tokens)])
    plan = poisoned(kernel.plan(lengths, q_lens=tokens, split_keys=256))
    out = torch.full((len(q), 24, 512), float("nan"), device="cuda", dtype=torch.bfloat16)
    lse = torch.full((24, len(q)), float("nan"), device="cuda")
    kernel(
        to_gpu(q), to_gpu(whole.cache), to_gpu(whole.block_table), to_gpu(whole.cache_lengths),
        scale=whole.scale, plan=plan, out=out, lse=lse,
    )  # fmt: skip
    torch.cuda.synchronize()
    got, got_lse = to_host(out), to_host(lse)
    for b, n in enumerate(tokens):
        if n:
            own = replace(
                alone(whole, b), config=replace(kernel.config, q_len=n), q=whole.q[b : b + 1, :n]
            )
            rows = slice(starts[b], starts[b + 1])
            passes(own, got[rows][None], np.ascontiguousarray(got_lse[:, rows])[None],
                   splits=plan.splits[b : b + 1])  # fmt: skip


def test_every_head(kernel: MlaDecodeKernel) -> None:
    inputs = mla_decode_inputs(kernel.config, lengths=(700,), data="realistic", seed=9)
    out, _ = launched(kernel, inputs, kernel.plan((700,), blocks=1))
    assert compare(rounded(inputs).output, out).passed


def bits_under_load(kernel: MlaDecodeKernel, inputs: MlaDecodeInputs, **planned: Any) -> None:
    plan = kernel.plan(inputs.cache_lengths, **planned)
    step = kernel.prepare(**on_gpu(inputs), **inputs.scales, plan=plan)
    same_bits_under_load(step, (step.output, step.lse), (plan.partial_o, plan.partial_lse))


@pytest.mark.parametrize("fields", [*FEEDS, *FORMS], ids=str)
def test_the_same_bits_under_load(fields: dict[str, Any]) -> None:
    """More blocks than fit at once, some of them splits."""
    kernel = built(**fields)
    inputs = mla_decode_inputs(kernel.config, batch=100, max_length=3000, seed=3)
    bits_under_load(kernel, inputs, split_keys=1024)


@pytest.mark.parametrize("heads, batch, keys", [(128, 80, 2048), (128, 34, 3072), (16, 140, 1024)])
def test_pieces_of_different_lengths(heads: int, batch: int, keys: int) -> None:
    """Sequences that the plan cuts where a share ends: both oracles, equal bits under load."""
    kernel = built(num_heads=heads)
    inputs = mla_decode_inputs(kernel.config, lengths=(keys,) * batch, data="realistic", seed=6)
    plan = poisoned(kernel.plan(inputs.cache_lengths))
    assert len({len(own) for own in plan.splits}) > 1
    out, lse = launched(kernel, inputs, plan)
    passes(inputs, out, lse, heads=[0, heads // 2, heads - 1], splits=plan.splits)
    bits_under_load(kernel, inputs)


def test_fixed_splits_are_batch_invariant() -> None:
    """A sequence alone and among others: the same bits, O and LSE, split or not."""
    kernel = built(num_heads=16)
    inputs = mla_decode_inputs(kernel.config, lengths=(3000, 40, 513, 2048, 0), data="realistic")
    together = launched(kernel, inputs, kernel.plan(inputs.cache_lengths, split_keys=512))
    for b in range(inputs.batch):
        own = alone(inputs, b)
        single = launched(kernel, own, kernel.plan(own.cache_lengths, split_keys=512))
        for one, many in zip(single, together, strict=True):
            assert one[0].tobytes() == many[b].tobytes(), b


def test_a_graph_with_lengths_that_change() -> None:
    """Captured once; then other lengths without a new plan, and with one in the same tensors."""
    import torch

    kernel = built(num_heads=16)
    inputs = mla_decode_inputs(kernel.config, lengths=(900, 1400, 65), data="realistic")
    tensors = [to_gpu(a) for a in (inputs.q, inputs.cache, inputs.block_table)]
    lengths = to_gpu(inputs.cache_lengths)
    plan = kernel.plan((900, 900, 100), split_keys=256, room=(1500, 1500, 1500))
    call = kernel.prepare(*tensors, lengths, scale=inputs.scale, plan=plan)
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for now, update in (((900, 1400, 65), False), ((10, 1100, 0), False), ((800, 1300, 64), True)):
        shorter = replace(inputs, cache_lengths=np.array(now, np.int32))
        lengths.copy_(torch.tensor(now, dtype=torch.int32))
        if update:
            plan.update(now)
        for tensor in (call.output, call.lse, plan.partial_o, plan.partial_lse):
            tensor.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        passes(shorter, to_host(call.output), to_host(call.lse), heads=[0, 15], splits=plan.splits)


def test_what_leads_out_of_the_pool_is_not_read() -> None:
    """Lengths beyond the table and pages beyond the pool: some result, and no fault."""
    import torch

    for fields in FEEDS:
        kernel = built(**fields)
        inputs = mla_decode_inputs(kernel.config, lengths=(200, 100), data="randn")
        wild = inputs.block_table.copy()
        wild[0, :2] = (2**31 - 1, -5)
        far = np.array([2**31 - 1, -7], np.int32)
        kernel(**on_gpu(inputs, block_table=wild), **inputs.scales)
        _, lse = kernel(**on_gpu(inputs, cache_lengths=far), **inputs.scales)
        torch.cuda.synchronize()
        assert bool(torch.isneginf(lse[1]).all())
        out, lse = launched(kernel, inputs, kernel.plan((200, 100), blocks=1))
        passes(inputs, out, lse, order=order_of(kernel.artifact))


def test_bad_tensors_launch_nothing(kernel: MlaDecodeKernel) -> None:
    import torch

    config: MlaDecodeConfig = kernel.config
    inputs = mla_decode_inputs(config, lengths=(100, 200))
    good = on_gpu(inputs)
    out = torch.full((2, 1, config.num_heads, 512), float("nan"), device="cuda",
                     dtype=torch.bfloat16)  # fmt: skip
    wide = torch.zeros(2, 1, config.num_heads, 640, device="cuda", dtype=torch.bfloat16)
    for name, bad, message in (
        ("q", good["q"].half(), "fp16|float16"),
        ("q", good["q"].cpu(), "host"),
        ("q", wide[..., :576], "contiguous"),
        ("q", good["q"][:, :, :1], "shape"),
        ("cache", good["cache"][..., :512], "shape|contiguous"),
        ("block_table", good["block_table"].long(), "int64"),
        ("block_table", good["block_table"][:, :1], "table|pages"),
        ("cache_lengths", good["cache_lengths"][:1], "shape"),
    ):
        arguments = {**good, name: bad}
        with pytest.raises(ConfigError, match=message):
            kernel(*arguments.values(), scale=0.07, out=out, checked=True)
    with pytest.raises(ConfigError, match="plan is for 3 sequences"):
        kernel(*good.values(), scale=0.07, out=out, plan=kernel.plan((1, 2, 3)))
    torch.cuda.synchronize()
    assert bool(out.isnan().all())
