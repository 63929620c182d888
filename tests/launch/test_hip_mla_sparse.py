"""Sparse MLA on tensors of ROCm, in all forms, through the real hip-python: prefill, decode whole
and in parts with the merge after it, prepared calls, and what is refused."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hip_standin import DLPack, StandIn, call
from sparse_calls import given, right

from mlagen.app.build import build_artifact
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.inputs import MlaSparseDecodeInputs
from mlagen.families.mla_sparse.kernel import MlaSparseDecodeKernel, MlaSparsePrefillKernel
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs
from mlagen.problem.formats import BF16

LENGTHS = (0, 1, 33, 130)
# A form of each table: 16 heads a wave, 32 of them, rows of e4m3; scales in rows and beside them.
FORMS = (
    {"num_heads": 12},
    {"num_heads": 66, "d_qk": 512},
    {"num_heads": 8, "rows": "v32"},
    {"num_heads": 8, "rows": "e4m3", "dtype": "fp8_e4m3"},
    {"num_heads": 8, "rows": "e4m3_row"},
)
DECODE_FORMS = (
    *FORMS,
    {"num_heads": 8, "q_len": 2, "causal": True, "extra": True},
    {"num_heads": 8, "q_len": 2, "rows": "rope_aware", "shared_list": True},
)


class Tensor(DLPack):
    """A tensor that says its type, and that can be copied to the host."""

    get = DLPack.numpy


class Memory:
    """Where the tensors come from that calls share."""

    def upload(self, array: np.ndarray) -> Tensor:
        return Tensor(array)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        return Tensor(np.full(shape, np.nan, np.float32))


def _name(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in fields.items())


@cache
def _artifact(name: str, fields: tuple[tuple[str, Any], ...]) -> Any:
    return build_artifact(name, dict(fields), {})


def artifact(name: str, fields: dict[str, Any]) -> Any:
    return _artifact(name, tuple(sorted(fields.items())))


def prefill(**fields: Any) -> MlaSparsePrefillKernel:
    return MlaSparsePrefillKernel(artifact("mla_sparse_prefill_gfx950", fields), memory=Memory())


def decode(**fields: Any) -> MlaSparseDecodeKernel:
    made = artifact("mla_sparse_decode_gfx950", fields)
    return MlaSparseDecodeKernel(made, build=artifact, memory=Memory())


def decode_inputs(made: MlaSparseDecodeKernel, **more: Any) -> MlaSparseDecodeInputs:
    if made.config.extra:
        more |= {"extra_topk": 40, "extra_lengths": (40, 0, 33, 7)}
    return mla_sparse_decode_inputs(
        made.config, batch=len(LENGTHS), topk=130, lengths=LENGTHS, cache_rows=512, page_size=8,
        **more,
    )  # fmt: skip


def on_device(inputs: Any, **changes: Any) -> dict[str, Any]:
    """The arrays as tensors, with outputs of NaN."""
    *rows, heads, _ = inputs.q.shape
    decodes = isinstance(inputs, MlaSparseDecodeInputs)
    logs = (rows[0], heads, *rows[1:])
    outputs = {
        "out": np.full((*rows, heads, 512), np.nan, BF16),
        "lse": np.full(logs, np.nan, np.float32),
        **({} if decodes else {"max_logits": np.full(logs, np.nan, np.float32)}),
    }
    named = {**given(inputs), **outputs, **changes}
    return {name: Tensor(x) if isinstance(x, np.ndarray) else x for name, x in named.items()}


@pytest.mark.parametrize("fields", FORMS, ids=_name)
def test_prefill(standin: StandIn, fields: dict[str, Any]) -> None:
    """One launch, a workgroup a query, and nothing is waited for."""
    made = prefill(**fields)
    inputs = mla_sparse_prefill_inputs(
        made.config, rows=len(LENGTHS), topk=130, lengths=LENGTHS, page_size=8
    )
    tensors = on_device(inputs)
    outputs = made(**tensors)
    assert outputs[0] is tensors["out"] and standin.queued == 1
    right(made, inputs, [x.numpy() for x in outputs])
    told = standin.launches[-1]
    assert (told.grid, told.block, told.dynamic_lds) == ((4, 1, 1), (256, 1, 1), 0)


@pytest.mark.parametrize("fields", DECODE_FORMS, ids=_name)
def test_decode(standin: StandIn, fields: dict[str, Any]) -> None:
    """Whole, and in two parts with the merge after it."""
    made = decode(**fields)
    inputs = decode_inputs(made)
    kept = []  # freeing memory waits for all launches
    for splits in (1, 2):
        tensors = on_device(inputs, splits=splits)
        kept.append(tensors)
        out, lse = made(**tensors)
        assert out is tensors["out"] and standin.queued == splits
        right(made, inputs, (out.numpy(), lse.numpy()), splits)
        told = standin.launches[-splits]
        assert told.grid == (len(LENGTHS) * made.config.q_len, splits, 1)


def test_a_merge_with_sinks(standin: StandIn) -> None:
    made = decode(num_heads=12)
    inputs = decode_inputs(made, sink=np.linspace(-3, 3, 12, dtype=np.float32))
    out, lse = made(**on_device(inputs, splits=2), checked=True)
    right(made, inputs, (out.numpy(), lse.numpy()), 2)


@pytest.mark.parametrize("splits", [1, 2])
def test_a_prepared_call_launches_and_nothing_else(standin: StandIn, splits: int) -> None:
    made = decode(num_heads=12)
    inputs = decode_inputs(made)
    tensors = on_device(inputs, splits=splits)
    step = made.prepare(**tensors)
    standin.calls()
    for _ in range(2):
        step()
        assert standin.calls() == ["hipGetDevice", "hipModuleLaunchKernel"] * splits
        call("hipDeviceSynchronize")
        standin.calls()
    right(made, inputs, (step.output.numpy(), step.lse.numpy()), splits)


def test_bad_calls_are_refused_before_anything_runs(standin: StandIn) -> None:
    made = decode(num_heads=12)
    inputs = decode_inputs(made)
    good = on_device(inputs)
    for change, message in (
        ({"q": inputs.q}, "q lies in the host's memory and cache on a GPU"),
        ({"q": Tensor(inputs.q[..., :8, :])}, r"q has shape .*, the kernel wants"),
        ({"q": Tensor(inputs.q.astype(np.float16))}, "q has dtype float16, the kernel wants bf"),
        ({"cache": Tensor(inputs.cache[..., :512])}, "cache has shape"),
        ({"indices": Tensor(inputs.indices.astype(np.int64))}, "indices has dtype int64"),
        ({"topk_length": Tensor(np.zeros(3, np.int32))}, r"topk_length has shape \(3,\)"),
        ({"sink": Tensor(np.zeros(8, np.float32))}, r"sink has shape \(8,\)"),
        ({"out": None}, "out is not given, and mlagen cannot make"),
        ({"scale": 0.0}, "scale=0.0"),
        ({"splits": 9}, "splits=9 of lists of 3 tiles"),
        ({"positions": good["indices"]}, "positions"),
    ):
        with pytest.raises(ConfigError, match=message):
            made(**{**good, **change}, checked=True)
    assert not standin.launches and not standin.queued
