"""The example through the command line: a user's file is built, listed and verified like ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mlagen.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
FILE = str(ROOT / "examples" / "gemm_bf16.py")
SMALL = ("--shape", "m=33", "--shape", "n=70", "--shape", "k=72")


@pytest.fixture
def mlagen(capsys):
    def call(*arguments):
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return call


def test_build_and_verify_the_file(mlagen, tmp_path):
    code, out, err = mlagen("build", FILE, "--set", "m_tile=128", "--knob", "slots=3", "-o",
                            tmp_path / "gemm")  # fmt: skip
    assert (code, err) == (0, "")
    assert "gemm_bf16 for gfx950 (examples/gemm_bf16.py)" in out and "proved" in out
    code, out, err = mlagen("verify", tmp_path / "gemm", *SMALL)
    assert (code, err) == (0, "")
    assert "shape      m 33, n 70, k 72" in out and "verdict    passed" in out


def test_the_json_report_names_the_sizes_of_a_gemm(mlagen):
    code, out, _ = mlagen("verify", FILE, *SMALL, "--data", "late", "--mode", "latest", "--json")
    report = json.loads(out)
    assert (code, report["schema"], report["passed"]) == (0, "mlagen.verify/2", True)
    assert (report["m"], report["n"], report["k"]) == (33, 70, 72)
    assert "seq_len" not in report


def test_list_describes_it(mlagen):
    code, out, _ = mlagen("list", f"{FILE}:gemm_bf16")
    assert code == 0
    for part in ("GemmConfig", "m_tile", "mma_priority", "keep A | keep B"):
        assert part in out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("verify", FILE, "--shape", "seq_len=4"), "unknown size 'seq_len'"),
        (("verify", FILE, "--shape", "k=100"), "k=96 or 104"),
        (("build", FILE, "--knob", "m_tile=64"), "choices: 256, 128"),
        (("build", FILE, "--knob", "slot=3"), "did you mean 'slots'?"),
        (("build", FILE, "--target", "gfx942"), "gfx942"),
    ],
)
def test_bad_input_is_one_clear_error(mlagen, arguments, part):
    code, out, err = mlagen(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and part in err


def test_an_artifact_of_an_unknown_problem_asks_for_its_file(mlagen, tmp_path):
    assert mlagen("build", FILE, "-o", tmp_path / "gemm")[0] == 0

    def fresh(*arguments):
        command = [sys.executable, "-m", "mlagen", "verify", tmp_path / "gemm", *SMALL, *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    refused = fresh()
    assert (refused.returncode, refused.stdout) == (2, "")
    assert (
        "gemm_bf16 solves a GemmConfig of the family 'gemm', and nothing here knows"
        in refused.stderr
    )
    assert "--problem FILE.py (it was built from examples/gemm_bf16.py)" in refused.stderr
    assert fresh("--problem", FILE, "--mode", "latest").returncode == 0


def test_mlagen_knows_nothing_of_the_example():
    sources = [p for folder in ("mlagen", "schedules") for p in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 100
    for path in sources:
        text = path.read_text()
        assert "GemmConfig" not in text and "import gemm" not in text, path
        assert "from gemm" not in text and "gemm_bf16" not in text, path
    assert not list((ROOT / "templates").rglob("gemm"))
