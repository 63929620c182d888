"""Which values the audit of LDS finds for branches: where it finds none, faults stay hidden."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import pytest
from binary.gfx950_assembler import assemble

from mlagen.audit.gfx950.budget import Budget
from mlagen.audit.gfx950.lds import LdsReport, check_lds
from mlagen.audit.gfx950.lds.decisions import Decisions
from mlagen.audit.gfx950.lds.expressions import Expressions, Node
from mlagen.audit.gfx950.lds.shapes import compared, magic_factors, ranges, taken_away
from mlagen.binary import load_code_object

MANY = range(8)  # unknowns of one kind: too many to draw lots for all of them at once


@pytest.fixture
def made() -> Expressions:
    return Expressions(Budget("LDS"))


def decisions() -> Decisions:
    return Decisions(Budget("LDS"), False, None, str)


def least(made: Expressions, parts: list[Node]) -> Node:
    return reduce(lambda a, b: made.of("s_min_i32", a, b), parts)


def shortest(made: Expressions) -> Node:
    """The shortest of eight ranges of pages, each from one loaded word to another."""
    return least(
        made,
        [
            made.of("s_sub_u32", made.leaf("memory", 2 * i), made.leaf("memory", 2 * i + 1))
            for i in MANY
        ],
    )


def quotients(made: Expressions) -> Node:
    """The least of eight quotients, each by a factor that the caller passes."""
    sums = [made.of("s_add_u32", made.leaf("memory", i), 63) for i in MANY]
    return least(
        made, [made.of("s_mul_hi_u32", sums[i], made.leaf("kernarg", 4 * i)) for i in MANY]
    )


def as_compiled(made: Expressions) -> Node:
    """Nothing to do unless eight arguments are what the kernel was made for, either way round."""
    conditions = [
        made.of("eq_u32", made.leaf("kernarg", 4 * i), 17 + i)
        if i % 2
        else made.of("eq_u32", 17 + i, made.leaf("kernarg", 4 * i))
        for i in MANY
    ]
    return made.of("s_mul_i32", reduce(lambda a, b: made.of("s_and_b32", a, b), conditions), 9)


@pytest.mark.parametrize("work", [shortest, quotients, as_compiled])
def test_several_unknowns_together_give_work(
    made: Expressions, work: Callable[[Expressions], Node]
) -> None:
    condition = made.of("lt_i32", 3, work(made))
    assert decisions().decide(condition, True)


def test_two_bounds_of_what_grows_with_an_unknown_but_not_evenly(made: Expressions) -> None:
    """1600 <= n * n < 1700: n is 40 or 41."""
    n, chosen = made.leaf("kernarg", 0), decisions()
    square = made.of("s_mul_i32", n, n)
    assert chosen.decide(made.of("ge_u32", square, 1600), True)
    assert chosen.decide(made.of("lt_u32", square, 1700), True)
    assert chosen.model[n] in (40, 41)


def test_no_value_is_found_where_there_is_none(made: Expressions) -> None:
    """1604 <= n * n < 1681 has no n; neither has a range that is longer than itself."""
    n, chosen = made.leaf("kernarg", 0), decisions()
    square = made.of("s_mul_i32", n, n)
    assert chosen.decide(made.of("ge_u32", square, 1604), True)
    assert not chosen.decide(made.of("lt_u32", square, 1681), True)
    assert not decisions().decide(made.of("lt_i32", shortest(made), shortest(made)), True)


def test_no_workgroup_is_beyond_the_largest_grid(made: Expressions) -> None:
    """A grid may have more than 1 << 24 workgroups in x, and has fewer in z."""
    for axis, there in ((0, True), (2, False)):
        offset = made.of("s_mul_i32", made.leaf("workgroup", axis), 64)
        assert decisions().decide(made.of("eq_u32", offset, 1 << 30), True) == there


def test_leaves_behind_minus_signs_alone(made: Expressions) -> None:
    a, b, c = (made.leaf("memory", i) for i in range(3))
    assert taken_away(made.of("s_sub_u32", a, b)) == {b}
    assert taken_away(made.of("v_subrev_u32", a, b)) == {a}
    twice = made.of("s_sub_u32", a, made.of("s_sub_u32", b, c))
    assert taken_away(twice) == {b}
    assert taken_away(made.of("s_sub_u32", made.of("s_mul_i32", a, b), b)) == set()


def test_a_range_that_ends_before_it_begins_asks_for_many_rounds(made: Expressions) -> None:
    """Unsigned, -1 is more than any loop is followed for."""
    first, last, other = (made.leaf("memory", i) for i in range(3))
    length = made.of("s_sub_u32", last, first)
    assert ranges(made.of("s_min_u32", length, made.of("s_sub_u32", other, length))) == [length]
    backwards, forwards = decisions(), decisions()
    assert backwards.decide(made.of("lt_i32", last, first), True)
    assert backwards.decide(made.of("lt_u32", 9, length), True)
    assert backwards.asks_for_many()
    negative = decisions()
    assert negative.decide(made.of("lt_i32", other, 0), True) and negative.asks_for_many()
    assert forwards.decide(made.of("ge_i32", last, first), True)
    assert forwards.decide(made.of("lt_u32", 9, length), True)
    assert not forwards.asks_for_many()


def test_factors_and_constants(made: Expressions) -> None:
    n, factor = made.leaf("memory", 0), made.leaf("kernarg", 0)
    quotient = made.of("s_mul_hi_u32", made.of("s_add_u32", n, 63), factor)
    assert magic_factors(made.of("lt_u32", 3, quotient)) == {factor}
    first, second = (made.of("eq_u32", n, number) for number in (7, 8))
    assert compared(first) == {}
    assert compared(made.of("s_or_b32", first, second)) in ({n: 7}, {n: 8})


# Each wave copies 1 KiB in each round, and reads what another wave copied.
ROUNDS = """
  v_lshlrev_b32 v1, 4, v0
  v_add_u32 v2, 0x800, v1
  v_and_b32 v2, 0xfff, v2
  v_readfirstlane_b32 s9, v0
  s_lshl_b32 m0, s9, 4
  s_load_dwordx16 s[16:31], s[0:1], 0x0
  s_load_dwordx4 s[4:7], s[0:1], 0x40
  s_waitcnt lgkmcnt(0)
  s_sub_u32 s8, s17, s16
  SHORTEST
  s_mov_b32 s10, 0
  s_cmp_lt_i32 s8, 2
  s_cbranch_scc1 L_end
