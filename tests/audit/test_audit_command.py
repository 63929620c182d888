"""`mlagen audit`: clean on kernels that run, and not on the same kernels with a part missing."""

import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = Path(__file__).parent / "kernels"
GEMM = (KERNELS / "gemm_two_math.ptx").read_text()


def audit(path, *options):
    command = [sys.executable, "-m", "mlagen", "audit", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["gemm_two_math", "gemm_deferred_release"])
def test_sound_kernels_have_no_findings(name):
    done = audit(KERNELS / f"{name}.ptx")
    assert done.returncode == 0, done.stdout
    assert "findings" in done.stdout


@pytest.mark.parametrize(
    ("gone", "rule"),
    [
        ("wgmma.fence.sync.aligned;", "wgmma-fence"),
        ("wgmma.commit_group.sync.aligned;", "wgmma-un"),
        ("wgmma.wait_group.sync.aligned", "wgmma-unwaited"),
    ],
)
def test_what_is_missing_is_named(tmp_path, gone, rule):
    lines = [line for line in GEMM.splitlines() if gone not in line]
    assert len(lines) < len(GEMM.splitlines())
    broken = tmp_path / "broken.ptx"
    broken.write_text("\n".join(lines) + "\n")
    done = audit(broken)
    assert done.returncode == 4
    assert rule in done.stdout


def test_unreadable_files_are_one_clear_error(tmp_path):
    done = audit(tmp_path / "nowhere.ptx")
    assert done.returncode == 5 and done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
