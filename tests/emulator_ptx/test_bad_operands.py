"""Operands that an instruction cannot have are refused with their line, before anything runs."""

import numpy as np
import pytest
from running import kernel, run

from mlagen.emulator.ptx.program import translate
from mlagen.emulator.ptx.translate.rows import SPECIALS
from mlagen.errors import UnsupportedError
from mlagen.ptx import read_ptx

_F32 = ", ".join(f"%f{i}" for i in range(4))


def _wgmma(sums=_F32, shape="m64n8k16", kind="bf16", a="%rd1", scale="1", tail=", 1, 1, 0, 0"):
    return (
        f"wgmma.mma_async.sync.aligned.{shape}.f32.{kind}.{kind} {{{sums}}}, {a}, %rd2, "
        f"{scale}{tail};"
    )


def _mma(shape="m16n8k16", d=_F32, a="%r1, %r2, %r3, %r4", b="%r5, %r6", c=_F32):
    return f"mma.sync.aligned.{shape}.row.col.f32.bf16.bf16.f32 {{{d}}}, {{{a}}}, {{{b}}}, {{{c}}};"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        # A predicate's row has 8 bytes, one of 32 bits 128, one of 64 bits 256.
        ("mov.u64 %rd1, %tid.x;", "%tid.x has 32 bits, not 64"),
        ("add.u32 %r1, %r2, %gridid;", "%gridid has 64 bits, not 32"),
        ("add.u32 %r1, %p1, 1;", "%p1 has 1 bits, not 32"),
        ("setp.eq.u32 %r1, %r2, 1;", "%r1 has 32 bits, not 1"),
        ("max.u16x2 %r1, %r2;", "2 operands"),
        ("min.relu.s16x2 %r1, %r2, %r3, %r4, %r5;", "5 operands"),
        ("selp.b32 %r1, %r2, %r3, %r4;", "%r4 has 32 bits, not 1"),
        ("@%r1 mov.u32 %r2, 1;", "%r1 has 32 bits, not 1"),
        ("cvt.u32.u64 %r1, %q1;", "%q1 has 128 bits, not 64"),
        ("t: .branchtargets A, A; A: brx.idx %p1, t;", "%p1 has 1 bits, not 32"),
        ("mbarrier.arrive.shared.b64 %r1, [sh];", "%r1 has 32 bits, not 64"),
        ("mbarrier.test_wait.shared.b64 %r1, [sh], %rd1;", "%r1 has 32 bits, not 1"),
        ("mbarrier.pending_count.b64 %rd2, %rd1;", "%rd2 has 64 bits, not 32"),
        ("mbarrier.pending_count.b64 _, %rd1;", "it has no result"),
        ("mbarrier.init.shared.b64 [sh], %clock64;", "%clock64 is no register of the kernel"),
        ("mapa.shared::cluster.u32 _, %r1, 0;", "it has no result"),
        ("mapa.u64 %r1, %rd1, 0;", "%r1 has 32 bits, not 64"),
        ("bar.red.popc.u32 %p1, 0, %p2;", "%p1 has 1 bits, not 32"),
        ("bar.red.and.pred %r1, 0, %p2;", "%r1 has 32 bits, not 1"),
        ("bar.red.popc.u32 %r1, 0, %r2;", "%r2 has 32 bits, not 1"),
        ("bar.red.u32 %r1, 0, %p2;", "not understood"),
        ("cp.async.wait_group 99999999999999999999;", "more than 64 bits|number of groups"),
        ("cp.async.bulk.wait_group 4294967296;", "number of groups"),
        ("wgmma.wait_group.sync.aligned -1;", "no number of 0 to"),
        # The engine's work space has room for the ISA's shapes.
        (_wgmma(shape="m64n8k128"), "m64n(8|12)k(128|16) of bf16"),
        (_wgmma(shape="m64n12k16", sums=_F32 + ", %f4, %f5"), "m64n(8|12)k(128|16) of bf16"),
        (_wgmma(shape="m64n8k32", kind="e4m3", tail=", 1, 1, 1, 1"), "a transposed operand"),
        (_wgmma(sums="%f0, %f1, %f2, _"), "operand _"),
        (_wgmma(sums="%f0, %f1, %f2, %rd3"), "%rd3 has 64 bits, not 32"),
        (_wgmma(a="%r1"), "%r1 has 32 bits, not 64"),
        (_wgmma(scale="%r1"), "%r1 has 32 bits, not 1"),
        (_mma(shape="m16n8k999"), "k999"),
        (_mma(d="%f0", c="%f0"), "registers"),
        (_mma(shape="m16n8k8"), "registers"),
        (_mma(d="%f0, %f1, %f2, _"), "operand _"),
        (_mma(a="%r1, %r2, %r3, %p1"), "%p1 has 1 bits, not 32"),
        # Names and offsets.
        ("mov.u32 %r1, %pm0;", "%pm0 is no register of the kernel, nor one that is known here"),
        ("mov.u32 %r1, %r99;", "%r99 is no register of the kernel"),
        ("mov.u64 %rd1, sh+99999999999999999999;", "more than 64 bits|no address of 64 bits"),
        ("mov.u64 %rd1, sh+9223372036854775807;", "is no address of 64 bits"),
        ("mov.u16 %h1, sh;", "is no address of 16 bits"),
        ("mbarrier.init.shared.b64 [sh+9223372036854775807], 1;", "an offset of 9223"),
    ],
)
def test_what_an_instruction_cannot_have_is_refused(statement, said):
    text = kernel(statement + "\nret;", head=".shared .align 1024 .b8 sh[4096];")
    line = next(n for n, row in enumerate(text.splitlines(), 1) if statement in row)
    with pytest.raises(UnsupportedError, match=said) as caught:
        module = read_ptx(text)
        translate(module, module.entries[0])
    assert f"line {line}: " in caught.value.message


def test_numbers_have_64_bits():
    """A number that is no int64 has the same bits."""
    text = kernel(
        "mbarrier.init.shared.b64 [bar], 0xFFFFFFFF00000001; ret;",
        head=".shared .align 8 .b64 bar;",
    )
    assert run(text, block=(1, 1, 1)).ended


def test_a_barrier_joins_a_constant_predicate():
    out = np.zeros(2, np.uint32)
    text = kernel(
        "ld.param.u64 %rd1, [o]; bar.red.popc.u32 %r1, 0, 1; st.global.u32 [%rd1], %r1; ret;", "o"
    )
    assert run(text, {"o": out}, sanitize=False).ended and out[0] == 32


@pytest.mark.parametrize("name", SPECIALS)
def test_special_registers_have_values(name):
    """Those that are known are set by the launch: one row each, of the size that is told."""
    bits = SPECIALS[name]
    register = "%rd1" if bits == 64 else "%r1"
    ran = run(kernel(f"mov.b{bits} {register}, {name}; ret;"), grid=(2, 3, 4), block=(32, 2, 1))
    assert ran.ended and not ran.findings
    state = ran.states[0]
    (special,) = state.setup.program.specials
    assert special.name == name and special.size == bits * 4


def test_a_wait_of_fewer_than_four_warps():
    """A CTA's last warpgroup may have fewer: the wait looks at those alone."""
    body = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; ret;"
    for warps in (1, 2, 3, 5):
        assert run(kernel(body), block=(32 * warps, 1, 1)).ended
