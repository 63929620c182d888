"""Bank phases: known patterns, the generator's own count, and what the code computes."""

from __future__ import annotations

import random

import pytest

from mlagen.binary.banks import PHASES, cycles, served
from mlagen.targets.gfx950.dsl.layout import bank_cycles


@pytest.mark.parametrize("name", PHASES)
def test_the_phases_serve_each_lane_once(name):
    lanes = [lane for phase in PHASES[name].lanes for lane in phase]
    assert sorted(lanes) == list(range(64))


@pytest.mark.parametrize(
    ("name", "stride", "expected"),
    [
        ("ds_read_b128", 16, 4),  # consecutive: each bank once a phase
        ("ds_read_b128", 256, 64),  # all lanes on the same four banks
        ("ds_read_b128", 1040, 4),  # a pitch that turns by four banks
        ("ds_read_b64", 8, 2),
        ("ds_read_b64", 128, 32),  # sixteen lanes on each half of the banks
        ("ds_write_b64", 8, 4),
        ("ds_write_b64", 128, 64),  # 32 banks only
        ("ds_read_b96", 16, 8),
        ("ds_read_b96", 12, 16),
    ],
)
def test_strides(name, stride, expected):
    assert cycles(served([lane * stride for lane in range(64)], PHASES[name])) == expected


def test_the_same_dword_is_no_conflict():
    assert cycles(served([0] * 64, PHASES["ds_read_b128"])) == 4


@pytest.mark.parametrize(("name", "width"), [("ds_read_b128", 16), ("ds_read_b64", 8)])
def test_against_the_generators_count(name, width):
    """Two tables of phases, written apart."""
    rng = random.Random(5)
    seen = set()
    for spread in (1, 4, 16, 64, 4096):
        for _ in range(20):
            addresses = [rng.randrange(spread) * width for _ in range(64)]
            taken = cycles(served(addresses, PHASES[name]))
            assert taken == bank_cycles(addresses, width)[0]
            seen.add(taken)
    assert len(seen) > 5


def test_the_code_reads_tiles_at_the_cost_that_the_schedule_planned(mha_report, mha):
    """Lane addresses from the machine code, against the plan in the manifest."""
    from mlagen.artifact import read_artifact

    manifest = read_artifact(mha).manifest
    plans = {area.name: area for area in manifest.map.memory}
    assert set(plans) == {"K", "V"}
    for ring in ("K", "V"):
        uses = [u for u in mha_report.lds if u.areas == (ring,) and u.address != "m0"]
        assert uses and all(u.cycles is not None for u in uses)
        costs = {u.address: u.cycles for u in uses}
        (cluster,) = [
            c
            for c in mha_report.looped
            if c.section.startswith("loop, i % 2 = 0")
            and any(line.operation.startswith(f"read({ring}") for line in c.lines)
        ]
        registers = {name: f"v{first}" for name, first in _address_registers(mha_report)}
        total = 0
        for line in cluster.lines:
            if line.pipe == "lds":
                symbol = line.text.split("v[")[-1].partition("]")[0]
                total += costs[registers[symbol]]
        assert total == plans[ring].cycles


def _address_registers(report):
    for block in report.blocks:
        for number in range(block.count):
            yield (f"{block.name}+{number}" if number else block.name), block.first + number


def test_a_conflict_is_found_in_code(inspected):
    report = inspected(
        "v_lshlrev_b32 v1, 8, v0\n ds_read_b128 v[4:7], v1\n v_lshlrev_b32 v2, 4, v0\n"
        " ds_read_b128 v[8:11], v2 offset:32\n ds_write_b32 v2, v8\n s_waitcnt lgkmcnt(0)\n"
        " s_endpgm",
        lds=65536,
    )
    found = {u.address + u.mnemonic[2:]: (u.cycles, u.ideal, u.unknown) for u in report.lds}
    assert found["v1_read_b128"] == (64, 4, "")
    assert found["v2_read_b128"] == (4, 4, "")
    assert found["v2_write_b32"] == (None, None, "phases not published")
