"""Sparse MLA as operators and under FlashMLA's names, over a torch that is numpy's; known calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy_torch import Emulating, Tensor, installed
from sparse_calls import artifact, kernel, right

from mlagen.errors import ConfigError, UnsupportedError
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.kernel import sparse_kernel
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.families.mla_sparse.rows import FORMATS, format_of


class Torch:
    """The module, a launcher that all kernels have, and what operators were built for."""

    def __init__(self, module: Any) -> None:
        self.module, self.launcher = module, Emulating()

    def built(self, config: Any) -> Any:
        """The kernel of a problem on Hopper."""
        kind = "decode" if isinstance(config, MlaSparseDecodeConfig) else "prefill"
        return self.named(f"mla_sparse_{kind}_sm90", config)

    def named(self, kernel: str, config: Any) -> Any:
        return sparse_kernel(artifact(kernel, config.to_fields()), self.launcher, artifact)


@pytest.fixture
def torch() -> Iterator[Torch]:
    with installed() as module:
        from mlagen.ops import torch_sparse

        found = Torch(module)
        torch_sparse._built = found.named
        yield found


def tensor(array: Any) -> Tensor | None:
    return None if array is None else Tensor(array)


def spread(array: Any) -> Tensor:
    """The same numbers with gaps, as FlashMLA's tests have them: 128 elements more in the last
    dimension and one more in the others."""
    *leading, last = array.shape
    whole = np.zeros([*(n + 1 for n in leading), last + 128], array.dtype)
    view = whole[tuple(slice(0, n) for n in array.shape)]
    view[...] = array
    return Tensor(view)


def prefill_inputs(heads: int = 8, **fields: Any) -> Any:
    config = MlaSparsePrefillConfig(heads, **fields)
    return mla_sparse_prefill_inputs(
        config, rows=4, topk=70, cache_rows=128, lengths=(70, 5, 0, 64), sink=[0.5] * heads
    )


def decode_inputs(heads: int = 8, **fields: Any) -> Any:
    config = MlaSparseDecodeConfig(heads, **fields)
    more = {"extra_topk": 70, "extra_lengths": (70, 3)} if config.extra else {}
    return mla_sparse_decode_inputs(
        config, batch=2, topk=150, cache_rows=256, page_size=32, layers=2, lengths=(150, 0), **more
    )


def natural(lse: Any) -> Any:
    """FlashMLA's LSE as oracles have it: -inf without keys."""
    return np.where(np.isposinf(lse), -np.inf, lse)


@pytest.mark.parametrize("heads, d_qk", [(8, 576), (8, 512), (64, 576)])
def test_flash_mla_sparse_fwd(torch: Torch, heads: int, d_qk: int) -> None:
    from mlagen.compat import flash_mla

    inputs = prefill_inputs(heads, d_qk=d_qk)
    made = torch.built(inputs.config)
    rows, lists = inputs.cache[0][:, None], inputs.indices[:, None]
    found = []
    for lay in (Tensor, spread):
        out, most, lse = flash_mla.flash_mla_sparse_fwd(
            lay(inputs.q), lay(rows), lay(lists), inputs.scale, attn_sink=Tensor(inputs.sink),
            topk_length=Tensor(inputs.topk_length),
        )  # fmt: skip
        assert np.isposinf(lse.array[2]).all() and np.isneginf(most.array[2]).all()
        right(made, inputs, (out.array, natural(lse.array), most.array))
        found.append([x.array.tobytes() for x in (out, most, lse)])
    assert found[0] == found[1]


@pytest.mark.parametrize("fields", [
    {"rows": "v32", "q_len": 2}, {"rows": "model1", "d_qk": 512, "q_len": 2, "extra": True},
    {"rows": "bf16"},
], ids=str)  # fmt: skip
def test_flash_mla_sparse_decoding(torch: Torch, fields: dict[str, Any]) -> None:
    from mlagen.compat import flash_mla

    inputs = decode_inputs(**fields)
    made = torch.built(inputs.config)
    schedule, _ = flash_mla.get_mla_metadata()
    found = []
    for lay, kind in ((Tensor, None), (spread, "torch.uint8")):
        cache, extra = Tensor(inputs.cache[:, :, None]), None
        if inputs.extra_cache is not None:
            extra = Tensor(inputs.extra_cache[:, :, None])
        if kind is not None and fields["rows"] != "bf16":
            cache, extra = cache.view(kind), None if extra is None else extra.view(kind)
        torch.launcher.calls.clear()
        out, lse = flash_mla.flash_mla_with_kvcache(
            lay(inputs.q), cache, None, None, 512, schedule, None, inputs.scale,
            is_fp8_kvcache=fields["rows"] != "bf16", indices=lay(inputs.indices),
            extra_k_cache=extra, topk_length=Tensor(inputs.topk_length),
            extra_indices_in_kvcache=None if extra is None else lay(inputs.extra_indices),
            extra_topk_length=tensor(inputs.extra_topk_length),
        )  # fmt: skip
        assert [call[1].get("splits") for call in torch.launcher.calls] == [1]
        right(made, inputs, (out.array, natural(lse.array)))
        if not fields.get("extra"):
            assert np.isposinf(lse.array[1]).all() and not out.array[1].any()
        found.append([x.array.tobytes() for x in (out, lse)])
    assert found[0] == found[1]
    assert schedule.have_initialized


