"""What users call: kernels as functions of tensors."""

from mlagen.artifact import Artifact
from mlagen.errors import ConfigError
from mlagen.launch import Launcher
from mlagen.ops.mha import MhaKernel, MhaRun
from mlagen.ops.mla_decode import MlaDecodeArguments, MlaDecodeKernel, MlaDecodeRun

_KERNELS = {"MhaConfig": MhaKernel, "MlaDecodeConfig": MlaDecodeKernel}


def kernel_of(artifact: Artifact, launcher: Launcher | None = None) -> MhaKernel | MlaDecodeKernel:
    """The artifact as a callable. ConfigError for a problem that only its own file knows."""
    kernel = _KERNELS.get(artifact.manifest.problem_type)
    if kernel is None:
        raise ConfigError(
            f"{artifact.manifest.kernel} solves a {artifact.manifest.problem_type}, which mlagen "
            f"has no callable for",
            hint="launch it through mlagen.launch, or what its own file brings",
        )
    return kernel(artifact, launcher)


__all__ = [
    "MhaKernel",
    "MhaRun",
    "MlaDecodeArguments",
    "MlaDecodeKernel",
    "MlaDecodeRun",
    "kernel_of",
]
