"""Attacks 118 to 229: Python calls. Each is an answer or a deliberate error (`mlagen.errors`); what
a caller gives is not altered, and nothing takes seconds to be refused."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mlagen
from mlagen.errors import MlagenError

BF16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng(5)
SECONDS = 30.0  # of CPU, for one call; the emulators are compiled before


def numbers(*shape: int, dtype: Any = BF16) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


Q, K, V = numbers(1, 40, 2, 128), numbers(1, 40, 1, 128), numbers(1, 40, 1, 128)
UNALIGNED = np.frombuffer(b"\0" + Q.tobytes(), np.uint8)[1:].view(BF16).reshape(Q.shape)
BIG = np.dtype(">f4")
Change = Mapping[str, Any]

# 118 to 160: calls of MHA, by what is changed of a good one.
DENSE: dict[str, Change] = {
    "fp32": {"q": Q.astype("f4")},
    "fp16": {"k": K.astype("f2")},
    "fp64": {"v": V.astype("f8")},
    "Fortran order": {"q": np.asfortranarray(Q)},
    "strided": {"q": numbers(1, 80, 2, 128)[:, ::2]},
    "backwards": {"k": K[:, ::-1]},
    "stride of 0": {"v": np.broadcast_to(V[:, :1], V.shape)},
    "a list": {"q": Q.astype("f4").tolist()},
    "None": {"k": None},
    "a number": {"v": 3.0},
    "text": {"q": "q"},
    "other heads": {"q": numbers(1, 40, 3, 128)},
    "other depth": {"k": numbers(1, 40, 1, 64)},
    "other batch": {"k": numbers(2, 40, 1, 128)},
    "three dimensions": {"q": Q[0]},
    "five dimensions": {"q": Q[None]},
    "no rows": {"q": Q[:, :0]},
    "no keys": {"k": K[:, :0], "v": V[:, :0]},
    "K and V differ": {"v": numbers(1, 41, 1, 128)},
    "start_pos -1": {"start_pos": -1},
    "start_pos 2^31": {"start_pos": 2**31},
    "start_pos 2^40": {"start_pos": 2**40},
    "start_pos a float": {"start_pos": 1.5},
    "start_pos nan": {"start_pos": float("nan")},
    "start_pos text": {"start_pos": "1"},
    "out is q": {"out": Q},
    "out read-only": {"out": np.zeros(Q.shape, BF16)},
    "out strided": {"out": np.zeros((1, 80, 2, 128), BF16)[:, ::2]},
    "out of another shape": {"out": np.zeros((1, 40, 2, 64), BF16)},
    "out of another type": {"out": np.zeros(Q.shape, "f4")},
    "lse of none": {"lse": np.zeros((1, 2, 40), "f4")},
    "scale nan": {"scale": float("nan")},
    "scale inf": {"scale": float("inf")},
    "scale 1e300": {"scale": 1e300},
    "scale text": {"scale": "big"},
    "scale 0": {"scale": 0.0},
    "scale -1": {"scale": -1.0},
    "q_scale 2": {"q_scale": 2.0},
    "NaN": {"q": np.full_like(Q, np.nan)},
    "infinities": {"k": np.full_like(K, np.inf)},
    "big endian": {"q": Q.astype("f4").astype(BIG)},
    "objects": {"q": Q.astype(object)},
    "bits": {"q": Q.view(np.uint16)},
    "unaligned": {"q": UNALIGNED},
    "offsets of none": {"q_offsets": np.array([0, 40], np.int32)},
    "pages of none": {"page_table": np.zeros((1, 3), np.int32)},
    "sinks of none": {"sinks": np.zeros(2, "f4")},
    "max_seq_len of none": {"max_seq_len": 3},
    "a complex array": {"v": V.astype("c8")},
    "a masked array": {"q": np.ma.masked_array(Q, Q == 0)},
}  # fmt: skip
DENSE["out read-only"]["out"].setflags(write=False)  # type: ignore[index]

PAGED: dict[str, Change] = {
    "page 99": {"page_table": np.array([[99, 1, 2], [3, 4, 5]], np.int32)},
    "page -3": {"page_table": np.array([[-3, 1, 2], [3, 4, 5]], np.int32)},
    "page 2^31 - 1": {"page_table": np.array([[2**31 - 1, 1, 2], [3, 4, 5]], np.int32)},
    "pages of int64": {"page_table": np.array([[0, 1, 2], [3, 4, 5]], np.int64)},
    "pages of one row": {"page_table": np.array([[0, 1, 2]], np.int32)},
    "no pages": {"page_table": np.zeros((2, 0), np.int32)},
    "a pool of none": {"k": numbers(0, 16, 1, 128), "v": numbers(0, 16, 1, 128)},
    "length 100": {"kv_lengths": np.array([100, 30], np.int32)},
    "length -5": {"kv_lengths": np.array([-5, 30], np.int32)},
    "lengths of int64": {"kv_lengths": np.array([20, 30], np.int64)},
    "three lengths": {"kv_lengths": np.array([20, 30, 4], np.int32)},
    "offsets that fall": {"q_offsets": np.array([0, 20, 10], np.int32)},
    "offsets beyond": {"q_offsets": np.array([0, 20, 999], np.int32)},
    "offsets from 3": {"q_offsets": np.array([3, 20, 40], np.int32)},
    "offsets of int64": {"q_offsets": np.array([0, 20, 40], np.int64)},
    "offsets of floats": {"q_offsets": np.array([0, 20, 40], "f4")},
    "no offsets": {"q_offsets": None},
    "start_pos of three": {"start_pos": [0, 0, 0]},
    "max_seq_len -1": {"max_seq_len": -1},
    "max_seq_len 2^40": {"max_seq_len": 2**40},
    "nothing changed": {},
}  # fmt: skip

# 191 to 225: decode and its plans.
DECODE: dict[str, Change] = {
    "length -1": {"cache_lengths": np.array([-1, 60], np.int32)},
    "length 1000000": {"cache_lengths": np.array([1_000_000, 60], np.int32)},
    "lengths of int64": {"cache_lengths": np.array([50, 60], np.int64)},
    "lengths of floats": {"cache_lengths": np.array([50, 60], "f4")},
    "one length": {"cache_lengths": np.array([50], np.int32)},
    "page 99": {"block_table": np.array([[99], [1]], np.int32)},
    "page -1": {"block_table": np.array([[-1], [1]], np.int32)},
    "a table of floats": {"block_table": np.array([[0.0], [1.0]])},
    "no table": {"block_table": None},
    "scale nan": {"scale": float("nan")},
    "scale None": {"scale": None},
    "kv_scale 0": {"kv_scale": 0.0},
    "kv_scale nan": {"kv_scale": float("nan")},
    "kv_scales of none": {"kv_scales": np.ones((4, 64), "f4")},
    "q fp32": {"q": numbers(2, 1, 16, 576, dtype="f4")},
    "q of 15 heads": {"q": numbers(2, 1, 15, 576)},
    "q of depth 512": {"q": numbers(2, 1, 16, 512)},
    "cache strided": {"cache": numbers(8, 64, 1, 576)[::2]},
    "cache fp16": {"cache": numbers(4, 64, 1, 576, dtype="f2")},
    "cache of pages of 32": {"cache": numbers(4, 32, 1, 576)},
    "out over q": {"out": "q"},
    "out of fp16": {"out": np.zeros((2, 1, 16, 512), "f2")},
    "lse of fp64": {"lse": np.zeros((2, 16, 1), "f8")},
    "a plan of text": {"plan": "plan"},
}
PLANS: dict[str, tuple[Any, dict[str, Any]]] = {
    "blocks 10^9": ([100_000], {"blocks": 10**9}),
    "blocks 0": ([100], {"blocks": 0}),
    "blocks -3": ([100], {"blocks": -3}),
    "blocks 2.5": ([100], {"blocks": 2.5}),
    "no lengths": ([], {}),
    "lengths of text": (["a"], {}),
    "a length of -1": ([-1], {}),
    "a length of 2^40": ([2**40], {}),
    "200,000 sequences": ([5] * 200_000, {}),
    "split_keys 0": ([100], {"split_keys": 0}),
    "split_keys 63": ([100], {"split_keys": 63}),
    "together 3": ([100], {"together": 3}),
    "room of two": ([100], {"room": [1, 2]}),
    "room of -1": ([100], {"room": [-1]}),
    "q_lens of two": ([100], {"q_lens": [1, 1]}),
    "a device that there is not": ([100], {"device": "nowhere"}),
}

# 161 to 190: builds.
BUILDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "num_heads 2.5": ("mla_decode_sm90", {"num_heads": 2.5}),
    "num_heads x": ("mla_decode_sm90", {"num_heads": "x"}),
    "num_heads True": ("mla_decode_sm90", {"num_heads": True}),
    "num_heads -1": ("mla_decode_sm90", {"num_heads": -1}),
    "num_heads 0": ("mla_decode_sm90", {"num_heads": 0}),
    "num_heads 2^70": ("mla_decode_sm90", {"num_heads": 2**70}),
    "num_heads None": ("mla_decode_sm90", {"num_heads": None}),
    "a mask of nothing": ("mha_prefill_v2", {"num_heads": 2, "num_kv_heads": 1, "mask": "no"}),
    "a mask of text": ("mha_prefill_v2", {"num_heads": 2, "num_kv_heads": 1, "mask": "windowed["}),
    "depth 3": ("mha_prefill_v2", {"num_heads": 2, "num_kv_heads": 1, "depth": 3}),
    "None": (None, {}),
    "bytes": (b"x", {}),
    "nothing": ("", {}),
    "NUL": ("a\0b", {}),
    "5000 letters": ("x" * 5000, {}),
    "a list": (["mla_decode_sm90"], {}),
    "knobs 3": ("mla_decode_sm90", {"num_heads": 16, "knobs": 3}),
    "knobs of numbers": ("mla_decode_sm90", {"num_heads": 16, "knobs": {3: 4}}),
    "target 5": ("mla_decode_sm90", {"num_heads": 16, "target": 5}),
    "a target of text": ("mla_decode_sm90", {"num_heads": 16, "target": "x"}),
    "templates 5": ("mla_decode_sm90", {"num_heads": 16, "templates": 5}),
    "a misspelt size": ("mla_decode_sm90", {"num_heads": 16, "shape": {"bach": 128}}),
    "shape 3": ("mla_decode_sm90", {"num_heads": 16, "shape": 3}),
    "an unknown field": ("mla_decode_sm90", {"num_head": 16}),
    "/dev/zero": (Path("/dev/zero.py"), {}),
}


def deliberate(call: Callable[[], Any], *arrays: Any) -> Any:
    """What the call returns, or the deliberate error that it ends in."""
    given = [array for array in arrays if isinstance(array, np.ndarray) and array.dtype != object]
    before = [array.tobytes() for array in given]
    started = time.process_time()
    try:
        result = call()
    except MlagenError as error:
        assert error.message and "\n\n" not in error.message
        result = error
    assert time.process_time() - started < SECONDS
    assert [array.tobytes() for array in given] == before
    return result


@pytest.fixture(scope="module")
def dense() -> Any:
    made = mlagen.build("mha_prefill_v2", knobs={}, num_heads=2, num_kv_heads=1, mask="causal")
    made(Q, K, V)
    return made


@pytest.fixture(scope="module")
def paged() -> Any:
    return mlagen.build(
        "mha_prefill_v2", knobs={}, num_heads=2, num_kv_heads=1, ragged=True, page_size=16
    )


@pytest.fixture(scope="module")
def decode() -> Any:
    made = mlagen.build("mla_decode_sm90", knobs={}, num_heads=16)
    made(**_decode_call())
    return made


def _decode_call() -> dict[str, Any]:
    return {
        "q": numbers(2, 1, 16, 576), "cache": numbers(4, 64, 1, 576),
        "block_table": np.array([[0], [1]], np.int32),
        "cache_lengths": np.array([50, 60], np.int32), "scale": 0.05,
    }  # fmt: skip


@pytest.mark.parametrize("name", DENSE)
def test_118_calls_of_mha(dense: Any, name: str) -> None:
    arguments = {"q": Q, "k": K, "v": V, **DENSE[name]}
    deliberate(lambda: dense(**arguments), Q, K, V)


@pytest.mark.parametrize("name", PAGED)
def test_150_calls_of_mha_with_pages(paged: Any, name: str) -> None:
    pool = numbers(8, 16, 1, 128)
    arguments = {
        "q": numbers(40, 2, 128), "k": pool, "v": pool,
        "q_offsets": np.array([0, 20, 40], np.int32), "kv_lengths": np.array([20, 30], np.int32),
        "page_table": np.array([[0, 1, 2], [3, 4, 5]], np.int32), **PAGED[name],
    }  # fmt: skip
    result = deliberate(lambda: paged(**arguments), *arguments.values())
    assert name != "nothing changed" or not isinstance(result, MlagenError), result


@pytest.mark.parametrize("name", BUILDS)
def test_161_builds(name: str) -> None:
    kernel, fields = BUILDS[name]
    assert isinstance(deliberate(lambda: mlagen.build(kernel, **fields)), MlagenError)


def test_162_a_page_of_any_size() -> None:
    """No call has so large a cache: the kernel is built, or refused."""
    deliberate(lambda: mlagen.build("mla_decode_sm90", num_heads=16, page_size=2**40))


@pytest.mark.parametrize("name", DECODE)
def test_191_calls_of_decode(decode: Any, name: str) -> None:
    arguments = {**_decode_call(), **DECODE[name]}
    if isinstance(arguments.get("out"), str):
        arguments["out"] = arguments["q"][..., :512]
    given = [arguments[key] for key in ("q", "cache", "block_table", "cache_lengths")]
    deliberate(lambda: decode(**arguments), *given)


@pytest.mark.parametrize("name", PLANS)
def test_210_plans(decode: Any, name: str) -> None:
    lengths, options = PLANS[name]
    deliberate(lambda: decode.plan(lengths, **{"device": "cpu", **options}))


def test_220_a_plan_of_another_kernel(decode: Any) -> None:
    other = mlagen.build("mla_decode_sm90", knobs={}, num_heads=32).plan([50, 60], device="cpu")
    assert isinstance(deliberate(lambda: decode(**_decode_call(), plan=other)), MlagenError)


def test_229_what_is_shown(decode: Any) -> None:
    plan = decode.plan([50, 60], device="cpu")
    assert repr(plan).startswith("<MlaDecodePlan: 2 sequences") and len(repr(plan)) < 200
    for thing in (decode, plan, mlagen):
        assert len(repr(thing)) < 2000


def test_226_a_fork_after_a_call(dense: Any) -> None:
    wanted = dense(Q, K, V).tobytes()
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(sink, b"same" if dense(Q, K, V).tobytes() == wanted else b"other")
        os._exit(0)
    os.close(sink)
    with os.fdopen(source, "rb") as stream:
        assert stream.read() == b"same"
    os.waitpid(child, 0)


def test_227_threads(dense: Any) -> None:
    with ThreadPoolExecutor(8) as pool:
        built = [pool.submit(mlagen.build, "mla_prefill_reduce", num_heads=4) for _ in range(8)]
        built += [pool.submit(mlagen.build, "mla_prefill_reduce", num_heads=n) for n in range(1, 9)]
        assert len({future.result().artifact.key for future in built}) == 8
        outputs = [pool.submit(dense, Q, K, V) for _ in range(4)]
        assert len({future.result().tobytes() for future in outputs}) == 1


MANY = """
import os, resource, sys
import mlagen
def descriptors(): return len(os.listdir("/proc/self/fd"))
mlagen.build("mla_prefill_reduce", num_heads=1, knobs={})
before, memory = descriptors(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for n in range(COUNT):
    mlagen.build("mla_prefill_reduce", num_heads=1 + n % 100, knobs={})
assert descriptors() == before, "descriptors"
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
assert grown < 60_000, grown
"""


def test_228_many_builds_in_one_process(tmp_path: Path) -> None:
    count = 150 if "MLAGEN_ACCEPTANCE" in os.environ else 10
    done = subprocess.run(
        [sys.executable, "-c", MANY.replace("COUNT", str(count))], capture_output=True, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert list(tmp_path.iterdir()) == []