def test_operators(torch: Torch) -> None:
    """By their names, with all that a call may bring."""
    import mlagen.ops

    inputs = prefill_inputs(rows="e4m3_block64", dtype="fp8_e4m3")
    found = mlagen.ops.mla_sparse_prefill(
        Tensor(inputs.q), Tensor(inputs.cache), Tensor(inputs.indices), inputs.scale,
        topk_length=Tensor(inputs.topk_length), sink=Tensor(inputs.sink),
        kv_scales=Tensor(inputs.kv_scales), q_scale=inputs.q_scale,
    )  # fmt: skip
    right(torch.built(inputs.config), inputs, [x.array for x in found])
    more = {"extra": True, "causal": True, "shared_list": True}
    after = decode_inputs(rows="e4m3_row", q_len=2, **more)
    names = ("topk_length", "positions", "first_position", "extra_cache", "extra_indices",
             "extra_topk_length", "kv_scales", "extra_kv_scales")  # fmt: skip
    found = mlagen.ops.mla_sparse_decode(
        Tensor(after.q), Tensor(after.cache), Tensor(after.indices), after.scale, splits=3,
        **{name: Tensor(getattr(after, name)) for name in names},
    )  # fmt: skip
    right(torch.built(after.config), after, [x.array for x in found], splits=3)
    assert [name for name, *_ in torch.launcher.calls][1:] == [
        "mla_sparse_decode_sm90", "mla_decode_merge_sm90"
    ]  # fmt: skip


def test_fake_kernels_and_schemas(torch: Torch) -> None:
    """Shapes as the kernels make them; schemas name as many arguments as functions take."""
    import inspect

    from mlagen.ops import torch_registration
    from mlagen.ops import torch_sparse as operators

    fakes, schemas = torch.module.fakes, torch_registration._LIBRARY.schemas
    for name, inputs, function in (
        ("mla_sparse_prefill", prefill_inputs(), operators._prefill),
        ("mla_sparse_decode", decode_inputs(q_len=2), operators._decode),
    ):
        shapes = [x.shape for x in fakes[f"mlagen::{name}"](Tensor(inputs.q))]
        made = torch.built(inputs.config)
        given = {"scale": inputs.scale, "topk_length": Tensor(inputs.topk_length)}
        real = made(*map(Tensor, (inputs.q, inputs.cache, inputs.indices)), **given)
        assert shapes == [x.shape for x in real]
        taken = schemas[name].partition(" ->")[0].partition("(")[2].strip(")").split(", ")
        own = inspect.signature(function).parameters.values()
        assert [one.split()[-1] for one in taken] == [
            x.name if x.default is x.empty else f"{x.name}={x.default!r}" for x in own
        ]


def test_the_first_call_is_no_captured_one(torch: Torch) -> None:
    inputs = prefill_inputs()
    made = torch.built(inputs.config)
    tensors = [Tensor(x) for x in (inputs.q, inputs.cache, inputs.indices)]
    torch.module.capturing = True
    with pytest.raises(ConfigError, match="the first call of a shape makes tensors"):
        made(*tensors, scale=inputs.scale)
    torch.module.capturing = False
    made(*tensors, scale=inputs.scale)
    torch.module.capturing = True
    made(*tensors, scale=inputs.scale)
    assert len(torch.launcher.calls) == 2


def test_checked_calls_copy_what_they_look_at(torch: Torch) -> None:
    inputs = prefill_inputs(rows="v32")
    made = torch.built(inputs.config)
    tensors = [Tensor(x) for x in (inputs.q, inputs.cache, inputs.indices)]
    given = {"scale": inputs.scale, "topk_length": Tensor(inputs.topk_length)}
    made(*tensors, **given, checked=True)
    assert len(torch.launcher.calls) == 1
    inputs.cache[0, inputs.indices[0, 0], 512:516] = np.array([np.nan], np.float32).view(
        inputs.cache.dtype
    )
    with pytest.raises(ConfigError, match=f"row {inputs.indices[0, 0]} of cache has the scale nan"):
        made(*tensors, **given, checked=True)
    with pytest.raises(ConfigError, match=r"sink\[3\] is NaN"):
        sink = np.where(np.arange(8) == 3, np.nan, 0).astype(np.float32)
        made(*tensors, **given, sink=Tensor(sink), checked=True)
    assert len(torch.launcher.calls) == 1


