"""Operators take the kernel for the GPU that holds their tensors, or say why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy_torch import DTYPES, Emulating, Tensor, installed
from sparse_calls import artifact, right

from mlagen.app.build import build_artifact
from mlagen.attention.latent.order import BY_WAVES, HOPPER_E4M3
from mlagen.errors import ConfigError, UnsupportedError
from mlagen.families.mla_decode.exact import exact
from mlagen.families.mla_decode.expected import compare_lse
from mlagen.families.mla_decode.kernel import decode_kernel
from mlagen.families.mla_decode.made_up import mla_decode_inputs
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.rounded import rounded
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.kernel import sparse_kernel
from mlagen.families.mla_sparse.made_up import mla_sparse_decode_inputs, mla_sparse_prefill_inputs
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.problem.expected import compare

BLACKWELL = (10, 0)
TENSORS = ("q", "cache", "block_table", "cache_lengths")


class Torch:
    """The module, a launcher that all kernels have, and the kernels that were made."""

    def __init__(self, module: Any) -> None:
        self.module, self.launcher = module, Emulating()
        self.made: list[Any] = []

    def built(self, kernel: str, config: Any) -> Any:
        made = sparse_kernel(artifact(kernel, config.to_fields()), self.launcher, artifact)
        self.made.append(made)
        return made


@pytest.fixture
def torch() -> Iterator[Torch]:
    with installed() as module:
        from mlagen.ops import torch_sparse

        found = Torch(module)
        torch_sparse._built = found.built
        yield found


def zeros(*shape: int, dtype: str = "bfloat16", device: int = 0) -> Tensor:
    return Tensor(np.zeros(shape, DTYPES[f"torch.{dtype}"]), device)


def test_blackwell_has_its_own_prefill(torch: Torch) -> None:
    """Right by the oracles, as operator and under FlashMLA's name; a graph captures later calls."""
    from mlagen.compat import flash_mla
    from mlagen.ops.torch_sparse import mla_sparse_prefill

    torch.module.capability = BLACKWELL
    inputs = mla_sparse_prefill_inputs(
        MlaSparsePrefillConfig(8), rows=2, topk=70, cache_rows=128, lengths=(70, 0)
    )
    tensors = [Tensor(x) for x in (inputs.q, inputs.cache, inputs.indices)]
    lengths = Tensor(inputs.topk_length)
    torch.module.capturing = True
    with pytest.raises(ConfigError, match="the first call of a shape makes tensors"):
        mla_sparse_prefill(*tensors, inputs.scale)
    torch.module.capturing = False
    found = mla_sparse_prefill(*tensors, inputs.scale, topk_length=lengths)
    assert torch.launcher.calls[-1][0] == "mla_sparse_prefill_sm100"
    right(torch.made[0], inputs, [x.array for x in found])
    torch.module.capturing = True
    q, rows, lists = tensors
    out, most, lse = flash_mla.flash_mla_sparse_fwd(
        q, Tensor(rows.array[0][:, None]), Tensor(lists.array[:, None]), inputs.scale,
        topk_length=lengths,
    )  # fmt: skip
    assert [name for name, *_ in torch.launcher.calls] == ["mla_sparse_prefill_sm100"] * 2
    assert np.isposinf(lse.array[1]).all() and np.isneginf(found[1].array[1]).all()
    for one, other in ((out, found[0]), (most, found[2])):
        assert one.array.tobytes() == other.array.tobytes()


def test_products_of_e4m3_where_they_are_asked_for(torch: Torch) -> None:
    from mlagen.ops.torch_sparse import mla_sparse_prefill

    torch.module.cuda.get_device_capability = {0: BLACKWELL, 1: (9, 0)}.__getitem__
    config = MlaSparsePrefillConfig(8, dtype="fp8_e4m3", rows="e4m3", compute="fp8")
    inputs = mla_sparse_prefill_inputs(config, rows=2, topk=70, cache_rows=128)
    tensors = [Tensor(x) for x in (inputs.q, inputs.cache, inputs.indices)]
    scales = {"q_scale": inputs.q_scale, "kv_scale": inputs.kv_scale}
    found = mla_sparse_prefill(*tensors, inputs.scale, **scales, compute="fp8")
    assert torch.made[0].config == config
    right(torch.made[0], inputs, [x.array for x in found])
    with pytest.raises(ConfigError, match=r"compute=fp4 is not supported"):
        mla_sparse_prefill(*tensors, inputs.scale, **scales, compute="fp4")
    tensors = [Tensor(x.array, 1) for x in tensors]
    with pytest.raises(UnsupportedError, match="compute=fp8 on sm_90a"):
        mla_sparse_prefill(*tensors, inputs.scale, **scales, compute="fp8")


