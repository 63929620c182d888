"""The benchmark of sparse MLA without a GPU: what is counted, who is right, what peers get."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_lab import FakePeer
from fake_sparse_lab import EmulatedLab, FakeSparseLab

from mlagen.app.build import build_artifact
from mlagen.artifact import Artifact
from mlagen.bench import BenchReport, bench
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.benchmark import PrefillBenchmark, SparseDecodeBenchmark
from mlagen.families.mla_sparse.benchmark.judge import JudgedOutputs
from mlagen.families.mla_sparse.benchmark.work import PrefillWork, SparseDecodeWork
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig as Decode
from mlagen.families.mla_sparse.kernel import sparse_kernel
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig as Prefill
from mlagen.family.peers import Adapted, PeerAbsent, PeerUnfit

PREFILL, DECODE = PrefillBenchmark(), SparseDecodeBenchmark()
ROWS = PrefillWork(config=Prefill(8), rows=9, keys=200, topk=150, least=70, invalid=20)
NARROW = PrefillWork(config=Prefill(8, dtype="fp8_e4m3"), rows=2, keys=200, topk=150)
TOKENS = SparseDecodeWork(config=Decode(8, rows="v32", q_len=2), batch=3, keys=300, topk=200)
EXTRA = SparseDecodeWork(
    config=Decode(4, rows="e4m3_block64", q_len=2, extra=True), batch=3, keys=300, topk=100,
    extra_keys=300, extra_topk=70,
)  # fmt: skip
CAUSAL = SparseDecodeWork(
    config=Decode(4, q_len=2, causal=True, shared_list=True), batch=3, keys=300, topk=100, least=50
)


def run(work: Any, peers: list[Any], lab: Any, **options: Any) -> BenchReport:
    own = DECODE if isinstance(work, SparseDecodeWork) else PREFILL
    return bench("k", own, [work], peers, lab, **options)


def test_what_prefill_counts() -> None:
    work = PrefillWork(config=Prefill(16, d_qk=512, rows="e4m3_row"), rows=5, keys=1000, topk=300)
    assert work.read == 5 * 300
    assert work.flop == 2 * 16 * (512 + 512) * 5 * 300
    # A row's scale lies beside it; lists are int32.
    assert work.bytes == 5 * 300 * (512 + 4) + 5 * 300 * 4 + 5 * 16 * (512 + 512) * 2
    assert str(work) == "rows=5 h=16 keys=1000 topk=300 d=512 e4m3_row"
    assert work.full
    lengths = ROWS.lengths
    assert len(lengths) == 9 and all(70 <= n <= 150 for n in lengths) and len(set(lengths)) > 1
    assert ROWS.read == sum(n - n * 20 // 100 for n in lengths)
    assert ROWS.distinct_bytes == 200 * 1152 + 4 * sum(lengths) + 9 * 8 * (576 + 512) * 2
    assert ROWS.bytes == ROWS.read * 1152 + 4 * sum(lengths) + 9 * 8 * (576 + 512) * 2
    assert str(ROWS) == "rows=9 h=8 keys=200 topk=70..150 d=576 bf16 invalid=20%"
    assert not ROWS.full
    assert NARROW.bytes == 2 * 150 * (1152 + 4) + 2 * 8 * (576 + 512 * 2)
    assert str(NARROW) == "rows=2 h=8 keys=200 topk=150 d=576 bf16 q fp8_e4m3"


def test_what_decode_counts() -> None:
    assert TOKENS.read == 3 * 2 * 200
    assert TOKENS.flop == 2 * 8 * (576 + 512) * TOKENS.read
    assert TOKENS.bytes == TOKENS.read * 656 + 4 * TOKENS.read + 3 * 2 * 8 * (576 + 512) * 2
    assert TOKENS.distinct_bytes == TOKENS.bytes - (TOKENS.read - 3 * 300) * 656
    assert EXTRA.distinct_bytes == EXTRA.bytes  # each list might name other rows
    assert EXTRA.read == 3 * 2 * (100 + 70)
    assert EXTRA.bytes == (
        EXTRA.read * (576 + 9 * 4) + 4 * EXTRA.read + 3 * 2 * 4 * (576 + 512) * 2
    )
    # Tokens share a list, and each place of it has a position; all tokens read the rows.
    places = sum(CAUSAL.lengths)
    assert CAUSAL.read == 2 * places
    assert CAUSAL.distinct_bytes == CAUSAL.bytes - places * 1152
    assert CAUSAL.bytes == 2 * places * 1152 + 8 * places + 3 * 2 * 4 * (576 + 512) * 2
    assert (
        str(CAUSAL) == "b=3 s_q=2 h=4 keys=300 topk=50..100 d=576 bf16 page=64 shared_list causal"
    )
    assert DECODE.works(
        EXTRA.config.to_fields(), {k: [v] for k, v in EXTRA.sizes.items() if v}
    ) == [EXTRA]
    model1 = SparseDecodeWork(config=Decode(8, d_qk=512, rows="model1"), batch=1, keys=64, topk=64)
    assert model1.row_bytes == 584


@pytest.mark.parametrize(
    ("benchmark", "fields", "sizes", "message"),
    [
        (PREFILL, {}, {"rows": 4, "keys": 8}, "the size topk is missing"),
        (PREFILL, {}, {"rows": 0, "keys": 8, "topk": 8}, "rows=0 is not at least 1"),
        (PREFILL, {}, {"rows": 4, "keys": 8, "topk": 9}, "topk=9 is above keys=8"),
        (PREFILL, {}, {"rows": 4, "keys": 8, "topk": 8, "least": 9}, "least=9 is above topk=8"),
        (PREFILL, {}, {"rows": 4, "keys": 8, "topk": 8, "least": 0}, "least=0"),
        (PREFILL, {}, {"rows": 4, "keys": 8, "topk": 8, "invalid": 100}, "invalid=100"),
        (PREFILL, {}, {"rows": 4, "keys": 8, "topk": 8, "invalid": -1}, "invalid=-1"),
        (PREFILL, {}, {"rows": 4, "keys": 8, "topk": 8, "sorted": 2}, "sorted=2"),
        (DECODE, {}, {"batch": 1, "keys": 8, "topk": 8, "page_size": 0}, "page_size=0"),
        (DECODE, {}, {"batch": 1, "keys": 8, "topk": 8, "extra_topk": 3}, "no second cache"),
        (DECODE, {"extra": True}, {"batch": 1, "keys": 8, "topk": 8}, "extra_keys is missing"),
        (DECODE, {"extra": True}, {"batch": 1, "keys": 8, "topk": 8, "extra_keys": 4,
                                   "extra_topk": 5}, "extra_topk=5 is above extra_keys=4"),
        (DECODE, {"causal": True, "q_len": 4}, {"batch": 1, "keys": 3, "topk": 3}, "q_len=4"),
    ],
)  # fmt: skip
def test_sizes_that_no_call_has(
    benchmark: Any, fields: dict[str, Any], sizes: dict[str, int], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        benchmark.works({"num_heads": 8, **fields}, {name: [size] for name, size in sizes.items()})


@pytest.mark.parametrize("work", [ROWS, TOKENS, EXTRA, CAUSAL], ids=str)
def test_a_right_kernel_is_timed(work: Any) -> None:
    lab = FakeSparseLab(seconds=2e-3)
    peers = [FakePeer("fast", lab, 1e-3), FakePeer("wrong", lab, 1e-4, off=1.25)]
    report = run(work, peers, lab, repeats=2)
    ours, fast, wrong = report.to_json()["rows"][0]["results"]
    assert report.wrong == []
    assert ours["TFLOP/s"] == pytest.approx(work.flop / 2e-3 / 1e12)
    assert ours["GB/s"] == pytest.approx(work.bytes / 2e-3 / 1e9)
    assert fast["ratio"] == pytest.approx(0.5)
    assert wrong["wrong"] and "relative error" in wrong["reason"] and "seconds" not in wrong


def spoil_number(found: JudgedOutputs) -> None:
    found.out.reshape(-1, found.out.shape[-2], 512)[-1, 0, 7] += 0.5


def spoil_nan(found: JudgedOutputs) -> None:
    found.out[1, ..., 3, 500] = np.nan  # neither a row nor a head that is compared


def spoil_lse(found: JudgedOutputs) -> None:
    found.lse[0] += 0.01


def spoil_top(found: JudgedOutputs) -> None:
    found.max_logits[-1, -1] += 0.01


def spoil_heads(found: JudgedOutputs) -> None:
    found.out[..., -1, :] = found.out[..., 0, :]


@pytest.mark.parametrize(
    ("work", "spoil"),
    [
        (ROWS, spoil_number), (ROWS, spoil_nan), (ROWS, spoil_lse), (ROWS, spoil_top),
        (ROWS, spoil_heads), (TOKENS, spoil_number), (TOKENS, spoil_lse), (TOKENS, spoil_heads),
    ],
)  # fmt: skip
def test_a_wrong_kernel_is_not_timed(work: Any, spoil: Any) -> None:
    lab = FakeSparseLab(spoil=spoil)
    report = run(work, [FakePeer("fast", lab)], lab, repeats=1)
    ours, fast = report.to_json()["rows"][0]["results"]
    assert ours["wrong"] and "seconds" not in ours
    assert ("NaN" if spoil is spoil_nan else "oracle") in ours["reason"]
    assert fast["seconds"] and fast["ratio"] is None
    assert report.wrong == [f"{work}: {ours['reason']}"]


def build(name: str, fields: Any) -> Artifact:
    return build_artifact(name, fields, {})


@pytest.mark.parametrize(
    ("name", "work", "more"),
    [
        ("mla_sparse_prefill_sm90", ROWS, {}),
        ("mla_sparse_prefill_sm90", NARROW, {}),
        ("mla_sparse_decode_sm90", TOKENS, {"splits": 2}),
    ],
)
def test_a_kernel_is_judged_in_the_splits_that_it_ran_with(
    name: str, work: Any, more: dict[str, int]
) -> None:
    kernel = sparse_kernel(build(name, work.config.to_fields()), build=build)
    lab = EmulatedLab(kernel, **more)
    case = lab.case(work)
    output = lab.ours(case)()
    assert output.splits == more.get("splits", 1)
    verdict = lab.judge(case).ours(output)
    assert verdict.wrong == "" and verdict.error < 2.0**-7


# ---- peers --------------------------------------------------------------------------------------


def test_every_peer_is_named_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PREFILL.peers == DECODE.peers
    assert {"flash_mla", "flash_mla_vllm", "fa3_vllm", "flashinfer", "tilelang"} <= set(
        DECODE.peers
    )
    for library in ("flash_mla", "flashinfer", "vllm", "tilelang", "torch"):
        monkeypatch.setitem(sys.modules, library, None)
    for one in DECODE.chosen(None):
        with pytest.raises(PeerAbsent, match=r"not installed|does not import"):
            one.load()


class Library(SimpleNamespace):
    """FlashMLA: keeps what it is given, and returns zeros."""

    def __init__(self) -> None:
        super().__init__(__name__="flash_mla", __version__="1.0.0", calls=[])

    def get_mla_metadata(self) -> Any:
        return "meta", None

    def flash_mla_sparse_fwd(self, *given: Any) -> Any:
        self.calls.append((given, {}))
        q = given[0]
        return q.new_zeros((*q.shape[:-1], 512)), None, None

    def flash_mla_with_kvcache(self, *given: Any, **named: Any) -> Any:
        self.calls.append((given, named))
        q = given[0]
        return q.new_zeros((*q.shape[:-1], 512)), None


@pytest.fixture
def flash_mla(monkeypatch: pytest.MonkeyPatch) -> Any:
    library = Library()
    monkeypatch.setitem(sys.modules, "flash_mla", library)
    one = DECODE.peer("flash_mla")
    assert one.load() == "1.0.0"
    return one, library.calls


def test_flash_mla_prefills_as_it_is_asked(flash_mla: Any) -> None:
    one, calls = flash_mla
    case = FakeSparseLab().case(PrefillWork(config=Prefill(64), rows=3, keys=200, topk=128))
    call = one.prepare(case)
    assert not isinstance(call, Adapted)
    assert call().shape == (3, 64, 512)
    (q, kv, lists, scale, d_v, sink, lengths), _ = calls[0]
    assert np.shares_memory(q, case.q) and kv.shape == (200, 1, 576)
    assert lists.shape == (3, 1, 128) and (lists[:, 0] == case.indices).all()
    assert (scale, d_v, sink, lengths) == (case.scale, 512, None, None)


def test_flash_mla_decodes_its_own_rows(flash_mla: Any) -> None:
    one, calls = flash_mla
    work = SparseDecodeWork(config=Decode(128, rows="v32", q_len=2), batch=2, keys=100, topk=64)
    case = FakeSparseLab().case(work)
    call = one.prepare(case)
    assert not isinstance(call, Adapted)
    assert call().shape == (2, 2, 128, 512)
    (given, named) = calls[0]
    assert given[1].shape == (1, 100, 1, 656) and given[2:] == (None, None, 512, "meta", None)
    assert named["is_fp8_kvcache"] and not named["causal"]
    assert (named["indices"] == case.indices).all() and named["softmax_scale"] == case.scale


def test_what_is_made_to_fit_stands_in_the_name(flash_mla: Any) -> None:
    one, calls = flash_mla
    work = PrefillWork(config=Prefill(8, rows="v32"), rows=3, keys=200, topk=150)
    lab = FakeSparseLab()
    case = lab.case(work)
    call = one.prepare(case)
    assert call.how == "64 heads, bf16 rows, lists of 256"
    assert call().shape == (3, 8, 512)
    (q, kv, lists, *_), _ = calls[0]
    assert q.shape == (3, 64, 576) and (q[:, :8] == case.q).all() and not q[:, 8:].any()
    assert kv.dtype == case.q.dtype and kv.shape == (200, 1, 576)
    assert (lists[:, 0, :150] == case.indices).all() and (lists[:, 0, 150:] == -1).all()
    report = run(work, [one], lab, repeats=1)
    assert report.to_json()["rows"][0]["results"][1]["name"] == f"flash_mla ({call.how})"
    # Decode of rows that its decoding does not read is its prefill over bf16 rows, too.
    work = SparseDecodeWork(config=Decode(16, rows="e4m3"), batch=2, keys=128, topk=128)
    call = one.prepare(lab.case(work))
    assert call.how == "64 heads, bf16 rows" and call().shape == (2, 1, 16, 512)


def test_what_peers_do_not_do(flash_mla: Any) -> None:
    one, _ = flash_mla
    lab = FakeSparseLab()
    with pytest.raises(PeerUnfit, match="one cache only"):
        one.prepare(lab.case(EXTRA))
    shared = SparseDecodeWork(
        config=Decode(64, rows="v32", shared_list=True), batch=2, keys=64, topk=64
    )
    with pytest.raises(PeerUnfit, match="a list for each token"):
        one.prepare(lab.case(shared))
    with pytest.raises(PeerUnfit, match="does the same"):
        DECODE.peer("flash_mla_vllm_64").prepare(lab.case(TOKENS))
    with pytest.raises(PeerUnfit, match="full lists only"):
        DECODE.peer("torch_sdpa").prepare(lab.case(ROWS))


def test_what_vllm_s_operators_are_given() -> None:
    """Arguments that a later version has besides are None."""
    calls: list[Any] = []

    def operator(count: int, found: Any) -> Any:
        schema = SimpleNamespace(arguments=[None] * count)

        def run(*given: Any) -> Any:
            assert len(given) == count
            calls.append(given)
            q = given[0]
            return (q.new_zeros((*q.shape[:-1], 512)), *found)

        run.default = SimpleNamespace(_schema=schema)  # type: ignore[attr-defined]
        return run

    lab = FakeSparseLab()
    one: Any = DECODE.peer("flash_mla_vllm")
    one.operators = SimpleNamespace(
        sparse_prefill_fwd=operator(8, ("max", "lse")),
        sparse_decode_fwd=operator(13, ("lse", "meta", "splits")),
    )
    work = PrefillWork(config=Prefill(13), rows=3, keys=200, topk=128)
    call = one.prepare(lab.case(work))
    assert call.how == "16 heads" and call().shape == (3, 13, 512)
    call = one.prepare(lab.case(TOKENS))
    assert call.how == "64 heads, lists of 256" and call().shape == (3, 2, 8, 512)
    made, again = calls[1:]
    assert made[5:7] == (None, None) and again[5:7] == ("meta", "splits")
    assert made[10:] == again[10:] == (512, again[11], None)
