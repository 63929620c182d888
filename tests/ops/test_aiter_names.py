"""AITER's names of MLA decode: right by the exact oracle on arrays and on tensors of a stand-in of
torch, the reduction alone, what is refused, and what `install` replaces."""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy_torch import Emulating, Tensor, installed

from mlagen.app.build import build_artifact
from mlagen.attention.latent.order import BY_WAVES
from mlagen.compat import aiter
from mlagen.errors import ConfigError, UnsupportedError
from mlagen.families.mla_decode.aiter_kernel import AiterDecodeKernel
from mlagen.families.mla_decode.aiter_plan import aiter_arrays, plan_aiter
from mlagen.families.mla_decode.aiter_run import table_of
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.ops import aiter_decode
from mlagen.problem.expected import compare
from mlagen.problem.formats import BF16

CONFIG = MlaDecodeConfig(12, q_len=2, page_size=16)
INPUTS = mla_decode_inputs(CONFIG, data="late_max", seed=0, lengths=(300, 0, 65))
PLAN = plan_aiter(CONFIG, (300, 0, 65), workgroups=3, split_keys=128)
WORK = "work_indptr", "work_info_set", "reduce_indptr", "reduce_final_map", "reduce_partial_map"
FIRST = "q", "cache", "o", "qo_indptr", "kv_indptr", "kv_page_indices", "kv_last_page_lens"


def arrays() -> dict[str, Any]:
    """Of one call, the output full of NaN."""
    o = np.full((6, 12, 512), np.nan, BF16)
    return aiter_arrays(INPUTS) | {"o": o} | {name: getattr(PLAN, name) for name in WORK}


def fwd(given: dict[str, Any], **changed: Any) -> tuple[Any, Any]:
    """A call; `changed`: named arguments that are others."""
    named: dict[str, Any] = {"page_size": 16, "sm_scale": INPUTS.scale, "return_lse": True}
    named |= {name: given[name] for name in WORK}
    return aiter.mla_decode_fwd(*(given[name] for name in FIRST), 2, **named | changed)


def right(o: Any, lse: Any) -> None:
    expected = exact(INPUTS, splits=PLAN.splits, order=BY_WAVES)
    assert compare(expected.output, o.reshape(3, 2, 12, 512)).passed
    assert compare(expected.lse, lse.reshape(3, 2, 12, 1)).passed


def test_arrays_are_emulated() -> None:
    """Parts have AITER's extents, and its reduction makes the same of them."""
    given = arrays()
    parts, lse = fwd(given)
    right(given["o"], lse)
    rows = 2 * len(PLAN.reduce_partial_map)
    assert parts.shape == (rows, 1, 12, 512)
    assert fwd(arrays(), return_lse=False)[1] is None

    raw = aiter_decode.aiter_decode(given["q"], given["cache"], 2, causal=True, compute="bf16")
    names = {"cache": "kv_buffer", "o": "out"}
    run = raw.called(scale=INPUTS.scale, **{names.get(n, n): x for n, x in arrays().items()})
    o, whole = np.full_like(given["o"], np.nan), np.full_like(lse, np.nan)
    logs = run.partial_lse.reshape(rows, 1, 12, 1)
    maps = [getattr(PLAN, name) for name in WORK[2:]]
    assert aiter.mla_reduce_v1(parts, logs, *maps, 2, 0, o, whole) is None
    split = slice(*PLAN.reduce_final_map[0])
    assert o[split].tobytes() == given["o"][split].tobytes()
    assert whole[split].tobytes() == lse[split].tobytes()
    assert np.isnan(np.delete(o.astype(np.float32), np.r_[split], 0)).all()
    alone = np.full_like(o, np.nan)
    aiter.mla_reduce_v1(parts[:, 0], logs[:, 0, :, 0], *maps, 2, 0, alone)
    assert alone.tobytes() == o.tobytes()


def test_the_usual_scale_and_products() -> None:
    """576 ** -0.5 where none is given; products of e4m3 where they are asked for."""
    given, other = arrays(), arrays()
    _, lse = fwd(given, sm_scale=None)
    _, same = fwd(other, sm_scale=576**-0.5)
    assert lse.tobytes() == same.tobytes() and given["o"].tobytes() == other["o"].tobytes()
    with pytest.raises(ConfigError, match="compute=fp8"):
        fwd(arrays(), compute="fp8")


def rocm(torch: Any, architecture: str) -> None:
    torch.version = SimpleNamespace(hip="7.2")
    torch.cuda.get_device_properties = lambda device: SimpleNamespace(gcnArchName=architecture)
    torch.cuda.get_device_name = lambda device: "AMD Fake"


def _checked_on_request(given: dict[str, Any], parts: Any, logs: Any, o: Any) -> None:
    """Tables of a GPU are looked at with `checked`, its own addresses among them."""
    places = [given[name].data_ptr() for name in WORK[:2]]
    elsewhere = Tensor(np.array(places[::-1], np.int64))
    with pytest.raises(ConfigError, match="work_meta_data holds the addresses"):
        fwd(given, work_meta_data=elsewhere, checked=True)
    first, final, slots = (given[name] for name in WORK[2:])
    far, late = slots.array.copy(), Tensor(final.array + 99)
    far[0] = 2**20
    for wrong, most, said in (
        ((first, final, Tensor(far)), 2, "reduce_partial_map has 1048576"),
        ((first, late, slots), 2, "the output has 6"),
        ((first, final, slots), 1, "max_seqlen_q=1, but a group has 2 tokens"),
    ):
        with pytest.raises(ConfigError, match=said):
            aiter.mla_reduce_v1(parts, logs, *wrong, most, 0, o, checked=True)


