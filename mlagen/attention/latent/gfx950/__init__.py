"""Attention to latent rows on gfx950: the loop that dense decode and top-k sparse MLA have."""