L_loop:
  buffer_load_dwordx4 v1, s[4:7], 0 offen lds
  s_waitcnt vmcnt(0)
  s_barrier
  ds_read_b128 v[8:11], v2
  s_waitcnt lgkmcnt(0)
  s_barrier
  s_add_u32 s10, s10, 1
  s_cmp_lt_i32 s10, s8
  s_cbranch_scc1 L_loop
L_end:
  s_endpgm
"""
SHORTEST = "\n".join(
    f"  s_sub_u32 s11, s{at + 1}, s{at}\n  s_min_i32 s8, s8, s11" for at in range(18, 32, 2)
)


def audit(body: str) -> LdsReport:
    text = body.replace("SHORTEST", SHORTEST)
    return check_lds(load_code_object(assemble(text, lds=4096)).kernel(), 4)


def test_a_fault_behind_the_shortest_of_eight_ranges_is_found() -> None:
    """The reads of one round and the copies of the next, without the barrier between them."""
    report = audit(ROUNDS)
    assert (report.findings, report.unchecked) == ((), ())
    last = "s_waitcnt lgkmcnt(0)\n  s_barrier\n"
    assert ROUNDS.count(last) == 1
    faulty = audit(ROUNDS.replace(last, "s_waitcnt lgkmcnt(0)\n"))
    assert {(f.rule, f.severity) for f in faulty.findings} == {("lds-war", "error")}
