"""The runner of FlashMLA's own tests, over a checkout of a few lines; and the names by which those
tests find kernels in a profile."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sparse_calls import artifact

import mlagen.compat

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))
import flash_mla_tests as runner

TEST = """
import dataclasses
import os
import sys
import time

@dataclasses.dataclass
class Case:
    topk: int
    h_q: int
    num_runs: int = 0
    s_q: int = 1
    d_qk: int = 576
    decode: object = None
    seed: int = -1

ran = []
full = [2]

def run_test(p):
    ran.append(p)
    print("================")
    print(f"Running on {p}")
    if p.topk == 5:
        raise ValueError("of five")
    if p.topk == 6 and full and full.pop():
        raise RuntimeError("CUDA out of memory")
    if p.num_runs:
        print("Prefill:  12 us,  600.0 TFlops, 1.00 TBps")
    if p.topk == 7:
        print("`out` mismatch")
    return p.topk != 7

if __name__ == "__main__":
    cases = [Case(topk, h_q) for topk in (4, 5, 6, 7) for h_q in (128, 64)]
    cases += [Case(8, 64, num_runs=10), Case(2048, 64, s_q=1 << 13)]
    for case in cases:
        if case.num_runs and not os.environ.get("NO_COOLDOWN"):
            time.sleep(0.3)
        if not run_test(case):
            sys.exit(1)
    print("a table")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_flash_mla_sparse_prefill.py").write_text(TEST)
    torch = SimpleNamespace(
        set_num_threads=lambda count: None, use_deterministic_algorithms=lambda on: None,
        cuda=SimpleNamespace(empty_cache=lambda: None, synchronize=lambda: None),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", torch)
    compat = SimpleNamespace(install=lambda: None)
    monkeypatch.setattr(mlagen.compat, "flash_mla", compat, raising=False)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def run(folder: Path, part: int = 0, parts: int = 1, **more: Any) -> int:
    options = {
        "folder": folder,
        "test": "prefill",
        "only": None,
        "seconds": 1e9,
        "where": "True",
        **more,
    }
    return runner.run(Namespace(**options), part, parts)


def test_cases_pass_fail_and_are_timed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder) == 4
    printed = capsys.readouterr().out
    assert "RESULT prefill part 0/1: 6 passed, 4 failed, 0 not begun" in printed
    assert printed.count("ValueError: of five") == printed.count("another result") == 2
    assert printed.count("    `out` mismatch") == 2 and "a table" not in printed
    assert printed.count("SPEED") == 1 and printed.count("\n    Prefill:  12 us,  600.0 TF") == 1
    assert printed.count("SLOW") == 3 and "Running on" not in printed


@pytest.mark.parametrize(("only", "count"), [("speed", 1), ("results", 9), (None, 10)])
def test_what_is_asked_for(folder: Path, capsys: Any, only: str | None, count: int) -> None:
    run(folder, only=only)
    found = runner.COUNTS.search(capsys.readouterr().out)
    assert found is not None and sum(map(int, found.groups())) == count
    assert run(folder, only=only, seconds=-1.0) == count
    assert f"0 passed, 0 failed, {count} not begun" in capsys.readouterr().out


def test_shares_are_whole(folder: Path) -> None:
    """Each case in one part, with the seed of a whole run; heavy ones in the first, and those of a
    kernel side by side."""
    test = runner.Test.of(folder, "prefill")
    assert [case.seed for case in test.cases] == list(range(10))
    assert not test.function.__globals__["ran"]  # none has begun
    for parts in (1, 2, 3, 20):
        found = runner.shares(test.cases, parts)
        assert len(found) == parts
        assert sorted(case.seed for share in found for case in share) == list(range(10))
        assert found[0][0].topk == 2048 and runner.weight(found[0][0]) > runner.HEAVY
        heads = [case.h_q for share in found for case in share][1:]
        assert heads == sorted(heads)
        if parts > 1:
            assert len(found[0]) == 1


def test_no_memory_is_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = runner.Test.of(folder, "prefill")
    case = next(case for case in test.cases if case.topk == 6)
    full = test.function.__globals__["full"]
    full[:] = [True] * 3
    said = runner.StringIO()
    assert runner.judged(test.function, case, said) == ""
    assert not full and said.getvalue().count("Running on") == 1
    full[:] = [True] * 100
    assert runner.judged(test.function, case, said).startswith("no memory: RuntimeError")
    assert len(full) == 100 - runner.TRIES


def test_a_gpu_that_takes_no_more_work(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    sys.modules["torch"].cuda.synchronize = fails
    assert run(folder) == 8  # the heavy case and one of four keys are before the first that fails
    printed = capsys.readouterr().out
    assert "STOPPED: the GPU takes no more work" in printed
    assert "2 passed, 1 failed, 7 not begun" in printed


STAND_IN = """
from unittest.mock import MagicMock
def __getattr__(name):
    return MagicMock()
"""


def test_a_process_for_each_share(folder: Path, capfd: Any, monkeypatch: Any) -> None:
    """All cases once; a process that dies is told of."""
    (folder / "torch.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    options = Namespace(folder=folder, test="prefill", only="results", seconds=1e9, jobs=2)
    options.where = "c.topk != 6"
    assert runner.run_parts(options) == 4
    printed = capfd.readouterr().out
    assert printed.count("FAILED") == 4 and printed.count("RESULT") == 2
    assert printed.endswith("TOTAL prefill: 3 passed, 4 failed, 0 not begun\n")
    (folder / "torch.py").write_text("raise ImportError('no torch')")
    assert runner.run_parts(options) == 2
    printed = capfd.readouterr().out
    assert "DIED part 1: exit status 1" in printed and "ImportError: no torch" in printed
    assert printed.endswith("TOTAL prefill: 0 passed, 0 failed, 0 not begun, 2 parts died\n")


def test_dense_and_decode_cases_have_kernels_too() -> None:
    dense = {"b": 128, "s_q": 1, "s_k": 4096, "is_causal": True, "h_q": 64, "d": 576}
    one, eight = (SimpleNamespace(**dense, h_kv=n, test_performance=False) for n in (1, 8))
    assert runner.kernel(one) == (1, 64, 1, False) and not runner.timed(one)
    assert runner.weight(one) < runner.HEAVY < runner.weight(eight)
    more = SimpleNamespace(b=74, extra_topk=None, extra_s_k=None)
    fields = {"s_q": 3, "s_kv": 512, "topk": 64, "h_q": 64, "d_qk": 512, "num_runs": 10}
    decode = SimpleNamespace(**fields, decode=more)
    assert runner.kernel(decode) == (512, 64, 3, False) and runner.timed(decode)
    light = runner.weight(decode)
    more.extra_topk = more.extra_s_k = 512
    assert runner.kernel(decode)[-1] and runner.weight(decode) > light


def test_names_that_flash_mla_looks_for() -> None:
    """In a profile: its own name of a kernel is part of one of ours, and of no other's."""
    looked_for = {
        "mla_sparse_prefill_sm90": "sparse_attn_fwd",
        "mla_sparse_decode_sm90": "flash_fwd_splitkv_mla_fp8_sparse_kernel",
        "mla_decode_sm90": "flash_fwd_splitkv_mla_kernel",
        "mla_decode_merge_sm90": "flash_fwd_mla_combine_kernel",
    }
    names = {kernel: artifact(kernel, {"num_heads": 8}).manifest.symbol for kernel in looked_for}
    for kernel, part in looked_for.items():
        assert [own for own, name in names.items() if part in name] == [kernel]
