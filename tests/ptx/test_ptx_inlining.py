"""`mlagen.ptx.inlining`: a kernel without calls computes what the calls computed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlagen.errors import UnsupportedError
from mlagen.ptx import Graph, MemoryOperand, read_ptx
from mlagen.ptx.inlining import inlined

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"

# power(x, n): x^n by a loop; square(x) by registers; both: power(square(x), n) + square(n).
FUNCTIONS = """
.func (.param .b32 made) both(.param .b32 x, .param .b32 n);
.visible .entry k(.param .u32 x, .param .u32 n)
{
    .reg .b32 %r<4>;
    .reg .pred %p;
    ld.param.u32 %r0, [x];
    ld.param.u32 %r1, [n];
    mov.u32 %r3, 7;
    setp.gt.u32 %p, %r1, 2;
    {
    .param .b32 param0;
    .param .b32 param1;
    .param .b32 retval0;
    st.param.b32 [param0+0], %r0;
    st.param.b32 [param1], %r1;
    @%p call.uni (retval0), both, (param0, param1);
    @%p ld.param.b32 %r3, [retval0+0];
    }
    call (%r2), both, (%r0, 3);
    ret;
}
.func (.reg .b32 y) square(.reg .b32 x) { mul.lo.u32 y, x, x; ret; }
.func (.param .b32 made) power(.param .b32 x, .param .b32 n)
{
    .reg .b32 %r<4>;
    .reg .pred %p;
    ld.param.b32 %r0, [x];
    ld.param.b32 %r1, [n];
    mov.u32 %r2, 1;
AGAIN:
    setp.eq.u32 %p, %r1, 0;
    @%p bra DONE;
    mul.lo.u32 %r2, %r2, %r0;
    sub.u32 %r1, %r1, 1;
    bra AGAIN;
DONE:
    st.param.b32 [made], %r2;
    ret.uni;
}
.func (.param .b32 made) both(.param .b32 x, .param .b32 n)
{
    .reg .b32 %r<9>;
    .reg .pred %p;
    ld.param.b32 %r0, [x];
    ld.param.b32 %r1, [n];
    call (%r2), square, (%r0);
    call (%r3), power, (%r2, %r1);
    call (%r4), square, (%r1);
    add.u32 %r5, %r3, %r4;
    st.param.b32 [made], %r5;
    setp.eq.u32 %p, %r1, 4;
    @!%p ret;
    mov.u32 %r5, 99;
    st.param.b32 [made], %r5;
}
"""
WORD = 1 << 32


def execute(entry, **arguments):
    """The registers after one thread went through an entry of these few instructions."""
    held, slots, at = {}, dict(arguments), 0

    def value(operand):
        return operand if isinstance(operand, int) else held[operand]

    while at < len(entry.instructions):
        made = entry.instructions[at]
        assert made.index == at
        at += 1
        if made.guard and held[made.guard.register] == made.guard.negated:
            continue
        name, given = made.name, made.operands
        if name == "ld":
            assert given[0] in entry.registers and given[1].offset == 0
            held[given[0]] = slots[given[1].base]
        elif name == "st":
            slots[given[0].base] = value(given[1])
        elif name == "bra":
            at = made.target
        elif name == "ret":
            break
        elif name == "setp":
            left, right = value(given[1]), value(given[2])
            held[given[0]] = left == right if made.parts[1] == "eq" else left > right
        else:
            of = {"mov": lambda a: a, "add": int.__add__, "sub": int.__sub__, "mul": int.__mul__}
            held[given[0]] = of[name](*map(value, given[1:])) % WORD
    return held


def both(x, n):
    return 99 if n == 4 else (pow(x * x, n) + n * n) % WORD


@settings(deadline=None, max_examples=25, derandomize=True)
@given(x=st.integers(0, WORD - 1), n=st.integers(0, 6))
def test_a_kernel_without_calls_computes_what_they_did(x, n):
    module = read_ptx(HEAD + FUNCTIONS)
    entry = inlined(module, module.entries[0])
    assert not [i for i in entry.instructions if i.name == "call"]
    held = execute(entry, x=x, n=n)
    assert held["%r3"] == (both(x, n) if n > 2 else 7), "a call that a guard may skip"
    assert held["%r2"] == both(x, 3)
    assert Graph(entry).successors[-1] == (len(entry.instructions),)


def test_names_of_copies_are_their_own():
    module = read_ptx(HEAD + FUNCTIONS)
    entry = inlined(module, module.entries[0])
    kept = [i for i in entry.instructions if i.name != "bra"]
    written = {r for i in kept for r in i.operands[:1] if isinstance(r, str)}
    assert written - entry.registers.keys() == set()
    assert {"%r0", "%r0@c1", "%r0@c3", "x@c2", "x@c4"} <= entry.registers.keys()
    names = [v.name for v in entry.variables]
    assert len(names) == len(set(names))
    bases = {o.base for i in entry.instructions for o in i.operands if isinstance(o, MemoryOperand)}
    assert bases <= {*names, *(p.name for p in entry.parameters)}
    plain = read_ptx(HEAD + ".entry k() { ret; }")
    assert inlined(plain, plain.entries[0]) is plain.entries[0]


def test_variables_of_a_function_and_places():
    module = read_ptx(
        HEAD
        + """