@pytest.mark.parametrize(
    "fields",
    [{"rows": "v32"}, {"rows": "e4m3_row", "dtype": "fp8_e4m3"}, {"rows": "e4m3"}],
    ids=str,
)
def test_blackwell_takes_e4m3(torch: Torch, fields: dict[str, str]) -> None:
    """Formats are told by widths, types and scales beside the cache, as on Hopper."""
    from mlagen.ops.torch_sparse import mla_sparse_prefill

    torch.module.capability = BLACKWELL
    inputs = mla_sparse_prefill_inputs(
        MlaSparsePrefillConfig(8, **fields), rows=2, topk=70, cache_rows=128, lengths=(70, 5)
    )
    tensors = [Tensor(x) for x in (inputs.q, inputs.cache, inputs.indices)]
    found = mla_sparse_prefill(
        *tensors, inputs.scale, topk_length=Tensor(inputs.topk_length), q_scale=inputs.q_scale,
        kv_scales=None if inputs.kv_scales is None else Tensor(inputs.kv_scales),
        kv_scale=inputs.kv_scale,
    )  # fmt: skip
    assert [name for name, *_ in torch.launcher.calls] == ["mla_sparse_prefill_sm100"]
    right(torch.made[0], inputs, [x.array for x in found])


def test_two_gpus_have_a_kernel_each(torch: Torch) -> None:
    from mlagen.ops.torch_sparse import prefill_kernel

    capabilities = {0: (9, 0), 1: BLACKWELL}
    torch.module.cuda.get_device_capability = capabilities.__getitem__
    kernels = [
        prefill_kernel(zeros(1, 8, 576, device=n), zeros(64, 576, device=n)) for n in (0, 1, 0)
    ]
    targets = [kernel.artifact.manifest.target for kernel in kernels]
    assert targets == ["sm_90a", "sm_100a", "sm_90a"]
    assert kernels[0] is kernels[2]


def test_dense_decode_of_two_gpus(torch: Torch) -> None:
    """Each one's kernel, and the merge that belongs to it."""
    from mlagen.ops.torch_decode import decode_kernel

    capabilities = {0: (9, 0), 1: BLACKWELL}
    torch.module.cuda.get_device_capability = capabilities.__getitem__
    for device, target in enumerate(("sm_90a", "sm_100a")):
        q, pool = zeros(2, 1, 16, 576, device=device), zeros(2, 64, 1, 576, device=device)
        kernel = decode_kernel(q, pool, mask="causal", q_len=1)
        merge = kernel._merge_artifact()
        assert [x.manifest.target for x in (kernel.artifact, merge)] == [target, target]


def test_dense_decode_with_products_of_e4m3(torch: Torch) -> None:
    """Asked for by name, and by a plan that was made for them."""
    from mlagen.ops import torch_decode

    config = MlaDecodeConfig(8, dtype="fp8_e4m3", cache_dtype="fp8_e4m3", compute="fp8")
    asked: list[MlaDecodeConfig] = []
    kernel = decode_kernel(
        build_artifact("mla_decode_sm90", config.to_fields(), {}), torch.launcher,
        lambda other, fields: build_artifact(other, fields, {}),
    )  # fmt: skip
    torch_decode._built = lambda name, config: asked.append(config) or kernel
    inputs = mla_decode_inputs(config, lengths=(130, 0, 65), data="realistic", seed=0)
    tensors = [Tensor(inputs.tensors[name]) for name in TENSORS]
    plan = torch_decode.plan_mla_decode(*tensors[:2], (130, 0, 65), compute="fp8")
    for more in ({"compute": "fp8"}, {"plan": plan}):
        out, lse = torch_decode.mla_decode(*tensors, **inputs.scales, **more)
        expected = exact(inputs, splits=plan.splits, order=HOPPER_E4M3)
        assert compare(expected.output, out.array).passed
        assert compare_lse(expected.lse, lse.array).passed
    assert set(asked) == {config}


