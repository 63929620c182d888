"""Products of e4m3 on gfx950: queries, rows and P are multiplied as e4m3 numbers.

Nothing is converted but P. A lane's scores, packed, are its P, four keys a register; the bytes that
transposing reads bring of V have the same keys in the same order.

M seldom moves, as with 32 rows a wave, but what a lane keeps of it is `BIAS` lower: so P is
exp2(S - M + BIAS), small weights are normal numbers of e4m3, and the largest is `LARGEST`. The row
sum has the same factor, which the division takes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlagen.attention.latent.gfx950.shape import HALF
from mlagen.attention.latent.gfx950.wide import SLACK, SeldomMoved, TwoTiles, WideOutput
from mlagen.attention.prefill.gfx950.float_literals import hex_float
from mlagen.families.mla_decode.gfx950.stored import KEYS, SPAN
from mlagen.families.mla_decode.gfx950.stored_operations import E4M3_MFMA, Product, StoredDecode
from mlagen.problem.dtypes import E4M3_MAX
from mlagen.targets.gfx950.dsl import Regs

BIAS = 6.0  # log2 units; a score may be SLACK - BIAS above M
LARGEST = 2**SLACK

assert LARGEST <= E4M3_MAX


class E4m3Decode(SeldomMoved, TwoTiles, StoredDecode):
    """The operations of one kernel over its ring and the schedule's register tiles: S in two slots,
    O, Q and the bands KB and VB."""

    @property
    def more(self) -> Mapping[str, Any]:
        return {"slack": hex_float(SLACK), "minus_bias": hex_float(-BIAS)}

    @property
    def converts_values(self) -> bool:
        return False

    def _value_products(self, p: Regs) -> list[Product]:
        """All columns by the first keys, then by the next; with 32 rows all keys at once."""
        shape = self.shape
        joined = self.stored.columns[0].joined
        steps, in_area = KEYS // shape.step, SPAN // shape.rows
        found = []
        for step in range(0, steps, joined):
            for block in range(self.k.d_v // shape.rows):
                target = self._output(block)
                first = block % in_area * steps + step
                reads = tuple(
                    self._value_place(block // in_area, first + piece) for piece in range(joined)
                )
                b = p.part(step // joined, HALF * joined)
                found.append(Product(reads, False, E4M3_MFMA[shape.rows], target, b, target))
        return found


class WideE4m3Decode(WideOutput, E4m3Decode):
    """The same with 32 query rows a wave, over O and OA."""
