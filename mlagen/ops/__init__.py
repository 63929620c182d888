"""What users call: kernels as functions of tensors.

`mla_decode` and `plan_mla_decode` are operators of torch: naming them imports it.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from mlagen.artifact import Artifact
from mlagen.attention.prefill.kernel import PrefillKernel, PrefillRun
from mlagen.errors import ConfigError, MissingError
from mlagen.families.mha_prefill.kernel import MhaKernel
from mlagen.families.mla_decode.device_plan import MlaDecodePlan
from mlagen.families.mla_decode.kernel import MlaDecodeKernel, MlaDecodeRun, PreparedMlaDecode
from mlagen.families.mla_prefill.kernel import MlaPrefillKernel
from mlagen.families.split_merge.prefill_kernel import MlaReduceKernel, MlaReduceRun
from mlagen.launch import Launcher

MERGE_KERNEL = "mla_decode_merge_sm90"
Kernel = MhaKernel | MlaPrefillKernel | MlaDecodeKernel | MlaReduceKernel


def kernel_of(
    artifact: Artifact,
    launcher: Launcher | None = None,
    *,
    build: Callable[[str, dict[str, int]], Artifact] | None = None,
) -> Kernel:
    """The artifact as a callable. `build`: makes the artifact of another kernel from its name and
    fields, where a call takes a second one; without it such calls are not split. ConfigError for a
    problem that only its own file knows."""
    match artifact.manifest.problem_type:
        case "MhaConfig":
            return MhaKernel(artifact, launcher)
        case "MlaConfig":
            return MlaPrefillKernel(artifact, launcher)
        case "MlaDecodeConfig":
            fields = {"num_heads": int(artifact.manifest.problem["num_heads"])}
            merge = None if build is None else partial(build, MERGE_KERNEL, fields)
            return MlaDecodeKernel(artifact, launcher, merge=merge)
        case "MlaReduceConfig":
            return MlaReduceKernel(artifact, launcher)
        case other:
            raise ConfigError(
                f"{artifact.manifest.kernel} solves a {other}, which mlagen has no callable for",
                hint="launch it through mlagen.launch, or what its own file brings",
            )


TORCH_OPERATORS = ("mla_decode", "plan_mla_decode")


def __getattr__(name: str) -> Any:
    if name not in TORCH_OPERATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        operators = import_module("mlagen.families.mla_decode.torch_operators")
    except ModuleNotFoundError as error:
        raise MissingError(
            f"mlagen.ops.{name} is an operator of torch, which is not installed",
            hint="pip install torch; MlaDecodeKernel takes tensors of other libraries",
        ) from error
    return getattr(operators, name)


__all__ = [
    "Kernel",
    "MhaKernel",
    "MlaDecodeKernel",
    "MlaDecodePlan",
    "MlaDecodeRun",
    "MlaPrefillKernel",
    "MlaReduceKernel",
    "MlaReduceRun",
    "PrefillKernel",
    "PrefillRun",
    "PreparedMlaDecode",
    "kernel_of",
]
