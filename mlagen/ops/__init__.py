"""What users call: kernels as functions of tensors."""

from mlagen.ops.mha import MhaKernel, MhaRun
from mlagen.ops.mla_decode import MlaDecodeArguments, MlaDecodeKernel, MlaDecodeRun

__all__ = ["MhaKernel", "MhaRun", "MlaDecodeArguments", "MlaDecodeKernel", "MlaDecodeRun"]
