"""Sparse MLA's operations on Blackwell."""
