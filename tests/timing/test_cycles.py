"""The cycle engine on kernels whose cycles are worked out by hand.

A SIMD issues every 4 cycles; wave 0 is on SIMD 0 and starts in cycle 0.
"""

from __future__ import annotations

import pytest
from micro_kernels import POINTER, gaps, issued, timed

from mlagen.timing.cycle_state import BARRIER

MFMA = "v_mfma_f32_32x32x16_bf16"


def lines(text: str, count: int) -> str:
    return "\n".join(text.format(i=i, j=i + 1) for i in range(count))


def test_a_dependent_chain_of_vector_instructions_takes_8_cycles_each() -> None:
    unit = timed(lines("  v_add_f32 v1, v1, v1", 6))
    assert gaps(issued(unit, "v_add_f32")) == [8] * 5


def test_independent_vector_instructions_take_4() -> None:
    unit = timed(lines("  v_add_f32 v{i}, v20, v21", 6))
    assert gaps(issued(unit, "v_add_f32")) == [4] * 5


@pytest.mark.parametrize("exp", [8, 16])
def test_exp_keeps_the_port(exp: int) -> None:
    unit = timed(lines("  v_exp_f32 v{i}, v20", 5) + "\n  v_add_f32 v30, v31, v31", exp=exp)
    at = issued(unit, "v_exp_f32")
    assert gaps(at) == [exp] * 4
    assert issued(unit, "v_add_f32") == [at[-1] + exp]


def test_exp_then_its_use_waits_for_the_result() -> None:
    unit = timed("  v_exp_f32 v1, v2\n  v_add_f32 v3, v1, v1")
    assert issued(unit, "v_add_f32")[0] - issued(unit, "v_exp_f32")[0] == 12  # 8 + 4


def test_packed_f32_is_full_rate_and_a_swap_two_slots() -> None:
    body = "  v_pk_mul_f32 v[2:3], v[20:21], v[22:23]\n" * 2
    body += "  v_permlane32_swap_b32 v4, v5\n  v_add_f32 v6, v7, v7"
    unit = timed(body)
    assert gaps(issued(unit, "v_pk_mul_f32")) == [4]
    assert issued(unit, "v_add_f32")[0] - issued(unit, "v_permlane32_swap_b32")[0] == 8


@pytest.mark.parametrize(
    ("instruction", "busy"),
    [
        (f"{MFMA} v[{{r}}:{{e}}], v[100:103], v[104:107], v[{{r}}:{{e}}]", 32),
        ("v_mfma_f32_16x16x32_bf16 v[{r}:{q}], v[100:103], v[104:107], v[{r}:{q}]", 16),
        ("v_mfma_f32_32x32x64_f8f6f4 v[{r}:{e}], v[100:107], v[108:115], v[{r}:{e}]", 64),
    ],
)  # fmt: skip
@pytest.mark.parametrize("chained", [False, True])
def test_matrix_instructions_follow_one_another_after_their_passes(
    instruction: str, busy: int, chained: bool
) -> None:
    firsts = [0, 0, 0] if chained else [0, 16, 32]
    body = "\n".join("  " + instruction.format(r=r, e=r + 15, q=r + 3) for r in firsts)
    unit = timed(body)
    assert gaps(issued(unit, instruction.partition(" ")[0])) == [busy] * 2


def test_a_vector_read_of_a_matrix_result_waits_for_the_last_pass_and_the_wait_states() -> None:
    body = f"  {MFMA} v[0:15], v[100:103], v[104:107], v[0:15]\n  v_add_f32 v60, v1, v1"
    unit = timed(body)
    assert issued(unit, "v_add_f32")[0] - issued(unit, MFMA)[0] == 32 + 16


