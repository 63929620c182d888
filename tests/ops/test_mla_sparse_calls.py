"""Sparse MLA kernels on numpy arrays: right, whatever the layout; what is refused; what is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from sparse_calls import alone, artifact, given, kernel, right

from mlagen.attention.latent.block_sizes import TOGETHER
from mlagen.attention.latent.call_tensors import HostMemory
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.kept import Kept
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.splits import merges, parts_of, split_count
from mlagen.launch import LaunchReport

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
SINK = [0.5, -1.0, np.inf, -np.inf, 3.0, 0.0, 1.0, 2.0]


class Recorder:
    """A launcher that keeps what it was given."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def launch(self, artifact: Any, *, tensors: Any, scalars: Any, sizes: Any) -> LaunchReport:
        self.calls.append((artifact.manifest.problem, tensors, scalars, sizes))
        return LaunchReport("recorded", (1, 1, 1), (128, 1, 1), 0.0)


def prefill(fields: dict[str, Any], **shape: Any) -> tuple[Any, Any]:
    made = kernel("prefill", **fields)
    shape = {"rows": 3, "topk": 70, "cache_rows": 128, "lengths": (70, 0, 9), **shape}
    return made, mla_sparse_prefill_inputs(made.config, **shape)


def decode(fields: dict[str, Any], **shape: Any) -> tuple[Any, Any]:
    made = kernel("decode", **fields)
    if fields.get("extra"):
        shape = {"extra_topk": 70, "extra_lengths": (70, 0), **shape}
    shape = {"batch": 2, "topk": 150, "cache_rows": 256, "lengths": (150, 3), **shape}
    return made, mla_sparse_decode_inputs(made.config, **shape)


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ({"num_heads": 8}, {"page_size": 16, "layers": 2, "room": 32, "sink": SINK}),
        ({"num_heads": 8, "rows": "v32"}, {"page_size": 8, "layers": 2}),
        ({"num_heads": 8, "rows": "e4m3_block64", "d_qk": 512}, {"room": 16}),
        ({"num_heads": 3, "rows": "e4m3", "dtype": "fp8_e4m3"}, {"page_size": 1, "layers": 2}),
        ({"num_heads": 65}, {"page_size": 32, "layers": 2, "room": 16, "lengths": None}),
        ({"num_heads": 40, "rows": "v32", "dtype": "fp8_e4m3"}, {"sink": [1.0] * 40}),
    ],
    ids=str,
)
def test_prefill(fields: dict[str, Any], shape: dict[str, Any]) -> None:
    made, inputs = prefill(fields, **shape)
    right(made, inputs, made(**given(inputs)))


def test_a_small_scale_of_rows_that_are_nearly_zero() -> None:
    """What undoes that a row of Q was multiplied, times the scale, is below all numbers: a key past
    the list's end, whose score is -inf, still has no weight, and no NaN."""
    made, inputs = decode({"num_heads": 8, "rows": "v32"})
    q = (inputs.q.astype(np.float32) * 2.0**-130).astype(inputs.q.dtype)
    inputs = replace(inputs, q=q, scale=2.0**-30)
    right(made, inputs, made(**given(inputs)))


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize(
    "fields",
    [
        {"num_heads": 8, "rows": "v32", "q_len": 2},
        {"num_heads": 5, "rows": "model1", "d_qk": 512, "q_len": 2, "extra": True},
        {"num_heads": 8, "rows": "e4m3_row", "q_len": 2, "causal": True, "shared_list": True},
    ],
    ids=str,
)
def test_decode(fields: dict[str, Any], splits: int) -> None:
    made, inputs = decode(fields, page_size=32, layers=2)
    run = made.run(**given(inputs, splits=splits))
    right(made, inputs, (run.output, run.lse), splits)
    assert run.reports[0].grid[0] == 4 * splits and len(run.reports) == 1


