"""MLA decode on tensors of ROCm, in all forms, through the real hip-python: plans, merges, prepared
steps, items of the plan's and of AITER's form, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hip_standin import DLPack, StandIn, call

from mlagen.app.build import build_artifact
from mlagen.attention.latent.order import BY_WAVES
from mlagen.errors import ConfigError
from mlagen.families.mla_decode import FAMILY
from mlagen.families.mla_decode.aiter_plan import aiter_arrays, plan_aiter
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.inputs import MlaDecodeInputs
from mlagen.families.mla_decode.kernel import MlaDecodeKernel
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded
from mlagen.problem.expected import compare
from mlagen.problem.formats import BF16

CONFIG = MlaDecodeConfig(12, q_len=2, page_size=16)
LENGTHS, LATER = (300, 0, 65), (20, 200, 129)
SEVERAL = {"persistent": 1}
AITER = {"persistent": 1, "arguments": "aiter"}


class Tensor(DLPack):
    """A tensor that says its type, and that can be copied to the host."""

    get = DLPack.numpy


class Memory:
    """Where plans' tensors come from."""

    def upload(self, array: np.ndarray) -> Tensor:
        return Tensor(array)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        return Tensor(np.full(shape, np.nan, np.float32))

    def write(self, tensor: Tensor, array: np.ndarray) -> None:
        call("hipDeviceSynchronize")
        kinds = call_kinds()
        call("hipMemcpy", tensor.pointer, array, array.nbytes, kinds.hipMemcpyHostToDevice)


def call_kinds() -> Any:
    from hip import hip

    return hip.hipMemcpyKind


@cache
def artifact(name: str, heads: int = 12, **knobs: Any) -> Any:
    fields = CONFIG.to_fields() | {"num_heads": heads} if name == "mla_decode_gfx950" else {
        "num_heads": heads,
        **({"depth": 512, "lse": True} if name == "mla_prefill_reduce" else {}),
    }  # fmt: skip
    return build_artifact(name, fields, knobs)


def decode_kernel(**knobs: Any) -> MlaDecodeKernel:
    return MlaDecodeKernel(
        artifact("mla_decode_gfx950", **knobs), memory=Memory(),
        merge=lambda: artifact("mla_decode_merge_gfx950"),
    )  # fmt: skip


def inputs_of(lengths: tuple[int, ...]) -> MlaDecodeInputs:
    """Of one cache, which the longest of both fill."""
    most = tuple(map(max, LENGTHS, LATER))
    made = mla_decode_inputs(CONFIG, lengths=most, data="late_max", seed=0)
    return replace(made, cache_lengths=np.array(lengths, np.int32))


def on_device(inputs: MlaDecodeInputs) -> dict[str, Any]:
    batch, tokens, heads, _ = inputs.q.shape
    return {
        **{name: Tensor(array) for name, array in inputs.tensors.items()},
        "out": Tensor(np.full((batch, tokens, heads, 512), np.nan, BF16)),
        "lse": Tensor(np.full((batch, heads, tokens), np.nan, np.float32)),
        "scale": inputs.scale,
    }


def right(inputs: MlaDecodeInputs, splits: Any, out: np.ndarray, lse: np.ndarray) -> bool:
    for oracle in (exact, rounded):
        expected = oracle(inputs, splits=splits, order=BY_WAVES)
        if not compare(expected.output, out).passed or not compare_lse(expected.lse, lse).passed:
            return False
    return True


@pytest.mark.parametrize("knobs", [{}, SEVERAL], ids=["one item", "several"])
def test_planned_calls(standin: StandIn, knobs: dict[str, Any]) -> None:
    """One launch where nothing is split, two where something is; nothing is waited for."""
    kernel, inputs = decode_kernel(**knobs), inputs_of(LENGTHS)
    kept = []  # freeing memory waits for all launches
    for split_keys, launches in ((2**31 - 64, 1), (64, 2)):
        plan = kernel.plan(LENGTHS, split_keys=split_keys, blocks=3)
        given = on_device(inputs)
        kept += [given, plan]
        out, lse = kernel(**given, plan=plan)
        assert out is given["out"] and standin.queued == launches
        assert right(inputs, plan.splits, out.numpy(), lse.numpy())
        told = standin.launches[-launches]
        blocks = 3 if knobs else len(plan.work.items)
        assert (told.grid, told.block, told.dynamic_lds) == ((blocks, 1, 1), (256, 1, 1), 0)


def test_a_call_without_a_plan(standin: StandIn) -> None:
    kernel, inputs = decode_kernel(), inputs_of(LENGTHS)
    given = on_device(inputs)
    out, lse = kernel(**given, checked=True)
    plan = next(iter(kernel._plans.values()))
    assert right(inputs, plan.splits, out.numpy(), lse.numpy())


