"""mla_prefill_v2 with a persistent grid: plans that split tiles, partial outputs, merging.

Whole tiles are held against both oracles. A part of a split tile has a running maximum of its own,
which the rounding oracle does not know: there the exact one alone judges, and the log-sum-exp,
whose bound one key too few exceeds.
"""

import numpy as np
import pytest
from mla_cases import KERNEL, check

from mlagen.attention.prefill.exact import exact
from mlagen.codegen import build
from mlagen.errors import ConfigError
from mlagen.families.mla_prefill.call import plan_inputs
from mlagen.families.mla_prefill.made_up import mla_prefill_inputs
from mlagen.families.mla_prefill.problem import MlaConfigV2
from mlagen.families.split_merge.prefill_problem import MlaReduceConfig
from mlagen.launch import EmulatedLauncher
from mlagen.ops import MlaPrefillKernel, MlaReduceKernel
from mlagen.problem.expected import compare

SHAPE = {
    "lengths": [600, 0, 33, 1], "num_keys": [600, 70, 290, 0], "start_pos": [0, 0, 257, 2]
}  # fmt: skip


@pytest.fixture(scope="module")
def artifact():
    """Persistent kernels by mask, built once."""
    made = {}

    def get(mask):
        config = MlaConfigV2(4, 2, dtype="fp8_e4m3", mask=mask, ragged=True, lse=True)
        if mask not in made:
            made[mask] = build(KERNEL, config, knobs={"grid": "persistent"})
        return made[mask]

    return get


def inputs_of(kernel, **changes):
    config = MlaConfigV2.from_fields(kernel.manifest.problem)
    return mla_prefill_inputs(config, quantise=True, **{**SHAPE, **changes})


@pytest.mark.parametrize("mask", ["null", "causal"])
@pytest.mark.parametrize("data", ["realistic", "late_max", "jumps"])
def test_whole_tiles(artifact, mask, data):
    check(artifact(mask), data=data, **SHAPE)


@pytest.mark.parametrize("workgroups", [1, 3, 5, 21])
@pytest.mark.parametrize("mask", ["null", "causal"])
def test_split_tiles(artifact, mask, workgroups):
    kernel, bits = artifact(mask), []
    inputs = inputs_of(kernel, seed=workgroups)
    expected = exact(inputs)
    for mode in ("latest", "earliest", "random"):
        run = MlaPrefillKernel(kernel, EmulatedLauncher(mode=mode), workgroups=workgroups).run(
            inputs
        )
        assert not run.report.emulation.findings
        assert compare(expected.output, inputs.output_view(run.output)).passed
        assert compare(expected.lse, inputs.lse_view(run.lse)).passed
        bits.append((run.output.tobytes(), run.lse.tobytes()))
    assert len(set(bits)) == 1
    assert (plan_inputs(inputs, workgroups).partial_rows > 0) == (workgroups > 1)


def test_the_reduce_kernel_merges(artifact):
    kernel = artifact("causal")
    inputs = inputs_of(kernel)
    assert plan_inputs(inputs, 5).partial_rows
    config = MlaReduceConfig(num_heads=4, output_dtype="fp32", lse=True)
    reduce = MlaReduceKernel(build("mla_prefill_reduce", config))
    by_kernel = MlaPrefillKernel(kernel, workgroups=5, reduce=reduce).run(inputs)
    on_host = MlaPrefillKernel(kernel, workgroups=5).run(inputs)
    expected = exact(inputs)
    for run in (by_kernel, on_host):
        assert compare(expected.output, inputs.output_view(run.output)).passed
        assert compare(expected.lse, inputs.lse_view(run.lse)).passed
    np.testing.assert_allclose(by_kernel.output, on_host.output, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fields", [{"page_size": 64}, {"page_size": 1, "kv_form": "latent"}])
def test_pages(fields):
    config = MlaConfigV2(4, 2, dtype="fp8_e4m3", ragged=True, lse=True, **fields)
    kernel = build(KERNEL, config, knobs={"grid": "persistent"})
    check(kernel, **SHAPE)
    inputs = inputs_of(kernel)
    run = MlaPrefillKernel(kernel, workgroups=5).run(inputs)
    assert not run.report.emulation.findings
    expected = exact(inputs)
    assert compare(expected.output, inputs.output_view(run.output)).passed
    assert compare(expected.lse, inputs.lse_view(run.lse)).passed


@pytest.mark.parametrize("mask", ["null", "causal"])
def test_aiters_arguments(mask):
    config = MlaConfigV2(
        4, 4, dtype="fp8_e4m3", output_dtype="bf16", mask=mask, ragged=True, page_size=1
    )
    kernel = build(KERNEL, config, knobs={"grid": "persistent", "arguments": "aiter"})
    assert [arg.offset for arg in kernel.manifest.args] == [16 * slot for slot in range(19)]
    shape = {"lengths": [300, 21, 256], "num_keys": [333, 150, 700], "start_pos": [33, 129, 444]}
    check(kernel, **shape)
    inputs = mla_prefill_inputs(config, quantise=True, **shape)
    run = MlaPrefillKernel(kernel, workgroups=10).run(inputs)
    assert not run.report.emulation.findings
    assert compare(exact(inputs).output, inputs.output_view(run.output)).passed


@pytest.mark.parametrize(
    ("fields", "said"),
    [({}, "ragged=false"), ({"ragged": True, "mask": "chunked_causal[9]"}, "know no window")],
)
def test_problems_without_work_items_are_refused(fields, said):
    with pytest.raises(ConfigError, match=said):
        build(KERNEL, MlaConfigV2(1, 1, **fields), knobs={"grid": "persistent"})
