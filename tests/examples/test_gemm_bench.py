"""`mlagen bench` of the example, a user's own family, without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mlagen.bench import BenchReport, bench
from mlagen.cli.main import run
from mlagen.codegen.schedules import load
from mlagen.family import family_named

ROOT = Path(__file__).resolve().parents[2]
FILE = str(ROOT / "examples" / "gemm_bf16.py")
SHAPE = ("--shape", "m=70", "--shape", "n=48", "--shape", "k=72,200")
sys.path.insert(0, str(ROOT / "tests" / "bench"))

from fake_lab import FakeClock  # noqa: E402
from gemm.benchmark import Case, GemmBenchmark, GemmJudge, GemmWork  # noqa: E402
from gemm.problem import GemmConfig  # noqa: E402
from gemm.verification import gemm_inputs  # noqa: E402

WORK = GemmWork(GemmConfig(), m=70, n=48, k=200)


class FakeLab:
    """Tensors are the host's; ours is C rounded once, after `spoil` changed it."""

    def __init__(self, spoil: Callable[[Any], None] | None = None) -> None:
        self.clock: Any = FakeClock()
        self.spoil = spoil

    def facts(self) -> dict[str, str]:
        return {"device": "none"}

    def ceilings(self) -> dict[str, Any]:
        return {}

    def wait(self) -> None:
        pass

    def case(self, work: Any) -> Case:
        made = gemm_inputs(GemmConfig.from_fields(work.config.to_fields()), **work.sizes)
        return Case(work, made.a, made.b)

    def right(self, case: Case) -> Any:
        return (case.a.astype(np.float64) @ case.b.astype(np.float64).T).astype(case.a.dtype)

    def ours(self, case: Case) -> Callable[[], Any]:
        c = self.right(case)
        if self.spoil is not None:
            self.spoil(c)
        return self.clock.costs("mlagen", 2e-3, c)

    def judge(self, case: Case) -> GemmJudge:
        config = GemmConfig.from_fields(case.work.config.to_fields())
        return GemmJudge(Case(GemmWork(config, **case.work.sizes), case.a, case.b), np.asarray)


class FakePeer:
    """Takes half of our time; its C is off by the factor `off`."""

    def __init__(self, lab: FakeLab, off: float = 1.0) -> None:
        self.name, self.lab, self.off = "peer", lab, off

    def load(self) -> str:
        return "1.0"

    def prepare(self, case: Case) -> Callable[[], Any]:
        c = self.lab.right(case).astype(np.float32) * self.off
        return self.lab.clock.costs("peer", 1e-3, c)


def timed(lab: FakeLab, off: float = 1.0) -> BenchReport:
    return bench("gemm", GemmBenchmark(), [WORK], [FakePeer(lab, off)], lab, repeats=2)


def test_a_report() -> None:
    report = timed(FakeLab()).to_json()
    assert report["formulas"]["flop"] == "2 * m * n * k" and "seconds" in report["formulas"]
    (row,) = report["rows"]
    assert row["workload"] == {**GemmConfig().to_fields(), "m": 70, "n": 48, "k": 200, "seed": 0}
    assert row["flop"] == 2 * 70 * 48 * 200
    assert row["bytes"] == 2 * (70 * 200 + 48 * 200 + 70 * 48)
    ours, peer = row["results"]
    assert ours["seconds"] == pytest.approx(2e-3) and 0 < ours["error"] < 2.0**-8
    assert peer["ratio"] == pytest.approx(0.5)
    (_, wrong) = timed(FakeLab(), off=1.02).to_json()["rows"][0]["results"]
    assert wrong["wrong"] and "relative error" in wrong["reason"] and "seconds" not in wrong


def _row_swapped(c: Any) -> None:
    c[[0, 1]] = c[[1, 0]]


def _last_number(c: Any) -> None:
    c[-1, -1] *= 1.02


def _an_unjudged_row(c: Any) -> None:
    c[1] = np.nan


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_row_swapped, "outside the rounding oracle's bounds"),
        (_last_number, "1 of 768 numbers (0 NaN) are outside the rounding oracle's bounds"),
        (_an_unjudged_row, "48 numbers are NaN"),
    ],
)
def test_a_wrong_kernel_is_not_timed(spoil: Callable[[Any], None], words: str) -> None:
    assert 1 not in FakeLab().judge(FakeLab().case(WORK)).rows
    report = timed(FakeLab(spoil))
    ours, peer = report.to_json()["rows"][0]["results"]
    assert ours["wrong"] and "seconds" not in ours and words in ours["reason"]
    assert peer["seconds"] and peer["ratio"] is None
    assert report.wrong == [f"{WORK}: {ours['reason']}"]


@pytest.fixture
def mlagen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command line; its lab is a stand-in."""
    load(FILE, "gfx950")
    found = family_named("gemm")
    assert found is not None
    benchmark: Any = type(found.benchmark(SimpleNamespace()))  # type: ignore[arg-type]
    monkeypatch.setattr(benchmark, "lab", lambda self, kernel: FakeLab())

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(list(arguments))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return call


def test_the_command(mlagen: Any) -> None:
    code, out, err = mlagen("bench", FILE, *SHAPE, "--peers", "none", "--repeats", "2")
    assert (code, err) == (0, "")
    assert "m=70 n=48 k=72 bf16" in out and "k=200" in out and "gemm_bf16" in out
    code, out, _ = mlagen("bench", FILE, *SHAPE, "--repeats", "2", "--json")
    report = json.loads(out)
    assert (code, report["schema"], report["kernel"]) == (0, "mlagen.bench/1", "gemm_bf16")
    assert [row["workload"]["k"] for row in report["rows"]] == [72, 200]
    assert "torch_matmul" in {**report["absent"], **report["peers"]}


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--shape", "m=64"), "the size n is missing"),
        (("--shape", "keys=64"), "unknown size 'keys'"),
        (("--shape", "m=1", "--shape", "n=1", "--shape", "k=100"), "k=96 or 104"),
        ((*SHAPE, "--peers", "cublas"), "peers: torch_matmul"),
    ],
)
def test_bad_input(mlagen: Any, arguments: tuple[str, ...], part: str) -> None:
    code, out, err = mlagen("bench", FILE, *arguments)
    assert (code, out) == (2, "") and part in err


def test_without_a_gpu_and_without_its_file(mlagen: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "gemm")
    code, _, err = mlagen("build", FILE, "-o", folder)
    assert code == 0, err

    def fresh(*more: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "mlagen", "bench", folder, *SHAPE, *more]
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        assert done.stdout == ""
        return done.returncode, done.stderr

    code, err = fresh()
    assert code == 2 and "--problem FILE.py" in err
    code, err = fresh("--problem", FILE)
    assert code == 5 and "no GPU" in err
