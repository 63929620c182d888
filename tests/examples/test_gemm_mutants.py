"""Mutants of the GEMM's ring on Hopper: its slots are counted in registers, so that the text alone
does not tell how many tiles go round it."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.launch import EmulatedLauncher
from mlagen.mutation.ptx.makers import make_mutants
from mlagen.mutation.ptx.mutated_kernel import MutatedKernel
from mlagen.ptx import read_ptx
from mlagen.targets.nvidia.ptxas import PtxasResult
from mlagen.verify import kind_of
from mlagen.verify.run import trial_of

FILE = Path(__file__).resolve().parents[2] / "examples" / "gemm_bf16.py"
# What one way round the ring, or none, does not show.
ONCE_ROUND = [
    ("waits", "waits for one group less", "loop: release"),
    ("arrivals", "mbarrier.arrive removed", "loop: release"),
    ("arrivals", "the next mbarrier", "loop: release"),
    ("arrivals", "count +1", ""),
    ("phases", "bound -1", "producer: loop: wait_empty"),
    ("phases", "toggle removed", "producer: loop: wait_empty"),
]


@pytest.fixture(scope="module")
def artifact():
    schedule = load(str(FILE), "sm_90a")
    unassembled = PtxasResult(b"", "", 0, 0, 0, 0, ())
    with patch("mlagen.targets.nvidia.codegen.build.assemble_ptx", return_value=unassembled):
        return build(schedule, schedule.problem_type())


@pytest.fixture(scope="module")
def rounds(artifact):
    """Of the calls that reach all code, the one with the most tiles."""
    kind = kind_of(artifact)
    call = max(kind.covering(artifact).calls, key=lambda call: call.shape["k"])
    sizes = {**call.shape, "m": 128, "n": 256}
    return trial_of(artifact, kind.made(artifact, data="randn", seed=0, **sizes), thin=False)


def emulated(trial, artifact, text=None):
    text = artifact.text if text is None else text
    launcher = EmulatedLauncher(workgroups=None, allow_unproved=True, max_instructions=100_000)
    return trial.run(replace(artifact, text=text), launcher)[1].emulation


def test_the_calls_go_twice_round_the_ring(artifact, rounds):
    longest = max(call.shape["k"] for call in kind_of(artifact).covering(artifact).calls)
    knobs = artifact.manifest.knobs
    assert longest > 2 * knobs["stages"] * knobs["k_tile"]
    assert not emulated(rounds, artifact).findings


@pytest.mark.parametrize(("kind", "operator", "place"), ONCE_ROUND)
def test_a_defect_of_the_ring_is_found(artifact, rounds, kind, operator, place):
    entry = read_ptx(artifact.text).entries[0]
    told = {line.asm_line: (f"{line.role}: {line.section}: {line.operation}", 0)
            for line in artifact.manifest.source}  # fmt: skip
    made = make_mutants(MutatedKernel(artifact.text, entry, told), [kind])
    mutant = [m for m in made if m.operator == operator and place in m.place][-1]
    assert emulated(rounds, artifact, mutant.apply(artifact.text)).findings
