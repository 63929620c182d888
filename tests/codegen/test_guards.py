"""Operations that skip themselves: what may be skipped, and what that does to tickets."""

from pathlib import Path

import pytest

from mlagen.codegen import build
from mlagen.dsl import Operation
from mlagen.errors import ScheduleError, TemplateError
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.targets.gfx950.codegen.isa import Parser
from mlagen.targets.gfx950.codegen.lowering import check_guard
from mlagen.targets.gfx950.codegen.program import Origin

PARSER = Parser({})
ORIGIN = Origin("test", "test.s.j2", 1, 1)
GUARD = ("s_cbranch_scc1 SKIP", "SKIP:")


def parse(*lines):
    return [PARSER.line(line, ORIGIN) for line in lines]


def checked(*lines, guarded=True, leaves=False):
    return check_guard(
        Operation("test", "test.s.j2", None, lambda at: {}, guarded=guarded, leaves=leaves),
        parse(*lines),
    )


STORE = "buffer_store_dwordx4 v[0:3], v4, s[0:3], s5 offen"


def test_a_store_that_may_be_skipped_takes_no_ticket():
    body = checked(
        STORE, GUARD[0], STORE, "buffer_store_short v0, v4, s[0:3], s5 offen", GUARD[1], STORE
    )
    assert [x.counter for x in body] == ["vm", "", "", "", "", "vm"]
    assert [x.text for x in body] == [x.text for x in parse(STORE, GUARD[0], STORE,
        "buffer_store_short v0, v4, s[0:3], s5 offen", GUARD[1], STORE)]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "buffer_load_dwordx4 v[0:3], v4, s[0:3], s5 offen",
        "buffer_load_dwordx4 v4, s[0:3], s5 offen lds",
        "ds_read_b128 v[0:3], v4",
        "ds_write_b128 v4, v[0:3]",
        "s_load_dword s4, s[0:1], 0x0",
        "s_barrier",
    ],
)
def test_what_something_may_wait_for_is_not_skipped(line):
    with pytest.raises(TemplateError, match="stands inside a skipped block"):
        checked(GUARD[0], line, GUARD[1])
    checked(GUARD[0], "v_add_f32 v0, v1, v2", GUARD[1], line)


def test_a_branch_and_the_declaration_agree():
    with pytest.raises(TemplateError, match="branches but is not declared"):
        checked(*GUARD, guarded=False)
    with pytest.raises(TemplateError, match="does not branch but is declared"):
        checked("v_add_f32 v0, v1, v2")


def test_an_exit_and_the_declaration_agree():
    leave = ("s_cmp_ge_u32 s4, s5", "s_cbranch_scc1 EXIT")
    # What stands after an exit is not skipped: the workgroup that goes on runs all of it.
    load = "s_load_dword s4, s[0:1], 0x0"
    assert len(checked(*leave, load, guarded=False, leaves=True)) == 3
    with pytest.raises(TemplateError, match="leaves but is not declared"):
        checked(*leave, guarded=False)
    with pytest.raises(TemplateError, match="does not leave but is declared"):
        checked(load, guarded=False, leaves=True)


def test_a_workgroup_ends_in_the_prologue_or_not_at_all():
    """After the first barrier the other waves would wait for ever."""
    schedule = str(Path(__file__).parent / "schedules" / "late_exit.py")
    config = MhaConfigV2(num_heads=1, num_kv_heads=1, ragged=True)
    with pytest.raises(ScheduleError, match=r"late_exit.py:\d+ sequence may end the workgroup"):
        build(schedule, config)
