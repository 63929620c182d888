"""What `mlagen.ptx` reads: the parts of a text that its users go by."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlagen.errors import MlagenError, UnsupportedError
from mlagen.ptx import Address, Graph, Kind, Location, MemoryOperand, Real, Vector, read_ptx
from mlagen.ptx.inlining import inlined
from mlagen.ptx.wellformed import check

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
    assert load.operands == (Vector(("%r4", "%r5")), MemoryOperand("bars", 8))
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


HEAD = ".version 9.0\n.target sm_100a\n.address_size 64\n"


def one(body, before="", head=""):
    """The entry of a text whose body this is."""
    text = f"{HEAD}{before}\n.visible .entry k(.param .u64 .ptr .global .align 16 out){head}\n"
    (entry,) = read_ptx(f"{text}{{\n{body}\n}}\n").entries
    return entry


def operands(text, declared=""):
    return one(f"{declared}\n{text}").instructions[0].operands


def test_registers_have_types_and_scopes():
    entry = one(
        """
        .reg .pred %p<3>, q;
        .reg .v4 .f32 %v<2>;
        .reg .b128 wide;
        .reg .b32 %r<12>, %r1_<2>;
        setp.eq.u32 %p2|q, %r11, %r12;
        { .reg .f64 %r11; .reg .v2 .u16 %v1; mov.f64 %r11, %r1_1;
          mov.b32 %r01, %v1.y; }
        ld.global.v4.f32 %v1, [%r10];
        mov.f32 %v0.g, %tid.x;
        mov.b128 wide, {a, b};
        """
    )
    assert entry.registers == {
        "%p2": "pred", "q": "pred", "%r11": "b32", "%r11@1": "f64", "%r1_1": "b32",
        "%v1.x": "f32", "%v1.y": "f32", "%v1.z": "f32", "%v1.w": "f32", "%r10": "b32",
        "%v0.y": "f32", "%v1@1.y": "u16", "wide": "b128",
    }, "%r12 and %r01 are in no range"  # fmt: skip
    setp, double, low, load, part, _ = entry.instructions
    assert setp.operands == (Vector(("%p2", "q")), "%r11", "%r12")
    assert double.operands == ("%r11@1", "%r1_1")
    assert low.operands == ("%r01", "%v1@1.y")
    assert load.operands[0] == Vector(("%v1.x", "%v1.y", "%v1.z", "%v1.w"))
    assert part.operands == ("%v0.y", "%tid.x")


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ("", ((), False, 0, 0, 0)),
        (".reqnctapercluster 2, 1, 1 .maxntid 384,1 .minnctapersm 1", ((2, 1, 1), False, 0, 0, 1)),
        (".explicitcluster .maxclusterrank 8 .maxnreg 168", ((), True, 8, 168, 0)),
        ('.pragma "nounroll; {";\n.noreturn .reqnctapercluster 16', ((16,), False, 0, 0, 0)),
    ],
)
def test_what_a_launch_is_told(head, told):
    entry = one("ret;", head=head)
    assert told == (
        entry.cluster, entry.explicit_cluster, entry.max_cluster_rank, entry.max_registers,
        entry.min_blocks,
    )  # fmt: skip
    (parameter,) = entry.parameters
    assert (parameter.type, parameter.pointer, parameter.align) == ("u64", "global", 8)


@pytest.mark.parametrize("head", [".reqnctapercluster 0", ".reqnctapercluster 2,2,2,2", ".what 3"])
def test_a_head_that_is_not_understood_is_refused(head):
    with pytest.raises(UnsupportedError, match=r"line 5: (a cluster of|not understood)"):
        one("ret;", head=head)


def test_literals_keep_their_bits():
    (vector,) = operands(
        "x.y {0f7FA00001, -0f00000000, 0dFFF0000000000001, 1.5, -2., -4, 0xFu, 010, 0b11, WARP_SZ};"
    )
    assert vector.items == (
        Real(0x7FA00001, 32), Real(0x80000000, 32), Real(0xFFF0000000000001, 64),
        Real(0x3FF8000000000000, 64), Real(0xC000000000000000, 64), -4, 15, 8, 3, 32,
    )  # fmt: skip
    assert [x.value for x in vector.items[3:5]] == [1.5, -2.0]


OPERANDS = {
    "mov.b64 %rd1, {%r1, _};": ("%rd1", Vector(("%r1", "_"))),
    "mov.b64{%r1,%r2},%rd1;": (Vector(("%r1", "%r2")), "%rd1"),
    "ld.u32 %r1, [%r2+-4];": ("%r1", MemoryOperand("%r2", -4)),
    "ld.u32 %r1, [ %r2 - 0x10 ];": ("%r1", MemoryOperand("%r2", -16)),
    "ld.u32 %r1,[sym+4].unified;": ("%r1", MemoryOperand("sym", 4)),
    "ld.u32 %r1, [16];": ("%r1", MemoryOperand("", 16)),
    "mov.u64 %rd1, sym+4;": ("%rd1", Address("sym", 4)),
    "prefetch[%r1+8];": (MemoryOperand("%r1", 8),),
    "shfl.x %r1|%p1, %r2, 1, 31, -1;": (Vector(("%r1", "%p1")), "%r2", 1, 31, -1),
    "selp.b32 %r1, 1, 0, !%p1;": ("%r1", 1, 0, "!%p1"),
    "cp.t [%r1], [%rd1, {%r2, %r3}], [%r4];": (
        MemoryOperand("%r1", 0), MemoryOperand("%rd1", 0, ("%r2", "%r3")), MemoryOperand("%r4", 0),
    ),
    "cp.g [%r1], [%rd1, {0, %r2, %r3, %r4, %r5}], [%r4], %h, 1;": (
        MemoryOperand("%r1", 0), MemoryOperand("%rd1", 0, (0, "%r2", "%r3", "%r4", "%r5")),
        MemoryOperand("%r4", 0), "%h", 1,
    ),
    "tcgen05.ld.x {%r1}, [%r2 + 16], 4;": (Vector(("%r1",)), MemoryOperand("%r2", 16), 4),
    "vadd.u32 %r1, %r2.b0, %r3.h1;": ("%r1", "%r2.b0", "%r3.h1"),
}  # fmt: skip


@pytest.mark.parametrize("text", OPERANDS)
def test_operands(text):
    assert operands(text) == OPERANDS[text]


@pytest.mark.parametrize(
    "text",
    [
        "mov.u32 %r1, -%r2;", "mov.u32 %r1, [%r2);", "mov.u32 %r1, (%r2};", "mov.u32 %r1, 1+2;",
        "ld.u32 %r1, [%r2+%r3];", "ld.u32 %r1, [%r2;", "mov.u32 %r1, 09;",
        "mov.u32 %r1, \u0663;", "mov.u32 %r1, ;",
        "mov.f32 %r1, 0f123;", "ld.u32 %r1, [!%p];", "@ bra X;", "@v bra X;", "mov.u32 %r1, v.q;",
        ".reg .b31 x;", ".reg .b32 %r<99999999999>;", ".reg .b32 v;", ".shared .b32 v;", ".what x;",
        ".local .b32 a = [1;", "Mov x;", "brx.idx %r1, T;", "bra X;",
    ],
)  # fmt: skip
def test_what_is_no_ptx_is_refused_with_its_line(text):
    with pytest.raises(UnsupportedError, match="line 8: "):
        one(f".reg .v2 .b32 v;\n{text}")


def test_initial_values():
    entry = one(
        "ret;",
        """
        .const .align 4 .u32 bias = 0xFFFFFFFF;
        .global .align 1 .b8 text[6] = {104, 105, 37, 100, 0};
        .global .f32 reals[2] = {0f7FA00001, 0.1};
        .global .f64 wide = 1.0;
        .const .s16 rows[3][2] = {{1}, {-2, 3}};
        .const .s16 flat[][2] = {1, 2, 3};
        .global .v2 .b32 pairs[2] = {{1, 2}, {3}};
        .global .u64 table[3] = {0, text, generic(reals)+4};
        .extern .global .b32 elsewhere;
        .visible .global .b32 elsewhere = 5;
        .global .b32 a, b[2];
        """,
    )
    found = {v.name: v for v in entry.variables}
    assert found["bias"].initial == b"\xff" * 4
    assert (found["text"].initial, found["text"].size) == (b"hi%d\0", 6)
    assert found["reals"].initial.hex() == "0100a07fcdcccc3d"
    assert found["wide"].initial.hex() == "000000000000f03f"
    assert found["rows"].initial.hex() == "01000000" + "feff0300"
    assert (found["flat"].initial.hex(), found["flat"].size) == ("010002000300", 8)
    assert (found["pairs"].initial.hex(), found["pairs"].align) == ("010000000200000003000000", 8)
    assert found["table"].relocations == ((8, "text", 0), (16, "reals", 4))
    assert (found["elsewhere"].extern, found["elsewhere"].initial) == (False, b"\5\0\0\0")
    assert (found["a"].size, found["b"].size) == (4, 8)


@pytest.mark.parametrize(
    "text",
    [
        ".b8 a[2] = {1, 2, 3}", ".b32 a = {1}", ".b32 a = 1.5", ".b8 a[2] = {b}", ".b32 a = 1 2",
        ".b8 a[2] = {1}}", ".b32 a = 1, b = 2", ".f32 a = 1e300",
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(text):
    with pytest.raises(UnsupportedError, match="line 4: not understood"):
        one("ret;", f".global {text};")


def test_places():
    entry = one(
        """
        mov.u32 a, 0;
        .loc 1 10 3
        mov.u32 a, 1;  // text
        .loc 2 20 5, function_name $names+3, inlined_at 1 10 3
        mov.u32 a, 2;
        .loc 2 30 7, function_name $name1, inlined_at 2 20 5
        mov.u32 a, 3;
        .loc 1 0 0
        mov.u32 a, 4;
        """,
        """
        .file 1 "/a//b;{.cu", 1, 2
        .file 2 "h.cuh"
        .section .debug_str {
        $names:
        .b8 120, 120, 0, 102
        .b8 0
        $name1: .b8 103,0
        }
        """,
    )
    plain, first, second, third, none = (i.location for i in entry.instructions)
    assert plain is None and none is None
    assert first == Location("/a//b;{.cu", 10, 3)
    assert second == Location("h.cuh", 20, 5, first, "f")
    assert third == Location("h.cuh", 30, 7, second, "g"), "inlined twice"


def test_branches_by_a_table():
    entry = one(
        """
        T: .branchtargets A, B, A;
        @%p brx.idx.uni %r1, T;
        { A: mov.u32 x, 1; brx.idx %r1, T; }
        A: ret;
        B: exit;
        END:
        """
    )
    first, _, inner, ret, out = entry.instructions
    assert first.targets == (ret.index, out.index, ret.index)
    assert inner.targets == (1, out.index, 1), "the labels that can be seen"
    graph = Graph(entry)
    assert graph.successors[:3] == ((1, ret.index, out.index), (2,), (1, out.index))
    assert graph.kinds[0] is Kind.TABLE_BRANCH


def test_functions_have_bodies_and_scopes_their_variables():
    module = read_ptx(
        HEAD
        + """
        .shared .b32 same;
        .weak .func (.param .b32 r) f (.reg .b32 a, .param .align 8 .b8 s[12]) .noreturn
        { .local .align 8 .b8 depot[16]; mov.b32 a, depot;
          { .local .b8 depot; .param .b64 depot2; st.local.b8 [depot], a; } ret; }
        .func (.param .b32 r) only (.param .b32 x);
        .alias g, f;
        .entry k() { .shared .b64 same; st.shared.b64 [same], 1;
          { .shared .b32 same; st.shared.b32 [same], 1; } bra.uni L; L: }
        """
    )
    function, alias = module.functions
    assert (function.name, alias.name) == ("f", "g")
    assert [(p.name, p.size, p.space, p.align) for p in function.parameters] == [
        ("a", 4, "reg", 4), ("s", 12, "param", 8),
    ]  # fmt: skip
    assert [v.name for v in function.variables] == ["depot", "depot@1", "depot2@1"]
    assert function.registers == {"a": "b32"}
    outer, inner, branch = module.entries[0].instructions
    assert (outer.operands[0].base, inner.operands[0].base) == ("same@0", "same@1")
    assert [v.name for v in module.entries[0].shared] == ["same", "same@0", "same@1"]
    assert branch.target == 3, "a label at the end"


@pytest.mark.parametrize(
    "text",
    ["L: L: ret;", ".reg .b32 a, a;", ".shared .b8 a; .shared .b8 a;", ".reg .b32 %r<2>, %r1;"],
)
def test_what_is_declared_twice_is_refused(text):
    with pytest.raises(UnsupportedError, match=r"line 7: .*(twice|not understood)"):
        one(text)
    with pytest.raises(UnsupportedError, match="line 5: k is defined twice"):
        read_ptx(f"{HEAD}.entry k() {{}}\n.entry k() {{}}")


@settings(deadline=None, max_examples=300, derandomize=True)
@given(data=st.data())
def test_a_text_that_was_edited_is_read_or_refused(data):
    """Pieces dropped, doubled, moved: an error of ours or a module, nothing else."""
    pieces = list(PIECES)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(pieces) - 1))
        other = data.draw(st.integers(0, len(pieces) - 1))
        edit = data.draw(st.sampled_from(["drop", "double", "take", "add"]))
        if edit == "drop":
            pieces[at] = " "
        elif edit == "double":
            pieces[at] *= data.draw(st.sampled_from([2, 3, 200]))
        elif edit == "take":
            pieces[at] = pieces[other]
        else:
            pieces[at] += data.draw(
                st.sampled_from(["{", "}", "(", "[", ";", '"', "/*", "@", "-9e9"])
            )
    try:
        module = read_ptx("".join(pieces))
        for entry in module.entries:
            whole = inlined(module, entry)
            check(whole)
            Graph(whole)
    except MlagenError as error:
        assert len(str(error)) < 400


FUZZED = f"""{HEAD}
.file 1 "a.cu"
.global .u64 table[3] = {{0, table, generic(table)+4}};
.const .s16 rows[3][2] = {{{{1}}, {{-2, 3}}}};
.func (.param .b32 r) f(.param .b32 x) {{ .reg .b32 %r<3>; ld.param.b32 %r1, [x];
 @%r1 ret; st.param.b32 [r], %r1; }}
.alias g, f;
{TEXT.partition("sm_90a")[2].replace("END:", "END: T: .branchtargets END, END; brx.idx %r1, T;")}
.entry m(.param .u64 .ptr .global .align 16 out) .reqnctapercluster 2 .pragma "x"; {{
 .reg .v4 .f32 %v<2>;
 .loc 1 10 3, function_name name, inlined_at 1 9 9
 {{ .param .b32 p; .param .b32 q; st.param.b32 [p], 0f3F800000; call (q), g, (p);
 ld.param.b32 %v1.x, [q]; }}
 cp.async.bulk.tensor [%r1], [%rd1, {{%r2, %r3}}], [%r4]; ret; }}
.section .debug_str {{ name: .b8 102, 0 }}
"""
PIECES = re.findall(r"\w+|\s+|.", FUZZED)
