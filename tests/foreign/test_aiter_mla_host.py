"""Our host code for persistent MLA prefill, with AITER's binary as the kernel under it.

What holds here holds for a kernel of ours with `arguments=aiter`: the same arrays at the same
offsets, plans with split tiles, partial outputs that are merged.
"""

from dataclasses import replace

import numpy as np
import pytest
from aiter_artifact import aiter_artifact, aiter_config
from executed import executed_per_unit

from mlagen.attention.prefill.exact import exact
from mlagen.attention.prefill.rounded import rounded
from mlagen.binary import load_code_object
from mlagen.errors import ConfigError, FindingsError
from mlagen.families.mla_prefill.call import plan_inputs
from mlagen.families.mla_prefill.made_up import mla_prefill_inputs
from mlagen.launch import EmulatedLauncher
from mlagen.ops import MlaPrefillKernel
from mlagen.problem.expected import compare

EARLIEST = EmulatedLauncher(mode="earliest")  # the one in which these objects are right
# The kernels read page 0 past the page list's end, with a P of 0, and NaN times 0 is NaN.
LENGTHS, KEYS = [300, 21, 256], [333, 150, 700]


def inputs_of(config, **changes):
    """A call whose causal rows end where the keys do, with a finite page 0."""
    starts = [keys - rows for keys, rows in zip(KEYS, LENGTHS, strict=True)]
    inputs = mla_prefill_inputs(
        config, lengths=LENGTHS, num_keys=KEYS, start_pos=starts, quantise=True, **changes
    )
    for pool in (inputs.k, inputs.v):
        if np.isnan(pool[0].astype(np.float32)).any():
            pool[0] = 0
    return inputs


@pytest.mark.parametrize("workgroups", [2, 5, 16])
@pytest.mark.parametrize("mask", ["null", "causal"])
def test_plans_with_split_tiles_are_right(mask, workgroups):
    config = aiter_config(2, mask)
    kernel = MlaPrefillKernel(aiter_artifact(config), EARLIEST, workgroups=workgroups)
    inputs = inputs_of(config, seed=workgroups)
    split = plan_inputs(inputs, workgroups, listed=True).partial_rows
    assert split if workgroups > 2 else not split
    run = kernel.run(inputs)
    assert run.report.grid == (workgroups, 1, 1)
    for oracle in (exact, rounded):
        found = compare(oracle(inputs).output, inputs.output_view(run.output))
        # Parts have maxima of their own, and e4m3's P is rounded relative to these.
        if oracle is exact or not split:
            assert found.passed, (found.oracle, found.worst, found.max_ratio)
        assert not found.nans


def test_a_call_returns_and_findings_are_raised():
    """In latest mode AITER's missing barriers are findings: a call does not hide them."""
    config = aiter_config(1, "null")
    inputs = mla_prefill_inputs(config, lengths=[40], num_keys=[600], start_pos=[560])
    names = ("q_offsets", "kv_lengths", "page_table", "start_pos")
    given = {name: getattr(inputs, name) for name in names}
    with pytest.raises(FindingsError, match="the sanitizer found"):
        MlaPrefillKernel(aiter_artifact(config), workgroups=1)(
            inputs.q, inputs.k, inputs.v, **given
        )


def test_causal_rows_elsewhere_are_refused():
    config = aiter_config(1, "causal")
    inputs = inputs_of(config)
    moved = replace(inputs, start_pos=inputs.start_pos + np.int32(1))
    with pytest.raises(ConfigError, match="the last of 300 rows stands at the last of 333 keys"):
        MlaPrefillKernel(aiter_artifact(config), EARLIEST, workgroups=1).run(moved)


def test_what_a_tile_costs():
    """The published figures of this kernel: 20 matrix instructions, about 242 vector ones, 65
    exp2; it rescales O on every tile, whatever its maxima."""
    config = aiter_config(1, "null")
    artifact = aiter_artifact(config)
    counts = []
    for keys in (256, 1024):
        inputs = mla_prefill_inputs(config, lengths=[256], num_keys=[keys], data="falling")
        run = MlaPrefillKernel(artifact, EARLIEST, workgroups=1).run(inputs)
        counts.append(run.report.emulation.executions)
    found = executed_per_unit(
        load_code_object(artifact.code).kernel().instructions, *counts, units=6 * 8
    )
    pipes = dict(found.pipes)
    assert (pipes["matrix"], pipes["transcendental"], pipes["lds"]) == (20, 65, 56)
    assert 240 <= pipes["vector"] <= 245
    assert found.skipped == () and found.always == pipes
    assert found.mnemonics["v_mul_f32"] >= 64  # two of them would do as one v_pk_mul_f32
