"""One finding for each cause, what it weighs, and what the exit code makes of it."""

import json

import pytest
from ptx_snippets import COMMIT, DONE, FENCE, INIT, MMA, USE, kernel

from mlagen.audit.ptx import audit_ptx
from mlagen.cli.main import run
from mlagen.severity import ERROR, LETTER

READ = FENCE + MMA + COMMIT + DONE + USE
# Rows of 16 bytes by each thread: 2048 bytes, which the wgmma read.
COPIES = "".join(f"    cp.async.cg.shared.global [%r1+{2048 * i}], [%g], 16;\n" for i in range(2))
STORES = "".join(f"    st.shared.v4.f32 [%r1+{2048 * i}], {{%x, %x, %x, %x}};\n" for i in range(2))
AT = "    shl.b32 %r1, %t, 4;\n    add.u32 %r1, %r1, %base;\n"
ALL = "    cp.async.wait_all;\n"
SYNC = "    bar.sync 0;\n"


def found(body):
    return audit_ptx(kernel(body)).findings


def test_a_copy_without_a_proxy_fence_is_one_finding_by_the_letter():
    (finding,) = found(AT + COPIES + ALL + SYNC + READ + READ)
    assert (finding.rule, finding.severity) == ("proxy-fence", LETTER)
    assert len(finding.places) == 4  # two copies, each read by two wgmma
    told = finding.render()
    assert told.startswith("letter[proxy-fence]") and "4 times, at lines" in told


def test_a_store_without_a_proxy_fence_is_no_matter_of_letters():
    (finding,) = found(AT + STORES + SYNC + READ)
    assert (finding.rule, finding.severity) == ("proxy-fence", ERROR)
    assert finding.render().startswith("error[proxy-fence]")


def test_a_fence_ends_both():
    fence = "    fence.proxy.async.shared::cta;\n"
    assert not found(AT + COPIES + ALL + fence + SYNC + READ)
    assert not found(AT + STORES + fence + SYNC + READ)


def test_what_is_not_waited_for_at_all_is_unordered_on_any_hardware():
    rules = {f.rule for f in found(AT + COPIES + READ) if f.severity == ERROR}
    assert rules == {"smem-raw"}


def test_pairs_that_share_a_line_are_one_cause_and_others_are_not():
    reads = "    ld.shared.f32 %y, [%base+4];\n    ld.shared.f32 %x, [%base+8];\n"
    race = "    st.shared.f32 [%at], %x;\n" + reads
    report = found(race + SYNC + race)
    raws = [f for f in report if f.rule == "smem-raw"]
    assert sorted(len(f.places) for f in raws) == [2, 2]


STORED = """
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @%one cp.async.bulk.global.shared::cta.bulk_group [%g], [%base], 512;
    @%one cp.async.bulk.global.shared::cta.bulk_group [%g], [%base+512], 512;
    @%one cp.async.bulk.commit_group;
"""


def test_stores_that_the_end_does_not_wait_for():
    (finding,) = found(STORED)
    assert (finding.rule, finding.severity) == ("bulk-unwaited", LETTER)
    assert len(finding.places) == 2
    assert not found(STORED + "    @%one cp.async.bulk.wait_group.read 0;\n")


@pytest.fixture
def files(tmp_path):
    letter, error = tmp_path / "letter.ptx", tmp_path / "error.ptx"
    letter.write_text(kernel(AT + COPIES + ALL + SYNC + READ))
    error.write_text(kernel(AT + STORES + SYNC + READ + STORED))
    return letter, error


def test_the_exit_code(files, capsys):
    letter, error = map(str, files)
    assert run(["audit", letter]) == 0
    assert "letter[proxy-fence]" in capsys.readouterr().out
    assert run(["audit", letter, "--fail-on", "letter"]) == 4
    assert "0 errors, 1 by the letter in" in capsys.readouterr().err
    assert run(["audit", error]) == 4
    # Errors come first.
    told = capsys.readouterr().out
    assert told.index("error[proxy-fence]") < told.index("letter[bulk-unwaited]")


def test_the_report_as_json(files, capsys):
    assert run(["audit", str(files[0]), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "mlagen.audit.ptx/3"
    (finding,) = told["entries"][0]["findings"]
    assert finding["severity"] == "letter" and len(finding["places"]) == 2


def test_a_limit_on_time_tells_what_was_left_out(tmp_path, capsys):
    """A kernel whose paths take longer: its lines that no path led to are named."""
    ways = "".join(
        f"    ld.global.nc.u32 %r2, [%g+{4 * i}];\n    setp.eq.u32 %p1, %r2, 0;\n"
        f"    @%p1 bra S{i};\n    bar.sync 0;\nS{i}:\n"
        for i in range(300)
    )
    path = tmp_path / "long.ptx"
    path.write_text(kernel(INIT + ways))
    assert run(["audit", str(path), "--max-seconds", "0.6"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the audit ended before it had followed all of this kernel" in said
    assert "are on no path that was followed" in said
