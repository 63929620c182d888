"""mha_prefill_v2 in every form, executed: packed rows, pages, sinks, windows, the log-sum-exp.

Right by both oracles, clean under the sanitizer. All that is no key is NaN in the data: a kernel
that reads a row past a length, a page that is not its own or a neighbour's row shows it.
"""

import os
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from mlagen.attention.prefill.exact import exact
from mlagen.attention.prefill.rounded import rounded
from mlagen.codegen import build
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.made_up import mha_inputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.ops import MhaKernel
from mlagen.problem.expected import compare
from mlagen.verify import verify, verify_inputs

BF16 = ml_dtypes.bfloat16
WINDOWS = [
    f"{name}[{w}]" for name in ("sliding_window_causal", "chunked_causal") for w in (1, 64, 65, 200)
]
FORMS = {
    "ragged": {"ragged": True},
    "paged": {"page_size": 64},
    "ragged, paged": {"ragged": True, "page_size": 16},
}


@pytest.fixture(scope="module")
def artifact():
    """Artifacts by config, built once."""
    made = {}

    def get(heads=(4, 2), **fields):
        config = MhaConfigV2(*heads, **{"depth": 64, "lse": True, **fields})
        if config not in made:
            made[config] = build("mha_prefill_v2", config)
        return made[config]

    return get


def passed(report):
    assert report.right, report.error()
    assert report.clean, [finding.render() for finding in report.findings]
    assert report.proved
    return report


def shape_of(fields, lengths, **more):
    """The same call for a ragged kernel, and for one whose sequences have as many rows."""
    rows = {"lengths": lengths} if fields.get("ragged") else {"batch": len(lengths), "seq_len": 70}
    return {**rows, **more}


@pytest.mark.parametrize(
    "mask", ["null", "causal", "sliding_window_causal[70]", "chunked_causal[100]"]
)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sink", [False, True], ids=["plain", "sink"])
def test_sequences_of_all_lengths(artifact, form, mask, sink):
    """Empty ones, single rows, whole and partial tiles; keys of their own (cross-attention)."""
    kernel = artifact(mask=mask, sink=sink, **FORMS[form])
    shape = shape_of(
        FORMS[form],
        [300, 0, 1, 256, 33],
        num_keys=[300, 70, 0, 129, 64],
        start_pos=[0, 3, 5, 100, 63],
    )
    for data in ("realistic", "jumps"):
        passed(verify(kernel, data=data, **shape))


@pytest.mark.parametrize("page_size", [16, 32, 64, 128, 192, 256, 1024])
@pytest.mark.parametrize("sink", [False, True], ids=["plain", "sink"])
def test_every_page_size(artifact, page_size, sink):
    kernel = artifact(page_size=page_size, mask="null", sink=sink)
    keys = [0, 1, 15, 16, 17, 63, 64, 191, 257, 1030]
    passed(verify(kernel, batch=len(keys), seq_len=33, num_keys=keys, data="late_max"))


@pytest.mark.parametrize("page_size", [16, 64, 256])
def test_windows_over_pages_start_inside_a_page(artifact, page_size):
    kernel = artifact(page_size=page_size, mask="sliding_window_causal[100]", sink=True)
    starts = [0, 95, 163, 700]
    passed(verify(kernel, batch=4, seq_len=40, start_pos=starts, data="jumps"))


@pytest.mark.parametrize("start_pos", [0, 1, 63, 64, 100, 1000])
@pytest.mark.parametrize("mask", WINDOWS)
def test_windows_at_any_start(artifact, mask, start_pos):
    passed(verify(artifact(mask=mask), seq_len=300, start_pos=start_pos, modes=["latest"]))


@pytest.mark.parametrize("mask", ["causal", *WINDOWS])
@pytest.mark.parametrize("form", ["dense", *FORMS])
def test_hidden_tiles_are_not_computed(artifact, form, mask):
    """16 matrix instructions a tile and wave at depth 64: the tiles are those that some row of the
    workgroup sees."""
    fields = FORMS.get(form, {})
    kernel = artifact(heads=(1, 1), mask=mask, **fields)
    config = MhaConfigV2.from_fields(kernel.manifest.problem)
    more = {"start_pos": 70} if form == "dense" else {"start_pos": [70, 0, 500]}
    shape = {"seq_len": 600, **more} if form == "dense" else shape_of(fields, [600, 0, 33], **more)
    inputs = mha_inputs(config, **shape)
    tiles = sum(
        len(config.tiles(tile, seq_len=s.rows, start_pos=s.start_pos, num_keys=s.keys))
        for s in inputs.sequences
        for tile in range(config.q_tiles(s.rows))
    )
    counts = passed(verify_inputs(kernel, inputs, modes=["latest"])).runs[0].counts
    assert counts["v_mfma_f32_32x32x16_bf16"] == tiles * config.num_warps * 16


