"""Dense MLA decode of few query rows on Hopper, keys as rows, with products of e4m3: the operations
a schedule arranges.

S^T = K Q^T takes both operands from SMEM. wgmma reads e4m3 there only along the products that it
adds, and rows of the cache lie across them for V: O^T += V^T P^T has V^T in registers, which
`ldmatrix` reads across the rows of K. So keys may be given back before their P is
known. Rows g and g + 8 of operand A, 16 a warp, are columns 2 g and 2 g + 1; a word has keys 2 q,
2 q + 1, 2 q + 8 and 2 q + 9 of 16, of P as of V.

P, M and alpha are those of `HOPPER_E4M3` (`latent.order`). A thread has the same query rows of S^T
as of O^T.
"""

from __future__ import annotations

import struct
from typing import Any

from mlagen.attention.latent.nvidia.sizes import TILE
from mlagen.attention.latent.order import HOPPER_E4M3, Order
from mlagen.attention.latent.problem import LatentProblem
from mlagen.attention.latent.sm_90a.few_rows import BOX, VALUES_AT, FewRows
from mlagen.attention.latent.sm_90a.form import Form
from mlagen.dsl import PipelineOrder, Tile, Value, by, exactly
from mlagen.targets.nvidia.dsl import PipelineSpace, WarpRole

BLOCK = 64  # columns of O that an instruction has
WORDS = TILE * BOX // 4 // 128  # registers of a thread for 128 columns of 64 keys
# wgmma descriptor of P: 64-byte swizzle, 8 rows are 512 bytes (PTX ISA, matrix descriptor).
P_BYTES = TILE
P_BITS = 2 << 62 | 8 * P_BYTES >> 4 << 32 | 1 << 16


def fp32(number: float) -> str:
    """A number as PTX writes its bits."""
    return f"0f{struct.pack('>f', number).hex().upper()}"


def maxima(order: Order) -> dict[str, Any]:
    """What templates need to know of M."""
    return {"bias": order.bias, "stays": order.slack, "fine": order.fine, "fp32": fp32}


class FewE4m3(FewRows):
    """The operations of one kernel over the schedule's tiles (Q0 .. of the tensor q, K0 .. of the
    cache, one for each 128 columns) and registers (o, s, and v: V^T). `values`: tiles of columns
    of V that are read together, the first `held` of them and the others."""

    columns = query_columns = BOX
    p_bytes = P_BYTES

    def __init__(
        self,
        k: LatentProblem,
        s: PipelineSpace,
        producer: WarpRole,
        math: WarpRole,
        held: int,
        ahead: int,
        form: Form,
    ) -> None:
        last = k.d_v // BOX
        self.values = tuple(part for part in (range(held), range(held, last)) if part)
        super().__init__(k, s, producer, math, None, -(-k.d_qk // BOX), ahead, form)
        self.supply |= {
            "v": s.names("v", exactly("registers", k.d_v // BOX * WORDS, "V^T of a tile")),
             "keys_": self.columns_of_keys, "first_tile": 0, "neighbours": True,
            "p_bits": hex(P_BITS), "p_bytes": P_BYTES, **maxima(HOPPER_E4M3),
        }  # fmt: skip

    def _key_registers(self) -> list[tuple[str, str, str]]:
        return [
            *super()._key_registers(),
            VALUES_AT,
            ("remaining", ".b32", "keys left from the next tile of V on"),
            ("moved", ".b32", "whether some row of this warp has another M than before"),
        ]

    def _plain(self) -> PipelineOrder:
        fetches, math = self.producer.name, self.math.name
        names = [pipeline.name for pipeline in self.cache]
        return PipelineOrder(
            before=(*by(fetches, "setup"), *by(math, "setup", "clear")),
            tiles=(
                *by(fetches, "load_queries", *(f"copy {name}" for name in names), "look_up"),
                *by(math, "qk", "softmax", "rescale",
                    *(f"{does} {part.start}" for part in self.values
                      for does in ("load_values", "pv")),
                    *(f"release {name}" for name in names)),
            ),
            after=by(math, "store_sum", "finish"),
            hints=frozenset({"prefetch"}),
        )  # fmt: skip

    def qk(self, tile: Tile) -> None:
        """S^T = K Q^T."""
        self._record(
            "qk", tile, template="qk_e4m3", asynchronous=True, defines=(Value("S"),),
            uses=(*(Value(pipeline.name, tile) for pipeline in self.cache),
                  Value(self.query.name)),
        )  # fmt: skip

    def load_values(self, tile: Tile, boxes: range) -> None:
        """Read some columns of V^T, of the tiles `boxes`, as operand A; keys past the sequence's
        end as 0: P is 0 there, but 0 * NaN is not."""
        self._record(
            "load_values", tile, of=str(boxes.start), first_tile=boxes.start,
            counts=boxes == self.values[-1], v=self._operand(boxes),
            defines=(Value(f"V {boxes.start}"),),
            uses=tuple(Value(self.cache[n].name, tile) for n in self._valued),
        )  # fmt: skip

    def rescale(self, tile: Tile) -> None:
        """O *= alpha."""
        self._record("rescale", tile, template="rescale_e4m3", uses=(Value("alpha"), Value("O")),
                     defines=(Value("O"),))  # fmt: skip

    def pv_of(self, tile: Tile, boxes: range) -> None:
        """O^T += V^T P^T over these columns."""
        blocks = range(boxes.start * BOX // BLOCK, boxes.stop * BOX // BLOCK)
        self._record(
            "pv", tile, of=str(boxes.start), template="pv_e4m3", blocks=blocks, asynchronous=True,
            v=self._operand(boxes), defines=(Value("O"),),
            uses=(Value(f"V {boxes.start}"), Value(self.p.name, tile)),
        )  # fmt: skip

    def _operand(self, boxes: range) -> list[str]:
        """Registers of these columns of V^T."""
        held: list[str] = self.supply["v"][WORDS * boxes.start : WORDS * boxes.stop]
        return held

    @property
    def _zeroes_tail(self) -> bool:
        """`load_values` does."""
        return False
