"""`mlagen audit`: clean on kernels that run, and not on the same kernels with a part missing."""

import json
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


def mlagen(*arguments):
    command = [sys.executable, "-m", "mlagen", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    """Our GEMM, with its manifest."""
    folder = tmp_path_factory.mktemp("gemm")
    example = Path(__file__).parents[2] / "examples" / "gemm_bf16.py"
    done = mlagen("build", example, "--target", "sm_90a", "-o", folder)
    if done.returncode == 5:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return folder


def test_an_artifact_is_audited_with_its_manifest(artifact):
    done = audit(artifact, "--json")
    assert done.returncode == 0, done.stdout
    (entry,) = json.loads(done.stdout)["entries"]
    assert entry["threads"] == 384 and not entry["findings"]
    assert entry["facts"]["boxes"] and not any("box" in gap for gap in entry["unchecked"])


def test_findings_name_the_schedules_line(artifact, tmp_path):
    text = (artifact / "kernel.ptx").read_text()
    (tmp_path / "kernel.ptx").write_text(
        text.replace("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;")
    )
    (tmp_path / "manifest.json").write_bytes((artifact / "manifest.json").read_bytes())
    done = audit(tmp_path)
    assert done.returncode == 4
    assert "error[wgmma-unwaited] examples/gemm_bf16.py:" in done.stdout


def test_mutants_of_an_artifact(artifact):
    done = audit(artifact, "--mutate", "--sample", "12", "--seed", "3", "--json")
    assert done.returncode == 0, done.stdout
    mutants = json.loads(done.stdout)["mutants"]
    assert len(mutants) == 12
    assert {mutant["outcome"] for mutant in mutants} <= {"reported", "equivalent"}
    assert all(mutant["rules"] or mutant["excuse"] for mutant in mutants)


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--box", "map_a"), 2, "is not NAME=BYTES"),
        (("--sample", "3"), 2, "--mutate"),
        (("--manifest", "nowhere.json"), 5, "nowhere.json cannot be read"),
        (("--box", "map_a=8192,map_b=16384"), 4, "mbarrier-transaction"),
        (("--smem", "65536"), 4, "smem-bounds"),
    ],
)
def test_options(options, code, told):
    done = audit(KERNELS / "gemm_two_math.ptx", *options)
    assert done.returncode == code
    assert told in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
