"""What a launch file tells an audit: grid, block, cluster, arguments, dynamic memory."""

from dataclasses import replace

import pytest

pytest.importorskip("ziglang", reason="the assembler wheel (mlagen[amd]) is not installed")
pytest.importorskip("tinygrad", reason="the decoder (mlagen[emulator]) is not installed")

from binary.gfx950_assembler import assemble

from mlagen.audit.gfx950 import audit_code_object, audit_kernel
from mlagen.audit.launch import KnownLaunch
from mlagen.audit.ptx import Given, audit_ptx
from mlagen.audit.ptx.paths import told
from mlagen.binary import load_code_object
from mlagen.binary.metadata import ArgumentInfo, KernelInfo
from mlagen.cli.main import run
from mlagen.errors import ConfigError
from mlagen.severity import ERROR, LETTER, UNPROVED, of

# Waves write LDS and read what the wave beside them wrote; s4 of the arguments is how many rounds.
EXCHANGE = """
  s_load_dword s4, s[0:1], 0x8
  v_lshlrev_b32 v1, 2, v0
  v_xor_b32 v2, 256, v1
  s_waitcnt lgkmcnt(0)
L:
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v3, v2
  s_waitcnt lgkmcnt(0)
  BETWEEN
  s_sub_u32 s4, s4, 1
  s_cmp_lg_u32 s4, 0
  s_cbranch_scc1 L
  s_endpgm
"""


def code(between: str = "s_barrier", lds: int = 0) -> bytes:
    return assemble(EXCHANGE.replace("BETWEEN", between), lds=lds)


def audit(between: str = "s_barrier", lds: int = 0, **launch):
    known = {"grid": (2, 1, 1), "block": (128, 1, 1), **launch}
    return audit_code_object(code(between, lds), launch=KnownLaunch(**known)).kernels[0]


def rounds(count: int) -> dict[int, int]:
    return dict(enumerate(count.to_bytes(4, "little"), 8))


def test_lds_that_a_launch_asks_for():
    """An object that asks for no LDS leaves it to the launch, as Triton's do."""
    unknown = audit_code_object(code(), threads=128).kernels[0]
    assert not unknown.errors
    (guess,) = of(unknown.findings, UNPROVED)
    assert guess.rule == "assumed" and "163840 bytes" in guess.message and len(guess.places) == 2
    assert not of(audit(dynamic_bytes=512).findings, ERROR, UNPROVED)
    short = audit(dynamic_bytes=508)
    assert {f.rule for f in short.errors} == {"lds-bounds"} and not of(short.findings, UNPROVED)
    assert {f.rule for f in audit(lds=256).errors} == {"lds-bounds"}
    assert not audit(lds=256, dynamic_bytes=256).errors
    with pytest.raises(ConfigError, match="are more than the 163840"):
        audit(lds=256, dynamic_bytes=163840)


def test_arguments_decide_loops():
    """Without the second barrier a second round overwrites what the first one is still to read."""
    known = {"dynamic_bytes": 512}
    assert "lds-war" in {f.rule for f in audit("s_nop 0", **known).errors}
    assert "lds-war" in {f.rule for f in audit("s_nop 0", arguments=rounds(2), **known).errors}
    assert not audit("s_nop 0", arguments=rounds(1), **known).errors


def test_a_launch_and_what_else_is_said_agree():
    with pytest.raises(ConfigError, match="64 threads, but the launch has 128"):
        audit_code_object(code(), threads=64, launch=KnownLaunch(block=(128, 1, 1)))
    with pytest.raises(ConfigError, match="a workgroup of 2048 threads"):
        audit_code_object(code(), launch=KnownLaunch(block=(1024, 2, 1)))


LAUNCH = """
grid = [2, 1, 1]
block = [128, 1, 1]
dynamic_lds = {lds}
[[arguments]]
offset = 8
type = "u32"
value = {rounds}
"""


