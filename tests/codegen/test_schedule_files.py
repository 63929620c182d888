"""What a shipped schedule's own file shows: its large registers, its layout, and not too much."""

import re
from pathlib import Path

import pytest

from mlagen.codegen.schedules import load, names
from mlagen.codegen.target import schedule_of
from mlagen.targets.nvidia.dsl import PipelineSchedule

SCHEDULES = Path(__file__).parents[2] / "schedules"
LARGE = 16  # registers: operands and accumulators; addresses and row state are the operations'
MOST_LINES = 170


def table_of(schedule):
    """The text of the file that holds its table: its own, or the one that it hands on to."""
    return (SCHEDULES / schedule.file.removeprefix("schedules/")).read_text()


@pytest.mark.parametrize("name", names())
def test_a_schedule_file_shows_layout_and_registers(name):
    function = load(name)
    schedule = schedule_of(function, function.problem_type.example(), {})
    text = table_of(schedule)
    assert text.count("\n") <= MOST_LINES
    if isinstance(schedule, PipelineSchedule):
        held = {regs.name: regs.count for regs in schedule.registers}
        areas = {re.sub(r"\d+$", "", name) for name in schedule.smem.tiles}
    else:
        blocks = schedule.registers.blocks
        held = {block.name: block.count * block.slots for block in blocks.values()}
        areas = set(schedule.lds.rings)
    large = [name for name, count in held.items() if count >= LARGE]
    assert large
    for declared in (*large, *areas):
        assert f'"{declared}"' in text, declared
    for area in areas:
        assert re.search(r"s\.lds\.ring|s\.smem\.tile", text), area


def test_what_a_loop_shows_has_no_condition():
    """In a tile loop no line asks about the problem."""
    for name in names():
        function = load(name)
        text = table_of(schedule_of(function, function.problem_type.example(), {}))
        for loop in re.findall(r"    for i in tiles\(.*?(?=\n    \S|\Z)", text, re.DOTALL):
            assert not re.search(r"\bif\b|\bk\.", loop), (name, loop)