def test_splits_follow_from_the_shape() -> None:
    """Two blocks an SM, which put parts together, or leave them to a kernel that merges where there
    is one."""
    made, inputs = decode({"num_heads": 8}, topk=300, lengths=None)
    for call, splits, grids in (
        ({}, 4, [8]), ({"together": 1}, 5, [10, 4]), ({"splits": 3}, 3, [6, 2]),
        ({"splits": 2}, 2, [4]), ({"together": 2}, 2, [4]),
    ):  # fmt: skip
        run = made.run(**given(inputs, **call))
        right(made, inputs, (run.output, run.lse), splits=splits)
        assert [report.grid[0] for report in run.reports] == grids
    single = alone("decode", num_heads=8)
    run = single.run(**given(inputs))
    assert [report.grid[0] for report in run.reports] == [8]
    right(single, inputs, (run.output, run.lse), splits=4)
    with pytest.raises(ConfigError, match="splits=3: this kernel has no merge kernel beside it"):
        single(**given(inputs, splits=3))
    for wrong in ({"splits": 4, "together": 2}, {"together": 3}):
        with pytest.raises(ConfigError, match=f"together={wrong['together']} of splits="):
            made(**given(inputs, **wrong))
    many, inputs = decode({"num_heads": 70}, batch=1, topk=130, lengths=None)
    with pytest.raises(ConfigError, match="together=2: blocks of this kernel put no parts"):
        many(**given(inputs, together=2))


def test_parts_that_are_put_together_again() -> None:
    """What tells the parts of a call that they have come is as it was before: another call of the
    same kernel, of more parts, is right, too, and so is one without keys."""
    made, inputs = decode({"num_heads": 16, "rows": "v32"}, topk=300, lengths=(300, 0))
    for splits in (2, 4, 2, 3, 4):
        run = made.run(**given(inputs, splits=splits))
        right(made, inputs, (run.output, run.lse), splits=splits)
    infinite = made.run(**given(inputs, splits=4, empty_lse="+inf"))
    assert np.isposinf(infinite.lse[1]).all() and not np.isinf(infinite.lse[0]).any()


def test_decode_of_many_heads() -> None:
    """A query's heads are several units, which are merged one by one."""
    made, inputs = decode({"num_heads": 70, "q_len": 2}, batch=1, lengths=None)
    for splits in (1, 2):
        run = made.run(**given(inputs, splits=splits))
        right(made, inputs, (run.output, run.lse), splits)
        assert run.reports[0].grid[0] == 4 * splits
    launcher = Recorder()
    recorded = kernel("decode", launcher, num_heads=70, q_len=2)
    recorded(**given(mla_sparse_decode_inputs(recorded.config, batch=11, topk=640)))
    # 44 units, one block an SM: three parts, of at most four tiles
    assert launcher.calls[0][3] == {"blocks": 44 * 3}


