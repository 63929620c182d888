"""Registers in flight and what waits are needed for: written cases, and random programs by path."""

import pytest

pytest.importorskip("ziglang", reason="the assembler wheel (mlagen[amd]) is not installed")
pytest.importorskip("tinygrad", reason="the decoder (mlagen[emulator]) is not installed")

from gfx950_assembler import assemble
from path_reference import broken, draw, text, weakest

from mlagen.audit.gfx950 import audit_code_object
from mlagen.audit.gfx950.budget import Budget
from mlagen.audit.gfx950.steps import read_steps
from mlagen.audit.gfx950.waits import check_waits
from mlagen.binary import load_code_object
from mlagen.binary.flow import read_flow
from mlagen.severity import LETTER, of


def audit(body, **options):
    (kernel,) = audit_code_object(assemble(body, **options)).kernels
    return kernel


def errors(body, **options):
    """Those on registers: what is in LDS has tests of its own."""
    return [f for f in audit(body, **options).errors if not f.rule.startswith("lds-")]


def rules(body, **options):
    return [finding.rule for finding in errors(body, **options)]


def needs(body, **options):
    return [finding.needs for finding in errors(body, **options)]


LOADS = "global_load_dword v1, v0, s[0:1]\nglobal_load_dword v2, v0, s[0:1]\n"


def test_a_use_is_told_with_the_weakest_wait_that_would_do():
    assert needs(LOADS + "v_mov_b32 v3, v1\ns_endpgm") == ["vmcnt(1)"]
    assert needs(LOADS + "v_mov_b32 v3, v2\ns_endpgm") == ["vmcnt(0)"]
    assert not rules(LOADS + "s_waitcnt vmcnt(1)\nv_mov_b32 v3, v1\ns_endpgm")
    assert rules(LOADS + "s_waitcnt vmcnt(1)\nv_mov_b32 v3, v2\ns_endpgm") == ["missing-wait"]


def test_stores_and_loads_to_lds_count():
    body = "global_load_dword v1, v0, s[0:1]\nglobal_store_dword v0, v2, s[0:1]\n"
    body += "s_mov_b32 m0, 0\ns_nop 0\nbuffer_load_dword v0, s[4:7], 0 offen lds\n"
    assert needs(body + "v_mov_b32 v3, v1\ns_endpgm") == ["vmcnt(2)"]


def test_an_overwrite_in_flight():
    assert rules(LOADS + "v_mov_b32 v1, 0\ns_endpgm") == ["overwrite-in-flight"]
    # A load of the same queue arrives later whatever happens; one of another queue may not.
    assert not rules(LOADS + "global_load_dword v1, v0, s[0:1]\ns_endpgm")
    assert rules(LOADS + "ds_read_b32 v1, v0\ns_endpgm", lds=64) == ["overwrite-in-flight"]


def test_scalar_loads_come_in_any_order():
    body = "s_load_dword s4, s[0:1], 0x0\ns_load_dword s5, s[0:1], 0x4\n"
    assert rules(body + "s_mov_b32 s6, s4\ns_endpgm") == ["missing-wait"]
    assert rules(body + "s_waitcnt lgkmcnt(1)\ns_mov_b32 s6, s4\ns_endpgm") == ["smem-order"]
    assert not rules(body + "s_waitcnt lgkmcnt(0)\ns_mov_b32 s6, s4\ns_endpgm")


def test_a_full_counter_is_a_doubt():
    reads = "\n".join(f"ds_read_b32 v{4 + i}, v0 offset:{4 * i}" for i in range(20))
    for wait in ("", "s_waitcnt lgkmcnt(15)"):
        told = audit(f"{reads}\n{wait}\nv_mov_b32 v2, v4\ns_endpgm", lds=256)
        (doubt,) = of(told.findings, LETTER)
        assert (doubt.rule, doubt.needs) == ("counter-capacity", "lgkmcnt(14)")
        assert not told.errors
    assert not rules(f"{reads}\ns_waitcnt lgkmcnt(14)\nv_mov_b32 v2, v4\ns_endpgm", lds=256)


def test_the_worst_path_counts():
    body = LOADS + "s_cbranch_scc0 L\ns_waitcnt vmcnt(0)\nL:\nv_mov_b32 v3, v1\ns_endpgm"
    (finding,) = audit(body).errors
    assert "taken" in finding.message and finding.other_pc == 0
    around = "L:\nv_mov_b32 v3, v1\n" + LOADS + "s_cbranch_scc0 L\ns_endpgm"
    (finding,) = audit(around).errors
    assert finding.pc == 0 and finding.needs == "vmcnt(1)"


