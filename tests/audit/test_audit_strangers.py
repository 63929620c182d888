"""PTX text and manifests of strangers: what takes time or memory is bounded, and told."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from mlagen.audit.ptx import Given, audit_ptx, read_manifest
from mlagen.audit.ptx.values import UNKNOWN, Linear, scale, term
from mlagen.cli.main import run
from mlagen.errors import ConfigError, MlagenError, UnsupportedError
from mlagen.untrusted import Spent, printable, within

HEAD = ".version 8.0\n.target sm_90a\n"
SIZE = 200_000  # characters: what grows with the square of the length takes minutes


def entry(body, head=" .reqntid 32", before=""):
    return f"{HEAD}{before}.visible .entry k(.param .u32 n){head}\n{{\n{body}\n ret;\n}}\n"


def fill(piece, size=SIZE):
    return piece * (size // len(piece))


def counted(make, count):
    return "".join(make(i) for i in range(count))


# Text that is read, or refused, at once.
READ = {
    "comments": (HEAD + fill("/*"), "line 3: a comment that does not end"),
    "blank lines": (fill("\n ") + ".version", "no PTX text"),
    "sections": (HEAD + fill(".section;"), "line 3: not understood: .section"),
    "prototypes": (HEAD + fill(".func;"), "no .entry"),
    "kernels": (
        HEAD + counted(".entry k{}(){{bar.sync 0;ret;}}".format, 6_000), "more than 1000 functions",
    ),
    "variables": (HEAD + counted(".shared .b8 a{};".format, 9_000), "more than 4000 variables"),
    "own variables": (entry(counted(".shared .b8 a{};".format, 9_000)), "more than 4000 variables"),
    "instructions": (entry(fill("a;", 202_000)), "more than 100000 instructions"),
    "blanks of an array": (entry(f".shared .b8 a[{fill(' ')}x;"), "line 5: not understood"),
    "a pointer's words": (
        f"{HEAD}.entry k({fill('.param .b8 .ptr 1 1 1 1 1 ')}){{ret;}}", "line 3: not understood",
    ),
    "pragmas": (HEAD + fill('.func ";'), "no .entry"),
    "labels": (entry(fill("a:")), "line 5: label a twice"),
    "blanks of an attribute": (entry(f".shared .attribute({fill('(')} .b8 a;"), "not understood"),
    "a call's list": (entry(f"call f, ({fill('%a,')}%a);"), None),
    "tables of labels": (
        entry(f"L: T: .branchtargets {fill('L,', 4_000)}L;\n{fill('brx.idx %a, T;', 9_000)}"),
        "more than 100000 targets",
    ),
    "initial values": (HEAD + f".global .b8 a[] = {{{fill('1,')}1}};", "no .entry"),
    "braces of a value": (HEAD + f".global .b8 a[2] = {fill('{')}{fill('}')};", "not understood"),
    "far values": (
        HEAD + ".global .b8 a[2][99999999] = {{1}, {1}};", "line 3: not understood: .global",
    ),
    "blanks of a parameter": (
        f"{HEAD}.entry k(.param{fill(' ')}.u32{fill(' ')}x y) {{}}", "line 3: not understood",
    ),
    "blanks of registers": (entry(f".reg{fill(' ')}.b32{fill(' ')};"), "line 5: not understood"),
    "blanks of a value": (HEAD + f".global .u64 a = generic{fill(' ')}({fill(' ')}a x;", "line 3"),
    "a word in strings": (HEAD + f".section .debug_str {{ {fill('b8')} }}", "no .entry"),
    "open strings": (HEAD + fill(".section .debug_str {"), "never closed"),
    "what is told again": (HEAD + ".global .b8 a;" + fill(".extern .global .b8 a;"), "no .entry"),
    "a long name": (
        entry(fill(".loc 1 1 1, function_name n, inlined_at 1 1 1\nret;\n"))
        + f".section .debug_str {{ n: {fill('.b8 97,97,97,97')} }}",
        None,
    ),
    "positions": (entry(counted(".loc 1 {} 1, function_name f, inlined_at 1 1 1\n".format, 4000)),
                  None),
    "an inlined chain": (
        entry(counted(lambda i: f".loc 1 {i + 1} 1, function_name f, inlined_at 1 {i} 1\n", 4000)),
        None,
    ),
    "an opcode": (entry(fill("a") + "! %a;"), "not an instruction"),
    "digits": (entry(f"mov.u32 %a, {fill('1')}x;"), "not understood: mov.u32 %a, 111"),
    "a decimal number": (entry(f"mov.u32 %a, {fill('1')};"), "not understood: mov.u32 %a, 111"),
    "a hexadecimal number": (entry(f"mov.u32 %a, 0x{fill('1')};"), "more than 64 bits"),
    "braces": (entry(fill("{") + fill("}")), "nested too deeply"),
    "vectors": (entry(f"mov.b32 %a, {fill('{')}{fill('}')};"), "nested too deeply"),
    "addresses": (entry(f"mov.b32 %a, {'[a,' * 50_000}b{']' * 50_000};"), "nested too deeply"),
    "extents": (entry(f".shared .b8 a{fill('[99999999]')};"), "a has 2.64 bytes and more"),
    "10^30 bytes": (entry(f".shared .b8 a[{10**30}];"), "a has 2.64 bytes and more"),
    "no alignment": (entry(".shared .align 0 .b8 a[8];"), "align 0; it is 1 to 65536"),
    "10^9 threads": (entry("", " .reqntid 1000000000"), "a block of 1000000000 threads; .* 1024"),
    "10^30 threads": (entry("", f" .reqntid {10**30}"), "it has 1 to 1024"),
    "1025 threads": (entry("", " .reqntid 41, 25"), "a block of 41 x 25 threads"),
    "no threads": (entry("", " .maxntid 0"), "a block of 0 threads"),
    "dimensions": (entry("", f" .reqntid {fill('1,')}1"), "up to 3 dimensions"),
    "bytes of cp.async": (
        entry("cp.async.cg.shared.global [%a], [%b], 99999999999999;"), "copies 4, 8 or 16 bytes",
    ),
    "a large wgmma": (
        entry("wgmma.mma_async.sync.aligned.m64n8192k16.f32.bf16.bf16 {%d}, 1, 1, 1, 1, 1, 0, 0;"),
        "m64n8192k16, which there is not",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_text_is_read_in_a_time_that_grows_with_its_length(name):
    text, told = READ[name]
    started = time.process_time()
    if told is None:
        assert audit_ptx(text, seconds=5).unchecked is not None
    else:
        with pytest.raises(MlagenError, match=told) as error:
            audit_ptx(text, seconds=5)
        assert len(error.value.message) < 300
    assert time.process_time() - started < 2


PARAMETER = "ld.param.u32 %a, [n]; setp.eq.u32 %p, %a, 5;\n"
END = "\n@%p bra E; bar.sync 0;\nE:"
# Kernels whose values would grow without end.
GROWING = {
    "a name": PARAMETER + "xor.b32 %a, %a, %a;\n" * 200 + "setp.eq.u32 %p, %a, 0;" + END,
    "a chain": PARAMETER + "xor.b32 %a, %a, %tid.x;\n" * 3000 + "setp.eq.u32 %p, %a, 0;" + END,
    "a predicate": PARAMETER + "xor.pred %p, %p, %p;\n" * 200 + END,
    "negations": PARAMETER + "not.pred %p, %p;\n" * 3000 + END,
    "a coefficient": PARAMETER + "shl.b64 %a, %a, 64;\n" * 3000 + "setp.eq.u64 %p, %a, 0;" + END,
    "a number": "mov.u32 %a, 3;" + "mul.lo.u128 %a, %a, %a;\n" * 60 + "st.shared.u32 [%a], 1;",
    "a field": "mov.u32 %a, 3; bfe.u32 %b, %a, 0, 99999999999; st.shared.u32 [%b], 1;",
    "an insertion": "mov.u32 %a, 3; bfi.b32 %b, %a, %a, 99999999999, 8; st.shared.u32 [%b], 1;",
    "loads": PARAMETER + "ld.global.u64 %a, [%a];\n" * 3000 + "setp.eq.u64 %p, %a, 0;" + END,
    "an address of lanes": "mov.u32 %a, %tid.x; st.shared.u32 [%a+18446744073709551615], 1;",
}


@pytest.mark.parametrize("name", GROWING)
def test_values_stay_small(name):
    started = time.process_time()
    (report,) = audit_ptx(entry(GROWING[name]), seconds=10).entries
    assert time.process_time() - started < 3
    assert not any("the audit ended before" in gap for gap in report.unchecked)


def test_names_and_coefficients_have_a_limit():
    x = term("param", "n")
    assert isinstance(x, Linear)
    assert isinstance(scale(x, 1 << 200), Linear)
    assert scale(scale(x, 1 << 200), 1 << 200) is UNKNOWN
    assert term("xor", tuple(range(1900)))
    assert term("xor", tuple(range(2100))) is UNKNOWN


def test_eight_gibibytes_of_shared_memory_are_a_finding():
    text = entry("bar.sync 0;", before=".shared .b8 a[8589934592];\n")
    (report,) = audit_ptx(text).entries
    assert [finding.rule for finding in report.findings] == ["smem-size"]
    assert any("no path of this kernel was followed" in gap for gap in report.unchecked)
    # A kernel that is only a little too large is followed all the same.
    (report,) = audit_ptx(text.replace("8589934592", "240000")).entries
    assert [finding.rule for finding in report.findings] == ["smem-size"]
    assert not report.unchecked


def test_threads_that_no_block_has():
    with pytest.raises(ConfigError, match="1025 threads"):
        audit_ptx(entry(""), Given(threads=1025))


# ---- limits of time and memory ---------------------------------------------------------------

MANY = entry(
    counted(
        lambda i: (
            f"ld.global.u32 %q, [%r]; setp.ne.u32 %p, %q, 0; @%p bra E{i}; bar.sync 0; E{i}:\n"
        ),
        2000,
    )
)


def test_what_a_limit_left_out_is_told(tmp_path, capsys):
    two = MANY + entry("bar.sync 0;").replace(".entry k", ".entry other").removeprefix(HEAD)
    started = time.process_time()
    first, second = audit_ptx(two, seconds=1).entries  # less than what fills its memory
    assert time.process_time() - started < 4
    assert (first.function, second.function) == ("k", "other")
    for report in (first, second):
        assert re.search(r"ended before .* limit of \d\.\d+ s of CPU time", report.unchecked[0])
    (tmp_path / "k.ptx").write_text(two)
    assert run(["audit", str(tmp_path / "k.ptx"), "--max-seconds", "1"]) == 6
    told = capsys.readouterr().out
    assert told.startswith("unchecked: other: no path was followed: it met its limit of")
    assert "\nunchecked: k: the audit ended before it had followed all of this" in told
    assert len([line for line in told.splitlines() if line.startswith("unchecked: ")]) <= 102


def test_what_follows_a_limit_is_not_disturbed():
    with pytest.raises(Spent, match=r"limit of 0\.2 s"), within(0.2):
        while True:
            pass
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass


def test_a_limit_around_another_counts():
    started = time.process_time()
    with pytest.raises(Spent, match=r"limit of 0\.2 s"), within(0.2), within(5):
        while True:
            pass
    assert time.process_time() - started < 1
    with within(5):
        with within(0):
            pass
        assert signal.getitimer(signal.ITIMER_PROF)[0] > 0
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0


def test_reading_has_the_limit_too():
    with pytest.raises(UnsupportedError, match=r"reading this text met its limit of 0\.1 s"):
        audit_ptx(entry(fill("mov.u32 %a, 1;", 1_000_000)), seconds=0.1)


def test_memory_has_a_limit():
    """In a process of its own, with a smaller one."""
    code = (
        "from mlagen import untrusted\n"
        "kept, untrusted._MEMORY = [], 1 << 26\n"
        "try:\n"
        "    with untrusted.within(0):\n"
        "        while True: kept.append(bytearray(b'x') * (1 << 20))\n"
        "except untrusted.Spent as spent: print(spent, len(kept))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told, _, kept = done.stdout.rpartition(" ")
    assert told == "its limit of 64 MiB of memory"
    assert 64 <= int(kept) < 1000  # it looks every 50 ms


# ---- manifests beside --------------------------------------------------------------------------

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("{", "cannot be used"),
        (DEEP, "Expected `object`"),
        ('{"args": ' + DEEP + "}", "nested too deeply"),
        ("[]", "Expected `object`"),
        ('{"kernel": "\xff"}', "no UTF-8"),
        ('{"block": 7}', "block is no list"),
        ('{"block": [1e400]}', "out of range"),
        (f'{{"block": [{"9" * 5000}]}}', "out of range"),
        ('{"block": [64, 64]}', "block has 4096, not a number from 1 to 1024"),
        ('{"block": ["x"]}', "block has 'x'"),
        ('{"args": {}}', "args is no list"),
        ('{"args": [{"name": "a", "map": {"box_cols": 1e30, "box_rows": 1}}]}', "box_cols"),
        ('{"resources": {"lds_bytes": -1}}', "resources.lds_bytes has -1"),
        ('{"resources": []}', "resources is no object"),
        ('{"source": [["x", 1, 2, 3, 4, 5, 6]]}', "source has 'x'"),
        ('{"source": [[1, 1, [], 3, 4, 5, 6]]}', "more than numbers and names"),
        ('{"schedule_file": 5}', "schedule_file is no text"),
    ],
)
def test_a_broken_manifest_is_one_error(tmp_path, data, told):
    (tmp_path / "manifest.json").write_bytes(data.encode("latin-1"))
    with pytest.raises(MlagenError, match=re.escape(told)) as error:
        read_manifest(tmp_path / "manifest.json")
    assert len(error.value.message) < 400
    (tmp_path / "kernel.ptx").write_text(entry("bar.sync 0;"))
    assert run(["audit", str(tmp_path / "kernel.ptx")]) == 5


def test_a_strangers_text_does_not_steer_the_terminal(tmp_path, capsys):
    text = entry("@%p st.shared.u32 [%z], \x1b]0;st.shared.u32 [%z], \x9b31m;")
    (tmp_path / "kernel.ptx").write_text(text)
    row = [5, "", "\x1b[2J", "", "", 0, 6, "\x1b[31m"]
    (tmp_path / "manifest.json").write_text(
        json.dumps({"schedule_file": "\x1b[H", "source": [row]})
    )
    run(["audit", str(tmp_path / "kernel.ptx")])
    told = "".join(capsys.readouterr())
    assert told
    assert "\x1b" not in told
    assert "\x9b" not in told
    assert printable("a\x1b[31m\x9b\u202eb\n") == "a\\x1b[31m\\x9b\\u202eb\n"
