"""Attention to latent rows on Blackwell: the parts of a kernel, each with its own templates.

A block has up to 64 query rows. S = Q K^T over all columns of a row, O += P V over the first 512 of
the same rows, 64 keys a tile. `products` computes both, `softmax` what is between them, `queries`
brings Q to SMEM, `dequantized` rows that feeders convert. Where rows lie, and what is done with O,
is a family's: a part for rows, and templates of the output.
"""