def test_tensors_are_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the launcher of a kernel built once; on another GPU nothing is built."""
    launcher = Emulating()
    knobs = aiter_decode.KNOBS
    artifact = build_artifact("mla_decode_gfx950", CONFIG.to_fields(), knobs)
    fields = {"num_heads": 12, "depth": 512, "lse": True}
    reduction = build_artifact("mla_prefill_reduce", fields, {})
    kernel = AiterDecodeKernel(artifact, launcher, reduce=lambda: reduction)
    monkeypatch.setattr(aiter_decode, "_decode", cache(lambda config: kernel))
    made = SimpleNamespace(artifact=reduction), launcher
    monkeypatch.setattr(aiter_decode, "_reduce", lambda *_: made)
    plain = arrays()
    with installed() as torch:
        rocm(torch, "gfx950:sramecc+:xnack-")
        given = {name: Tensor(array) for name, array in plain.items()}
        parts, lse = fwd(given, work_meta_data=Tensor(table_of(artifact, plain)))
        right(plain["o"], lse.array)
        o, whole = (Tensor(np.full_like(x, np.nan)) for x in (plain["o"], lse.array))
        logs = Tensor(np.zeros((len(parts.array), 1, 12, 1), np.float32))
        maps = [given[name] for name in WORK[2:]]
        aiter.mla_reduce_v1(parts, logs, *maps, 2, 0, o, whole)
        _checked_on_request(given, parts, logs, o)
    with installed() as torch:
        rocm(torch, "gfx942:sramecc+:xnack-")
        with pytest.raises(UnsupportedError, match="is a gfx942, for which there is no target"):
            fwd({name: Tensor(array) for name, array in plain.items()})
    kernels = ["mla_decode_gfx950", "mla_prefill_reduce", "mla_prefill_reduce"]
    assert [name for name, *_ in launcher.calls] == kernels
    assert launcher.calls[1][2] == launcher.calls[2][2] == {"lines": 96, "groups": 1}


@pytest.mark.parametrize(("changed", "words"), [
    ({"logit_cap": 30.0}, "logit_cap=30.0: no kernel caps scores"),
    ({"page_size": 1}, r"page_size=1, but kv_buffer has shape \(\d+, 16, 1, 576\)"),
    ({"nhead_kv": 2}, "nhead_kv=2, but kv_buffer has shape"),
    ({"cp_world_size": 2}, "cp_world_size=2, cp_rank=0: the cache of a sequence lies on one GPU"),
    ({"work_indptr": None}, "work_indptr missing: there is no kernel but for work items"),
    ({"reduce_final_map": None}, "reduce_final_map missing"),
    ({"num_kv_splits_indptr": np.zeros(4, np.int32)}, "num_kv_splits_indptr is given"),
    ({"q_scale": np.ones(1, np.float32)}, "q_scale is given, but the kernel is for bf16"),
    ({"work_info_set": PLAN.work_info_set[1:].copy()}, "work_indptr ends at"),
], ids=str)  # fmt: skip
def test_what_is_refused(changed: dict[str, Any], words: str) -> None:
    given = arrays()
    with pytest.raises((ConfigError, UnsupportedError), match=words):
        fwd(given, **changed)
    assert np.isnan(given["o"].astype(np.float32)).all()


def test_work_that_is_not_done_once() -> None:
    """An item that ends a page early, and one that begins a page early."""
    for column, step, how in ((5, -1, "leave a gap"), (4, -1, "overlap")):
        work = PLAN.work_info_set.copy()
        work[0 if column == 5 else 1, column] += step
        with pytest.raises(ConfigError, match=how):
            fwd(arrays() | {"work_info_set": work})


@pytest.mark.parametrize(("changed", "words"), [
    ({"q": np.zeros((6, 12, 512), BF16)}, r"q has shape \(6, 12, 512\)"),
    ({"cache": np.zeros((40, 16, 576), BF16)}, r"kv_buffer has shape \(40, 16, 576\)"),
    ({"q": np.zeros((6, 12, 576), np.float16)}, "q has dtype float16"),
    ({"o": np.zeros((6, 12, 512), np.float32)}, "out has dtype float32, the kernel wants bfloat16"),
], ids=["width", "extents", "type", "output"])  # fmt: skip
def test_tensors_of_other_shapes(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        fwd(arrays() | changed)


@pytest.mark.parametrize(("changed", "words"), [
    ({"final_map": None}, "reduce_final_map is None"),
    ({"most": 1}, "max_seqlen_q=1, but a group has 2 tokens"),
    ({"logs": np.zeros((4, 11), np.float32)}, "partial_lse"),
    ({"o": np.zeros((6, 12, 512), np.float16)}, "final_output has dtype float16"),
    ({"o": np.zeros((6, 6144), BF16)}, r"final_output has shape \(6, 6144\)"),
])  # fmt: skip
def test_reductions_that_are_refused(changed: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {
        "parts": np.zeros((4, 1, 12, 512), np.float32), "logs": np.zeros((4, 1, 12, 1), np.float32),
        "indptr": np.array([0, 2], np.int32), "final_map": np.array([[0, 2]], np.int32),
        "partial_map": np.array([0, 2], np.int32), "most": 2, "splits": 0,
        "o": np.zeros((6, 12, 512), BF16),
    }  # fmt: skip
    with pytest.raises(ConfigError, match=words):
        aiter.mla_reduce_v1(*(given | changed).values())


def test_install_replaces_two_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aiter", "aiter.mla"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ConfigError, match=r"aiter\.mla is not imported"):
        aiter.install()
    for name in ("aiter", "aiter.mla"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    aiter.install()
    assert sys.modules["aiter.mla"].mla_decode_fwd is aiter.mla_decode_fwd
    assert sys.modules["aiter"].mla_reduce_v1 is aiter.mla_reduce_v1
