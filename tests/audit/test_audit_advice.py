"""Advice never contradicts an error: what is weak already is not advised to be weaker."""

import pytest

pytest.importorskip("ziglang", reason="the assembler wheel (mlagen[amd]) is not installed")
pytest.importorskip("tinygrad", reason="the decoder (mlagen[emulator]) is not installed")

from gfx950_assembler import assemble

from mlagen.audit.gfx950 import audit_code_object
from mlagen.audit.gfx950.states import TooClose

LOADS = "".join(f"global_load_dword v{i}, v0, s[0:1]\n" for i in (1, 2, 3))


def audit(body, **options):
    (kernel,) = audit_code_object(assemble(body, **options)).kernels
    return kernel


def strict(kernel):
    return [finding.needs for finding in kernel.advice if finding.rule == "stricter-wait"]


def test_a_wait_that_asks_for_too_little_is_not_called_too_strict():
    """It covers v1, which nobody uses, and not v2: "not needed" beside "needs vmcnt(1)"."""
    weak = audit(LOADS + "s_waitcnt vmcnt(2)\nv_mov_b32 v4, v2\ns_endpgm")
    assert [finding.needs for finding in weak.errors] == ["vmcnt(1)"]
    assert strict(weak) == []


def test_the_other_counter_is_still_advised():
    """The error is one of vmcnt: it says nothing of lgkmcnt, which the same wait names."""
    both = audit(LOADS + "s_waitcnt vmcnt(2) lgkmcnt(0)\nv_mov_b32 v4, v2\ns_endpgm")
    assert strict(both) == ["no lgkmcnt"]


def test_a_wait_that_no_error_passes_is_still_advised():
    behind = "s_waitcnt vmcnt(2)\nv_mov_b32 v4, v2\n"
    after = "s_waitcnt vmcnt(0)\n" + LOADS + "s_waitcnt vmcnt(0)\nv_mov_b32 v5, v1\ns_endpgm"
    kernel = audit(LOADS + behind + after)
    assert [finding.needs for finding in kernel.errors] == ["vmcnt(1)"]
    assert "vmcnt(2)" in strict(kernel)


def test_a_wait_before_an_lds_race_is_not_called_too_strict():
    """It should cover the load to LDS that another wave reads after the barrier."""
    body = """
      v_lshlrev_b32 v1, 2, v0
      s_load_dwordx4 s[4:7], s[0:1], 0x0
      v_and_b32 v2, 0xff, v1
      s_waitcnt lgkmcnt(0)
      s_mov_b32 m0, 0
      global_load_dword v9, v0, s[0:1]
      buffer_load_dword v1, s[4:7], 0 offen lds
      s_waitcnt vmcnt(1)
      s_barrier
      ds_read_b32 v3, v2
      s_waitcnt vmcnt(0) lgkmcnt(0)
      s_endpgm
    """
    (kernel,) = audit_code_object(assemble(body, lds=4096), threads=128).kernels
    assert any(f.rule == "lds-raw" and "vmcnt" in f.needs for f in kernel.errors)
    places = {finding.pc for finding in kernel.advice if finding.rule == "stricter-wait"}
    assert places.isdisjoint({step.pc for step in kernel.waits if step.vmcnt == 1})


def test_an_excuse_does_not_stand_beside_an_error_of_the_same_two_stretches():
    """One read is waited for before the barrier and one after it; a third path has no barrier."""
    body = """
      v_lshlrev_b32 v1, 4, v0
      v_add_u32 v2, 0x400, v1
      v_and_b32 v2, 0x7ff, v2
      s_load_dwordx4 s[4:7], s[0:1], 0x0
      v_readfirstlane_b32 s9, v0
      s_lshl_b32 s9, s9, 4
      s_waitcnt lgkmcnt(0)
      s_mov_b32 m0, s9
      ds_read_b128 v[8:11], v2
      ds_read_b128 v[12:15], v1
      s_cbranch_scc1 L
      s_barrier
    L:
      s_nop 0
      buffer_load_dwordx4 v1, s[4:7], 0 offen lds
      s_waitcnt vmcnt(0) lgkmcnt(0)
      s_endpgm
    """
    (kernel,) = audit_code_object(assemble(body, lds=4096), threads=128).kernels
    spoken = {}
    for finding in kernel.findings:
        if finding.rule.startswith("lds-"):
            spoken.setdefault((finding.rule, finding.pc), set()).add(finding.severity)
    assert {"error"} in spoken.values()
    assert {"advice", "error"} not in spoken.values()


def test_an_error_goes_before_the_letter_of_the_same_pair():
    """The letter may ask for more states; what is wrong is told first."""
    advice = TooClose(0, 1, 1, 5, 0, ("permlane", "permlane"))
    error = TooClose(0, 1, 1, 2, 0, ("matrix", "valu"))
    assert advice.by_letter and not error.by_letter
    assert error.worse_than(advice) and not advice.worse_than(error)