def test_what_has_no_kernel(torch: Torch) -> None:
    """Is told in the caller's words, and nothing is launched."""
    from mlagen.compat import flash_mla

    q, narrow = (
        Tensor(np.zeros((2, 64, 576), torch_type(n))) for n in ("bfloat16", "float8_e4m3fn")
    )
    rows = Tensor(np.zeros((8, 1, 656), np.uint8))
    lists = Tensor(np.zeros((2, 1, 70), np.int32))
    schedule, _ = flash_mla.get_mla_metadata()
    with pytest.raises(UnsupportedError, match=r"flash_mla_with_kvcache: q has dtype .*e4m3"):
        flash_mla.flash_mla_with_kvcache(
            narrow[:, None], rows[:, None], None, None, 512, schedule, is_fp8_kvcache=True,
            indices=lists,
        )  # fmt: skip
    decoding = (q[:, None], rows[:, None], None, None, 512, schedule)
    few = (q[:, None, :8].contiguous(), *decoding[1:])
    for function, arguments, more, words in (
        (flash_mla.flash_mla_sparse_fwd, (q, rows, lists, 0.1, 256), {}, "d_v=256"),
        (flash_mla.flash_mla_sparse_fwd, (q[0], rows, lists, 0.1), {}, "three dimensions"),
        (flash_mla.flash_mla_sparse_fwd, (q, rows[:, [0, 0]], lists, 0.1), {}, "2 KV heads"),
        (flash_mla.flash_mla_sparse_fwd, (q[:, :8].contiguous(), rows[..., :528], lists, 0.1), {},
         "no format has rows of 528"),
        (flash_mla.flash_mla_with_kvcache, few, {"attn_sink": lists}, "attn_sink is given, but"),
        (flash_mla.flash_mla_with_kvcache, few, {"indices": lists}, "is_fp8_kvcache=False with"),
        (flash_mla.flash_mla_with_kvcache, few, {"indices": lists, "causal": True}, "causal=True"),
        (flash_mla.flash_mla_with_kvcache, few, {"indices": lists, "num_splits": 2}, "num_splits"),
        (flash_mla.flash_mla_with_kvcache, few,
         {"indices": lists, "is_fp8_kvcache": True, "extra_k_cache": rows}, "is missing"),
        (flash_mla.flash_mla_with_kvcache, few,
         {"indices": lists, "is_fp8_kvcache": True, "extra_topk_length": rows},
         "extra_topk_length is given, but extra_k_cache is not"),
        (flash_mla.flash_mla_with_kvcache, few,
         {"indices": lists[:, :, :0], "is_fp8_kvcache": True}, "indices has shape"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            function(*arguments, **more)
    heads = Tensor(np.zeros((2, 129, 576), torch_type("bfloat16")))
    with pytest.raises(ConfigError, match="num_heads=129"):
        flash_mla.flash_mla_sparse_fwd(heads, rows, lists, 0.1)
    assert not torch.launcher.calls


def torch_type(name: str) -> Any:
    from numpy_torch import DTYPES

    return DTYPES[f"torch.{name}"]


def test_formats_are_told_by_shapes() -> None:
    for row in FORMATS.values():
        for d_qk in row.widths:
            side = row.side_shape(d_qk, 100)
            assert format_of(d_qk, row.element, row.columns(d_qk), side) == row.name
    with pytest.raises(ConfigError, match=r"scales of shape \(100, 3\)"):
        format_of(576, "fp8_e4m3", 576, (100, 3))
    with pytest.raises(ConfigError, match="rows of 656 numbers"):
        format_of(512, "fp8_e4m3", 656, None)


def test_other_devices_are_refused(torch: Torch) -> None:
    inputs = prefill_inputs()
    made = kernel("prefill", torch.launcher, num_heads=8)
    arrays = (inputs.q, inputs.cache, inputs.indices)
    with pytest.raises(ConfigError, match="indices lies in the host's memory and q on a GPU"):
        made(*map(Tensor, arrays[:2]), inputs.indices, scale=inputs.scale)
    tensors = [Tensor(x) for x in arrays]
    tensors[2].is_cuda = False
    with pytest.raises(ConfigError, match="indices is a torch tensor in the host's memory"):
        made(*tensors, scale=inputs.scale)
    assert not torch.launcher.calls
