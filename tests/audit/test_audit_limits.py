"""Every audit ends: what grew without end is bounded, and steps run out where nothing else does."""

import pytest

pytest.importorskip("ziglang", reason="the assembler wheel (mlagen[amd]) is not installed")
pytest.importorskip("tinygrad", reason="the decoder (mlagen[emulator]) is not installed")

from gfx950_assembler import assemble

from mlagen.audit.gfx950 import audit_kernel
from mlagen.audit.gfx950.budget import Budget
from mlagen.audit.gfx950.lds.expressions import WIDE, Expressions
from mlagen.audit.gfx950.lds.footprints import Footprint
from mlagen.audit.gfx950.lds.sites import read_site
from mlagen.audit.gfx950.lds.wave import REPEATED, InFlight, LdsOperation
from mlagen.binary import load_code_object
from mlagen.errors import ConfigError

# A loop that never waits for its reads, and refills what they read: 14 of a later round may be in
# flight, and all of every earlier one.
ENDLESS = """
  v_lshlrev_b32 v1, 4, v0
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dword s8, s[0:1], 0x10
  s_mov_b32 s10, 0
  s_waitcnt lgkmcnt(0)
L_loop:
  s_mov_b32 m0, 0
  s_nop 0
  buffer_load_dwordx4 v1, s[4:7], 0 offen lds
  {reads}
  s_waitcnt vmcnt(0)
  s_add_u32 s10, s10, 1
  s_cmp_lt_u32 s10, 0x400
  s_cbranch_scc1 L_loop
  s_endpgm
"""


def kernel_of(body):
    return load_code_object(assemble(body, lds=32768)).kernel()


def endless(reads):
    lines = (f"ds_read_b32 v{4 + i % 64}, v1 offset:{4 * i}" for i in range(reads))
    return ENDLESS.replace("{reads}", "\n  ".join(lines))


def test_a_loop_without_waits_takes_steps_by_its_rounds_not_by_their_square():
    """Each round was held against all reads of all rounds before it: not done in 2 minutes."""
    told = []
    audit = audit_kernel(kernel_of(endless(60)), 64, watch=lambda *step: told.append(step))
    assert not audit.limited
    assert {"waits", "wait states", "LDS"} <= {part for part, _ in told}
    steps = [steps for part, steps in told if part == "LDS"]
    assert steps == sorted(steps) and len(steps) > 2
    assert steps[-1] < 4_000_000  # most of them for its rounds and the pairs of instructions
    assert {f.rule for f in audit.errors} & {"lds-war", "lds-raw"}


def test_what_every_wait_covers_is_kept_once():
    code = assemble("ds_read_b32 v1, v0\ns_endpgm", lds=64)
    site = read_site(load_code_object(code).kernel().instructions[0], 512)
    flight = InFlight(15)
    prints = [Footprint(1 << i, 4 * i, 4 * i + 4) for i in range(3)]
    issued = [LdsOperation(site, prints[i % 3], issued=i, place=i) for i in range(300)]
    for operation in issued:
        flight.issue(operation)
    # The first of each kind stands for those that were dropped.
    assert [o.place for o in issued if o.done == REPEATED] == list(range(3, 300 - 14))
    flight.wait(2, epoch=7)
    assert {o.done for o in issued[:3]} == {7}
    assert all(o.done > 1000 for o in issued[-2:])


def test_out_of_steps_says_what_is_not_covered():
    whole = audit_kernel(kernel_of(endless(4)), 64)
    assert not whole.limited
    for limit in (1, 1_000, 10_000):
        audit = audit_kernel(kernel_of(endless(4)), 64, limit=limit)
        assert audit.limited
        assert any(f"limit of {limit} steps: " in line for line in audit.unchecked)
        assert {f.pc for f in audit.errors} <= {
            place.pc for f in whole.findings for place in f.places
        }
    every = audit_kernel(kernel_of(endless(4)), 64, limit=1).unchecked
    text = "\n".join(every)
    assert "results in flight" in text and "wait states" in text and "LDS" in text


def test_the_same_limit_gives_the_same_report():
    first, second = (audit_kernel(kernel_of(endless(8)), 128, limit=50_000) for _ in range(2))
    assert first == second and first.limited


def test_a_limit_is_a_number_of_steps():
    with pytest.raises(ConfigError, match="limit of -1 steps"):
        audit_kernel(kernel_of("s_endpgm"), limit=-1)


# 6,000 rounds that make a value of the one before and of a word of memory, or of itself.
GROWING = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  s_mov_b32 s10, 0
L_grow:
  {step}
  s_add_u32 s10, s10, 1
  s_cmp_lt_u32 s10, 6000
  s_cbranch_scc1 L_grow
  s_cmp_eq_u32 s4, 0
  s_cbranch_scc1 L_end
  ds_write_b32 v1, v0
L_end:
  s_endpgm
"""
WORDS = "s_load_dword s9, s[2:3], s10\n  s_waitcnt lgkmcnt(0)\n  s_xor_b32 s4, s4, s9"
NESTED = "s_xor_b32 s4, s4, s5\n  s_mul_i32 s5, s4, s5"


@pytest.mark.parametrize("step", [WORDS, NESTED], ids=["many words", "deep"])
def test_values_that_grow_with_every_round(step):
    """They took 1.7 GB (each kept all that it depends on), and more stack than there is."""
    audit = audit_kernel(kernel_of(GROWING.replace("{step}", step)), 64)
    assert not audit.errors and not audit.limited


def test_an_expression_keeps_no_more_leaves_than_can_be_evaluated():
    expressions = Expressions(Budget("LDS"))
    value = expressions.leaf("kernarg", 0)
    for word in range(200):
        value = expressions.of("s_xor_b32", value, expressions.leaf("memory", word))
        assert len(value.leaves) == min(word + 2, WIDE + 1)
