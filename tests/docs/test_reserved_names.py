"""The names that docs/write_a_schedule.md calls taken are those of the code, and are refused."""

from __future__ import annotations

import re

import pytest
from doc_pages import ROOT

from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.dsl.entry import declare_entry
from mlagen.targets.gfx950.dsl.registers import ENTRY, Registers
from mlagen.targets.nvidia.codegen.names import ALL
from mlagen.targets.nvidia.dsl.pipeline import SPECIAL

PAGE = (ROOT / "docs" / "write_a_schedule.md").read_text()


def listed(who: str) -> tuple[str, ...]:
    line = next(line for line in PAGE.split("\n") if line.startswith(f"| {who}"))
    return tuple(re.findall(r"`([^`]+)`", line.split("|")[2]))


def test_the_page_lists_what_the_code_takes() -> None:
    assert listed("registers of gfx950, declared") == ENTRY
    assert listed("PTX, mlagen's own") == ALL
    assert listed("PTX, `s.named`") == SPECIAL


def test_an_entry_declares_just_these() -> None:
    registers = Registers(512, 102, 256)
    declare_entry(registers, ("x", "y", "z"), 4, items=True)
    assert {*registers.blocks, *registers.scalars} == set(ENTRY)


@pytest.mark.parametrize("name", [*ENTRY, *listed("registers of gfx950, the assembler's")])
def test_a_name_that_is_taken_is_refused_with_another(name: str) -> None:
    registers = Registers(512, 102, 256)
    declare_entry(registers, ("x", "y", "z"), 4, items=True)
    with pytest.raises(ScheduleError) as refused:
        registers.scalar(name, 1, "mine")
    assert refused.value.hint and f"_{name}" in refused.value.hint
