"""A benchmark's work as a call to tune by, in a lab without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from fake_sparse_lab import FakeSparseLab

from mlagen.bench.workload import BenchedWorkload, built_all
from mlagen.errors import ConfigError, WrongResultError
from mlagen.families.mla_sparse.benchmark.work import PrefillWork
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.workload import PrefillWorkloads, SparseDecodeWorkloads

WORK = PrefillWork(config=MlaSparsePrefillConfig(4), rows=3, keys=100, topk=70)
MERGE = ("merge", {"num_heads": 4})


class Toy(BenchedWorkload):
    """`made`: the lab of every artifact; small calls are noted in `small`."""

    def __init__(self, made: FakeSparseLab, *given: Any) -> None:
        super().__init__(WORK, *given)
        self.made, self.small = made, []

    def lab(self, artifact: Any) -> Any:
        return self.made

    def check_small(self, lab: Any, seed: int) -> None:
        self.small.append(seed)

    def prepared(self, lab: Any, cases: Sequence[Any]) -> list[Callable[[], Any]]:
        return [lab.ours(case) for case in cases]


def build(name: str, fields: Mapping[str, Any]) -> Any:
    return f"built {name} {dict(fields)}"


def test_small_calls_and_this_one_are_checked() -> None:
    right = Toy(FakeSparseLab(), build)
    right.check(None, seed=7)  # type: ignore[arg-type]
    assert right.small == [7] and right.bytes == WORK.bytes

    def spoil(found: Any) -> None:
        found.lse[0, 0] += 0.1

    with pytest.raises(
        WrongResultError, match=r"rows=3 h=4 .* outside the exact LSE oracle's bounds"
    ):
        Toy(FakeSparseLab(spoil=spoil), build).check(None, seed=0)  # type: ignore[arg-type]


def test_copies_have_other_tensors_and_all_variants_the_same() -> None:
    class Lab(FakeSparseLab):
        def case(self, work: Any) -> Any:
            cases.append(super().case(work))
            return cases[-1]

    cases: list[Any] = []
    toy = Toy(Lab(), build)
    assert len(toy.calls(None, 3)) == 3  # type: ignore[arg-type]
    assert [case.work.seed for case in cases] == [0, 1, 2]
    assert (cases[0].q != cases[1].q).any()
    toy.calls(None, 2)  # type: ignore[arg-type]
    assert len(cases) == 3


def test_other_kernels_are_built_once() -> None:
    toy = Toy(FakeSparseLab(), build, [MERGE], built_all(build, [MERGE]))
    toy._build = lambda name, fields: pytest.fail(f"{name} is there")  # type: ignore[method-assign]
    assert toy.second(*MERGE) == "built merge {'num_heads': 4}"
    toy = Toy(FakeSparseLab(), build)
    assert toy.second("merge", {"num_heads": 4, "sink": True}) != toy.second(*MERGE)
    assert toy.second(*MERGE) is toy.second(*MERGE)


def test_calls_that_are_tuned_have_defaults() -> None:
    prefill = PrefillWorkloads(build).workload({"num_heads": 16}, {"topk": 512})
    assert str(prefill.work) == "rows=1024 h=16 keys=32768 topk=512 d=576 bf16"
    decode = SparseDecodeWorkloads(build).workload({"num_heads": 16, "rows": "v32"}, {"batch": 8})
    assert str(decode.work) == "b=8 s_q=1 h=16 keys=32768 topk=2048 d=576 v32 page=64"
    with pytest.raises(ConfigError, match="topk=2048 is above keys=100"):
        SparseDecodeWorkloads(build).workload({"num_heads": 16}, {"keys": 100})
