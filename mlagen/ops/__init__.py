"""What users call: kernels as functions of tensors."""

from mlagen.ops.mha import MhaKernel, MhaRun

__all__ = ["MhaKernel", "MhaRun"]
