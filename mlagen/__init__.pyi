"""`mlagen.build` as type checkers know it, written by tests/typed/stub.py."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Required, TypedDict, Unpack, overload

from mlagen.attention.masks import Mask
from mlagen.dsl import Config
from mlagen.families.mla_decode.aiter_kernel import AiterDecodeKernel
from mlagen.launch import Launcher
from mlagen.ops import (
    MhaKernel,
    MlaDecodeKernel,
    MlaPrefillKernel,
    MlaReduceKernel,
    MlaSparseDecodeKernel,
    MlaSparsePrefillKernel,
)

__version__: str
__all__ = ["__version__", "build"]

_Shape = Mapping[str, int | Sequence[int]]

class _MhaProblem(TypedDict, total=False):
    num_heads: Required[int]
    num_kv_heads: Required[int]
    depth: int
    mask: Mask | str
    dtype: str
    output_dtype: str
    ragged: bool
    page_size: int
    sink: bool
    lse: bool

class _MlaDecodeConfig(TypedDict, total=False):
    num_heads: Required[int]
    num_kv_heads: int
    d_qk: int
    d_v: int
    page_size: int
    q_len: int
    dtype: str
    output_dtype: str
    mask: str
    cache_dtype: str
    compute: str

class _MlaReduceConfig(TypedDict, total=False):
    num_heads: Required[int]
    depth: int
    output_dtype: str
    lse: bool

class _MlaProblem(TypedDict, total=False):
    num_heads: Required[int]
    num_kv_heads: Required[int]
    depth: int
    d_rope: int
    d_qk: int
    kv_form: str
    cache_depth: int
    rope_cache_offset: int
    mask: Mask | str
    dtype: str
    output_dtype: str
    ragged: bool
    page_size: int
    lse: bool

class _MlaSparseDecodeConfig(TypedDict, total=False):
    num_heads: Required[int]
    d_qk: int
    d_v: int
    dtype: str
    output_dtype: str
    rows: str
    q_len: int
    shared_list: bool
    extra: bool
    causal: bool
    compute: str

class _MlaSparsePrefillConfig(TypedDict, total=False):
    num_heads: Required[int]
    d_qk: int
    d_v: int
    dtype: str
    output_dtype: str
    rows: str
    compute: str

class _MhaPrefillV2(_MhaProblem, total=False):
    band: int
    dma_wait: str
    early_exp: int
    fp8_mma_k_128: bool
    k_slots: int
    k_swizzle: str
    kv_block: int
    kv_registers: str
    lds_dma_wait: str
    num_warps: int
    priority: int
    pv_pattern: str
    pv_priority: int
    q_block_size: int
    qk_pattern: str
    rescale: str
    rescale_threshold: float
    row_sums: str
    softmax: str
    spare_slots: int
    v_layout: str
    v_slots: int

class _MlaDecodeGfx950Knobs(_MlaDecodeConfig, total=False):
    band: int
    lds_dma_wait: str
    persistent: int
    slots: int
    variant: str

class _MlaDecodeGfx950Aiter(_MlaDecodeGfx950Knobs, total=False):
    arguments: Required[Literal["aiter"]]

class _MlaDecodeGfx950(_MlaDecodeGfx950Knobs, total=False):
    arguments: Literal["mlagen"]

class _MlaDecodeSm100(_MlaDecodeConfig, total=False):
    ctas: int
    persistent: int
    variant: str

class _MlaDecodeSm90(_MlaDecodeConfig, total=False):
    ahead: int
    boxes: int
    evict: str
    feeders: int
    held: int
    left_refill: str
    persistent: int
    slots: int
    variant: str
    width: int

class _MlaPrefillReduce(_MlaReduceConfig, total=False):
    ahead: int
    lds_dma_wait: str
    waves: int

class _MlaPrefillV2(_MlaProblem, total=False):
    arguments: str
    band: int
    dma_wait: str
    early_exp: int
    fp8_mma_k_128: bool
    grid: str
    k_slots: int
    k_swizzle: str
    kv_block: int
    lds_dma_wait: str
    num_warps: int
    priority: int
    pv_pattern: str
    q_block_size: int
    qk_pattern: str
    rescale: str
    rescale_threshold: float
    row_sums: str
    v_layout: str
    v_slots: int

class _MlaSparseDecodeGfx950(_MlaSparseDecodeConfig, total=False):
    band: int
    lds_dma_wait: str
    slots: int
    variant: str

class _MlaSparseDecodeSm100(_MlaSparseDecodeConfig, total=False):
    ctas: int
    variant: str

class _MlaSparseDecodeSm90(_MlaSparseDecodeConfig, total=False):
    boxes: int
    cluster: int
    held: int
    left_refill: str
    products: int
    rope_last: int
    rows_by: str
    variant: str

class _MlaSparsePrefillGfx950(_MlaSparsePrefillConfig, total=False):
    band: int
    lds_dma_wait: str
    slots: int
    variant: str

class _MlaSparsePrefillSm100(_MlaSparsePrefillConfig, total=False):
    ctas: int
    variant: str

class _MlaSparsePrefillSm90(_MlaSparsePrefillConfig, total=False):
    boxes: int
    cluster: int
    held: int
    left_refill: str
    products: int
    rope_last: int
    rows_by: str
    variant: str

@overload
def build(
    kernel: Literal["mha_prefill_v2"],
    *,
    target: Literal["gfx950"] | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,
    **fields: Unpack[_MhaPrefillV2],
) -> MhaKernel: ...
@overload
def build(
    kernel: Literal["mla_decode_gfx950"],
    *,
    target: Literal["gfx950"] | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,
    **fields: Unpack[_MlaDecodeGfx950Aiter],
) -> AiterDecodeKernel: ...
@overload
def build(
    kernel: Literal["mla_decode_gfx950"],
    *,
    target: Literal["gfx950"] | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,
    **fields: Unpack[_MlaDecodeGfx950],
) -> MlaDecodeKernel: ...
@overload
def build(
    kernel: Literal["mla_decode_sm100"],
    *,
    target: Literal["sm_100a"] | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,
    **fields: Unpack[_MlaDecodeSm100],
) -> MlaDecodeKernel: ...
@overload
def build(
    kernel: Literal["mla_decode_sm90"],
    *,
    target: Literal["sm_90a"] | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,
    **fields: Unpack[_MlaDecodeSm90],
) -> MlaDecodeKernel: ...
@overload
def build(
    kernel: Literal["mla_prefill_reduce"],
    *,
    target: Literal["gfx950"] | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,
    **fields: Unpack[_MlaPrefillReduce],
) -> MlaReduceKernel: ...
@overload
def build(
    kernel: Literal["mla_prefill_v2"],
    *,
    target: Literal["gfx950"] | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,
    **fields: Unpack[_MlaPrefillV2],
) -> MlaPrefillKernel: ...
@overload
def build(
    kernel: Literal["mla_sparse_decode_gfx950"],
    *,
    target: Literal["gfx950"] | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,
    **fields: Unpack[_MlaSparseDecodeGfx950],
) -> MlaSparseDecodeKernel: ...
@overload
def build(
    kernel: Literal["mla_sparse_decode_sm100"],
    *,
    target: Literal["sm_100a"] | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,
    **fields: Unpack[_MlaSparseDecodeSm100],
) -> MlaSparseDecodeKernel: ...
@overload
def build(
    kernel: Literal["mla_sparse_decode_sm90"],
    *,
    target: Literal["sm_90a"] | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,
    **fields: Unpack[_MlaSparseDecodeSm90],
) -> MlaSparseDecodeKernel: ...
@overload
def build(
    kernel: Literal["mla_sparse_prefill_gfx950"],
    *,
    target: Literal["gfx950"] | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,
    **fields: Unpack[_MlaSparsePrefillGfx950],
) -> MlaSparsePrefillKernel: ...
@overload
def build(
    kernel: Literal["mla_sparse_prefill_sm100"],
    *,
    target: Literal["sm_100a"] | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,
    **fields: Unpack[_MlaSparsePrefillSm100],
) -> MlaSparsePrefillKernel: ...
@overload
def build(
    kernel: Literal["mla_sparse_prefill_sm90"],
    *,
    target: Literal["sm_90a"] | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,
    **fields: Unpack[_MlaSparsePrefillSm90],
) -> MlaSparsePrefillKernel: ...
@overload
def build(
    kernel: PathLike[str] | Config,
    *,
    target: str | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,
    **fields: Any,
) -> Any: ...
@overload
def build(
    kernel: str,
    *,
    target: str | None = None,
    knobs: Mapping[str, Any] | None = None,
    templates: str | PathLike[str] | None = None,
    launcher: Launcher | None = None,
    shape: _Shape | None = None,
) -> Any: ...