@pytest.mark.parametrize("queries", [1, 3, 66, 131, 132, 133, 200, 264, 1000])
@pytest.mark.parametrize("tiles", [1, 2, 3, 7, 32, 33, 128])
def test_split_count(queries: int, tiles: int) -> None:
    count = split_count(queries, tiles, 132, 2)
    assert count >= 1
    if count > 1:
        assert queries * count <= 264  # one wave
        each = -(-tiles // count)
        assert -(-tiles // each) == count  # no part is empty
        assert each > 1 or queries * count <= 132  # an SM a part of one tile
    else:
        assert queries > 132 or tiles == 1 or (tiles == 2 and queries > 66)


@pytest.mark.parametrize("queries", [1, 3, 8, 24, 48, 66, 131, 132, 133, 264, 1000])
@pytest.mark.parametrize("tiles", [1, 2, 3, 7, 32, 33, 128])
def test_parts_that_blocks_put_together(queries: int, tiles: int) -> None:
    """All of them run at once, none of a list that is long enough is empty, and where there is no
    merge kernel none is left to it."""
    for merged in (True, False):
        for heads in (8, 32):
            count, together = parts_of(
                queries, tiles, 132, 2, merges=merged, blocks=True, heads=heads, rows="v32"
            )
            assert count == 1 or queries * count <= 264
            assert count <= tiles
            assert together in (count, 1) and (together == count or merged)
            assert together == count or (count > 16 and heads == 8)
            assert together in TOGETHER
            assert count > 1 or queries > 66 or tiles <= 2
    assert parts_of(queries, tiles, 132, 2, merges=False, blocks=False, heads=8) == (1, 1)


@pytest.mark.parametrize("heads", [5, 64, 70, 128])
def test_merges_name_each_row_once(heads: int) -> None:
    """Lines of all merges cover each query's heads, two a row, and say where its LSE lies."""
    batch, q_len = 3, 2
    for splits in (2, 9, 40):
        seen: list[tuple[int, int]] = []
        slots = set()
        for slot, count, row, rows, above, lse_at, first, share in merges(
            batch, q_len, heads, splits
        ).tolist():
            query, head = divmod(row, heads)
            assert head % 64 == 0 and rows == min(64, heads - head) and count == splits
            assert (
                above == query % q_len * heads + head and lse_at == query // q_len * heads * q_len
            )
            slots.add(slot)
            lines = range(first, first + (16 >> share))
            seen += [(row + line // 2, line % 2) for line in lines if line < 2 * rows]
        assert sorted(seen) == [(n, half) for n in range(batch * q_len * heads) for half in (0, 1)]
        assert sorted(slots) == list(range(0, len(slots) * splits, splits))
        assert len(slots) == batch * q_len * -(-heads // 64)


def test_layouts_do_not_change_bits() -> None:
    """Gaps between lists, rows and pages."""
    made, inputs = prefill({"num_heads": 8}, page_size=16, lengths=None)
    first = made(**given(inputs))
    wide = np.full((3, 90), 7, np.int32)
    wide[:, :70] = inputs.indices
    pool = np.full((8, 20, 600), np.nan, BF16)
    pool[:, :16, :576] = inputs.cache
    flat = np.full((128, 576 + 8), np.nan, BF16)
    flat[:, :576] = inputs.cache.reshape(128, 576)
    for changes in (
        {"indices": wide[:, :70]},
        {"cache": pool[:, :16, :576]},
        {"cache": pool[:, :16, None, :576]},
        {"cache": flat[:, :576]},
        {"cache": flat[:, None, :576]},
        {"indices": np.broadcast_to(inputs.indices[:1], (3, 70)), "q": inputs.q[[0, 0, 0]]},
    ):
        again = made(**given(inputs, **changes))
        for one, other in zip(first, again, strict=True):
            if "q" in changes:
                one, other = np.repeat(one[:1], 3, axis=0), other
            assert one.tobytes() == other.tobytes(), changes.keys()


def test_lists_of_new_tokens_may_have_gaps() -> None:
    made, inputs = decode({"num_heads": 8, "q_len": 2}, lengths=None)
    first = made(**given(inputs))
    wide = np.full((2, 2, 200), 7, np.int32)
    wide[:, :, :150] = inputs.indices
    again = made(**given(inputs, indices=wide[:, :, :150]))
    assert [x.tobytes() for x in first] == [x.tobytes() for x in again]
    uneven = np.full((2, 3, 150), 7, np.int32)
    uneven[:, :2] = inputs.indices
    with pytest.raises(ConfigError, match="lists are not all as far from the one before"):
        made(**given(inputs, indices=uneven[:, :2]))


def test_what_is_not_given() -> None:
    """Is what it says it stands for, made once."""
    made, inputs = prefill({"num_heads": 8}, lengths=None)
    first = made(**given(inputs))
    again = made(
        **given(
            inputs,
            topk_length=np.full(3, 70, np.int32),
            sink=np.full(8, -np.inf, np.float32),
            out=np.zeros((3, 8, 512), BF16),
        )
    )
    assert [x.tobytes() for x in first] == [x.tobytes() for x in again]
    kept = made._kept["cpu"]
    lengths, sink = kept.lengths(3), kept.no_sink(8)
    made(**given(inputs))
    assert kept.lengths(3) is lengths and kept.no_sink(8) is sink and len(kept._lengths) == 1


def test_kept_lengths_grow() -> None:
    kept = Kept(HostMemory())
    small = kept.lengths(3)
    assert kept.lengths(64) is small and len(small) == 64
    large = kept.lengths(65)
    assert len(large) == 128 and kept.lengths(2) is large and kept._lengths[0] is small


@pytest.mark.parametrize("which", ["prefill", "decode"])
def test_queries_without_keys(which: str) -> None:
    if which == "prefill":
        made, inputs = prefill({"num_heads": 8}, pattern="none", lengths=None)
    else:
        made, inputs = decode({"num_heads": 8}, pattern="none", lengths=None)
    for sign, value in (("-inf", -np.inf), ("+inf", np.inf)):
        out, lse, *most = made(**given(inputs, empty_lse=sign))
        assert not out.any() and (lse == value).all()
        assert all((x == -np.inf).all() for x in most)


@pytest.mark.parametrize("call", [{"splits": 1}, {"splits": 2}, {"splits": 2, "together": 1}])
def test_prepared_calls_give_the_same_bits(call: dict[str, int]) -> None:
    made, inputs = decode({"num_heads": 8, "rows": "v32"})
    first = made(**given(inputs, **call))
    prepared = made.prepare(**given(inputs, **call))
    assert len(prepared.launches) == len(call) and prepared.max_logits is None
    for _ in range(2):
        prepared.output[...] = np.nan
        prepared()
        assert [x.tobytes() for x in first] == [
            x.tobytes() for x in (prepared.output, prepared.lse)
        ]
    inputs.indices[...] = -1  # contents may change
    prepared()
    assert not prepared.output.any() and (prepared.lse == -np.inf).all()


def test_empty_calls_launch_nothing() -> None:
    for which, q, lists in (
        ("prefill", (0, 8, 576), (0, 70)),
        ("decode", (0, 1, 8, 576), (0, 1, 70)),
    ):
        launcher = Recorder()
        made = kernel(which, launcher, num_heads=8)
        call = {"q": np.zeros(q, BF16), "cache": np.zeros((4, 16, 576), BF16),
                "indices": np.zeros(lists, np.int32), "scale": 0.1}  # fmt: skip
        out, lse, *_ = made(**call)
        assert out.shape == (*q[:-1], 512) and lse.size == 0 and not launcher.calls
        assert made.run(**call).reports == () and made.prepare(**call).launches == ()


def test_what_launchers_are_given() -> None:
    launcher = Recorder()
    made = kernel("prefill", launcher, num_heads=128)
    inputs = mla_sparse_prefill_inputs(made.config, rows=3, topk=70)
    made(**given(inputs))
    _, tensors, scalars, sizes = launcher.calls[-1]
    assert scalars["units"] == 6 and sizes == {"blocks": 6} and tensors["q"] is inputs.q
    many = mla_sparse_prefill_inputs(made.config, rows=100, topk=2)
    made(**given(many))
    assert launcher.calls[-1][2]["units"] == 200 and launcher.calls[-1][3] == {"blocks": 132}


def test_a_merge_with_sinks() -> None:
    """Is another kernel than the one without."""
    built: list[Any] = []

    def build(name: str, fields: Any) -> Any:
        built.append((name, dict(fields)))
        return artifact(name, fields)

    launcher = Recorder()
    made = kernel("decode", launcher, num_heads=8)
    made._build = build
    inputs = mla_sparse_decode_inputs(made.config, batch=2, topk=200, sink=SINK)
    for changes, named in (
        ({"sink": None}, {"num_heads": 8}),
        ({}, {"num_heads": 8, "sink": True}),
        ({"sink": None, "empty_lse": "+inf"}, None),
    ):
        launcher.calls.clear()
        made(**given(inputs, splits=3, **changes))
        (_, own, numbers, sizes), (_, tensors, scalars, _) = launcher.calls
        assert sizes == {"blocks": 6} and numbers["splits"] == 3
        assert tensors["partial_o"] is own["partial_o"] and scalars["lse_stride"] == 1
        if "sink" in tensors:
            assert tensors["sink"] is own["sink"]
            assert scalars["empty_lse"] == numbers["empty_lse"]
        assert ("sink" in tensors) == (named is None or "sink" in named)
        if named is not None:
            assert built[-1] == ("mla_decode_merge_sm90", named)
    assert len(built) == 2


REFUSED: list[tuple[str, dict[str, Any], Any, str]] = [
    ("prefill", {}, lambda i: {"indices": i.indices.astype(np.int64)}, "indices has dtype int64"),
    ("prefill", {}, lambda i: {"indices": i.indices[:, :0]}, r"indices has shape \(3, 0\)"),
    ("prefill", {}, lambda i: {"indices": i.indices[:2]}, r"indices has shape \(2, 70\)"),
    ("prefill", {}, lambda i: {"indices": i.indices[:, ::2]}, "do not follow each other"),
    ("prefill", {}, lambda i: {"indices": None}, "indices is None"),
    ("prefill", {}, lambda i: {"cache": i.cache[..., :575]}, r"cache has shape \(1, 128, 575\)"),
    ("prefill", {}, lambda i: {"cache": i.cache.astype(E4M3)}, "cache has dtype float8_e4m3fn"),
    ("prefill", {}, lambda i: {"cache": i.cache[:, :0]}, r"cache has shape \(1, 0, 576\)"),
    ("prefill", {}, lambda i: {"cache": i.cache[:, ::-1]}, "its rows overlap"),
    ("prefill", {}, lambda i: {"cache": np.zeros((1, 128, 580), BF16)[..., :576]},
     "rows lie 1160 bytes apart"),
    ("prefill", {}, lambda i: {"q": i.q[:, :4]}, r"q has shape \(3, 4, 576\)"),
    ("prefill", {}, lambda i: {"q": i.q.astype(np.float16)}, "q has dtype float16"),
    ("prefill", {}, lambda i: {"q": np.zeros((3, 8, 640), BF16)[..., :576]}, "q is not contiguous"),
    ("prefill", {}, lambda i: {"topk_length": np.zeros(4, np.int32)}, "topk_length has shape"),
    ("prefill", {}, lambda i: {"topk_length": np.zeros(6, np.int32)[::2]},
     "topk_length is not contiguous"),
    ("prefill", {}, lambda i: {"sink": np.zeros(4, np.float32)}, r"sink has shape \(4,\)"),
    ("prefill", {}, lambda i: {"sink": np.full(8, np.nan, np.float32)}, r"sink\[0\] is NaN"),
    ("prefill", {}, lambda i: {"kv_scales": np.ones(128, np.float32)}, "no scales beside"),
    ("prefill", {}, lambda i: {"kv_scale": 2.0}, "kv_scale=2.0"),
    ("prefill", {}, lambda i: {"q_scale": 2.0}, "q_scale=2.0: bf16 queries are the numbers"),
    ("prefill", {}, lambda i: {"q": i.q.astype(E4M3)}, "q has dtype float8_e4m3fn"),
    ("prefill", {"dtype": "fp8_e4m3"}, lambda i: {"q": i.q.astype(BF16)}, "q has dtype bfloat16"),
    ("prefill", {"dtype": "fp8_e4m3"}, lambda i: {"q_scale": np.nan}, "q_scale=nan must be"),
    ("decode", {"dtype": "fp8_e4m3"}, lambda i: {"q_scale": 0.0}, "q_scale=0.0 must be positive"),
    ("prefill", {}, lambda i: {"scale": 0.0}, "scale=0.0 must be positive"),
    ("prefill", {}, lambda i: {"empty_lse": "0"}, "empty_lse='0'"),
    ("prefill", {}, lambda i: {"out": i.q[..., :512]}, "out is not contiguous"),
    ("prefill", {}, lambda i: {"out": np.zeros((3, 8, 512), np.float32)}, "out has dtype float32"),
    ("prefill", {}, lambda i: {"lse": i.scale}, "lse is a float, no tensor"),
    ("prefill", {}, lambda i: {"out": np.zeros((3, 8, 512), BF16),
                               "lse": np.zeros((3, 9), np.float32)}, "lse has shape"),
    ("prefill", {"rows": "e4m3_row"}, lambda i: {"kv_scales": None}, "kv_scales are missing"),
    ("prefill", {"rows": "e4m3_row"}, lambda i: {"kv_scales": i.kv_scales[:9]},
     r"kv_scales has shape \(9,\)"),
    ("prefill", {"rows": "e4m3_row"}, lambda i: {"kv_scales": i.kv_scales * np.float32(np.nan)},
     "has the scale nan"),
    ("prefill", {"rows": "e4m3_row"}, lambda i: {"kv_scales": -abs(i.kv_scales) - 1},
     "has the scale -"),
    ("decode", {}, lambda i: {"positions": i.indices}, "positions is given"),
    ("decode", {}, lambda i: {"extra_topk_length": i.topk_length}, "extra_topk_length is given"),
    ("decode", {}, lambda i: {"splits": 0}, "splits=0"),
    ("decode", {}, lambda i: {"splits": 4}, "splits=4 of lists of 3 tiles"),
    ("decode", {}, lambda i: {"split_keys": 96}, "split_keys=96"),
    ("decode", {}, lambda i: {"split_keys": 0}, "split_keys=0"),
    ("decode", {}, lambda i: {"splits": 1, "split_keys": 64}, "both say how keys are divided"),
    ("decode", {}, lambda i: {"q": i.q[0]}, "q has shape"),
    ("decode", {"extra": True}, lambda i: {"extra_cache": None}, "extra_cache is missing"),
    ("decode", {"extra": True}, lambda i: {"extra_indices": i.extra_indices[..., :0]},
     "extra_indices has shape"),
    ("decode", {"causal": True}, lambda i: {"positions": None}, "positions is missing"),
    ("decode", {"causal": True},
     lambda i: {"positions": np.zeros((2, 1, 160), np.int32)[..., :150]},
     "positions lie 160 numbers apart"),
]  # fmt: skip


@pytest.mark.parametrize("target", ["sm90", "sm100"])
@pytest.mark.parametrize(
    ("which", "fields", "change", "words"), REFUSED, ids=[entry[3] for entry in REFUSED]
)
def test_what_is_refused(which: str, fields: Any, change: Any, words: str, target: str) -> None:
    launcher = Recorder()
    made = kernel(which, launcher, target, num_heads=8, **fields)
    make = prefill if which == "prefill" else decode
    _, inputs = make({"num_heads": 8, **fields})
    with pytest.raises(ConfigError, match=words):
        made(**given(inputs, **change(inputs)))
    assert not launcher.calls
    made(**given(inputs))
    assert launcher.calls


def test_outputs_do_not_lie_in_inputs() -> None:
    launcher = Recorder()
    made = kernel("prefill", launcher, num_heads=8)
    inputs = mla_sparse_prefill_inputs(made.config, rows=3, topk=70)
    room = np.zeros(2 * 3 * 8 * 576, np.uint8)
    q = room.view(BF16).reshape(3, 8, 576)
    for changes, words in (
        ({"q": q, "out": room.view(BF16)[: 3 * 8 * 512].reshape(3, 8, 512)}, "out overlaps q"),
        ({"q": q, "lse": room.view(np.float32)[:24].reshape(3, 8)}, "lse overlaps q"),
    ):
        with pytest.raises(ConfigError, match=words):
            made(**given(inputs, **changes))
    assert not launcher.calls


@pytest.mark.parametrize(("heads", "splits"), [(8, 2), (70, 2), (8, 5)])
@pytest.mark.parametrize("empty", ["-inf", "+inf"])
def test_sinks_of_split_keys_are_the_merge_s(heads, splits, empty):
    made = kernel("decode", num_heads=heads, q_len=2)
    sink = np.linspace(-3, 20, heads)
    sink[:2] = np.inf, -np.inf
    inputs = mla_sparse_decode_inputs(
        made.config, batch=2, topk=330, lengths=(330, 0), sink=sink.tolist()
    )
    o, lse = made(**given(inputs, splits=splits, empty_lse=empty))
    assert (lse[1] == float(empty)).all()
    right(made, inputs, (o, np.where(np.isposinf(lse), -np.inf, lse)), splits)
