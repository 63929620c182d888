"""One cause is one finding with all its places; mutants are told place by place."""

import pytest

pytest.importorskip("ziglang", reason="the assembler wheel (mlagen[amd]) is not installed")
pytest.importorskip("tinygrad", reason="the decoder (mlagen[emulator]) is not installed")

from gfx950_assembler import assemble

from mlagen.audit.gfx950 import audit_code_object, audit_kernel, audit_mutants
from mlagen.binary import load_code_object

COPY = """
  ds_read_b128 v[{a}:{b}], v0 offset:{offset}
  v_mul_f32 v2, v1, v1
  v_pk_add_f32 v[4:5], v[{a}:{c}], v[{a}:{c}]
"""


def unrolled(copies: int, tail: str = "") -> str:
    body = "".join(
        COPY.format(a=8 + 4 * i, b=11 + 4 * i, c=9 + 4 * i, offset=16 * i) for i in range(copies)
    )
    return f"{body}{tail}\n  s_waitcnt lgkmcnt(0)\n  s_endpgm"


def audit(body, **options):
    (kernel,) = audit_code_object(assemble(body, lds=4096, **options)).kernels
    return kernel


def test_a_wait_missing_in_every_copy_of_a_loop_is_one_finding():
    (finding,) = audit(unrolled(12)).errors
    assert finding.rule == "missing-wait"
    assert len(finding.places) == 12
    assert finding.place == finding.places[0]
    assert len({(place.pc, place.other_pc) for place in finding.places}) == 12
    assert "in 11 more places" in finding.message
    assert {place.needs for place in finding.places} == {"lgkmcnt(0)"}


def test_one_result_used_in_two_ways_is_one_finding():
    two = "ds_read_b32 v8, v0\nv_add_u32 v2, v8, v8\ns_cbranch_scc0 L\n"
    # Both uses come first on some path: after the load again, or past it.
    around = "s_cbranch_scc1 M\n" + two + "M:\nL:\ns_endpgm"
    (one,) = audit(around).errors
    assert len(one.places) == 1
    branches = "ds_read_b32 v8, v0\ns_cbranch_scc0 L\nv_add_u32 v2, v8, v8\ns_endpgm\nL:\n"
    (both,) = audit(branches + "v_xor_b32 v2, v8, v8\ns_endpgm").errors
    assert [place.asm.split()[0] for place in both.places] == ["v_add_u32", "v_xor_b32"]


def test_other_kinds_of_results_stay_apart():
    other = "  global_load_dword v50, v0, s[0:1]\n  v_pk_add_f32 v[4:5], v[50:51], v[4:5]"
    found = audit(unrolled(3, other)).errors
    assert sorted(len(finding.places) for finding in found) == [1, 3]


def test_wait_states_that_lack_in_copies_are_one_finding():
    pair = "v_mfma_f32_16x16x32_bf16 v[{a}:{b}], v[60:63], v[56:59], 0\nv_mul_f32 v2, v{a}, v{a}\n"
    body = "".join(pair.format(a=8 + 4 * i, b=11 + 4 * i) for i in range(4))
    (finding,) = audit(body + "s_endpgm").errors
    assert finding.rule == "wait-states" and len(finding.places) == 4


def test_a_mutant_is_told_by_a_new_place_of_a_known_finding():
    """Without its places the finding reads as it did."""
    body = unrolled(3, "\n  ds_read_b128 v[40:43], v0\n  s_waitcnt lgkmcnt(0)\n"
                       "  v_pk_add_f32 v[4:5], v[40:41], v[40:41]\n")  # fmt: skip
    kernel = load_code_object(assemble(body, lds=4096)).kernel()
    (known,) = audit_kernel(kernel).errors
    assert len(known.places) == 3
    judged = [one for one in audit_mutants(kernel) if one.told]
    assert [one.mutant.operator for one in judged] == ["count + 1", "removed"]
    for one in judged:
        (told,) = one.told
        assert told.pc not in {place.pc for place in known.places}
        assert told.places == (told.place,)
