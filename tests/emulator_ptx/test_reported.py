"""Faults of kernels that others reported in public (tests/audit/reported): the emulator tells each
in every mode and with every seed, and nothing of the kernels repaired."""

from pathlib import Path

import numpy as np
import pytest
from running import run

from mlagen.emulator import Argument, Buffer, Launch, emulate
from mlagen.emulator.ptx import layout as y
from mlagen.ptx import read_ptx

FOLDER = Path(__file__).parent.parent / "audit" / "reported"
EVERY = [("latest", 0), ("earliest", 0), *(("drawn", seed) for seed in range(20))]
PAIR = {"grid": (2, 1, 1), "cluster": (2, 1, 1), "block": (32, 1, 1)}


def zeros(count):
    return np.zeros(count, np.float32)


# The launch, its arguments, and what the faulty kernel is told of: a kind, or no end.
CASES = {
    "k03_stage_rotation": ({"block": (128, 1, 1)}, lambda: (zeros(1536), np.int32(3)), "RACE"),
    "k05_exit_before_peer_reads": (
        PAIR, lambda: (np.arange(64, dtype=np.int32), np.zeros(64, np.int32)), "SHARED_GONE",
    ),
    "k06_store_before_peer_begins": (
        PAIR, lambda: (np.arange(64, dtype=np.int32), np.zeros(64, np.int32)), "SHARED_EARLY",
    ),
    "k07_two_blocks_of_registers": (
        {"grid": (2, 1, 1), "block": (256, 1, 1)}, lambda: (zeros(256),), "",
    ),
    "k19_barrier_id_of_two_pairs": (
        {"block": (128, 1, 1)},
        lambda: (np.arange(8192, dtype=np.float32), zeros(128)),
        "BARRIER_ORDER",
    ),
    "k22_another_thread_waits": (
        {"block": (128, 1, 1)}, lambda: (zeros(2048), np.int32(4)), "RACE",
    ),
    "k24_spin_between_groups": (
        {"block": (128, 1, 1)},
        lambda: (np.zeros(2048, np.uint32), zeros(640), np.int32(1)),
        "REGISTER_IN_FLIGHT",
    ),
    "k27_pair_of_unequal_loops": (
        PAIR, lambda: (np.array([2, 0, 1], np.int32), zeros(64)), "",
    ),
    "k29_tiles_by_a_counter": (
        {"block": (64, 1, 1)},
        lambda: (np.zeros(1, np.int32), zeros(160), np.int32(5)),
        "",
    ),
}  # fmt: skip


def ran(file, name, mode, seed):
    launch, made, _ = CASES[name]
    text = (FOLDER / file).read_text()
    parameters = read_ptx(text).entries[0].parameters
    arguments = {p.name: value for p, value in zip(parameters, made(), strict=True)}
    return run(text, arguments, mode=mode, seed=seed, **launch)


def test_all_cases_are_here():
    assert {path.name.split(".")[0] for path in FOLDER.glob("*.ptx")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_fault_is_told_in_every_mode(name):
    told = CASES[name][2]
    for mode, seed in EVERY:
        found = ran(f"{name}.bad.ptx", name, mode, seed)
        if told:
            errors = [one for one in found.findings if one.kind != "RACE" or one.c == y.ERROR]
            assert told in {one.kind for one in errors}
        else:
            assert found.code == y.R_YIELD  # nobody can go on


@pytest.mark.parametrize("name", CASES)
def test_the_repaired_form_is_silent_in_every_mode(name):
    for mode, seed in EVERY:
        found = ran(f"{name}.ok.ptx", name, mode, seed)
        assert found.ended and not found.findings


def test_a_warp_that_waits_for_registers_says_so():
    out = Buffer("out", zeros(256))
    launch = Launch((2, 1, 1), (256, 1, 1), [Argument(0, out)])
    text = (FOLDER / "k07_two_blocks_of_registers.bad.ptx").read_text()
    (found,) = (one for one in emulate(text, launch).findings if one.kind == "deadlock")
    assert "at line 52 waits for more registers than its block's pool has" in found.message
