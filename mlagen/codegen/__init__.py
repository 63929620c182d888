"""Schedule to program to text to code object."""

from mlagen.codegen.build import build

__all__ = ["build"]
