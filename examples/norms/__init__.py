"""Norms of rows, as a family of kernels outside of mlagen."""
