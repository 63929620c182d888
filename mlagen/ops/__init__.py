"""What users call: kernels as functions of tensors.

`mla_decode`, `plan_mla_decode`, `mla_sparse_prefill` and `mla_sparse_decode` are operators of
torch: naming them imports it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlagen.artifact import Artifact
from mlagen.errors import MissingError
from mlagen.family import Builder, family_of
from mlagen.launch import Launcher

if TYPE_CHECKING:
    from mlagen.attention.prefill.kernel import PrefillKernel, PrefillRun
    from mlagen.families.mha_prefill.kernel import MhaKernel
    from mlagen.families.mha_prefill.problem import MhaConfigV2
    from mlagen.families.mla_decode.device_plan import MlaDecodePlan
    from mlagen.families.mla_decode.kernel import MlaDecodeKernel, MlaDecodeRun, PreparedMlaDecode
    from mlagen.families.mla_prefill.kernel import MlaPrefillKernel
    from mlagen.families.mla_prefill.problem import MlaConfigV2
    from mlagen.families.mla_sparse.base_kernel import MlaSparseRun, PreparedMlaSparse
    from mlagen.families.mla_sparse.kernel import MlaSparseDecodeKernel, MlaSparsePrefillKernel
    from mlagen.families.split_merge.prefill_kernel import MlaReduceKernel, MlaReduceRun

_PLACES = {
    "MhaConfigV2": "mlagen.families.mha_prefill.problem",
    "MhaKernel": "mlagen.families.mha_prefill.kernel",
    "MlaConfigV2": "mlagen.families.mla_prefill.problem",
    "MlaDecodeKernel": "mlagen.families.mla_decode.kernel",
    "MlaDecodePlan": "mlagen.families.mla_decode.device_plan",
    "MlaDecodeRun": "mlagen.families.mla_decode.kernel",
    "MlaPrefillKernel": "mlagen.families.mla_prefill.kernel",
    "MlaReduceKernel": "mlagen.families.split_merge.prefill_kernel",
    "MlaReduceRun": "mlagen.families.split_merge.prefill_kernel",
    "MlaSparseDecodeKernel": "mlagen.families.mla_sparse.kernel",
    "MlaSparsePrefillKernel": "mlagen.families.mla_sparse.kernel",
    "MlaSparseRun": "mlagen.families.mla_sparse.base_kernel",
    "PrefillKernel": "mlagen.attention.prefill.kernel",
    "PrefillRun": "mlagen.attention.prefill.kernel",
    "PreparedMlaDecode": "mlagen.families.mla_decode.kernel",
    "PreparedMlaSparse": "mlagen.families.mla_sparse.base_kernel",
    "mla_decode": "mlagen.ops.torch_decode",
    "mla_sparse_decode": "mlagen.ops.torch_sparse",
    "mla_sparse_prefill": "mlagen.ops.torch_sparse",
    "plan_mla_decode": "mlagen.ops.torch_decode",
}
TORCH_OPERATORS = ("mla_decode", "mla_sparse_decode", "mla_sparse_prefill", "plan_mla_decode")


def kernel_of(
    artifact: Artifact, launcher: Launcher | None = None, *, build: Builder | None = None
) -> Any:
    """The artifact as its family's callable. `build`: makes the artifact of another kernel from its
    name and fields, where a call takes a second one; without it such calls are not split.
    ConfigError for a family that nothing here brings, or that has no callable."""
    return family_of(artifact).kernel(artifact, launcher, build)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_PLACES[name]), name)
    except ModuleNotFoundError as error:
        if name not in TORCH_OPERATORS:
            raise
        raise MissingError(
            f"mlagen.ops.{name} is an operator of torch, which is not installed",
            hint="pip install torch; kernels of mlagen.build(..) take tensors of other libraries",
        ) from error


__all__ = [
    "MhaConfigV2",
    "MhaKernel",
    "MlaConfigV2",
    "MlaDecodeKernel",
    "MlaDecodePlan",
    "MlaDecodeRun",
    "MlaPrefillKernel",
    "MlaReduceKernel",
    "MlaReduceRun",
    "MlaSparseDecodeKernel",
    "MlaSparsePrefillKernel",
    "MlaSparseRun",
    "PrefillKernel",
    "PrefillRun",
    "PreparedMlaDecode",
    "PreparedMlaSparse",
    "kernel_of",
]
