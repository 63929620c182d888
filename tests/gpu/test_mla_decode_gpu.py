"""MLA decode on a Hopper GPU: both oracles over lengths and data, equal bits, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hopper import to_gpu, to_host

import mlagen
from mlagen.errors import ConfigError
from mlagen.ops import MlaDecodeKernel
from mlagen.problem import MlaDecodeConfig, MlaDecodeInputs, compare, compare_lse
from mlagen.problem.mla_decode_exact import exact
from mlagen.problem.mla_decode_rounded import rounded
from mlagen.testdata import mla_decode_inputs

DATA = ("randn", "realistic", "late_max", "falling")
# Every number of tiles that has code of its own, odd and even, and both ends of a page.
CORNERS = (0, 1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 320, 321, 383, 384)
SEEDS = 4  # of random lengths 1 .. 5000, for each kind of data


@pytest.fixture(scope="module", params=[64, 128])
def kernel(request: pytest.FixtureRequest) -> MlaDecodeKernel:
    made = mlagen.build("mla_decode_sm90", num_heads=request.param)
    assert isinstance(made, MlaDecodeKernel)
    return made


def launched(kernel: MlaDecodeKernel, inputs: MlaDecodeInputs) -> tuple[Any, Any]:
    """Output and LSE of a launch into poisoned memory, on the host."""
    import torch

    config = inputs.config
    shape = (inputs.batch, config.q_len, config.num_heads, config.d_v)
    out = torch.full(shape, float("nan"), device="cuda", dtype=torch.bfloat16)
    lse = torch.full((inputs.batch, config.num_heads, config.q_len), float("nan"), device="cuda")
    kernel(
        to_gpu(inputs.q), to_gpu(inputs.cache), to_gpu(inputs.block_table),
        to_gpu(inputs.cache_lengths), scale=inputs.scale, out=out, lse=lse, checked=True,
    )  # fmt: skip
    torch.cuda.synchronize()
    return to_host(out), to_host(lse)


def check(kernel: MlaDecodeKernel, inputs: MlaDecodeInputs) -> None:
    """Both oracles, for the first and last heads of every block."""
    out, lse = launched(kernel, inputs)
    heads = [h + r for h in range(0, inputs.config.num_heads, 64) for r in (0, 7, 8, 31, 63)]
    for oracle in (exact, rounded):
        expected = oracle(inputs, heads=heads)
        found = compare(expected.output, out)
        assert found.passed, (expected.output.oracle, found.worst, found.nans, found.failures)
        found = compare_lse(expected.lse, lse)
        assert found.passed, (expected.lse.oracle, found.worst, found.nans, found.failures)


@pytest.mark.parametrize("data", DATA)
def test_lengths_around_pages(kernel: MlaDecodeKernel, data: str) -> None:
    check(kernel, mla_decode_inputs(kernel.config, lengths=CORNERS, data=data))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("data", DATA)
def test_random_lengths(kernel: MlaDecodeKernel, data: str, seed: int) -> None:
    check(kernel, mla_decode_inputs(kernel.config, batch=6, data=data, seed=seed))


def test_long_ones(kernel: MlaDecodeKernel) -> None:
    check(kernel, mla_decode_inputs(kernel.config, lengths=(5000, 4999, 4993, 4992, 4929)))


def test_every_head(kernel: MlaDecodeKernel) -> None:
    inputs = mla_decode_inputs(kernel.config, lengths=(700,), data="realistic", seed=9)
    out, _ = launched(kernel, inputs)
    assert compare(rounded(inputs).output, out).passed


def test_the_same_bits_under_load(kernel: MlaDecodeKernel) -> None:
    """A thousand launches among matmuls on another stream, more blocks than fit at once."""
    import torch

    inputs = mla_decode_inputs(kernel.config, batch=200, max_length=3000, seed=3)
    tensors = [to_gpu(a) for a in (inputs.q, inputs.cache, inputs.block_table)]
    lengths = to_gpu(inputs.cache_lengths)
    first = [t.clone() for t in kernel(*tensors, lengths, scale=inputs.scale)]
    other = torch.cuda.Stream()
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    differences = torch.zeros((), device="cuda", dtype=torch.int64)
    out, lse = (torch.empty_like(t) for t in first)
    for round_ in range(1000):
        if round_ % 4 == 0:
            with torch.cuda.stream(other):
                a = (a @ a) * 1e-2
        out.fill_(float("nan"))
        lse.fill_(float("nan"))
        kernel(*tensors, lengths, scale=inputs.scale, out=out, lse=lse)
        differences += (out.view(torch.int16) != first[0].view(torch.int16)).sum()
        differences += (lse.view(torch.int32) != first[1].view(torch.int32)).sum()
    torch.cuda.synchronize()
    assert int(differences) == 0
    check(kernel, inputs.part(range(0, 200, 40)))


def test_bad_tensors_launch_nothing(kernel: MlaDecodeKernel) -> None:
    import torch

    config: MlaDecodeConfig = kernel.config
    inputs = mla_decode_inputs(config, lengths=(100, 200))
    good = {
        "q": to_gpu(inputs.q), "cache": to_gpu(inputs.cache),
        "block_table": to_gpu(inputs.block_table), "cache_lengths": to_gpu(inputs.cache_lengths),
    }  # fmt: skip
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
    torch.cuda.synchronize()
    assert bool(out.isnan().all())