def test_six_vector_instructions_fit_under_a_matrix_instruction_and_eight_do_not() -> None:
    def distance(count: int) -> int:
        work = lines("  v_add_f32 v{i}, v90, v91", count)
        first = f"  {MFMA} v[32:47], v[100:103], v[104:107], 0\n"
        second = f"\n  {MFMA} v[48:63], v[100:103], v[104:107], 0"
        return gaps(issued(timed(first + work + second), MFMA))[0]

    assert (distance(6), distance(7), distance(8)) == (32, 32, 36)


def test_the_port_of_a_matrix_instruction_is_a_constant() -> None:
    body = f"  {MFMA} v[0:15], v[100:103], v[104:107], 0\n  v_add_f32 v60, v61, v61"
    for port in (4, 16):
        unit = timed(body, mfma_port=port)
        assert issued(unit, "v_add_f32")[0] - issued(unit, MFMA)[0] == port


def test_s_nop_counts_slots() -> None:
    unit = timed("  v_add_f32 v1, v2, v2\n  s_nop 5\n  v_add_f32 v3, v4, v4")
    assert gaps(issued(unit, "v_add_f32")) == [4 + 6 * 4]


def test_a_wait_for_lds_takes_the_phases_and_the_latency() -> None:
    body = "  v_lshlrev_b32 v1, 3, v0\n  ds_read_b64 v[2:3], v1\n  s_waitcnt lgkmcnt(0)"
    for width, phases in ((128, 4), (256, 2)):  # two phases of 256 bytes
        unit = timed(body, lds=4096, lds_bytes=width)
        took = issued(unit, "s_waitcnt")[0] - issued(unit, "ds_read_b64")[0]
        assert took == -(-(phases + 64) // 4) * 4


def test_bank_conflicts_lengthen_it() -> None:
    """Lanes 256 bytes apart: every lane of a phase of 32 in the same two of 64 banks."""
    body = "  v_lshlrev_b32 v1, {shift}, v0\n  ds_read_b64 v[2:3], v1\n  s_waitcnt lgkmcnt(0)"

    def took(shift: int) -> int:
        unit = timed(body.format(shift=shift), lds=16384, lds_bytes=256)
        return issued(unit, "s_waitcnt")[0] - issued(unit, "ds_read_b64")[0]

    assert took(3) == 68  # two phases of one cycle, 64 cycles, then the SIMD's next turn
    assert took(8) == 128  # two phases of 32 cycles


def test_reads_of_all_waves_share_the_lds() -> None:
    """Four waves, 8 reads of 4 KiB each a turn: 256 bytes a cycle."""
    body = "  v_lshlrev_b32 v1, 4, v0\n"
    body += "\n".join(f"  ds_read_b128 v[{8 * i}:{8 * i + 3}], v1" for i in range(2, 10))
    body += "\n  s_waitcnt lgkmcnt(0)"
    unit = timed(body, waves=4, lds=4096)
    last = max(issued(unit, "s_waitcnt", wave)[0] for wave in range(4))
    first = issued(unit, "ds_read_b128")[0]
    assert 4 * 8 * 1024 / 256 <= last - first - 64 <= 4 * 8 * 1024 / 256 + 8


def test_a_barrier_holds_until_the_last_wave_comes() -> None:
    """Wave 1 sleeps; both go on 16 cycles after it arrives, each in its SIMD's turn."""
    body = """
  v_readfirstlane_b32 s6, v0
  s_nop 3
  s_cmp_eq_u32 s6, 0
  s_cbranch_scc1 meet
  s_nop 15
  s_nop 15
meet:
  s_barrier
  v_add_f32 v1, v2, v2
"""
    unit = timed(body, waves=2)
    early, late = issued(unit, "s_barrier", 0)[0], issued(unit, "s_barrier", 1)[0]
    assert late - early > 100
    for wave in (0, 1):
        went = issued(unit, "v_add_f32", wave)[0]
        assert late + 16 <= went < late + 16 + 4
        assert went % 4 == wave
    row = [i.mnemonic for i in unit.program.kernel.instructions].index("s_barrier")
    assert unit.stalls[row, BARRIER] >= late - early


def test_two_waves_of_a_simd_share_its_port_unless_they_may_issue_together() -> None:
    """Waves 0 and 4 are on SIMD 0: 20 independent instructions each."""
    body = lines("  v_add_f32 v{i}, v90, v91", 20)

    def last(co_issue: int) -> int:
        unit = timed(body, waves=5, co_issue=co_issue)
        return max(issued(unit, "v_add_f32", wave)[-1] for wave in (0, 4))

    assert last(0) == (40 - 1) * 4
    assert last(1) == (20 - 1) * 4


def test_the_wave_of_higher_priority_goes_first() -> None:
    """Wave 4 raises itself above wave 0, which then gets the port only when wave 4 is done."""
    body = """
  v_readfirstlane_b32 s6, v0
  s_nop 3
  s_cmp_lt_u32 s6, 256
  s_cbranch_scc1 low
  s_setprio 3
low:
  s_barrier
""" + lines("  v_add_f32 v{i}, v90, v91", 10)
    unit = timed(body, waves=5)
    assert issued(unit, "v_add_f32", 4)[-1] < issued(unit, "v_add_f32", 0)[0]


def test_a_load_takes_the_latency_and_its_lines() -> None:
    """64 lanes of 4 bytes: 2 lines of 128 bytes at 64 bytes a cycle from the L2."""
    body = POINTER + "  v_lshlrev_b32 v1, 2, v0\n  global_load_dword v2, v1, s[4:5]\n"
    unit = timed(body + "  s_waitcnt vmcnt(0)")
    load = issued(unit, "global_load_dword")[0]
    took = issued(unit, "s_waitcnt")[-1] - load
    assert took == -(-(4 + 256 // 64 + 500) // 4) * 4
    scattered = timed(body.replace("2, v0", "7, v0") + "  s_waitcnt vmcnt(0)")
    longer = issued(scattered, "s_waitcnt")[-1] - issued(scattered, "global_load_dword")[0]
    assert longer == -(-(64 + 64 * 128 // 64 + 500) // 4) * 4


def test_vmcnt_waits_for_the_oldest_only() -> None:
    body = POINTER + "  v_lshlrev_b32 v1, 7, v0\n"
    body += lines("  global_load_dword v{j}0, v1, s[4:5]", 4)
    one = timed(body + "\n  s_waitcnt vmcnt(3)")
    all_ = timed(body + "\n  s_waitcnt vmcnt(0)")
    assert issued(all_, "s_waitcnt")[-1] - issued(one, "s_waitcnt")[-1] == 3 * 128


def test_a_taken_branch_costs_more_than_one_not_taken() -> None:
    body = "  s_cmp_eq_u32 s20, s20\n  s_cbranch_scc{taken} over\n  s_nop 0\nover:\n"
    body += "  v_add_f32 v1, v2, v2"
    taken, fallen = timed(body.format(taken=1)), timed(body.format(taken=0))
    at = [
        issued(unit, "v_add_f32")[0] - issued(unit, "s_cmp_eq_u32")[0] for unit in (taken, fallen)
    ]
    assert at == [4 + 20, 4 + 8 + 4]


def test_two_workgroups_on_a_unit_have_barriers_of_their_own() -> None:
    body = "  s_barrier\n" + lines("  v_add_f32 v{i}, v90, v91", 10)
    alone = timed(body, waves=4)
    both = timed(body, waves=4, workgroups=2)
    assert both.instructions == 2 * alone.instructions
    assert {wave.workgroup for wave in both.waves} == {0, 1}
    assert both.cycles == alone.cycles + 10 * 4


def test_every_wave_cycle_is_accounted_for() -> None:
    """A wave is issuing or waiting in each of its turns until it ends."""
    unit = timed(lines("  v_exp_f32 v{i}, v90", 10), waves=6)
    assert unit.stalls.sum() == sum(
        4 * ((int(w.issued[-1]) - w.wave % 4) // 4 + 1) for w in unit.waves
    )