@pytest.mark.parametrize("rows", ["model1", "v41"])
def test_blackwell_has_its_own_decode(torch: Torch, rows: str) -> None:
    """With the merge of split keys, whatever the batch; under FlashMLA's name with both caches."""
    from mlagen.compat import flash_mla
    from mlagen.ops.torch_sparse import mla_sparse_decode

    torch.module.capability = BLACKWELL
    config = MlaSparseDecodeConfig(8, d_qk=512, rows=rows, extra=True)
    inputs: Any = mla_sparse_decode_inputs(
        config, batch=2, topk=140, cache_rows=256, lengths=(140, 0), page_size=16
    )
    q, cache, lists, extra, more = (
        Tensor(x)
        for x in (inputs.q, inputs.cache, inputs.indices, inputs.extra_cache, inputs.extra_indices)
    )
    lengths = Tensor(inputs.topk_length)
    found = mla_sparse_decode(
        q, cache, lists, inputs.scale, topk_length=lengths, extra_cache=extra, extra_indices=more,
        split_keys=128,
    )  # fmt: skip
    right(torch.made[0], inputs, [x.array for x in found], 3)
    assert [name for name, *_ in torch.launcher.calls] == [
        "mla_sparse_decode_sm100", "mla_decode_merge_sm100"
    ]  # fmt: skip
    schedule, _ = flash_mla.get_mla_metadata()
    out, lse = flash_mla.flash_mla_with_kvcache(
        q, Tensor(inputs.cache[:, :, None]), None, None, 512, schedule, None, inputs.scale,
        is_fp8_kvcache=True, indices=lists, topk_length=lengths,
        extra_k_cache=Tensor(inputs.extra_cache[:, :, None]), extra_indices_in_kvcache=more,
    )  # fmt: skip
    assert len(torch.made) == 1
    splits = torch.launcher.calls[2][2]["blocks"] // 2
    right(torch.made[0], inputs, (out.array, np.where(np.isposinf(lse.array), -np.inf, lse.array)),
          splits)  # fmt: skip


def test_decode_with_products_of_e4m3(torch: Torch) -> None:
    from mlagen.ops.torch_sparse import mla_sparse_decode

    torch.module.cuda.get_device_capability = {0: BLACKWELL, 1: (9, 0)}.__getitem__
    config = MlaSparseDecodeConfig(8, dtype="fp8_e4m3", rows="e4m3_row", compute="fp8")
    inputs = mla_sparse_decode_inputs(config, batch=2, topk=140, cache_rows=256)
    more = {"q_scale": inputs.q_scale, "compute": "fp8", "splits": 2}
    for device in (0, 1):
        names = ("q", "cache", "indices", "kv_scales")
        *tensors, scales = (Tensor(getattr(inputs, name), device) for name in names)
        if device:
            with pytest.raises(UnsupportedError, match="compute=fp8 on sm_90a"):
                mla_sparse_decode(*tensors, inputs.scale, kv_scales=scales, **more)
            continue
        found = mla_sparse_decode(*tensors, inputs.scale, kv_scales=scales, **more)
        assert torch.made[0].config == config
        right(torch.made[0], inputs, [x.array for x in found], 2)


def test_an_operator_that_a_gpu_has_no_kernel_for(torch: Torch) -> None:
    from mlagen.ops.gpu_kernel import kernel_for

    torch.module.capability = BLACKWELL
    operators = {"some": {"sm_90a": "a", "gfx950": "b"}, "other": {"sm_100a": "c"}}
    assert kernel_for(zeros(1), "other", operators) == "c"
    with pytest.raises(UnsupportedError) as caught:
        kernel_for(zeros(1), "some", operators)
    assert str(caught.value) == (
        "some has no kernel for sm_100a, which GPU 0, NVIDIA Fake, is\n"
        "  hint: some has kernels for sm_90a, gfx950; for sm_100a there is other"
    )


@pytest.mark.parametrize(("capability", "words"), [
    ((10, 3), "GPU 0, NVIDIA Fake, has compute capability 10.3, for which there is no target; code "
     "for sm_100a does not run there\n  hint: code for sm_100a runs on compute capability 10.0 "
     "alone: the a in its name says that it has instructions of one architecture"),
    ((12, 0), "has compute capability 12.0, for which there is no target\n  hint: there is code "
     "for sm_90a (compute capability 9.0), sm_100a (compute capability 10.0)"),
    ((8, 0), "has compute capability 8.0"),
], ids=str)  # fmt: skip
def test_gpus_of_no_target(torch: Torch, capability: tuple[int, int], words: str) -> None:
    from mlagen.ops.torch_sparse import prefill_kernel

    torch.module.capability = capability
    with pytest.raises(UnsupportedError) as caught:
        prefill_kernel(zeros(1, 8, 576), zeros(64, 576))
    assert words in str(caught.value)


