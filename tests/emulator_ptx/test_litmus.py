"""Litmus tests of memory order: the right verdict of each, in every mode."""

from __future__ import annotations

import numpy as np
import pytest
from litmus import BYTES, ERROR, HEAD, LETTER, SILENT, Case, cases
from running import kernel, run

from mlagen.emulator import Buffer, TensorMap
from mlagen.emulator.ptx import layout as y

MODES = [("latest", 0), ("earliest", 0), ("drawn", 1), ("drawn", 2), ("drawn", 3)]
_PARAMETERS = "p, .param .align 64 .b8 m[128]"


def verdict_of(case: Case, mode: str, seed: int) -> str:
    """What a run says of races."""
    memory = np.zeros(1024, np.uint32)
    made = TensorMap(Buffer("g", memory), "u32", (1024,), (), (BYTES // 4,))
    ran = run(
        kernel(case.body(), _PARAMETERS, head=HEAD), {"p": memory}, maps={"m": made},
        block=(256, 1, 1), mode=mode, seed=seed,
    )  # fmt: skip
    assert ran.ended, ran.fault
    graves = [found.c for found in ran.findings if found.kind == "RACE"]
    return ERROR if y.ERROR in graves else LETTER if graves else SILENT


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_every_mode_gives_the_verdict_of_the_isa(case: Case) -> None:
    said = {verdict_of(case, mode, seed) for mode, seed in MODES}
    assert said == {case.verdict()}


def test_there_is_a_case_of_every_verdict() -> None:
    every = [case.verdict() for case in cases()]
    assert all(every.count(verdict) > 20 for verdict in (SILENT, ERROR)) and LETTER in every
