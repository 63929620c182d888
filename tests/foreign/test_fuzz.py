"""A slice of the fuzzer, in this process; the full run is `tests/foreign/fuzz.py`."""

import dataclasses

import numpy as np
import pytest
from fuzz import SHARE, Tally, run_here
from gfx950_assembler import assemble
from guards import GuardedMachine, Overrun, guarded

from mlagen.binary import load_code_object
from mlagen.emulator import Argument, Launch, emulate
from mlagen.emulator.gfx950 import layout as y

CASES = {"noise": 300, "truncated": 100, "flipped": 60, "text noise": 100, "pieces": 150}
CASES |= {"words": 150, "manifests": 40}


@pytest.mark.parametrize("name", SHARE)
def test_every_case_ends_in_an_answer(name):
    tally = Tally()
    run_here(name, seed=0, first=0, count=CASES[name], tally=tally)
    assert not tally.failures, tally.failures[0]
    assert tally.cases == CASES[name]


def test_streams_are_executed():
    tally = Tally()
    for name in ("pieces", "words"):
        run_here(name, seed=5, first=0, count=60, tally=tally)
    ran = sum(n for (_, outcome), n in tally.outcomes.items() if outcome.startswith("emulated"))
    assert ran >= 60 and not tally.failures


def test_a_write_outside_an_array_is_seen(monkeypatch):
    """The guards themselves: a machine whose register file is declared larger than it is."""
    inner = GuardedMachine.__init__

    def shifted(self, *arguments):
        inner(self, *arguments)
        self.context[y.C_VECTOR] -= 256  # v0 is now the row before the array

    monkeypatch.setattr(GuardedMachine, "__init__", shifted)
    with guarded(), pytest.raises(Overrun, match="before C_VECTOR"):
        emulate(
            assemble("  v_mov_b32 v0, 1\n  s_endpgm\n"),
            Launch(grid=(1, 1, 1), block=(64, 1, 1), arguments=[]),
        )


def test_a_declared_argument_segment_of_gigabytes_is_refused():
    kernel = load_code_object(assemble("  s_endpgm\n")).kernel()
    descriptor = dataclasses.replace(kernel.descriptor, kernarg_bytes=0xFFFFFFF0)
    code = load_code_object(assemble("  s_endpgm\n"))
    code = dataclasses.replace(
        code, kernels={"k": dataclasses.replace(kernel, descriptor=descriptor)}
    )
    with pytest.raises(Exception, match="bytes of arguments"):
        emulate(
            code, Launch(grid=(1, 1, 1), block=(64, 1, 1), arguments=[Argument(0, np.uint32(1))])
        )
