"""Attention to latent rows on Hopper with A and B swapped: the parts of a kernel, each with its own
templates.

S^T = K Q^T has 64 keys as the rows of the matrix instruction, and O^T += V^T P^T 64 columns of V:
8, 16, 24 or 32 query rows, which are its columns, do not pay for 64. `products` computes both,
`softmax` what is between them, `queries` brings Q to SMEM, `storage` says what becomes of a tile of
keys there. Where rows lie is a family's part.
"""
