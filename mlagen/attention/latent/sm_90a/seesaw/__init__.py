"""MLA on Hopper in the absorbed form: the operations of two math warpgroups that alternate.

One block computes a work item: up to 64 query rows of one sequence (heads, or heads of several new
tokens) over a range of its keys. S = Q K^T over 576 columns, O += P V over the first 512 columns of
the same rows. An item that has all keys of its rows writes O and LSE; one that has a part of them
writes both in fp32, for the merge kernel.

The left warpgroup has the scores of even tiles and output columns 0..255, the right one those of
odd tiles and columns 256..511. Each multiplies its own P from registers and the other's from SMEM,
so a pair of tiles is four products of P V, and while one warpgroup is at its softmax the other
keeps the matrix pipe busy.

Both use one running maximum M: the left one updates it after the even tile and passes it to the
right one, which updates it after the odd tile and passes it back.

Softmax in base 2: P = exp2(c * S - c * M) with c = scale * log2(e). P is rounded to bf16 for the
products; for the right columns an even tile's P is rounded after it was rescaled to the odd tile's
maximum. The row sum adds the unrounded values. M starts at the lowest finite number: a tile that a
row sees nothing of leaves M, and its P is 0.

`operations.Seesaw` has what the math roles do with rows in SMEM. How rows come is a part of its
own: `pages.SeesawPaged`, `gathered.SeesawGathered` or `fed.Fed`, whose numbers are `fed.Rounded` or
`grains.Grains`.
"""
