"""Executed instructions for one more unit of work: a loop with code that a branch skips."""

import numpy as np
import pytest
from executed import executed_per_unit
from small_kernel import ADD_TEXT

from mlagen.binary import load_code_object
from mlagen.emulator import Argument, Launch, emulate

# s4 turns of a loop; every turn has one of two exp2, and each fourth turn (s5 & 3 == 0) an add.
LOOP = """\
  s_load_dword s4, s[0:1], 0x10
  s_mov_b32 s5, 0
  v_mov_b32_e32 v2, 0
  s_waitcnt lgkmcnt(0)
.Lturn:
  s_and_b32 s6, s5, 3
  s_cmp_eq_u32 s6, 0
  s_cbranch_scc0 .Lskip
  v_add_u32_e32 v2, 1, v2
  v_add_u32_e32 v2, 2, v2
.Lskip:
  v_exp_f32_e32 v1, v2
  s_waitcnt vmcnt(3)
  s_waitcnt vmcnt(0)
  s_add_u32 s5, s5, 1
  s_cmp_lt_u32 s5, s4
  s_cbranch_scc1 .Lturn
  s_endpgm
"""


@pytest.fixture(scope="module")
def looped(make_artifact):
    head, rest = ADD_TEXT.split("  s_load_dwordx4", 1)
    return make_artifact(text=head + LOOP + rest[rest.index(".Lend:") :])


def executions(artifact, turns):
    arguments = [Argument(16, np.uint32(turns))]
    return emulate(
        artifact.code, Launch(grid=(1, 1, 1), block=(128, 1, 1), arguments=arguments)
    ).executions


def test_executions_are_counted_by_instruction(looped):
    instructions = load_code_object(looped.code).kernel().instructions
    found = executions(looped, 6)
    by_name = {}
    for ins in instructions:
        by_name.setdefault(ins.mnemonic, []).append(found.get(ins.offset, 0))
    assert by_name["v_exp_f32"] == [2 * 6]  # two waves
    assert by_name["v_add_u32"] == [2 * 2, 2 * 2]  # turns 0 and 4
    assert by_name["s_endpgm"] == [2]


def test_what_a_turn_costs(looped):
    instructions = load_code_object(looped.code).kernel().instructions
    found = executed_per_unit(
        instructions, executions(looped, 5), executions(looped, 5 + 16), units=2 * 16
    )
    pipes = dict(found.pipes)
    assert pipes == {"vector": 0.5, "transcendental": 1, "scalar": 4, "branch": 2, "wait": 2}
    assert found.total == 9.5
    assert found.waits == {"vmcnt(0)": 1, "vmcnt(3)": 1} and found.slack == 1
    assert "v_mov_b32" not in found.mnemonics  # before the loop
    (skipped,) = found.skipped
    assert (skipped.entered, skipped.reached) == (0.25, 1)
    assert skipped.pipes == (("vector", 2),) and skipped.mnemonics == (("v_add_u32", 2),)
    assert found.always["vector"] == 0 and found.always["transcendental"] == 1
