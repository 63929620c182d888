"""What users call: kernels as functions of tensors."""

from mlagen.artifact import Artifact
from mlagen.errors import ConfigError
from mlagen.launch import Launcher
from mlagen.ops.mha import MhaKernel
from mlagen.ops.mla_decode import MlaDecodeArguments, MlaDecodeKernel, MlaDecodeRun
from mlagen.ops.mla_prefill import MlaPrefillKernel
from mlagen.ops.mla_reduce import MlaReduceKernel, MlaReduceRun
from mlagen.ops.prefill import PrefillKernel, PrefillRun

Kernel = MhaKernel | MlaPrefillKernel | MlaDecodeKernel | MlaReduceKernel


def kernel_of(artifact: Artifact, launcher: Launcher | None = None) -> Kernel:
    """The artifact as a callable. ConfigError for a problem that only its own file knows."""
    match artifact.manifest.problem_type:
        case "MhaConfig":
            return MhaKernel(artifact, launcher)
        case "MlaConfig":
            return MlaPrefillKernel(artifact, launcher)
        case "MlaDecodeConfig":
            return MlaDecodeKernel(artifact, launcher)
        case "MlaReduceConfig":
            return MlaReduceKernel(artifact, launcher)
        case other:
            raise ConfigError(
                f"{artifact.manifest.kernel} solves a {other}, which mlagen has no callable for",
                hint="launch it through mlagen.launch, or what its own file brings",
            )


__all__ = [
    "Kernel",
    "MhaKernel",
    "MlaDecodeArguments",
    "MlaDecodeKernel",
    "MlaDecodeRun",
    "MlaPrefillKernel",
    "MlaReduceKernel",
    "MlaReduceRun",
    "PrefillKernel",
    "PrefillRun",
    "kernel_of",
]
