"""Attention to latent rows on Blackwell: operations that several kernels have."""
