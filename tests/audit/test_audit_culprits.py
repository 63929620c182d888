"""A finding names the wait to change and the count that it must have, and advice makes no fault."""

import re

import pytest

pytest.importorskip("ziglang", reason="the assembler wheel (mlagen[amd]) is not installed")
pytest.importorskip("tinygrad", reason="the decoder (mlagen[emulator]) is not installed")

from binary.gfx950_assembler import assemble

from mlagen.audit.gfx950 import audit_code_object, audit_kernel, code_mutants
from mlagen.audit.gfx950.mutants import CodeMutant
from mlagen.binary import load_code_object
from mlagen.names import short_name

# Tiles of 256 bytes a wave, two deep: copies of the next tile are in flight while one is read.
RING = """
  v_lshlrev_b32 v1, 2, v0
  v_xor_b32 v2, 256, v1
  v_readfirstlane_b32 s9, v1
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_movk_i32 s8, 4
  s_waitcnt lgkmcnt(0)
  s_mov_b32 m0, s9
  buffer_load_dword v1, s[4:7], 0 offen lds
  s_add_u32 m0, s9, 0x800
  buffer_load_dword v1, s[4:7], 0 offen lds
  s_mov_b32 s10, 0
L:
  s_waitcnt vmcnt(1)
  s_barrier
  v_add_u32 v3, s10, v2
  ds_read_b32 v4, v3
  s_waitcnt lgkmcnt(0)
  s_barrier
  s_add_u32 m0, s9, s10
  buffer_load_dword v1, s[4:7], 0 offen lds
  global_load_dword v5, v1, s[2:3]
  s_xor_b32 s10, s10, 0x800
  s_waitcnt vmcnt(2)
  v_add_u32 v6, v4, v4
  s_waitcnt vmcnt(0)
  v_add_u32 v6, v5, v5
  s_sub_u32 s8, s8, 1
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 L
  s_endpgm
"""


def weakened(kernel):
    """Each wait that asks for one more than it has to, beside what it asked for."""
    for mutant in code_mutants(kernel):
        if mutant.kind == "waits" and mutant.operator == "count + 1":
            counter, given = re.match(r"(\w+)\((\d+)\)", mutant.what).groups()
            yield mutant, f"{counter}({given})"


def errors(kernel, threads=128):
    return audit_kernel(kernel, threads).errors


def test_the_wait_that_became_too_weak_is_named_once():
    kernel = load_code_object(assemble(RING.replace("vmcnt(2)", "vmcnt(3)"), lds=4096)).kernel()
    assert not errors(kernel)
    named = 0
    for mutant, asked in weakened(kernel):
        found = errors(mutant.apply(kernel))
        if not found:
            continue
        (one,) = found
        assert (one.changes, one.needs) == ((mutant.pc,), asked), mutant
        assert f"at {mutant.pc:#x} must be {one.count}" in one.message
        assert not errors_after(kernel, mutant, one.count)
        named += 1
    assert named >= 3


def errors_after(kernel, mutant, count):
    """Errors left when the wait that a finding names has the count that it names."""
    whole = int(re.match(r"\w+\((\d+)\)", mutant.what)[1])
    assert count == whole  # the weakest that would do is what the kernel asks for
    return errors(kernel)


def test_waits_that_come_too_early_stand_beside_it():
    """The first wait comes when nothing is behind the copy, the second one is one too weak."""
    body = RING.replace("s_waitcnt vmcnt(1)\n", "s_waitcnt vmcnt(2)\n").replace(
        "s_add_u32 m0, s9, 0x800", "s_waitcnt vmcnt(9)\n  s_add_u32 m0, s9, 0x800"
    )
    (kernel,) = audit_code_object(assemble(body, lds=4096), threads=128).kernels
    told = next(f.message for f in kernel.errors if f.changes)
    assert re.search(
        r"vmcnt\(2\) at 0x\w+ must be 1 \(too early: vmcnt\(9\) at 0x\w+, 0 later", told
    )


def test_copies_of_code_are_one_finding():
    """Four rounds written out lack a wait each."""
    rounds = "".join(
        f"  ds_write_b32 v1, v0 offset:{1024 * i}\n  s_barrier\n"
        f"  ds_read_b32 v{4 + i}, v2 offset:{1024 * i}\n"
        for i in range(4)
    )
    head = "  v_lshlrev_b32 v1, 2, v0\n  v_xor_b32 v2, 256, v1\n"
    body = f"{head}{rounds}  s_waitcnt lgkmcnt(0)\n  s_endpgm\n"
    (kernel,) = audit_code_object(assemble(body, lds=4096), threads=128).kernels
    (one,) = kernel.errors
    assert one.rule == "lds-raw" and "so in" in one.message and "more copies" in one.message
    assert len({place.pc for place in one.places}) == 4


def without(kernel, finding):
    """The kernel with a wait as a piece of advice has it."""
    ins = next(i for i in kernel.instructions if i.offset == finding.pc)
    word = ins.modifier("simm16")
    for part in finding.needs.split(" "):
        if part in ("vmcnt", "lgkmcnt"):
            word |= 0xC00F if part == "vmcnt" else 0x0F00
    for counter, count in re.findall(r"(vmcnt|lgkmcnt)\((\d+)\)", finding.needs):
        number = int(count)
        if counter == "vmcnt":
            word = word & ~0xC00F | number & 15 | (number >> 4) << 14
        else:
            word = word & ~0x0F00 | number << 8
    changed = CodeMutant("waits", "advice", finding.pc, str(ins), finding.needs, 0xBF8C0000 | word)
    return changed.apply(kernel)


@pytest.mark.parametrize("strict", ["vmcnt(0)", "vmcnt(1)", "vmcnt(1) lgkmcnt(0)", "vmcnt(2)"])
def test_advice_makes_no_fault(strict):
    """Each piece of advice, taken alone, leaves as many errors as there were."""
    body = RING.replace("s_waitcnt vmcnt(1)\n", f"s_waitcnt {strict}\n")
    kernel = load_code_object(assemble(body, lds=4096)).kernel()
    before = audit_kernel(kernel, 128)
    assert before.advice
    for advice in before.advice:
        after = audit_kernel(without(kernel, advice), 128)
        assert {f.rule for f in after.errors} <= {f.rule for f in before.errors}, advice.message
        assert len(after.errors) <= len(before.errors)


def test_names_are_short():
    assert short_name("_ZN5aiter34fmoe_fp8_blockscale_g1u1_subGU_256E") == (
        "aiter::fmoe_fp8_blockscale_g1u1_subGU_256"
    )
    assert short_name("softmax_kernel") == "softmax_kernel"


def test_each_piece_of_advice_is_told():
    """Two waits that could be weaker are two things to look at, however alike."""
    loads = "".join(f"global_load_dword v{i}, v0, s[0:1]\n" for i in (1, 2, 3))
    use = "s_waitcnt vmcnt(0)\nv_mov_b32 v4, v1\ns_waitcnt vmcnt(0)\nv_mov_b32 v4, v3\n"
    (kernel,) = audit_code_object(assemble(f"{loads}{use}{loads}{use}s_endpgm")).kernels
    assert len(kernel.advice) >= 2
    assert len({advice.pc for advice in kernel.advice}) == len(kernel.advice)