@pytest.mark.parametrize("knobs", [{}, SEVERAL], ids=["one item", "several"])
def test_prepared_steps_follow_an_updated_plan(standin: StandIn, knobs: dict[str, Any]) -> None:
    kernel = decode_kernel(**knobs)
    inputs, later = inputs_of(LENGTHS), inputs_of(LATER)
    plan = kernel.plan(LENGTHS, split_keys=64, blocks=4, room=(400,) * 3)
    given = on_device(inputs)
    step = kernel.prepare(**given, plan=plan)
    standin.calls()
    step()
    assert standin.calls() == ["hipGetDevice", "hipModuleLaunchKernel"] * 2
    assert right(inputs, plan.splits, step.output.numpy(), step.lse.numpy())
    plan.update(LATER)
    Memory().write(given["cache_lengths"], later.cache_lengths)
    step()
    assert right(later, plan.splits, step.output.numpy(), step.lse.numpy())


def test_bad_calls_are_refused_before_anything_runs(standin: StandIn) -> None:
    kernel, inputs = decode_kernel(), inputs_of(LENGTHS)
    good = on_device(inputs)
    table, lengths = inputs.block_table, inputs.cache_lengths
    out_of_pool = table.copy()
    out_of_pool[0, 2] = 10_000
    for change, message in (
        ({"q": inputs.q}, "q lies in the host's memory and cache on a GPU"),
        ({"q": Tensor(inputs.q[:, :, :8])}, r"q has shape \(3, 2, 8, 576\), the kernel wants"),
        ({"q": Tensor(inputs.q.astype(np.float16))}, "q has dtype float16, the kernel wants bf"),
        ({"cache": Tensor(inputs.cache[:, :8])}, "cache has shape"),
        ({"cache_lengths": Tensor(lengths[:2])}, r"cache_lengths has shape \(2,\)"),
        ({"block_table": Tensor(table.astype(np.int64))}, "block_table has dtype int64"),
        ({"out": good["q"]}, "out has shape"),
        ({"scale": 0.0}, "scale=0.0 must be positive and finite"),
        ({"kv_scale": 2.0}, "kv_scale=2.0"),
        ({"block_table": Tensor(out_of_pool)}, r"block_table\[0, 2\]=10000 is not in"),
        ({"cache_lengths": Tensor(lengths + 10_000)}, r"cache_lengths\[0\]=10300 is not in"),
    ):
        with pytest.raises(ConfigError, match=message):
            kernel(**{**good, **change}, checked=True)
    assert not standin.launches and not standin.queued


# ---- AITER's form ---------------------------------------------------------------------------


def aiter_kernel(heads: int = 12) -> Any:
    """With our reduce kernel beside it."""
    made = FAMILY.kernel(
        artifact("mla_decode_gfx950", heads, **AITER),
        build=lambda name, fields: artifact(name, heads),
    )
    made._memory = Memory()
    return made


def aiter_call(inputs: MlaDecodeInputs, plan: Any) -> dict[str, Any]:
    """On the device, with AITER's outputs of more rows than are needed."""
    arrays = aiter_arrays(inputs)
    arrays["kv_buffer"] = arrays.pop("cache")
    names = ("work_indptr", "work_info_set", "reduce_indptr", "reduce_final_map",
             "reduce_partial_map")  # fmt: skip
    arrays |= {name: getattr(plan, name) for name in names}
    tokens, heads, rows = len(arrays["q"]), arrays["q"].shape[1], plan.partial_rows + 3
    outputs = {
        "out": np.full((tokens, heads, 512), np.nan, BF16),
        "lse": np.full((tokens, heads), np.nan, np.float32),
        "partial_o": np.full((rows, 1, heads, 512), np.nan, np.float32),
        "partial_lse": np.full((rows, 1, heads, 1), np.nan, np.float32),
    }
    tensors = {name: Tensor(array) for name, array in {**arrays, **outputs}.items()}
    return {**tensors, "scale": inputs.scale}


@pytest.fixture
def aiter() -> tuple[MlaDecodeInputs, Any, dict[str, Any]]:
    inputs = inputs_of(LENGTHS)
    plan = plan_aiter(CONFIG, LENGTHS, workgroups=3, split_keys=64)
    return inputs, plan, aiter_call(inputs, plan)


def is_right(inputs: MlaDecodeInputs, plan: Any, out: Any, lse: Any) -> bool:
    shape = inputs.q.shape[:3]
    return right(
        inputs, plan.splits, out.numpy().reshape(*shape, 512),
        np.ascontiguousarray(lse.numpy().reshape(shape).swapaxes(1, 2)),
    )  # fmt: skip


