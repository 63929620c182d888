"""A slice of the fuzzer of PTX; the full run is `tests/foreign/fuzz.py --ptx`."""

import numpy as np
import pytest
from fuzz import PTX_SHARE, Tally, run_apart, run_here
from guards import Overrun
from ptx_fuzz_cases import judge_text
from ptx_fuzz_kernels import FRAME, KERNELS
from ptx_guards import FencedState, guarded

from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
from mlagen.emulator.ptx import layout as y
from mlagen.errors import MlagenError

APART = {
    "ptx pieces": 120,
    "ptx kernels": 120,
    "ptx tensors": 40,
}  # what is executed, in a process of its own
HERE = {"ptx noise": 120, "ptx launches": 120}


@pytest.mark.parametrize("name", APART)
def test_what_is_executed_ends_in_an_answer(name):
    tally = Tally()
    run_apart(name, seed=0, first=0, count=APART[name], tally=tally, patience=120)
    assert not tally.failures, tally.failures[0]
    assert tally.cases == APART[name]
    ran = sum(n for (_, outcome), n in tally.outcomes.items() if outcome.startswith("emulated"))
    assert ran >= APART[name] // 3


@pytest.mark.parametrize("name", HERE)
def test_every_case_ends_in_an_answer(name):
    tally = Tally()
    run_here(name, seed=0, first=0, count=HERE[name], tally=tally)
    assert not tally.failures, tally.failures[0]


def test_all_classes_have_a_share():
    assert sum(PTX_SHARE.values()) == pytest.approx(1) and set(PTX_SHARE) > {*APART, *HERE}


@pytest.mark.parametrize("text", KERNELS)
def test_what_cases_start_from_runs(text):
    """The kernels that are changed are executed to their end as they are."""
    try:
        assert judge_text(text).startswith("emulated")
    except MlagenError as why:
        pytest.fail(why.message)


def _bulk_copy(address: str) -> str:
    return FRAME.replace(
        "BODY",
        "@!%p1 bra L0; cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
        f"[sh+4096], [{address}], 512, [bar]; L0: bar.sync 0;",
    )


@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize("address", ["sh", "%rd42"])
def test_a_source_in_the_generic_window(address, end):
    """The record of accesses is kept by the place in shared memory, not by the generic address."""
    assert judge_text(_bulk_copy(address), end).startswith("emulated")


def test_a_wait_of_one_warp_looks_at_no_other():
    body = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    assert judge_text(FRAME.replace("BODY", body)).startswith("emulated")


def test_a_write_outside_an_array_is_seen(monkeypatch):
    """The closed pages themselves: registers that are declared to lie further than they do. They
    are few, so that what lies behind them is the rest of their page."""
    inner = FencedState.__init__

    def shifted(self, *arguments):
        inner(self, *arguments)
        self.context[y.C_REGISTERS] += self.arrays[y.C_REGISTERS].nbytes

    monkeypatch.setattr(FencedState, "__init__", shifted)
    text = ".version 8.6\n.target sm_90a\n.address_size 64\n"
    text += ".visible .entry k(.param .u64 p) { .reg .b32 %r<4>; mov.u32 %r1, 7; ret; }"
    arguments = [Argument(0, Buffer("p", np.zeros(4, np.uint32)))]
    with pytest.raises(Overrun, match="beside C_REGISTERS"), guarded(False):
        emulate(text, Launch((1, 1, 1), (32, 1, 1), arguments), Settings(sanitize=False))
