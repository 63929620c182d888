"""Tiles of registers that a schedule declares, and what a knob leaves out of its table."""

import pytest

from mlagen.dsl import copy, tiles
from mlagen.dsl.builder import listening
from mlagen.dsl.operation import Interleave, Operation
from mlagen.dsl.tile import Tile
from mlagen.dsl.words import bind, record
from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.dsl import Registers, cluster, interleave, roles
from mlagen.targets.gfx950.dsl.builder import ClusterBuilder

WANTS = ("K", 8, "one K tile"), ("V", 6, "one V tile")


def test_a_bank_that_a_knob_takes_apart():
    shared, apart = Registers(256, 102), Registers(256, 102)
    shared.share("KV", *WANTS)
    apart.share("KV", *WANTS, apart=True)
    assert (shared["K"].first, shared["V"].first, shared.used) == (0, 0, 8)
    assert (apart["K"].first, apart["V"].first, apart.used) == (0, 8, 14)
    assert (shared["V"].bank, apart["V"].bank) == ("KV", "V")


def test_tiles_start_where_a_fragment_may():
    registers = Registers(256, 102)
    registers.block("ONE", 1, "", align=1)
    assert registers.tile("S", 32, "scores", slots=2).first == 4
    assert registers.used == 4 + 2 * 32


def test_a_block_that_nobody_declared():
    registers = Registers(256, 102)
    registers.tile("Q", 32, "queries")
    with pytest.raises(ScheduleError, match="no registers 'O' are declared") as caught:
        registers["O"]
    assert caught.value.hint == "declared: Q"


class Author:
    name, target, templates, path, source, line = "none", "gfx950", None, None, __file__, 1


class Ring:
    name = "X"


def operation(name, tile=Tile(0)):  # noqa: B008
    return Operation(name, f"{name}.s.j2", tile, lambda at: {})


def test_what_a_knob_leaves_out_is_not_there():
    builder = ClusterBuilder(Author())
    with listening(builder):
        waves = roles(all=range(4))
        bind(Ring, lambda kind, tile: operation(kind, tile))
        for i in tiles(waves):
            with cluster("A"):
                interleave(record(operation("qk")), copy(Ring, i, when=False))
                interleave(record(operation("pv")), copy(Ring, i, when=True), None)
            with cluster("B"), pytest.raises(ScheduleError, match="two or more"):
                interleave(record(operation("qk")))
    alone, both = builder.clusters[0].steps
    assert isinstance(alone, Operation) and alone.name == "qk"
    assert isinstance(both, Interleave) and [x.name for x in both.operations] == ["pv", "copy"]