.entry k()
{
    .loc 1 10 3
    call f;
    call f;
    ret;
}
.global .u32 behind;
.func f()
{
    .shared .b32 one;
    .local .b32 own;
    .loc 1 90 5
    st.shared.b32 [one], 1;
    st.local.b32 [own], 1;
    st.global.b32 [behind], 1;
}
.file 1 "a.cu"
"""
    )
    entry = inlined(module, module.entries[0])
    assert {v.name for v in entry.variables} == {"behind", "one@f", "own@c1", "own@c2"}
    stores = [i for i in entry.instructions if i.name == "st"]
    assert [i.operands[0].base for i in stores] == [
        "one@f", "own@c1", "behind", "one@f", "own@c2", "behind",
    ]  # fmt: skip
    place = stores[0].location
    assert (str(place), place.function, str(place.inlined_at)) == ("a.cu:90:5", "f", "a.cu:10:3")


CALLS = {
    "recursion": (
        ".func f() { call g; } .func g() { call f; }", "call f;", "recursion: f → g → f",
    ),
    "an indirect call": (
        "", ".reg .b64 %a; P: .callprototype _ (); mov.b64 %a, f; call %a, (), P;", "an indirect",
    ),
    "no body": (".func helper();", "call helper;", "helper is called and has no body"),
    "arguments": (".func f(.param .b32 x) {}", "call f;", "the arguments are not those of f"),
    "sizes": (
        ".func f(.param .b32 x) {}", ".param .b64 p; call f, (p);", "the arguments are not those",
    ),
    "a growing kernel": (
        "".join(f".func f{i}() {{ call f{i + 1}; call f{i + 1}; }}" for i in range(40))
        + ".func f40() {}", "call f0;", "more than 10000 calls",
    ),
    "a deep kernel": (
        "".join(f".func f{i}() {{ call f{i + 1}; }}" for i in range(99)) + ".func f99() {}",
        "call f0;", "more than 64 calls in each other",
    ),
    "a long operand": (
        f".func f() {{ mov.b32 x, {{{'a,' * 20_000}a}}; }}", "call f;\n" * 9_000,
        "characters with inlined functions",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_cannot_be_replaced_are_refused(name):
    functions, body, told = CALLS[name]
    module = read_ptx(f"{HEAD}{functions}\n.entry k() {{\n{body}\nret; }}")
    with pytest.raises(UnsupportedError, match=rf"line \d+: .*{told}"):
        inlined(module, module.entries[0])


def test_calls_of_the_driver_stay():
    module = read_ptx(
        HEAD
        + """
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.func hello(.param .b64 text)
{
    .reg .b64 %rd<2>;
    ld.param.b64 %rd1, [text];
    { // callseq
    .param .b64 param0;
    .param .b64 param1;
    .param .b32 retval0;
    st.param.b64 [param0], %rd1;
    call.uni (retval0),
    vprintf,
    (
    param0,
    param1
    );
    }
}
.entry k() { .param .b64 p; call hello, (p); ret; }
"""
    )
    entry = inlined(module, module.entries[0])
    (call,) = [i for i in entry.instructions if i.name == "call"]
    assert call.operands[1] == "vprintf"
    assert call.operands[2].items == ("param0@1@c1", "param1@1@c1")
    assert entry.instructions[0].operands[1] == MemoryOperand("p", 0)
