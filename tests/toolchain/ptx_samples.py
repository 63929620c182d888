"""PTX kernels of one `wgmma` pipeline stage, and the ways of getting it wrong."""

from __future__ import annotations

FENCE = "wgmma.fence.sync.aligned;"
COMMIT = "wgmma.commit_group.sync.aligned;"
ZERO = "\n".join(f"mov.f32 %d{i}, 0f00000000;" for i in range(8))
STORE = "\n".join(f"st.global.f32 [%out+{4 * i}], %d{i};" for i in range(8))
MAXNTID = ".maxntid 128, 1, 1"


def wait(groups: int) -> str:
    return f"wgmma.wait_group.sync.aligned {groups};"


def mma(step: int, accumulator: str = "d", guard: str = "", a: str = "") -> str:
    """A 64x16x16 product into the 8 registers of `accumulator`; `a`: registers instead of SMEM."""
    registers = ", ".join(f"%{accumulator}{i}" for i in range(8))
    transposed = "0" if a else "0, 0"
    return (
        f"{guard}wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {{{registers}}}, "
        f"{a or f'%da{step}'}, %db{step}, %p, 1, 1, {transposed};"
    )


def kernel(*body: str, directives: str = MAXNTID, before: str = "") -> str:
    """A whole text around `body`; lines of the body are found with `line_of`."""
    descriptors = "\n".join(
        f"mov.b64 %da{i}, {0x4000004000010000 + 2 * i}; "
        f"mov.b64 %db{i}, {0x4000004000010100 + 2 * i};"
        for i in range(4)
    )
    lines = "\n".join(body)
    return f"""\
.version 8.0
.target sm_90a
.address_size 64
{before}
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .u64 p_out, .param .u32 p_n)
{directives}
{{
.reg .f32 %d<8>, %e<8>, %big<256>;
.reg .b32 %a<4>, %n, %i, %t;
.reg .b64 %da<4>, %db<4>, %out, %far;
.reg .pred %p, %q;
ld.param.u64 %out, [p_out];
ld.param.u32 %n, [p_n];
mov.u32 %t, %tid.x;
mul.wide.u32 %far, %t, 2048;
add.u64 %out, %out, %far;
setp.ne.u32 %p, %n, 0;
mov.u32 %i, 0;
{descriptors}
{lines}
ret;
}}
"""


def line_of(text: str, part: str, nth: int = 0) -> int:
    """The line of the `nth` line that holds `part`."""
    return [n for n, line in enumerate(text.splitlines(), 1) if part in line][nth]


CLEAN = kernel(ZERO, FENCE, mma(0), mma(1), COMMIT, wait(0), STORE)
READ_EARLY = kernel(ZERO, FENCE, mma(0), mma(1), COMMIT, STORE, wait(0))
NO_FENCE = kernel(ZERO, mma(0), mma(1), COMMIT, wait(0), STORE)
PREDICATED = kernel(ZERO, FENCE, mma(0), mma(1, guard="@%p "), COMMIT, wait(0), STORE)
WRITTEN_BETWEEN = kernel(
    ZERO, FENCE, mma(0), "add.f32 %d0, %d0, %d0;", mma(1), COMMIT, wait(0), STORE
)
WAIT_UNDER_CONDITION = kernel(
    ZERO, FENCE, mma(0), mma(1), COMMIT, "@%p bra SKIP;", wait(0), "SKIP:", STORE
)
INPUT_OVERWRITTEN = kernel(
    *(f"mov.b32 %a{i}, %t;" for i in range(4)),
    ZERO,
    FENCE,
    mma(0, a="{%a0, %a1, %a2, %a3}"),
    "add.u32 %a0, %a0, 1;",
    mma(1, a="{%a0, %a1, %a2, %a3}"),
    COMMIT,
    wait(0),
    STORE,
)


def over_the_back_edge(groups_left: int) -> str:
    """O += P V in flight when the loop closes; waited for with `groups_left` before its use."""
    return kernel(
        ZERO,
        *(f"mov.f32 %e{i}, 0f00000000;" for i in range(8)),
        "LOOP:",
        '.pragma "nounroll";',
        wait(0) if groups_left == 0 else "",
        FENCE,
        mma(1, "e"),
        COMMIT,
        wait(1) if groups_left else "",
        *(f"mul.f32 %d{i}, %d{i}, 0f3F000000;" for i in range(8)),
        wait(0),
        *(f"add.f32 %d{i}, %d{i}, %e{i};" for i in range(8)),
        FENCE,
        mma(0),
        COMMIT,
        "add.u32 %i, %i, 1;",
        "setp.lt.u32 %q, %i, %n;",
        "@%q bra LOOP;",
        wait(0),
        STORE,
    )


_FUNCTION = f"""\
.func (.param .b32 r) f(.param .b64 x) {{
.reg .f32 %d<8>; .reg .b64 %da0, %db0; .reg .pred %p;
ld.param.b64 %da0, [x]; mov.b64 %db0, %da0; setp.ne.u64 %p, %da0, 0;
{ZERO}
{FENCE}
{mma(0)}
{COMMIT}
{wait(0)}
st.param.b32 [r+0], %d0; ret; }}"""
_CALL = """\
{ .param .b32 r1; .param .b64 x1; st.param.b64 [x1], %da0;
call.uni (r1), f, (x1);
ld.param.b32 %e0, [r1]; }"""
IN_A_FUNCTION = kernel(_CALL, "st.global.f32 [%out], %e0;", before=_FUNCTION)

_BIG = [", ".join(f"%big{128 * half + i}" for i in range(128)) for half in (0, 1)]
_WIDE = "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16"
TOO_MANY_ACCUMULATORS = kernel(
    *(f"mov.f32 %big{i}, 0f00000000;" for i in range(256)),
    FENCE,
    *(f"{_WIDE} {{{_BIG[half]}}}, %da{half}, %db{half}, %p, 1, 1, 0, 0;" for half in (0, 1)),
    COMMIT,
    wait(0),
    *(f"st.global.f32 [%out+{4 * i}], %big{i};" for i in range(256)),
)
TOO_FEW_REGISTERS = kernel(
    *(f"mov.f32 %big{i}, 0f00000000;" for i in range(128)),
    FENCE,
    f"{_WIDE} {{{_BIG[0]}}}, %da0, %db0, %p, 1, 1, 0, 0;",
    COMMIT,
    wait(0),
    *(f"st.global.f32 [%out+{4 * i}], %big{i};" for i in range(128)),
    directives=f"{MAXNTID}\n.maxnreg 64",
)
SPILLS = kernel(
    *(f"ld.global.f32 %big{i}, [%out+{4 * i}];" for i in range(100)),
    "bar.sync 0;",
    *(f"st.global.f32 [%out+{400 + 4 * (37 * i % 100)}], %big{i};" for i in range(100)),
    directives=f"{MAXNTID}\n.maxnreg 32",
)


def setmaxnreg(directives: str, count: int = 216) -> str:
    return kernel(
        f"setmaxnreg.inc.sync.aligned.u32 {count};",
        ZERO,
        FENCE,
        mma(0),
        COMMIT,
        wait(0),
        STORE,
        directives=directives,
    )