def test_the_command_takes_a_launch_file(tmp_path, capsys):
    file, launch = tmp_path / "k.co", tmp_path / "launch.toml"
    file.write_bytes(code("s_nop 0"))
    for lds, count, expected in ((512, 1, 0), (512, 2, 4), (508, 1, 4)):
        launch.write_text(LAUNCH.format(lds=lds, rounds=count))
        assert run(["audit", str(file), "--launch", str(launch), "--strict"]) == expected
    assert run(["audit", str(file), "--launch", str(launch), "--lds", "512"]) == 2
    assert "--lds 512, but the launch file asks for 508" in capsys.readouterr().err
    assert run(["audit", str(file), "--smem", "16"]) == 2
    assert "--lds BYTES" in capsys.readouterr().err
    file.write_bytes(code())
    assert run(["audit", str(file), "--threads", "128"]) == 0
    assert run(["audit", str(file), "--threads", "128", "--strict"]) == 6
    assert run(["audit", str(file), "--threads", "128", "--strict", "--lds", "512"]) == 0


PTX = """
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 buf[];
.visible .entry k(.param .u64 out, .param .u32 rounds)
{
    .reg .pred %p;
    .reg .b32 %t, %n, %at, %to, %x, %left;
    .reg .b64 %g;
    mov.u32 %t, %tid.x;
    ld.param.u32 %left, [rounds];
    mov.u32 %n, buf;
    shl.b32 %at, %t, 2;
    add.u32 %at, %at, %n;
    xor.b32 %to, %at, 128;
L:
    st.shared.u32 [%at], %t;
    bar.sync 0;
    ld.shared.u32 %x, [%to];
    ld.param.u64 %g, [out];
    st.global.u32 [%g], %x;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %p, %left, 0;
    @%p bra L;
    ret;
}
"""


def ptx(dynamic: int, count: int | None):
    arguments = {} if count is None else rounds(count)
    known = KnownLaunch((2, 1, 1), (64, 1, 1), None, dynamic, arguments)
    return audit_ptx(PTX, Given(launch=known))


def test_a_launch_of_ptx():
    guesses = [f.message for f in of(audit_ptx(PTX).findings, UNPROVED)]
    assert len(guesses) == 2 and all("was taken to" in guess for guess in guesses)
    once = ptx(256, 1)
    assert not once.findings and not once.unchecked and once.entries[0].threads == 64
    twice = ptx(256, 2)
    assert {f.rule for f in twice.findings} == {"smem-war"}
    assert {f.rule for f in ptx(256, None).findings} == {"smem-war"}
    assert {f.rule for f in ptx(252, 1).findings} == {"smem-bounds"}
    with pytest.raises(ConfigError, match="64 in a block"):
        audit_ptx(PTX, Given(threads=32, launch=KnownLaunch(block=(64, 1, 1))))


# Block 5 of a grid skips a barrier that the others' warps wait at.
LATE = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k() .reqntid 64, 1, 1
{
    .reg .pred %late, %second, %both;
    .reg .b32 %b, %t;
    mov.u32 %b, %ctaid.x;
    mov.u32 %t, %tid.x;
    setp.eq.u32 %late, %b, 5;
    setp.gt.u32 %second, %t, 31;
    and.pred %both, %late, %second;
    @%both bra END;
    bar.sync 0;
END:
    ret;
}
"""


@pytest.mark.parametrize(("blocks", "wrong"), [(5, False), (6, True)])
def test_no_block_lies_outside_of_the_grid(blocks, wrong):
    told = audit_ptx(LATE, Given(launch=KnownLaunch(grid=(blocks, 1, 1))))
    assert bool(told.findings) is wrong
    assert not of(told.findings, LETTER)


def test_fields_of_a_structure_are_told_apart():
    values = {("param", "p"): 1, ("param", "p", 8): 3, ("special", "ctaid.x"): 5}
    assert told(values) == "p = 1, p+8 = 3, ctaid.x = 5"


def test_arguments_have_their_names():
    """Those of the object's metadata; offsets where it has none, as that of `assemble`."""
    kernel = load_code_object(code("s_nop 0", 512)).kernel()
    assert kernel.argument_name(8) == "argument dword 0x8"
    (finding, *_) = audit_code_object(code("s_nop 0", 512), threads=128).errors
    assert "argument dword 0x8 = " in finding.message
    places = (ArgumentInfo("sizes", 0, 8, "by_value"), ArgumentInfo("rounds", 8, 4, "by_value"))
    info = KernelInfo("k", "k.kd", 16, 128, 0, 0, 0, places)
    named = replace(kernel, info=info)
    assert (named.argument_name(4), named.argument_name(8)) == ("sizes+0x4", "rounds")
    (finding, *_) = audit_kernel(named, 128).errors
    assert "rounds = " in finding.message
