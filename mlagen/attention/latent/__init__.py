"""What families of attention over latent rows share: Hopper's arithmetic, the walk over tiles, what
both oracles say of some query rows and keys, the merge of splits, formats of rows, made-up models.

A row is the key, 576 or 512 columns, and its first 512 are the value as well.
"""