def test_tensors_on_no_gpu(torch: Torch) -> None:
    """Their kernel is Hopper's, whose launch is refused with the reason."""
    from mlagen.ops.torch_sparse import prefill_kernel

    torch.module.capability = BLACKWELL
    on_host = prefill_kernel(zeros(1, 8, 576, device=-1), zeros(64, 576, device=-1))
    assert on_host.artifact.manifest.target == "sm_90a"


def rocm(torch: Torch, architecture: str) -> None:
    """A torch of ROCm, whose GPUs it calls "cuda" as well."""
    torch.module.version = SimpleNamespace(hip="7.2")
    torch.module.cuda.get_device_properties = lambda device: SimpleNamespace(
        gcnArchName=architecture, multi_processor_count=256
    )
    torch.module.cuda.get_device_name = lambda device: "AMD Fake"


def test_amds_gpus_have_their_own_kernel(torch: Torch) -> None:
    """Right by both oracles, with a plan and without."""
    from mlagen.ops import torch_decode

    rocm(torch, "gfx950:sramecc+:xnack-")
    config = MlaDecodeConfig(8, q_len=2)
    kernel = decode_kernel(
        build_artifact("mla_decode_gfx950", config.to_fields(), {}), torch.launcher,
        lambda other, fields: build_artifact(other, fields, {}),
    )  # fmt: skip
    torch_decode._built = lambda name, asked: kernel
    inputs = mla_decode_inputs(config, lengths=(300, 0, 65), data="late_max", seed=0)
    tensors = [Tensor(inputs.tensors[name]) for name in TENSORS]
    plan = torch_decode.plan_mla_decode(*tensors[:2], (300, 0, 65), split_keys=64)
    for given in (None, plan):
        out, lse = torch_decode.mla_decode(*tensors, inputs.scale, plan=given)
        planned = given or next(iter(kernel._plans.values()))
        for oracle in (exact, rounded):
            expected = oracle(inputs, splits=planned.splits, order=BY_WAVES)
            assert compare(expected.output, out.array).passed
            assert compare_lse(expected.lse, lse.array).passed
    kernels = [name for name, *_ in torch.launcher.calls]
    assert kernels == ["mla_decode_gfx950", "mla_decode_merge_gfx950"] * 2


def test_amds_gpus_have_their_own_sparse_kernels(torch: Torch) -> None:
    """Right by both oracles; split decode with its merge."""
    from mlagen.ops.torch_sparse import mla_sparse_decode, mla_sparse_prefill

    rocm(torch, "gfx950:sramecc+:xnack-")
    inputs: Any = mla_sparse_prefill_inputs(
        MlaSparsePrefillConfig(8, rows="v32"), rows=2, topk=70, cache_rows=128, lengths=(70, 0)
    )
    tensors = [Tensor(x) for x in (inputs.q, inputs.cache, inputs.indices)]
    found = mla_sparse_prefill(*tensors, inputs.scale, topk_length=Tensor(inputs.topk_length))
    right(torch.made[0], inputs, [x.array for x in found])
    inputs = mla_sparse_decode_inputs(
        MlaSparseDecodeConfig(8), batch=2, topk=140, cache_rows=256, lengths=(140, 0)
    )
    tensors = [Tensor(x) for x in (inputs.q, inputs.cache, inputs.indices)]
    lengths = Tensor(inputs.topk_length)
    found = mla_sparse_decode(*tensors, inputs.scale, topk_length=lengths, splits=2)
    right(torch.made[1], inputs, [x.array for x in found], 2)
    kernels = ["mla_sparse_prefill_gfx950", "mla_sparse_decode_gfx950", "mla_decode_merge_gfx950"]
    assert [name for name, *_ in torch.launcher.calls] == kernels


def test_amds_gpus_of_no_target(torch: Torch) -> None:
    from mlagen.ops.torch_decode import decode_kernel as dense_kernel

    rocm(torch, "gfx942:sramecc+:xnack-")
    with pytest.raises(UnsupportedError) as caught:
        dense_kernel(zeros(2, 1, 8, 576), zeros(2, 64, 1, 576), mask="null", q_len=1)
    assert str(caught.value) == (
        "GPU 0, AMD Fake, is a gfx942, for which there is no target\n"
        "  hint: there is code for gfx950"
    )
