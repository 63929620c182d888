"""Loads from shared memory that may read after a release: what the audit reports of the kernels
that a GPU ran, and of the feeder that was wrong there."""

import sys
from pathlib import Path

import pytest
from released_early import planted, right

from mlagen.audit.ptx import Given, audit_ptx

sys.path.append(str(Path(__file__).parents[1] / "gpu"))

from released_ring import Ring, ptx

RULE = "smem-load-release"
WRONG = [
    Ring(),
    Ring(by="each lane"),
    Ring("membar.cta"),
    Ring("bar.sync"),
    Ring("compared", by="each lane"),
    Ring("shuffled"),
    Ring(told="bar.arrive"),
    Ring(told="bar.sync"),
    Ring(load="ldmatrix"),
    Ring(fence="fence.proxy.async;"),
]
RIGHT = [
    Ring("fence.proxy.async"),
    Ring("fence.proxy.async.shared::cta", by="each lane"),
    Ring("stored"),
    Ring("stored", by="each lane"),
    Ring("stored", load="ldmatrix"),
    Ring("fence.proxy.async", told="bar.arrive"),
    Ring("stored", told="bar.sync"),
]


def findings(ring, text="", *, first=False):
    given = Given(shared_bytes=ring.smem_bytes)
    return audit_ptx(text or ptx(ring), given, first=first).findings


@pytest.mark.parametrize("ring", WRONG, ids=lambda ring: ring.name)
def test_a_place_that_is_given_back_too_early(ring):
    (found,) = findings(ring, first=True)
    assert (found.rule, found.severity) == (RULE, "error")
    assert "cp.async.bulk" in found.text
    assert found.other_text.startswith("ld")
    assert "releases it before a value of that load is used" in found.message
    assert "fence.proxy.async" in found.needs


@pytest.mark.parametrize("ring", RIGHT, ids=lambda ring: ring.name)
def test_a_place_that_is_given_back_when_it_has_been_read(ring):
    assert not findings(ring)


def test_each_load_is_looked_at():
    """The store needs a value of all but the last load, and a fence of the wrong kind is none."""
    text = ptx(Ring("stored"))
    some = "".join(f"xor.b32 %t, %t, %v{n};\n" for n in range(28, 32))
    assert some in text
    (found,) = findings(Ring(), text.replace(some, ""), first=True)
    assert found.rule == RULE
    assert "%v28" in found.other_text
    fenced = ptx(Ring("fence.proxy.async"))
    at = fenced.index("fence.proxy.async;", fenced.index("READ:"))
    rest = fenced[at:].replace("fence.proxy.async;", "fence.proxy.async.global;", 1)
    assert findings(Ring(), fenced[:at] + rest, first=True)


def without_merging(artifact):
    """The text of a kernel in which no part is put together, whatever its record says."""
    merges = "@%these bra ALONE;"
    assert merges in artifact.text
    return artifact.text.replace(merges, "bra ALONE;")


def test_the_feeder_that_released_right_after_its_loads():
    wrong, kept = planted(), right()
    boxes = {"map_q": 16 * 128, "map_cache": 64 * 128}
    given = Given(boxes=boxes, shared_bytes=wrong.manifest.resources.lds_bytes)
    found = audit_ptx(without_merging(wrong), given, first=True).findings
    assert {one.rule for one in found} == {RULE}
    given = Given(boxes=boxes, shared_bytes=kept.manifest.resources.lds_bytes)
    assert not audit_ptx(without_merging(kept), given).findings