@pytest.mark.parametrize("mask", ["null", "causal", "sliding_window_causal[4]"])
@pytest.mark.parametrize("sink", [-np.inf, -1e38, -200.0, 0.0, 20.0, 300.0, 1e37])
def test_any_sink(artifact, mask, sink):
    """Rows after the keys see nothing under the window: O is 0, LSE is the sink."""
    kernel = artifact(mask=mask, sink=True)
    config = MhaConfigV2.from_fields(kernel.manifest.problem)
    inputs = mha_inputs(config, seq_len=90, num_keys=70, data="late_max")
    inputs = replace(inputs, sinks=np.full(config.num_heads, sink, np.float32))
    passed(verify_inputs(kernel, inputs))


def test_every_head_has_its_own_sink(artifact):
    """Heads are remapped over the grid: sinks in another order are another result."""
    kernel = artifact(heads=(6, 3), sink=True)
    config = MhaConfigV2.from_fields(kernel.manifest.problem)
    inputs = mha_inputs(config, seq_len=90, data="randn")
    # About the logarithm of the denominator without them.
    inputs = replace(inputs, sinks=np.linspace(2.0, 7.0, 6, dtype=np.float32))
    run = MhaKernel(kernel).run(inputs)
    for oracle in (exact, rounded):
        right, turned = oracle(inputs), oracle(replace(inputs, sinks=inputs.sinks[::-1].copy()))
        for kind, view in (
            ("output", inputs.output_view(run.output)),
            ("lse", inputs.lse_view(run.lse)),
        ):
            assert compare(getattr(right, kind), view).passed
            heads = compare(getattr(turned, kind), view).heads
            assert all(head.failures for head in heads)


def test_paged_and_contiguous_give_the_same_bits(artifact):
    """The same tiles in the same order: where keys lie must not matter at all."""
    outputs = []
    for page_size in (0, 16, 32, 64, 128):
        kernel = artifact(ragged=True, page_size=page_size, mask="causal")
        config = MhaConfigV2.from_fields(kernel.manifest.problem)
        # One generator for all: the keys are drawn before the pages are.
        inputs = mha_inputs(config, lengths=[300, 33], num_keys=[333, 70], start_pos=[33, 37])
        run = MhaKernel(kernel).run(inputs)
        outputs.append((run.output.view(np.uint16), run.lse.view(np.uint32)))
    for output, lse in outputs[1:]:
        assert np.array_equal(output, outputs[0][0])
        assert np.array_equal(lse, outputs[0][1])


def test_a_ragged_batch_is_its_sequences_alone(artifact):
    kernel = artifact(ragged=True, sink=True)
    config = MhaConfigV2.from_fields(kernel.manifest.problem)
    inputs = mha_inputs(config, lengths=[270, 1, 64], num_keys=[300, 64, 65], start_pos=[30, 63, 1])
    whole = MhaKernel(kernel).run(inputs)
    for s in inputs.sequences:
        rows = slice(s.first_row, s.first_row + s.rows)
        first = int(inputs.kv_offsets[s.index])
        alone = MhaInputs(
            config,
            inputs.q[rows],
            inputs.k[first : first + s.keys],
            inputs.v[first : first + s.keys],
            inputs.scale,
            s.start_pos,
            q_offsets=np.array([0, s.rows], np.int32),
            kv_offsets=np.array([0, s.keys], np.int32),
            sinks=inputs.sinks,
        )
        run = MhaKernel(kernel).run(alone)
        assert np.array_equal(run.output.view(np.uint16), whole.output[rows].view(np.uint16))
        assert np.array_equal(run.lse, whole.lse[:, rows])


@pytest.mark.skipif(
    "MLAGEN_LARGE_POOLS" not in os.environ,
    reason="copies two pools of 4.5 GiB: set MLAGEN_LARGE_POOLS=1 where 12 GiB are free",
)
def test_pages_beyond_4_gib():
    """Byte offsets of pages need more than 32 bits."""
    config = MhaConfigV2(8, 8, page_size=4096, mask="null", lse=True)
    kernel = build("mha_prefill_v2", config)
    small = mha_inputs(config, seq_len=64, num_keys=4096 + 100, data="randn")
    pages = 9 * 2**29 // (4096 * config.kv_row_stride * 2)  # 4.5 GiB
    pools = []
    table = np.array([[pages - 1, pages // 3]], np.int32)
    for pool in (small.k, small.v):
        large = np.zeros((pages, *pool.shape[1:]), BF16)
        large[table[0]] = pool[small.page_table[0, :2]]
        pools.append(large)
    assert pools[0].nbytes > 2**32 and int(table[0, 0]) * pools[0][0].nbytes > 2**32
    inputs = replace(small, k=pools[0], v=pools[1], page_table=table)
    passed(verify_inputs(kernel, inputs, modes=["latest"]))
