"""The register file: shared by as many waves as the roles have, and claimed in order."""

import pytest

from mlagen.errors import CapacityError, ScheduleError
from mlagen.targets.gfx950.dsl.entry import declare_entry
from mlagen.targets.gfx950.dsl.registers import Registers


def test_the_budget_narrows_when_the_roles_are_known():
    registers = Registers(512, 102)
    registers.block("A", 200, "a")
    registers.block("B", 100, "b")
    registers.limit(304)
    with pytest.raises(CapacityError, match=r"ran out: 'B' wants 100 more on top of 200, 300 of 256"
                       r" a lane\s+hint: held so far: A 200;"):  # fmt: skip
        registers.limit(256)


def test_a_shared_bank_is_named_as_such():
    registers = Registers(512, 102)
    registers.share("KV", ("K", 300, "k"), ("V", 10, "v"))
    with pytest.raises(CapacityError, match=r"'KV' wants 300"):
        registers.limit(256)


def test_entry_takes_the_registers_that_the_hardware_fills():
    registers = Registers(256, 102)
    entry = declare_entry(registers, ("head", "row", "batch"), 4)
    physical = registers.physical()
    assert [physical[name] for name in ("T", "KERNARG", "WGX", "WGY", "WGZ")] == [0, 0, 2, 3, 4]
    assert {"WAVE", "N", "LEFT"} <= set(physical)
    assert len(entry.temp) == 4
    with pytest.raises(ScheduleError, match="before all other registers"):
        declare_entry(registers, ("head", "row", "batch"), 4)


def test_accumulation_registers_follow_the_vector_registers():
    registers = Registers(512, 102, 256)
    registers.tile("O", 190, "o")
    queries = registers.tile("Q", 256, "q", file="a")
    assert (queries.first, str(queries.regs().part(1, 4))) == (0, "a[Q+4:Q+7]")
    assert registers.physical() == {"O": 0, "Q": 0}
    assert (registers.vectors, registers.accumulators) == (190, 256)
    assert (registers.accum_offset, registers.used) == (192, 192 + 256)
    registers.limit(448)
    with pytest.raises(CapacityError, match=r"'Q' wants 256 more on top of 192, 448 of 444 a lane"):
        registers.limit(444)


@pytest.mark.parametrize(("file", "other"), [("v", "a"), ("a", "v")])
def test_an_instruction_names_half_of_the_registers(file, other):
    registers = Registers(512, 102, 256)
    registers.tile("O", 200, "o", file=file)
    with pytest.raises(CapacityError, match="'S' wants 60 more on top of 200, 260 of 256") as found:
        registers.tile("S", 60, "s", file=file)
    assert f'file="{other}"' in found.value.hint
    registers.tile("S", 60, "s", file=other)
