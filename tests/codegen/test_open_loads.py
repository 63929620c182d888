"""Loads from SMEM that are open when a place is released: the proof of pipelines refuses a schedule
whose copy may overwrite what they have still to read."""

import pytest
from released_early import KNOBS, PLANTED, planted, released_early, right

from mlagen.codegen import build
from mlagen.errors import ProofError
from mlagen.targets.nvidia.codegen.loads import PrintedLoads, _steps

LOADS = ["ld.shared.v2.b32 {%raw0, %raw1}, [%at];"]
ARRIVE = ["@%first mbarrier.arrive.shared::cta.b64 _, [%bar];"]


def left(*texts, load=None):
    """The registers of loads that are open behind the operations, which are printed so."""
    loads = PrintedLoads(
        {n: tuple(_steps(text)) for n, text in enumerate(texts)},
        frozenset({"%raw0", "%raw1", "%sum"}),
    )
    found = loads.left_by(0)
    for number in range(1, len(texts)):
        found = tuple(after for one in found for after in loads.after(number, one))
    return [sorted(one.held) for one in found]


def test_the_feeder_that_released_right_after_its_loads_is_refused():
    with (
        released_early(),
        pytest.raises(ProofError, match=r"(?s)fills R0\[0\].*loads of role feeder.*read_e4m3"),
    ):
        build("mla_decode_sm90", PLANTED, knobs=KNOBS)
    assert planted().manifest.proof.status == "unproved"
    assert right().manifest.proof.status == "proved"


def test_a_load_is_open_until_its_value_is_needed():
    assert left(LOADS) == [["%raw0", "%raw1"]]
    assert left(LOADS, ARRIVE) == [["%raw0", "%raw1"]]
    assert left(LOADS, ["bar.sync 1, 128;"]) == [["%raw0", "%raw1"]]
    assert left(LOADS, ["membar.cta;"]) == [["%raw0", "%raw1"]]
    assert left(LOADS, ["fence.proxy.async;"]) == []
    assert left(LOADS, ["fence.proxy.async.global;"]) == [["%raw0", "%raw1"]]
    assert left(LOADS, ["st.shared.b32 [%at], %raw1;"]) == []
    assert left(LOADS, ["@%raw0 bra AWAY;"]) == []
    assert left([*LOADS, "st.shared.b32 [%at], %raw0;"]) == []


@pytest.mark.parametrize(
    "line", ["xor.b32 %sum, %raw0, %raw1;", "shfl.sync.bfly.b32 %sum, %raw0, 1, 31, 0xffffffff;"]
)
def test_arithmetic_and_shuffles_end_a_load_at_the_next_branch(line):
    assert left(LOADS, [line]) == [["%raw0", "%raw1", "%sum"]]
    assert left(LOADS, [line], ["@%done bra AWAY;"]) == []
    assert left(LOADS, [line], ["st.shared.b32 [%at], %sum;"]) == []
    assert left(LOADS, ["@%done bra AWAY;"], [line]) == [["%raw0", "%raw1", "%sum"]]


def test_what_is_overwritten_is_no_load_any_more():
    assert left(LOADS, ["mov.b32 %raw0, 0;", "mov.b32 %raw1, 0;"]) == []
    assert left(LOADS, ["@%p mov.b32 %raw0, 0;", "mov.b32 %raw1, 0;"]) == [["%raw0"]]
    assert left(["ld.global.b32 %raw0, [%at];"]) == []
