"""Mutants of a kernel with ragged sequences and paged keys: the waits for page numbers are new."""

from __future__ import annotations

import numpy as np
import pytest
from mutated import KNOBS

from mlagen.attention.prefill.mutants import make_inputs, tile_call
from mlagen.codegen import build
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.mutation.gfx950.judging import Judge
from mlagen.mutation.gfx950.mutant import Mutant
from mlagen.mutation.gfx950.subject import make_mutants

CONFIG = MhaConfigV2(num_heads=1, num_kv_heads=1, mask="null", ragged=True, page_size=16)


@pytest.fixture(scope="module")
def judged() -> Judge:
    return Judge(build("mha_prefill_v2", CONFIG, knobs=KNOBS))


def page_waits(judged: Judge) -> list[Mutant]:
    """Mutants of the waits that stand before the copies of the steady loop."""
    mutants = make_mutants(judged.listing, 512, ["waits"])
    found = []
    for mutant in mutants:
        following = next(
            line for number, line in sorted(judged.listing.lines.items()) if number > mutant.line
        )
        if mutant.section.startswith("loop") and following.mnemonic == "s_mul_hi_u32":
            found.append(mutant)
    return found


def test_waits_for_page_numbers_are_missed_where_they_are_weakened(judged: Judge) -> None:
    mutants = page_waits(judged)
    assert {m.operator for m in mutants} == {"count + 1", "counter removed"}
    assert len(mutants) == 2 * 4  # K and V, in both phases of the loop
    for mutant in mutants[:4]:
        verdict = judged.judge(mutant)
        assert (verdict.outcome, verdict.by) == ("killed", "missing-wait"), mutant
        assert verdict.located, mutant


def test_sequences_share_their_pages_and_poison_lies_between() -> None:
    inputs = make_inputs(CONFIG, MhaInputs, tile_call(3, 17), copies=2)
    assert inputs.page_table.tolist() == [list(range(11, 0, -1))] * 2
    assert inputs.kv_lengths.tolist() == [175, 175] and inputs.q_offsets.tolist() == [0, 256, 512]
    assert np.isnan(inputs.k[0].astype(np.float32)).all()
    tail = inputs.v[1].astype(np.float32)  # the last page: 175 = 10 * 16 + 15
    assert np.isnan(tail[15]).all() and not np.isnan(tail[:15]).any()
    contiguous = MhaConfigV2(num_heads=1, num_kv_heads=1, mask="null")
    dense = make_inputs(contiguous, MhaInputs, tile_call(3, 17))
    keys, _ = inputs.key_rows(inputs.sequences[1], 0)
    assert keys.tobytes() == np.ascontiguousarray(dense.k[0, :, 0]).tobytes()
