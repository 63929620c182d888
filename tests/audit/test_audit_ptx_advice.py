"""Advice on PTX: each piece is of a kernel that can do without, beside one that cannot; what
follows all advice has no error, and the advice for it is none."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ptx_snippets import COMMIT, DONE, FENCE, INIT, MMA, USE, kernel

from mlagen.audit.ptx import Given, advise_ptx, audit_ptx
from mlagen.severity import ADVICE, ERROR, of

HERE = Path(__file__).parent
SYNC = "    bar.sync 0;\n"
STORE = "    st.shared.b32 [%at], %t;\n"
OTHER = "    xor.b32 %r3, %at, 256;\n    ld.shared.b32 %r2, [%r3];\n"
KEEP = "    st.shared.b32 [%at+2048], %r2;\n"
PROXY = "    fence.proxy.async.shared::cta;\n"
COPY = "    cp.async.ca.shared.global [%at+{0}], [%g], 4;\n    cp.async.commit_group;\n"
TAKE = "    ld.shared.b32 %r{1}, [%at+{0}];\n    st.shared.b32 [%at+4096], %r{1};\n"
ASYNC = "    cp.async.wait_group {};\n"
BULK = (
    "    @%one cp.async.bulk.global.shared::cta.bulk_group [%g], [%base+{0}], 512;\n"
    "    @%one cp.async.bulk.commit_group;\n"
)
READ = "    cp.async.bulk.wait_group.read {};\n"
SECOND = MMA.replace("{%d0, %d1, %d2, %d3}", "{%e0, %e1, %e2, %e3}")
MORE = "    .reg .f32 %e<4>;\n"
WGMMA = "    wgmma.wait_group.sync.aligned {};\n"
LATER = USE.replace("%d0, %d1", "%e0, %e1")


def two_copies(waits):
    """Two groups of cp.async in flight, then each is waited for and read."""
    body = COPY.format(0) + COPY.format(512) + ASYNC.format(waits) + TAKE.format(0, 4)
    return body + ASYNC.format(0) + TAKE.format(512, 5)


def two_products(waits):
    """Two groups of wgmma in flight, then the registers of each are used."""
    body = MORE + FENCE + MMA + COMMIT + SECOND + COMMIT
    return body + WGMMA.format(waits) + USE + WGMMA.format(0) + LATER


def two_stores(waits):
    """Two bulk stores whose buffers are filled again, one after the other."""
    begin = STORE + "    st.shared.b32 [%at+512], %t;\n" + PROXY + SYNC + BULK.format(0)
    begin += BULK.format(512) + READ.format(waits) + SYNC + STORE
    return begin + READ.format(0) + SYNC + "    st.shared.b32 [%at+512], %t;\n"


def two_barriers(more):
    """Threads read what other warps stored."""
    return STORE + SYNC + SYNC * more + OTHER + KEEP


def two_fences(more):
    """A wgmma reads what threads stored."""
    return STORE + PROXY + PROXY * more + SYNC + FENCE + MMA + COMMIT + DONE


def register_fences(more):
    """Two groups accumulate in the same registers."""
    return FENCE + MMA + COMMIT + FENCE * more + MMA + COMMIT + DONE


# The kernel, what it can do without, what is enough, and a change that it cannot bear.
CASES = {
    "cp.async": (two_copies, 0, 1, "stricter-wait", "cp.async.wait_group 1", 2),
    "wgmma": (two_products, 0, 1, "stricter-wait", "wgmma.wait_group 1", 2),
    "bulk": (two_stores, 0, 1, "stricter-wait", "cp.async.bulk.wait_group.read 1", 2),
    "barrier": (two_barriers, 1, 0, "spare-barrier", "", None),
    "proxy fence": (two_fences, 1, 0, "spare-fence", "", None),
    "register fence": (register_fences, 1, 0, "spare-fence", "", None),
}


def advice(text):
    return of(advise_ptx(text).findings, ADVICE)


@pytest.mark.parametrize("name", CASES)
def test_each_piece_is_right(name):
    made, strict, enough, rule, needs, _ = CASES[name]
    (found,) = advice(kernel(made(strict)))
    assert (found.rule, found.needs) == (rule, needs)
    assert found.change == found.line
    assert not advice(kernel(made(enough)))
    assert not of(audit_ptx(kernel(made(enough))).findings, ERROR)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[-1] is not None])
def test_one_more_would_be_a_fault_and_gets_no_advice(name):
    made, *_, fault = CASES[name]
    report = advise_ptx(kernel(made(fault)))
    assert of(report.findings, ERROR) and not of(report.findings, ADVICE)
    assert report.entries[0].unadvised.startswith("it has errors")


@pytest.mark.parametrize("body", [two_barriers(0), two_fences(0), register_fences(0)])
def test_what_is_needed_is_not_advised_against(body):
    assert not advice(kernel(body))
    needed = [line for line in (SYNC, PROXY, FENCE) if line in body]
    for line in needed:
        assert of(audit_ptx(kernel(body.replace(line, "", 1))).findings, ERROR)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("    st.global.b32 [%g], %r2;\n    ld.global.b32 %r5, [%g+4];\n", "reads and writes"),
        ("    red.release.gpu.global.add.u32 [%g], 1;\n", "may tell others"),
        ("    membar.gl;\n", "may tell others"),
    ],
)
def test_a_barrier_that_may_order_global_memory_is_let_be(more, why):
    report = advise_ptx(kernel(two_barriers(1) + more))
    assert not of(report.findings, ADVICE)
    assert "barriers were let be: " in report.entries[0].unadvised
    assert why in report.entries[0].unadvised


def test_a_fence_of_all_memory_is_let_be_where_there_are_stores():
    body = two_fences(1).replace(PROXY, "    fence.proxy.async;\n")
    assert [one.rule for one in advice(kernel(body))] == ["spare-fence"]
    assert not advice(kernel(body + "    st.global.b32 [%g], %t;\n"))


def test_fences_behind_initialised_mbarriers_are_let_be():
    text = kernel(INIT.replace("    bar.sync", PROXY + "    bar.sync"))
    assert "spare-fence" not in {one.rule for one in advice(text)}


def applied(text, findings):
    """The text as the advice wants it."""
    lines = text.split("\n")
    for one in findings:
        at = one.line - 1
        if not one.needs:
            lines[at] = ""
        else:
            lines[at] = re.sub(r"\d+\s*;", f"{one.needs.split()[-1]};", lines[at])
    return "\n".join(lines)


FILES = [path for path in HERE.glob("reported/*.ok.ptx") if "k22" not in path.name]
SEESAW = HERE / "kernels" / "seesaw.ptx"  # with two fences that order nothing


@pytest.mark.parametrize("path", [*FILES, SEESAW], ids=lambda path: path.stem)
def test_who_follows_all_advice_has_no_error_and_needs_no_more(path):
    text = path.read_text()
    before = advise_ptx(text)
    after = advise_ptx(applied(text, of(before.findings, ADVICE)))
    assert len(of(after.findings, ERROR)) == len(of(before.findings, ERROR)) == 0
    assert not of(after.findings, ADVICE)
    assert of(before.findings, ADVICE) or path != SEESAW


@pytest.mark.parametrize(
    "path", sorted(HERE.glob("reported/*.bad.ptx")), ids=lambda path: path.stem
)
def test_a_fault_gets_no_advice(path):
    report = advise_ptx(path.read_text())
    assert not of(report.findings, ADVICE)
    assert report.entries[0].unadvised


def test_the_command_tells_it_and_ends_well(tmp_path):
    path = tmp_path / "k.ptx"
    path.write_text(kernel(two_copies(0)))
    command = [sys.executable, "-m", "mlagen", "audit", str(path)]
    plain, told = (
        subprocess.run([*command, *more], capture_output=True, text=True, check=True).stdout
        for more in ((), ("--advice",))
    )
    assert "advice" not in plain
    assert "advice[stricter-wait] k:" in told
    assert "Enough: cp.async.wait_group 1 at line" in told


def test_time_that_runs_out_is_told():
    report = advise_ptx(kernel(two_stores(0) * 40), Given(), seconds=2)
    assert report.entries[0].unadvised.startswith("time ran out before")
