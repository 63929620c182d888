"""Operations that skip themselves: what may be skipped, and what that does to tickets."""

import pytest

from mlagen.codegen.gfx950.isa import Parser
from mlagen.codegen.program import Origin
from mlagen.codegen.render import check_guard
from mlagen.dsl import Operation
from mlagen.errors import TemplateError

PARSER = Parser({})
ORIGIN = Origin("test", "test.s.j2", 1, 1)
GUARD = ("s_cbranch_scc1 SKIP", "SKIP:")


def parse(*lines):
    return [PARSER.line(line, ORIGIN) for line in lines]


def checked(*lines, guarded=True):
    return check_guard(
        Operation("test", "test.s.j2", None, lambda at: {}, guarded=guarded), parse(*lines)
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
