"""The merge kernel with sinks, without a GPU: right within the oracle's bound, and no other is."""

from dataclasses import replace

import numpy as np
import pytest
from ptx_runs import run

from mlagen.codegen import build
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.plan import plan_work
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.split_merge.decode_problem import MlaDecodeMergeConfig
from mlagen.families.split_merge.decode_verification import (
    EMPTY_LSE,
    MlaDecodeMergeTrial,
    mla_decode_merge_inputs,
)
from mlagen.problem.expected import compare
from mlagen.problem.formats import BF16

HEADS = 20
MINUS_ONE = 0xBF800000  # the bits of -1.0
PLAIN, SINK = MlaDecodeMergeConfig(HEADS), MlaDecodeMergeConfig(HEADS, sink=True)


def made(data="realistic", partials=(2, 7)):
    return mla_decode_merge_inputs(SINK, partials=partials, data=data, seed=3)


def launch(inputs, sink, *, empty=EMPTY_LSE, tokens=1):
    """O and LSE [rows] from poisoned memory; `sink` None: of the kernel without."""
    work = inputs.work
    rows = HEADS * tokens * len(work.splits)
    o, lse = np.full((rows, 512), np.nan, BF16), np.full(rows, np.nan, np.float32)
    more = {} if sink is None else {"sink": sink, "empty_lse": empty}
    run(
        build("mla_decode_merge_sm90", PLAIN if sink is None else SINK).text,
        (len(work.merges), 1),
        {
            "merges": work.merges, "partial_o": inputs.partial_o, "o": o, "lse": lse,
            "partial_lse": inputs.partial_lse, "lse_stride": work.lse_stride, **more,
        },
    )  # fmt: skip
    return o, lse


def ratios(inputs, o, lse):
    """Largest errors of O and LSE in units of the oracle's bounds."""
    seen = np.where(lse.view(np.uint32) == EMPTY_LSE, np.float32(-np.inf), lse)
    of_o, of_lse = MlaDecodeMergeTrial(inputs).oracles()
    shape = of_o.values.shape[:3]
    return [
        compare(expected, got.reshape(*shape, -1)).max_ratio
        for expected, got in ((of_o, o), (of_lse, seen))
    ]


def test_sinks_draw_weight_from_o_alone():
    inputs = made()
    o, lse = launch(inputs, inputs.sink)
    assert max(ratios(inputs, o, lse)) <= 1
    assert np.array_equal(lse, launch(inputs, np.zeros_like(inputs.sink))[1])
    drawn = np.logaddexp(lse.reshape(2, HEADS), inputs.sink).ravel().astype(np.float32)
    assert ratios(inputs, o, drawn)[1] > 1000


@pytest.mark.parametrize(
    "fault",
    [
        lambda sink: np.full_like(sink, -np.inf),
        lambda sink: np.roll(sink, 1),
        lambda sink: sink * np.float32(1.01),
        lambda sink: sink * np.float32(np.log2(np.e)),
    ],
    ids=["left out", "another head's", "off by 1 %", "log2 units"],
)
def test_other_sinks_are_wrong(fault):
    inputs = made()
    o, lse = launch(inputs, fault(inputs.sink))
    of_o, of_lse = ratios(inputs, o, lse)
    assert of_o > 100 and of_lse <= 1


def test_sinks_of_minus_infinity_change_no_bit():
    inputs = made("unseen")
    none = np.full(HEADS, -np.inf, np.float32)
    o, lse = launch(inputs, none, empty=0xFF800000)
    expected, logs = launch(inputs, None)
    assert np.array_equal(o.view(np.uint16), expected.view(np.uint16))
    assert np.array_equal(lse, logs) and np.isneginf(lse).any()


@pytest.mark.parametrize("sink", [np.inf, -np.inf, 3e38, -3e38, 88.0, 0.0])
def test_no_sink_makes_nan(sink):
    """Least and largest, for rows with keys and without. These get what the call says."""
    inputs = made("unseen", (2, 3))
    inputs = replace(inputs, sink=np.full(HEADS, sink, np.float32))
    o, lse = launch(inputs, inputs.sink)
    assert max(ratios(inputs, o, lse)) <= 1
    empty = lse.view(np.uint32) == EMPTY_LSE
    assert empty.any() and not empty.all() and not (o[empty].astype(np.float32) != 0).any()
    if sink > 1e38:
        assert not (o.astype(np.float32) != 0).any()
    again = launch(inputs, inputs.sink, empty=MINUS_ONE)[1]
    assert (again[empty] == -1).all() and np.array_equal(again[~empty], lse[~empty])


def test_row_blocks_of_several_tokens():
    """Row r of a row block has the sink of head (above + r) % num_heads, here also of a second row
    block, which begins with row 64."""
    tokens = 4
    work = plan_work(MlaDecodeConfig(HEADS, q_len=tokens), (130,), split_keys=64)
    assert set(work.merges[:, 4]) == {0, 64}
    rng = np.random.default_rng(5)
    one = made()
    inputs = replace(
        one, work=work,
        partial_o=np.ones((work.slots, 64, 512), np.float32),
        partial_lse=rng.standard_normal((work.slots, 64)).astype(np.float32),
    )  # fmt: skip
    o, lse = launch(inputs, one.sink, tokens=tokens)
    # Row `head` of lse has the tokens; all parts are 1, so that O is what a sink leaves.
    left = 1 / (1 + np.exp(one.sink[:, None].astype(np.float64) - lse.reshape(HEADS, tokens)))
    got = o.astype(np.float64).reshape(tokens, HEADS, 512)
    assert np.abs(got / left.T[:, :, None] - 1).max() <= 2.0**-8


def test_what_is_no_sink_is_refused():
    with pytest.raises(ConfigError, match="sink"):
        MlaDecodeMergeConfig(HEADS, sink=2)
