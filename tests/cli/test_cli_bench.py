"""`mlagen bench`: bad input, and the report of a lab without a GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from fake_lab import FakeLab

KERNEL = ("mla_decode_sm90", "--target", "sm_90a", "--set", "num_heads=4")
SHAPE = ("--shape", "batch=2", "--shape", "keys=64,130")


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    """The lab of the commands; nothing is built."""
    made = FakeLab()
    monkeypatch.setattr("mlagen.families.mla_decode.benchmark.lab.DecodeLab", lambda kernel: made)
    manifest = SimpleNamespace(
        kernel="mla_decode_sm90", target="sm_90a", family="mla_decode", problem={"num_heads": 4}
    )
    monkeypatch.setattr(
        "mlagen.app.texts.artifact_of", lambda *_, **__: SimpleNamespace(manifest=manifest)
    )
    monkeypatch.setattr("mlagen.app.build.callable_of", lambda artifact: artifact)
    return made


def test_a_report(mlagen: Any, lab: FakeLab) -> None:
    done = mlagen("bench", *KERNEL, *SHAPE, "--peers", "flash_mla", "--repeats", "2")
    assert (done.code, done.err) == (0, "")
    for part in ("b=2 h=4 s_q=1 keys=64", "keys=130", "mlagen", "matmul", "TFLOP/s", "left out"):
        assert part in done.out


def test_the_json_twin(mlagen: Any, lab: FakeLab, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = tmp_path / "a.png"
    done = mlagen("bench", *KERNEL, *SHAPE, "--peers", "none", "--json", "--plot", drawn)
    report = json.loads(done.out)
    assert report["schema"] == "mlagen.bench/1"
    assert [row["workload"]["keys"] for row in report["rows"]] == [64, 130]
    assert set(report["formulas"]) >= {"flop", "bytes", "seconds"}
    assert report["repeats"] == 30
    assert drawn.stat().st_size > 1000


def test_a_wrong_kernel(mlagen: Any, lab: FakeLab) -> None:
    def spoil(out: Any, lse: Any) -> None:
        out[:] = 0

    lab.spoil = spoil
    done = mlagen("bench", *KERNEL, *SHAPE, "--peers", "none")
    assert done.code == 3
    assert "outside the exact oracle's bounds" in done.err
    assert "TFLOP/s" in done.out  # the table is there all the same


def test_sparse_kernels(mlagen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fake_sparse_lab import FakeSparseLab

    monkeypatch.setattr(
        "mlagen.families.mla_sparse.benchmark.lab.SparseLab", lambda kernel: FakeSparseLab()
    )
    sizes = ("--shape", "keys=64,100", "--shape", "topk=64", "--shape")
    for kernel, size, words in (
        ("mla_sparse_prefill_sm90", "rows=2", "rows=2 h=4 keys=100 topk=64"),
        ("mla_sparse_decode_sm90", "batch=2", "b=2 s_q=1 h=4 keys=100 topk=64"),
    ):
        asked = ("bench", kernel, "--set", "num_heads=4", *sizes, size)
        done = mlagen(*asked, "--peers", "flash_mla", "--repeats", "2")
        assert (done.code, done.err) == (0, "")
        assert words in done.out and "left out" in done.out
        done = mlagen(*asked, "--shape", "invalid=100")
        assert done.code == 2 and "invalid=100 is not in 0 .. 99" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--shape", "batch=2"), 2, "the size keys is missing"),
        (("--shape", "rows=2"), 2, "unknown size 'rows'"),
        (("--shape", "batch=2", "--shape", "keys=some"), 2, "not an integer"),
        ((*SHAPE, "--peers", "flash"), 2, "unknown peer 'flash'"),
        ((*SHAPE, "--repeats", "0"), 2, "--repeats 0"),
        ((*SHAPE, "--plot", "a.txt"), 2, "no known kind"),
        ((*SHAPE, "--shape", "least=500"), 2, "least=500 is above keys=64"),
    ],
)
def test_bad_input(
    mlagen: Any, lab: FakeLab, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = mlagen("bench", *KERNEL, *arguments)
    assert (done.code, done.out) == (code, "")
    assert words in done.err


def test_kernels_that_have_no_benchmark(mlagen: Any) -> None:
    done = mlagen("bench", "mha_prefill_v2", "--set", "num_heads=1", "--set", "num_kv_heads=1",
                  *SHAPE)  # fmt: skip
    assert done.code == 2
    assert "mha_prefill_v2 (gfx950) has no benchmark" in done.err
    assert "mlagen simulate" in done.err
    done = mlagen("bench", "mla_decode_sm90", "--target", "gfx950", "--set", "num_heads=1", *SHAPE)
    assert done.code == 2
