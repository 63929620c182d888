"""Sizes of blocks over latent rows and of their split work, for generators, plans and hosts."""

H200_SMS = 132  # also of an H100 SXM
BLOCK_ROWS = 64  # query rows that a part has room for
# Parts of a row block that their blocks put together on Hopper, and slices of columns that these
# have at most: one a part and role.
TOGETHER, MOST_SLICES = (1, 2, 4, 8, 16, 32), 32
# Columns of a merge, which is what one block of the merge kernel adds up: first slot, slots, first
# row in q, rows, first row in the sequence, index in lse as in an item, all of the row block; the
# block's first line, log2 of the warps that share a line.
MERGE_INTS, MERGE_BYTES = 8, 32
MERGE_WARPS = 16
LINES_A_ROW = 2
