"""Softmax of scores that lie in tensor memory: two threads share a row, each has half of a tile's
keys, and half of each 256 columns of O.

In base 2: P = exp2(c S - M), c = scale * log2(e). M is a whole number, and moves where a score is
more than 8 above it: then O, which lies in TMEM, is multiplied by a power of two, which is exact,
so that it does not matter when (`latent.order`). The two threads of a row exchange their maxima. P
is rounded to bf16 for the product; row sums add what it was before, and are added up at the end. M
starts at the lowest finite number: a tile without keys leaves M, and its P is 0.

With compute=fp8 P is rounded to e4m3. M is then 6 lower than it would be, and P so much larger, so
that small ones are normal numbers of e4m3; it moves where a score is more than 8 above it, so that
P is at most 256. Where each row has a scale this multiplies S, and P before it is rounded; M
follows scores that are lifted by the power of two above their row's scale.
"""

from __future__ import annotations

import struct

from mlagen.attention.latent.nvidia.sizes import ROWS, TILE
from mlagen.attention.latent.order import LEAST_POWER, OF_E4M3, SELDOM_MOVED
from mlagen.attention.latent.sm_100a.kernel import VALUES, TensorMemoryKernel
from mlagen.dsl import Extent, Tile, Value, at_least, bind, exactly, touched
from mlagen.errors import ScheduleError
from mlagen.targets.nvidia.dsl import WarpRole, filled, tiles_of

FLOAT, TURNS = 4, 2  # bytes of a maximum; rooms for them, in turn


class Softmax:
    """Over the pipelines scores and weights and registers (s, p, o). `weighs`: whether each row has
    a scale. Macros of the folder `rows` hide scores of keys that are none."""

    def __init__(
        self, kernel: TensorMemoryKernel, role: WarpRole, rows: str, *, weighs: bool
    ) -> None:
        s, k = kernel.s, kernel.k
        weights, scores = s.smem.pipelines["weights"], s.smem.pipelines["scores"]
        if scores.depth != 1 or weights.depth != 1:
            raise ScheduleError(
                f"{scores.depth} slots of scores, {weights.depth} of P", hint="each has one"
            )
        tiles_of("P", weights.tiles, 1, rows=ROWS, slots=1)
        threads = kernel.producer_threads(weights)
        filled(weights, threads=threads, arrive="fenced")
        touched(scores.columns[0], exactly("columns", TILE // 2, "S, folded"))
        room = touched(
            s.smem.scratches["of warps"],
            at_least("bytes", TURNS * threads * FLOAT, "maxima, then sums"),
        )
        order = OF_E4M3 if k.product_bytes == 1 else SELDOM_MOVED
        reach, lifted = order.slack + order.bias, weighs and bool(order.bias)
        self.kernel, self.scores = kernel, scores.name
        kernel.context |= {
            "scores": scores.columns[0], "weights": weights, "room": room,
            "mask": f"rows/{rows}/mask.ptx.j2",
            "weighs": weighs, "lifted": lifted, "least_power": LEAST_POWER, "float_bytes": FLOAT,
            "bias": order.bias, "bias_bits": _fp32(order.bias),
            "reach": reach, "reach_bits": _fp32(reach),
            **{name: s.names(name, extent) for name, extent in _registers(k.product_bytes).items()},
        }  # fmt: skip
        kernel.context.setdefault("best", "")
        kernel.name(
            ("turn", ".b32", "which half of the room for maxima is written next"),
            ("c", ".f32", "scale * log2(e)"),
            ("cm", ".f32", "M of this thread's row, in log2 units"),
            ("top", ".f32", "the tile's largest score of the row"),
            ("l", ".f32", "sum of P over this thread's keys"),
            ("alpha", ".f32", "what the tile's maximum does to O"),
        )
        if weighs:
            kernel.name(("weight", ".f32", "the scale of its key"))
            kernel.context["weights_room"] = s.smem.room("row scales", FLOAT * role.threads)
        if lifted:
            kernel.context["powers_room"] = s.smem.room("powers", FLOAT * role.threads)
        bind(weights, kernel.mover(weights, "softmax/store_p"))
        bind(scores, kernel.mover(scores, ""))

    def load_scores(self, tile: Tile) -> None:
        """Load S to registers."""
        self.kernel.record("softmax/load_scores", tile, uses=(Value(self.scores, tile),))

    def row_maximum(self, tile: Tile) -> None:
        """Mask S, and find the tile's largest score of each row."""
        self.kernel.record("softmax/row_maximum", tile)

    def exponent(self, tile: Tile) -> None:
        """Update M and alpha; compute P, and as bf16, and its sum."""
        self.kernel.record("softmax/exponent", tile)

    def rescale(self, tile: Tile) -> None:
        """O *= alpha, where there is an O."""
        self.kernel.record(
            "softmax/rescale", tile, domain="rest", uses=(Value("O"),), defines=(Value("O"),)
        )


def _registers(element: int) -> dict[str, Extent]:
    """Registers of a schedule, and how many operations touch: S of half of a tile's keys, P of
    those as numbers of `element` bytes, some columns of O, which a load has by powers of two."""
    columns = [1 << n for n in range(3, (VALUES // 2).bit_length())]
    return {
        "s": exactly("registers", TILE // 2, "S: a row, half of a tile"),
        "p": exactly("registers", TILE // 2 * element // 4, "P of these keys"),
        "o": exactly("registers", columns, "columns that a load has"),
    }


def _fp32(number: int) -> str:
    """A number as PTX writes its bits."""
    return f"0f{struct.pack('>f', number).hex().upper()}"