def test_branches_that_agree_are_told_apart_by_the_reader_only():
    # The second branch repeats the first one's condition: the message names both decisions.
    body = "s_cbranch_scc0 A\nglobal_load_dword v1, v0, s[0:1]\nA:\n"
    body += "s_cbranch_scc0 B\nv_mov_b32 v2, v1\nB:\ns_endpgm"
    (finding,) = audit(body).errors
    assert "not taken" in finding.message


def test_no_wave_is_empty_where_nothing_writes_exec():
    body = LOADS + "s_cbranch_execz L\ns_waitcnt vmcnt(0)\nL:\nv_mov_b32 v3, v1\ns_endpgm"
    assert not rules(body)
    assert rules(body.replace("execz", "execnz")) == ["missing-wait"]
    assert rules("s_mov_b64 exec, s[4:5]\n" + body) == ["missing-wait"]


def strictness(body, **options):
    return [f.needs for f in audit(body, **options).advice if f.rule == "stricter-wait"]


def test_slack_is_told_in_numbers():
    use = "v_mov_b32 v3, v1\ns_endpgm"
    assert strictness(LOADS + "s_waitcnt vmcnt(0)\n" + use) == ["vmcnt(1)"]
    assert not strictness(LOADS + "s_waitcnt vmcnt(1)\n" + use)
    assert strictness(LOADS + "s_waitcnt vmcnt(1) lgkmcnt(0)\n" + use) == ["no lgkmcnt"]
    assert strictness(LOADS + "s_waitcnt vmcnt(0)\ns_endpgm") == ["no vmcnt"]


def test_two_waits_for_one_result_need_neither_alone():
    body = LOADS + "s_waitcnt vmcnt(1)\ns_waitcnt vmcnt(1)\nv_mov_b32 v3, v1\ns_endpgm"
    assert strictness(body) == ["no vmcnt", "no vmcnt"]


def test_a_wait_before_a_barrier_may_publish_lds():
    body = "v_mov_b32 v1, 0\nds_write_b32 v0, v1\ns_waitcnt lgkmcnt(0)\n"
    assert not strictness(body + "s_barrier\ns_endpgm", lds=1024)
    assert strictness(body + "s_endpgm", lds=1024) == ["no lgkmcnt"]


def test_operands_moved_by_m0_are_told_as_unchecked():
    body = "s_mov_b32 s4, 1\ns_nop 0\ns_set_gpr_idx_on s4, gpr_idx(SRC0)\nv_mov_b32 v3, v1\n"
    kernel = audit(LOADS + "s_waitcnt vmcnt(0)\n" + body + "s_set_gpr_idx_off\ns_endpgm")
    assert not kernel.errors and any("M0" in gap for gap in kernel.unchecked)


def test_wait_states_on_the_path_that_has_fewest():
    body = "v_mov_b32 v1, 0\n{}s_cbranch_scc0 L\ns_nop 1\nL:\n"
    body += "v_mfma_f32_32x32x16_bf16 v[16:31], v[0:3], v[4:7], v[16:31]\ns_endpgm"
    (finding,) = audit(body.format("")).errors
    assert finding.rule == "wait-states" and finding.needs == "s_nop 0"
    assert not rules(body.format("s_nop 0\n"))


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_random_programs_against_every_path(first):
    missing, hidden = 0, 0
    for seed in range(first, first + 40):
        program = draw(seed)
        steps, flow = analysed(program)
        line_of = lines_by_step(program, steps)
        report = check_waits(steps, flow, Budget("waits"))
        expected = broken(program)
        found = {(line_of[use], line_of[load]) for use, load in report.unwaited}
        assert found == expected, text(program)
        missing += len(expected)
        for index, use in report.uses.items():
            at = line_of[index]
            line = program[at]
            given = (use.vm if line.vm < 63 else None, use.lgkm if line.lgkm < 15 else None)
            best = weakest(program, at)
            if given != best:  # a pair that another path breaks already hides what a wait is for
                assert expected and all(
                    b is None or (a is not None and a <= b)
                    for a, b in zip(given, best, strict=True)
                ), (at, text(program))
                hidden += 1
    assert missing > 20 and hidden < 5


def analysed(program):
    (kernel,) = load_code_object(assemble(text(program))).kernels.values()
    return read_steps(kernel), read_flow(kernel.instructions)


def lines_by_step(program, steps):
    """Line of the program by index of the step; unreachable lines have none."""
    offsets, place = {}, 0
    for number, line in enumerate(program):
        offsets[place] = number
        place += 8 if line.op in ("ds", "vm", "smem") else 4
    return {step.index: offsets[step.ins.offset] for step in steps}
