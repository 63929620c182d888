"""What `mlagen.ptx` reads: the parts of a text that its users go by."""

import pytest

from mlagen.errors import UnsupportedError
from mlagen.ptx import Graph, Kind, Memory, Vector, read_ptx

TEXT = """\
.version 8.0
.target sm_90a
.const .align 16 .b8 table[64];
.global .f32 total = 0f00000000;
.extern .shared .align 1024 .b8 dynamic[];
.func (.param .b32 r) helper(.param .b32 x) { ret; }
.visible .entry k(.param .u64 out, .param .align 8 .b8 box[24])
.reqntid 32, 2
{
    .shared .align 8 .b64 bars[2];
    .local .v4 .f32 spill[3];
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    setp.eq.u32 %p0|%p1, %r1, -4;
    @!%p0 bra END;
    {
    .reg .b32 %r1;
    mov.b32 %r1, 0x10;
    call.uni (%r3), helper, (%r1, %r2);
    bra END;
    END: ld.shared.v2.b32 {%r4, %r5}, [bars+8];
    }
END:
    ret;
}
"""


@pytest.fixture(scope="module")
def entry():
    (entry,) = read_ptx(TEXT).entries
    return entry


def test_declarations(entry):
    told = [(v.space, v.name, v.size, v.align) for v in entry.variables]
    assert told == [
        ("const", "table", 64, 16),
        ("global", "total", 4, 4),
        ("shared", "dynamic", 0, 1024),
        ("shared", "bars", 16, 8),
        ("local", "spill", 48, 16),
    ]
    assert [v.name for v in entry.shared] == ["dynamic", "bars"]
    assert [(p.name, p.size) for p in entry.parameters] == [("out", 8), ("box", 24)]
    assert (entry.block, entry.exact_threads) == ((32, 2), True)


def test_instructions(entry):
    setp, bra, mov, call, inner, load, ret = entry.instructions
    assert setp.operands == (Vector(("%p0", "%p1")), "%r1", -4)
    assert (bra.guard.register, bra.guard.negated) == ("%p0", True)
    assert mov.operands == ("%r1@1", 16), "braces declare a register of their own"
    assert call.operands == (Vector(("%r3",)), "helper", Vector(("%r1@1", "%r2")))
    assert load.operands == (Vector(("%r4", "%r5")), Memory("bars", 8))
    assert (bra.target, inner.target) == (ret.index, load.index), "the label that can be seen"
    assert (load.line, TEXT[slice(*load.span)]) == (21, load.text)


def test_what_instructions_do(entry):
    graph = Graph(entry)
    assert [kind for kind in graph.kinds if kind is not Kind.PLAIN] == [
        Kind.BRANCH, Kind.BRANCH, Kind.SHARED_LOAD, Kind.EXIT,
    ]  # fmt: skip
    assert graph.writes[0] == ("%p0", "%p1")
    assert graph.reads[1][-1] == "%p0"
    assert (graph.writes[3], graph.reads[3]) == (("%r3",), ("helper", "%r1@1", "%r2"))
    assert graph.successors[1] == (2, 6)
    assert graph.post_dominator[1] == 6


def test_what_is_not_understood_is_refused_with_its_line():
    with pytest.raises(UnsupportedError, match="line 10: not understood"):
        read_ptx(TEXT.replace(".b64 bars", ".b63 bars"))
