"""Ragged and paged sequences, sinks and LSE: right, clean, and nothing touched that is not there.

`prefill_cases` poisons what must not be read; the sanitizer reports accesses outside of buffers.
"""

import numpy as np
import pytest
from prefill_cases import GARBAGE_PAGE, Case, judge, make_inputs, run

from mlagen.codegen import build
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.problem import MhaConfigV2

PAGES = [16, 32, 64, 128, 192, 256]
# Rows, start position, keys: one tile, an odd number, the first row of a second query tile, no
# rows, no keys, fewer keys than the causal end, rows after all keys.
SEQUENCES = (
    (300, 64, 364), (0, 5, 77), (1, 0, 1), (257, 0, 257), (40, 10, 0), (33, 1000, 129), (70, 0, 50),
)  # fmt: skip


def config_of(kernel):
    return MhaConfigV2.from_fields(kernel.manifest.problem)


@pytest.mark.parametrize(
    ("page_size", "depth", "mask"),
    [
        *((size, 128, "causal") for size in (0, *PAGES)),
        *((size, 64, "sliding_window_causal[70]") for size in (0, 16, 32, 64, 192)),
        (0, 128, "null"),
        (32, 64, "null"),
    ],
)
def test_ragged_sequences(prefill, page_size, depth, mask):
    kernel = prefill(mask=mask, page_size=page_size, depth=depth, ragged=True)
    judge(kernel, make_inputs(config_of(kernel), Case(SEQUENCES)))


@pytest.mark.parametrize(
    ("page_size", "mask"), [(0, "causal"), (16, "chunked_causal[90]"), (64, "causal")]
)
def test_sinks_and_lse_of_ragged_sequences(prefill, mask, page_size):
    kernel = prefill(
        num_heads=4, num_kv_heads=2, mask=mask, page_size=page_size, ragged=True, sink=True,
        lse=True,
    )  # fmt: skip
    inputs = make_inputs(config_of(kernel), Case(SEQUENCES))
    result = judge(kernel, inputs)
    no_keys = inputs.q_offsets[4:6]
    assert (result.output[slice(*no_keys)] == 0).all()
    found = result.lse[:, slice(*no_keys)]
    assert np.allclose(found, np.broadcast_to(inputs.sinks[:, None], found.shape), rtol=1e-6)


@pytest.mark.parametrize(
    ("sink", "lse", "mask"),
    [(True, True, "null"), (True, False, "causal"), (False, True, "causal")],
)
def test_sinks_and_lse_of_dense_sequences(prefill, sink, lse, mask):
    kernel = prefill(num_heads=4, num_kv_heads=2, sink=sink, lse=lse, mask=mask, depth=64)
    sequences = ((90, 200, 290), (90, 200, 290))
    for climb in (False, True):
        judge(kernel, make_inputs(config_of(kernel), Case(sequences, climb=climb)))


def test_a_sink_of_minus_infinity_is_none(prefill):
    plain, sunk = prefill(mask="causal", lse=True), prefill(mask="causal", lse=True, sink=True)
    case = Case(((70, 30, 100),), sinks=(-np.inf,))
    without, with_it = (run(k, make_inputs(config_of(k), case)) for k in (plain, sunk))
    assert without.output.tobytes() == with_it.output.tobytes()
    assert without.lse.tobytes() == with_it.lse.tobytes()


@pytest.mark.parametrize("page_size", [16, 256])
def test_dense_queries_over_paged_keys(prefill, page_size):
    kernel = prefill(page_size=page_size, output_dtype="fp32", lse=True)
    case = Case(((260, 64, 324), (260, 0, 0), (260, 10, 700)))
    judge(kernel, make_inputs(config_of(kernel), case))


@pytest.mark.parametrize("n", range(1, 10))
@pytest.mark.parametrize("page_size", [16, 192])
def test_every_tile_count_of_paged_keys(prefill, page_size, n):
    kernel = prefill(page_size=page_size, ragged=True, mask="null")
    sequences = tuple((40, 0, 64 * n - missing) for missing in (0, 17, 63))
    judge(kernel, make_inputs(config_of(kernel), Case(sequences, seed=n)))


@pytest.mark.parametrize(
    "knobs", [{"k_slots": 3, "v_slots": 3}, {"k_slots": 2, "v_slots": 2, "spare_slots": 0}], ids=str
)
def test_slots_change_nothing(knobs):
    config = MhaConfigV2(num_heads=1, num_kv_heads=1, ragged=True, page_size=16)
    judge(build("mha_prefill_v2", config, knobs=knobs),
          make_inputs(config, Case(((60, 640, 700), (3, 0, 3)))))  # fmt: skip


def test_paged_and_packed_keys_give_the_same_bits(prefill):
    packed, paged = prefill(ragged=True, lse=True), prefill(ragged=True, lse=True, page_size=16)
    results = [run(k, make_inputs(config_of(k), Case(SEQUENCES, seed=3))) for k in (packed, paged)]
    assert results[0].output.tobytes() == results[1].output.tobytes()
    assert results[0].lse.tobytes() == results[1].lse.tobytes()


def test_workgroups_without_rows_leave_before_any_work(prefill):
    """One long sequence makes 4 query tiles for all; the others need one, or none."""
    kernel = prefill(num_heads=1, ragged=True)
    config = config_of(kernel)
    long, short = (1000, 0, 1000), (5, 0, 5)
    alone = run(kernel, make_inputs(config, Case((long,)))).emulation
    more = run(kernel, make_inputs(config, Case((long, short, (0, 0, 9))))).emulation
    assert not more.findings
    one = run(kernel, make_inputs(config, Case((short,)))).emulation
    left = more.wave_instructions - alone.wave_instructions - one.wave_instructions
    assert 7 * 8 * 10 < left < 7 * 8 * 50  # 3 + 4 workgroups of 8 waves
    assert more.counts["s_barrier"] == alone.counts["s_barrier"] + one.counts["s_barrier"]


def test_nothing_of_other_sequences_rows_is_written(prefill):
    """Rows between the sequences' ends and their query tiles' ends belong to the next sequence."""
    kernel = prefill(ragged=True, lse=True)
    config = config_of(kernel)
    inputs = make_inputs(config, Case(((5, 0, 70), (6, 0, 70))))
    first, second = inputs.q_offsets[0:2], inputs.q_offsets[1:3]
    whole = judge(kernel, inputs)
    for rows in (first, second):
        index = 0 if rows is first else 1
        own = MhaInputs(
            config, inputs.q[slice(*rows)], inputs.k[70 * index : 70 * (index + 1)],
            inputs.v[70 * index : 70 * (index + 1)], inputs.scale, start_pos=inputs.start_pos[:1],
            q_offsets=rows - rows[0], kv_offsets=np.array([0, 70], np.int32),
        )  # fmt: skip
        alone = run(kernel, own)
        assert alone.output.tobytes() == whole.output[slice(*rows)].tobytes()
        assert alone.lse.tobytes() == np.ascontiguousarray(whole.lse[:, slice(*rows)]).tobytes()


def test_entries_behind_a_length_are_not_used(prefill):
    """The cases' tables hold page numbers there that no pool has, and the table ends with them."""
    kernel = prefill(ragged=True, page_size=16, num_heads=1)
    inputs = make_inputs(config_of(kernel), Case(((4, 0, 3), (4, 0, 80))))
    assert (inputs.page_table[0, 1:] == GARBAGE_PAGE).all()
    judge(kernel, inputs)
    short = make_inputs(config_of(kernel), Case(((4, 0, 3),)))
    assert short.page_table.shape == (1, 1)
    judge(kernel, short)
