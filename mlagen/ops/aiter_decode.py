"""Which kernels of gfx950 the functions under AITER's names take, built at their first use."""

from __future__ import annotations

from functools import cache
from typing import Any

from mlagen.attention.latent.call_tensors import as_host, check
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.aiter_kernel import (
    REDUCE_COLUMNS,
    REDUCE_KERNEL,
    AiterDecodeKernel,
)
from mlagen.families.mla_decode.aiter_work import check_reduction_maps
from mlagen.families.mla_decode.problem import D_QK, MlaDecodeConfig
from mlagen.launch import Launcher, gpu_launcher
from mlagen.launch.device_tensor import is_torch, on_the_host
from mlagen.ops.kernel_names import AITER_TARGET

KNOBS = {"persistent": 1, "arguments": "aiter"}
TYPES = {"bfloat16": "bf16", "float8_e4m3fn": "fp8_e4m3"}
OUTPUTS = {"bfloat16": "bf16", "float32": "fp32"}


@cache
def _decode(config: MlaDecodeConfig) -> AiterDecodeKernel:
    from mlagen.app.build import build_artifact, callable_of

    kernel = callable_of(build_artifact("mla_decode_gfx950", config.to_fields(), KNOBS))
    assert isinstance(kernel, AiterDecodeKernel)
    return kernel


@cache
def _reduce(heads: int, depth: int, output: str, lse: bool) -> tuple[Any, Launcher]:
    """A reduce kernel's callable, and what launches it on a GPU."""
    from mlagen.app.build import build_artifact, callable_of

    fields = {"num_heads": heads, "depth": depth, "output_dtype": output, "lse": lse}
    artifact = build_artifact(REDUCE_KERNEL, fields, {})
    return callable_of(artifact), gpu_launcher(AITER_TARGET)


def _check_gpu(operator: str, tensor: Any) -> None:
    """UnsupportedError for a tensor of torch on a GPU that is no gfx950."""
    if is_torch(tensor):
        from mlagen.ops.gpu_kernel import kernel_for

        kernel_for(tensor, operator, {operator: {AITER_TARGET: operator}})


def _type_of(name: str, tensor: Any, known: dict[str, str]) -> str:
    given = str(tensor.dtype).removeprefix("torch.")
    if given not in known:
        raise ConfigError(f"{name} has dtype {given}", hint=f"dtypes: {', '.join(known)}")
    return known[given]


def aiter_decode(
    q: Any, kv_buffer: Any, max_seqlen_q: int, *, causal: bool, compute: str
) -> AiterDecodeKernel:
    """The kernel with AITER's arguments for tensors of these shapes: `q` [tokens, H, 576],
    `kv_buffer` [pages, page_size, 1, 576]. ConfigError for a problem that none solves,
    UnsupportedError where the GPU has none."""
    for name, tensor, extents in (("q", q, 3), ("kv_buffer", kv_buffer, 4)):
        if len(tensor.shape) != extents or int(tensor.shape[-1]) != D_QK:
            raise ConfigError(
                f"{name} has shape {tuple(tensor.shape)}",
                hint=f"q is [tokens, heads, {D_QK}], kv_buffer [pages, page_size, 1, {D_QK}]",
            )
    _check_gpu("mla_decode_fwd", q)
    return _decode(
        MlaDecodeConfig(
            num_heads=int(q.shape[1]),
            num_kv_heads=int(kv_buffer.shape[2]),
            page_size=int(kv_buffer.shape[1]),
            q_len=int(max_seqlen_q),
            # One new token sees all keys under either mask: the same kernel.
            mask="causal" if causal or max_seqlen_q == 1 else "null",
            dtype=_type_of("q", q, TYPES),
            cache_dtype=_type_of("kv_buffer", kv_buffer, TYPES),
            compute=compute,
        )
    )


def aiter_reduce(
    parts: tuple[Any, Any],
    maps: tuple[Any, Any, Any],
    most: int,
    o: Any,
    lse: Any,
    *,
    checked: bool,
) -> None:
    """Merges `parts`, partial_o fp32 [rows, H, D] and partial_lse fp32 [rows, H], into `o` [tokens,
    H, D] and `lse` [tokens, H], None where it is not wanted. `maps`: reduce_indptr,
    reduce_final_map and reduce_partial_map. `most`: tokens of the longest group. Arrays of numpy
    are checked in full, and with `checked` those of a GPU, which waits for it. ConfigError for what
    the kernel cannot serve."""
    indptr, final_map, partial_map = maps
    tensors = {
        "partial_output": parts[0], "partial_lse": parts[1], "reduce_indptr": indptr,
        "reduce_final_map": final_map, "reduce_partial_map": partial_map, "final_output": o,
        **({} if lse is None else {"final_lse": lse}),
    }  # fmt: skip
    host = on_the_host(tensors)
    if len(o.shape) != 3:
        raise ConfigError(f"final_output has shape {tuple(o.shape)}, not (tokens, heads, D)")
    tokens, heads, depth = map(int, o.shape)
    rows = int(parts[0].shape[0])
    output = _type_of("final_output", o, OUTPUTS)
    check("partial_output", parts[0], (rows, heads, depth), "fp32")
    check("partial_lse", parts[1], (rows, heads), "fp32")
    check("reduce_indptr", indptr, (None,), "int32")
    check("reduce_final_map", final_map, (None, 2), "int32")
    check("reduce_partial_map", partial_map, (None,), "int32")
    if lse is not None:
        check("final_lse", lse, (tokens, heads), "fp32")
    _check_gpu("mla_reduce_v1", o)
    kernel, launcher = _reduce(heads, depth, output, lse is not None)
    if (host or checked) and int(indptr.shape[0]) > 1:
        names = ("reduce_indptr", "reduce_final_map", "reduce_partial_map")
        held = [as_host(name, tensors[name]) for name in names]
        check_reduction_maps((held[0], held[1], held[2]), tokens=tokens, rows=rows, most=most)
    if host:
        kernel(*parts, *maps, out=o, **({} if lse is None else {"lse": lse}))
        return
    groups = int(indptr.shape[0]) - 1
    if groups < 1 or not int(partial_map.shape[0]):
        return
    launcher.launch(
        kernel.artifact,
        tensors={
            "partial_o": parts[0], "partial_lse": parts[1], "reduce_indptr": indptr,
            "reduce_final_map": final_map, "reduce_partial_map": partial_map, "o": o,
            **({} if lse is None else {"lse": lse}),
        },
        scalars={},
        sizes={"lines": most * heads * depth // REDUCE_COLUMNS, "groups": groups},
    )  # fmt: skip
