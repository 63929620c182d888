"""Families of kernels, one folder each: all that belongs to a family, and nothing that does not."""
