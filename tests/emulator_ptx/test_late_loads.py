"""Loads from shared memory that may read after a release: what is found, what is not, and what a
finding says. The kernels are those that a GPU ran (docs/ptx_emulator.md)."""

import sys
from pathlib import Path

import numpy as np
import pytest
from released_early import planted
from running import run

from mlagen.emulator.ptx.order.meeting import LATE
from mlagen.emulator.ptx.order.record_sizes import KEPT
from mlagen.verify import verify

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

from released_ring import READERS, Ring, ptx, tiles_of

MODES = ("latest", "earliest", "drawn")
WRONG = [  # what was wrong on a GPU in some words
    Ring(),
    Ring(by="each lane"),
    Ring("membar.cta"),
    Ring("bar.sync"),
    Ring("compared", by="each lane"),
    Ring("shuffled"),
    Ring(told="bar.arrive"),
    Ring("membar.cta", told="bar.arrive"),
    Ring(told="bar.sync"),
    Ring("membar.cta", told="bar.sync"),
    Ring(load="ldmatrix"),
    Ring(spread=True),
]
RIGHT = [
    Ring("fence.proxy.async"),
    Ring("fence.proxy.async.shared::cta", by="each lane"),
    Ring("used"),
    Ring("used", by="each lane"),
    Ring("stored"),
    Ring("stored", by="each lane"),
    Ring("used", load="ldmatrix"),
    Ring("fence.proxy.async", told="bar.arrive"),
    Ring("used", told="bar.arrive"),
    Ring("fence.proxy.async", told="bar.sync"),
    Ring("used", told="bar.sync"),
    Ring("used", loads=32, slots=1),
]


def ran(ring, mode, text=""):
    source, out = tiles_of(ring), np.full(2 * READERS, 77, np.uint32)
    found = run(
        text or ptx(ring),
        {"source": source, "out": out, "fills": np.uint32(7)},
        mode=mode,
        block=(ring.threads, 1, 1),
        dynamic_shared=ring.smem_bytes,
    )
    assert found.ended
    assert not out.any()  # the emulator itself reads when a load is issued
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ring", WRONG, ids=lambda ring: ring.name)
def test_a_place_that_is_given_back_too_early(ring, mode):
    found = ran(ring, mode).findings
    assert {one.kind for one in found} == {"RACE"}
    assert all(one.b & LATE for one in found)
    loads = {text for one in found for text in (one.text, one.other) if text.startswith("ld")}
    assert loads
    assert all("cp.async.bulk" in one.text + one.other for one in found)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ring", RIGHT, ids=lambda ring: ring.name)
def test_a_place_that_is_given_back_when_it_has_been_read(ring, mode):
    assert not ran(ring, mode).findings


def test_the_other_side_s_fence_waits_for_no_load_of_this_one():
    """It was right on a GPU, which nothing in its code explains."""
    assert ran(Ring(fence="fence.proxy.async;"), "latest").findings


@pytest.mark.parametrize("mode", ["latest", "earliest"])
def test_each_load_is_looked_at(mode):
    """A value of one of eight loads is needed before the release; of all; by arithmetic alone."""
    text = ptx(Ring("fence.proxy.async"))
    assert text.count("fence.proxy.async;") == 3
    at = text.index("fence.proxy.async;", text.index("READ:"))
    one = "mad.lo.u32 %w, %thread, 4, %smem;\nst.shared.u32 [%w + 9216], %v{};\n"
    begin, end = text[:at], text[at + len("fence.proxy.async;") :]
    found = ran(Ring(), mode, begin + one.format(5) + end).findings
    named = {text for one in found for text in (one.text, one.other) if text.startswith("ld")}
    assert len(named) == 7
    assert not any("%v5," in text for text in named)
    all_ = "".join(one.format(4 * n) for n in range(8))
    assert not ran(Ring(), mode, begin + all_ + end).findings
    taken = "mov.b32 %t, 0;\n" + "".join(f"xor.b32 %t, %t, %v{4 * n};\n" for n in range(8))
    assert ran(Ring(), mode, begin + taken + end).findings
    assert not ran(Ring(), mode, begin + taken + "bra NEXT;\nNEXT:\n" + end).findings


def test_more_loads_than_are_kept():
    """The oldest are looked at no more; what is left is found, and nothing else."""
    ring = Ring(loads=32, slots=1)
    text = ptx(ring)
    first = text.index("ld.shared.v4", text.index("READ:"))
    last = text.index("bar.warp.sync", first)
    block = text[first:last]
    assert KEPT < 5 * 32
    assert ran(ring, "latest", text[:first] + 5 * block + text[last:]).findings


def test_the_feeder_that_released_right_after_its_loads():
    """What a GPU computed wrongly: the finding names the load, the release and the copy."""
    report = verify(planted(), lengths=(400, 65), modes=("latest", "earliest"))
    assert not report.passed
    found = [one for run in report.runs for one in run.findings]
    assert {one.kind for one in found} <= {"race-war", "race-raw"}
    for one in found:
        assert "ld.shared.v4.b32" in one.message
        assert "cp.async.bulk.tensor" in one.message
        assert "mbarrier.arrive" in one.message
        assert (
            one.needs == "its values used, or fence.proxy.async, between the load and the release"
        )
