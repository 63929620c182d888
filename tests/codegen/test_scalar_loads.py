"""Scalar loads in the tile loop: they return out of order, so only lgkmcnt(0) covers anything while
one is in flight, its own result as well as LDS reads that are older."""

import re
from pathlib import Path

import pytest

from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of, templates_for
from mlagen.errors import ProofError, ScheduleError
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.targets.gfx950.codegen.build import generate

SCHEDULES = Path(__file__).parent / "schedules"
PAGED = MhaConfigV2(num_heads=1, num_kv_heads=1, mask="null", ragged=True, page_size=64)


@pytest.mark.parametrize("knobs", [{}, {"k_slots": 3}, {"v_slots": 3}], ids=str)
@pytest.mark.parametrize("page_size", [16, 256])
def test_every_page_number_is_waited_for_before_its_copy(knobs, page_size):
    """On the path of every N: lgkmcnt(0) stands between a lookup and the first use of its result,
    and every copy is preceded by a lookup of its own."""
    config = MhaConfigV2(num_heads=1, num_kv_heads=1, ragged=True, page_size=page_size)
    schedule = schedule_of(load("mha_prefill_v2"), config, knobs)
    layout = generate(schedule, templates_for("gfx950")).layout
    pieces = layout.by_key()
    for n in range(1, 12):
        flying: set[int] = set()
        lookups = copies = 0
        for step in layout.paths(n):
            for x in pieces[step.piece].body:
                if x.pipe == "wait" and re.search(r"lgkmcnt\(0\)", x.text):
                    flying.clear()
                used = flying & {*x.reads, *x.writes}
                assert not used, (n, step, x.text)
                if x.pipe == "smem":
                    flying |= set(x.writes)
                    lookups += "find_" in x.origin.operation
                copies += x.text.endswith(" lds")
        per_tile = 2 * len(schedule.lds.rings["K"].dma.row_offsets)
        assert copies == per_tile * n
        assert lookups == (per_tile if page_size < 64 else 2) * n


def test_the_steady_loop_waits_for_nothing_more_than_the_page_numbers():
    """Apart from the two waits for page numbers, the loop's waits are those of contiguous keys,
    where LDS reads end with their cluster."""
    waits = {}
    knobs = {"k_slots": 2, "v_slots": 2, "spare_slots": 0}
    for page_size in (0, 16):
        config = MhaConfigV2(num_heads=1, num_kv_heads=1, ragged=True, page_size=page_size)
        schedule = schedule_of(load("mha_prefill_v2"), config, knobs)
        layout = generate(schedule, templates_for("gfx950")).layout
        waits[page_size] = {
            key: [x.text for x in piece.body if x.pipe == "wait"]
            for key, piece in layout.by_key().items()
            if key.startswith("loop")
        }
    for key, plain in waits[0].items():
        extra = ["s_waitcnt lgkmcnt(0)"] if key[-1] in "BD" else []
        assert waits[16][key] == extra + plain, key


def test_lds_reads_are_not_covered_by_a_count_that_a_scalar_load_may_satisfy():
    path = str(SCHEDULES / "pages_after_reads.py")
    with pytest.raises(ProofError) as refused:
        build(path, PAGED)
    message = str(refused.value)
    assert "copy(V, i+1): waves 4-7 still read this slot" in message
    assert "Needs lgkmcnt(0) before the barrier that closes cluster B" in message
    assert build(path, PAGED, knobs={"lgkm": 0}).manifest.proved


def test_a_page_number_is_not_overwritten_before_its_copy():
    path = str(SCHEDULES / "pages_after_reads.py")
    with pytest.raises(ScheduleError, match=r"find_K_pages\(i\+3\) defines K page of tile 1 .* "
                                            r"where K page of tile 0 is alive"):  # fmt: skip
        build(path, PAGED, knobs={"ahead": 3})
