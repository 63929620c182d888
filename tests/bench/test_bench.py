"""The benchmark without a GPU: who is timed, how, and what is counted."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_lab import FakeClock, FakeLab, FakePeer

from mlagen.bench import BenchReport, bench
from mlagen.bench.plot import check_path, plot
from mlagen.bench.timing import WARM_UP, interleaved
from mlagen.errors import ConfigError, WriteError
from mlagen.families.mla_decode.benchmark import DecodeBenchmark
from mlagen.families.mla_decode.benchmark.work import DecodeWork
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.family.peers import PeerAbsent, PeerUnfit

CONFIG = MlaDecodeConfig(4, q_len=2)
WORK = DecodeWork(CONFIG, batch=3, keys=200, least=60)
DECODE = DecodeBenchmark()


def run(work: DecodeWork, peers: list[Any], lab: FakeLab, **options: Any) -> BenchReport:
    return bench("k", DECODE, [work], peers, lab, **options)


def test_calls_take_turns_and_each_finds_a_flushed_cache() -> None:
    clock = FakeClock()
    costs = [9.0] * WARM_UP + [3.0, 1.0, 2.0, 8.0, 5.0] + [0.5] * 400
    calls = {"a": clock.costs("a", costs), "b": clock.costs("b", 0.01)}
    times = interleaved(calls, clock, repeats=5)
    assert (times["a"].median, times["a"].least, times["a"].p90) == pytest.approx((3.0, 1.0, 5.0))
    assert times["a"].sustained == pytest.approx(0.5)
    assert times["b"].median == pytest.approx(0.01)
    rounds = clock.log[: 4 * (WARM_UP + 5)]
    assert rounds[::2] == ["flush"] * 2 * (WARM_UP + 5)
    assert rounds[1::2][:6] == ["a", "b", "b", "a", "a", "b"]  # who begins changes
    assert "flush" not in clock.log[4 * (WARM_UP + 5) :]  # back to back
    with pytest.raises(ConfigError, match="repeats=0"):
        interleaved(calls, clock, repeats=0)


def test_what_is_counted() -> None:
    lengths = WORK.lengths
    assert len(lengths) == 3
    assert all(60 <= n <= 200 for n in lengths)
    assert len(set(lengths)) > 1
    assert lengths == DecodeWork(CONFIG, 3, 200, 60).lengths
    assert WORK.flop == 2 * 4 * 2 * sum(lengths) * (576 + 512)
    assert WORK.bytes == sum(lengths) * 576 * 2 + 3 * 2 * 4 * (576 + 512) * 2
    fp8 = DecodeWork(MlaDecodeConfig(4, 2, cache_dtype="fp8_e4m3"), batch=2, keys=10)
    assert fp8.bytes == 2 * 10 * 2 * 576 + 2 * 4 * (576 + 512) * 2
    window = DecodeWork(MlaDecodeConfig(4, q_len=3, mask="sliding_window_causal[8]"), 1, 100)
    assert window.read == 8 + 2
    assert str(WORK) == "b=3 h=4 s_q=2 keys=60..200 page=64"


def test_sizes_are_combined_and_checked() -> None:
    made = DECODE.works(CONFIG.to_fields(), {"batch": [1, 2], "keys": [64, 128]}, seed=3)
    assert [(w.batch, w.keys, w.seed) for w in made] == [
        (1, 64, 3), (1, 128, 3), (2, 64, 3), (2, 128, 3)
    ]  # fmt: skip
    for sizes, message in (
        ({"batch": [1]}, "the size keys is missing"),
        ({"batch": [0], "keys": [1]}, "batch=0"),
        ({"batch": [1], "keys": [8], "least": [9]}, "least=9 is above keys=8"),
    ):
        with pytest.raises(ConfigError, match=message):
            DECODE.works(CONFIG.to_fields(), sizes)


def test_a_report() -> None:
    lab = FakeLab(seconds=2e-3)
    peers = [
        FakePeer("fast", lab, 1e-3),
        FakePeer("wrong", lab, 1e-4, off=1.03),
        FakePeer("nan", lab, 1e-4, off=float("nan")),
        FakePeer("absent", lab, absent="it is not installed"),
        FakePeer("unfit", lab, unfit="pages of 64 only"),
        FakePeer("broken", lab, breaks="illegal address"),
    ]
    seen: list[tuple[int, int]] = []
    report = run(WORK, peers, lab, repeats=3, progress=lambda *at: seen.append(at))
    assert seen == [(1, 1)]
    assert report.absent == {"absent": "it is not installed"}
    found = report.to_json()
    (row,) = found["rows"]
    ours, fast, wrong, nan, unfit, broken = row["results"]
    assert ours["name"] == "mlagen"
    assert ours["seconds"] == pytest.approx(2e-3)
    assert ours["TFLOP/s"] == pytest.approx(WORK.flop / 2e-3 / 1e12)
    assert ours["share_of_matmul"] == pytest.approx(ours["TFLOP/s"] / (100.0 / 0.5))
    assert 0 < ours["error"] < 2.0**-7
    assert fast["ratio"] == pytest.approx(0.5)
    # Who is wrong has no time, in no form.
    for one, reason in ((wrong, "relative error"), (nan, "NaN")):
        assert one["wrong"] and reason in one["reason"]
        assert "seconds" not in one
    assert unfit["reason"] == "pages of 64 only" and not unfit["wrong"]
    assert broken["reason"] == "RuntimeError: illegal address"
    assert lab.clock.log.count("wrong") == lab.clock.log.count("nan") == 1  # when it was judged
    assert report.wrong == []
    text = "\n".join(" ".join(line) for line in report.table())
    assert "b=3 h=4 s_q=2" in text and "0.50" in text and "illegal address" in text
    assert ("absent", "left out: it is not installed") in report.headline()


@pytest.mark.parametrize("which", ["one number", "one NaN", "the LSE", "the last head"])
def test_a_wrong_kernel_is_not_timed(which: str) -> None:
    def spoil(out: Any, lse: Any) -> None:
        if which == "one number":
            out[-1, 1, 0, 5] += 0.5
        elif which == "one NaN":
            out[-1, 0, 0, 500] = np.nan
        elif which == "the LSE":
            lse[-1, 0, 1] += 0.01
        else:
            out[-1, :, -1] = out[-1, :, 0]

    lab = FakeLab(spoil=spoil)
    report = run(WORK, [FakePeer("fast", lab)], lab, repeats=2)
    ours, fast = report.to_json()["rows"][0]["results"]
    assert ours["wrong"] and "seconds" not in ours and "oracle" in ours["reason"]
    assert fast["seconds"] and fast["ratio"] is None
    assert report.wrong == [f"{WORK}: {ours['reason']}"]


def test_e4m3_caches_are_judged() -> None:
    work = DecodeWork(MlaDecodeConfig(2, cache_dtype="fp8_e4m3", page_size=16), batch=2, keys=70)
    report = run(work, [], FakeLab(), repeats=1)
    assert report.wrong == []


def test_every_peer_is_named_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.name for one in DECODE.chosen(None)] == list(DECODE.peers)
    assert [one.name for one in DECODE.chosen(["fa3", "fa3"])] == ["fa3"]
    with pytest.raises(ConfigError, match="unknown peer 'flash'"):
        DECODE.chosen(["flash"])
    for library in ("flash_mla", "flashinfer", "flash_attn_interface", "vllm", "torch"):
        monkeypatch.setitem(sys.modules, library, None)
    for one in DECODE.chosen(None):
        with pytest.raises(PeerAbsent, match=r"not installed|does not import"):
            one.load()


def test_our_own_flash_mla_is_no_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    own = SimpleNamespace(__name__="mlagen.compat.flash_mla")
    monkeypatch.setitem(sys.modules, "flash_mla", own)
    with pytest.raises(PeerAbsent, match="mlagen's own"):
        DECODE.peer("flash_mla").load()


def test_what_flash_mla_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    library = SimpleNamespace(
        __name__="flash_mla",
        __version__="1.0.0",
        get_mla_metadata=lambda *given: ("meta", None),
        flash_mla_with_kvcache=lambda *given, **named: calls.append((given, named)) or ("o", "lse"),
    )
    monkeypatch.setitem(sys.modules, "flash_mla", library)
    one = DECODE.peer("flash_mla")
    assert one.load() == "1.0.0"
    case = FakeLab().case(WORK)
    assert one.prepare(case)() == "o"
    ((given, named),) = calls
    assert given == (case.q, case.cache, case.table, case.lengths, 512, "meta", None)
    assert named == {"softmax_scale": case.scale, "causal": True}
    for fields in ({"page_size": 16}, {"cache_dtype": "fp8_e4m3"}):
        unfit = FakeLab().case(DecodeWork(MlaDecodeConfig(4, **fields), batch=1, keys=5))
        with pytest.raises(PeerUnfit, match="only"):
            one.prepare(unfit)


def test_plots(tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ConfigError, match="no known kind"):
        check_path(tmp_path / "a.txt")
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="file is a file"):
        check_path(tmp_path / "file" / "a.svg")
    path = check_path(tmp_path / "made" / "a.svg")
    lab = FakeLab()
    plot(run(WORK, [FakePeer("fast", lab)], lab, repeats=1), path)
    text = path.read_text()
    assert "<svg" in text and len(text) > 5000