@pytest.mark.parametrize("checked", [False, True])
def test_aiters_arrays(standin: StandIn, aiter: Any, checked: bool) -> None:
    inputs, plan, given = aiter
    kernel = aiter_kernel()
    out, lse = kernel(**given, checked=checked)
    assert out is given["out"] and standin.queued == 2
    assert is_right(inputs, plan, out, lse)
    assert standin.launches[0].grid == (3, 1, 1)
    again, _ = kernel(**given)
    assert is_right(inputs, plan, again, lse)


def test_aiters_table_of_addresses(standin: StandIn, aiter: Any) -> None:
    """Ten words, of which two are used, as `get_mla_metadata_v1` makes them."""
    inputs, plan, given = aiter
    addresses = [given[name].pointer for name in ("work_indptr", "work_info_set")]
    table = Tensor(np.array([*addresses, *[-1] * 8], np.int64))
    out, lse = aiter_kernel()(**given, work_meta_data=table)
    assert is_right(inputs, plan, out, lse)


def test_a_prepared_step_in_aiters_form(standin: StandIn, aiter: Any) -> None:
    inputs, plan, given = aiter
    step = aiter_kernel().prepare(**given)
    standin.calls()
    step()
    assert standin.calls() == ["hipGetDevice", "hipModuleLaunchKernel"] * 2
    assert is_right(inputs, plan, step.output, step.lse)


def test_bad_calls_in_aiters_form_are_refused(standin: StandIn, aiter: Any) -> None:
    inputs, plan, good = aiter
    kernel = aiter_kernel()
    info, indptr = plan.work_info_set, plan.work_indptr

    def item(index: int, word: int, value: int) -> dict[str, Any]:
        changed = info.copy()
        changed[index, word] = value
        return {"work_info_set": Tensor(changed)}

    few = {name: Tensor(good[name].numpy()[:5]) for name in ("partial_o", "partial_lse")}
    for change, message in (
        ({"q": Tensor(inputs.q.reshape(-1, 12, 576)[:, :8])}, r"q has shape .*wants \(\*, 12, 576"),
        ({"kv_buffer": Tensor(inputs.cache[:, :8])}, "kv_buffer has shape"),
        ({"q": Tensor(good["q"].numpy().astype(np.float16))}, "q has dtype float16"),
        ({"kv_indptr": Tensor(np.zeros(3, np.int32))}, r"kv_indptr has shape \(3,\)"),
        ({"work_info_set": Tensor(np.zeros((2, 7), np.int32))}, "work_info_set has shape"),
        ({"max_seqlen_q": 3}, "max_seqlen_q=3 is not in 1 .. 2"),
        ({"reduce_indptr": None}, "reduce_final_map, reduce_partial_map given, but not reduce_in"),
        ({"partial_o": None}, "partial_lse given, but not partial_o"),
        ({"out": None}, "out is not given, and mlagen cannot make"),
        ({"scale": float("nan")}, "scale=nan must be positive and finite"),
        (item(1, 4, 3), "overlap"),
        (item(1, 4, 5), "leave a gap"),
        (item(4, 5, 99), "run past those of sequence 0"),
        (item(0, 0, 3), "sequence 3 is not in"),
        (item(0, 1, 99), "the partial buffers have"),
        (item(0, 1, 2), "both write row 2"),
        ({"work_indptr": Tensor(indptr[::-1].copy())}, "offsets start at 0"),
        ({"kv_page_indices": Tensor(np.full(24, 9999, np.int32))}, r"\[0\]=9999 is not in"),
        ({"reduce_partial_map": Tensor(plan.reduce_partial_map[::-1].copy())}, "reduce group 0"),
        (few, "the partial buffers have 5"),
    ):
        with pytest.raises(ConfigError, match=message):
            kernel(**{**good, **change}, checked=True)
    assert not standin.launches and not standin.queued


def test_launched_raw_with_other_heads_nothing_is_stored(standin: StandIn, aiter: Any) -> None:
    """What the launcher refuses, the kernel refuses too: here its 12 heads are asked for 24."""
    from mlagen.launch import HipLauncher

    _, _, given = aiter
    kernel = aiter_kernel()
    _, launches = kernel._launches(type_of_call(given))
    (first, arguments), _ = launches
    arguments["scalars"]["num_heads"] = 24
    HipLauncher().launch(first, **arguments)
    for name in ("out", "lse", "partial_o", "partial_lse"):
        assert np.isnan(given[name].numpy().astype(np.float32)).all()


def type_of_call(given: dict[str, Any]) -> Any:
    from mlagen.families.mla_decode.aiter_call import aiter_call as made

    return made(**given)
