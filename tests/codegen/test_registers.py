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
