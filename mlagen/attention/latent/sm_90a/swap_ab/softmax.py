"""The softmax of few query rows, in base 2: P = exp2(c S - M), c = scale * log2(e).

A tile's maximum is exchanged by the warps, each of which has 16 keys. P is rounded for the product;
a thread adds up the unrounded P of its own keys, and all sums are added up at the end. A thread has
the same query rows of S^T as of O^T.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlagen.attention.latent.sm_90a.registers import FLOAT
from mlagen.attention.latent.sm_90a.swap_ab.kernel import SwapAbKernel
from mlagen.dsl import Tile, Value, at_least, touched

WARPS = 4  # of the role, which exchange maxima


@dataclass(frozen=True)
class WeightForm:
    """How P is made: `bytes` of a query row of P; templates of P, `weights`, which the mask goes
    before, and of O *= alpha. `context`: what templates know of it."""

    bytes: int
    weights: str = "swap_ab/softmax/weights"
    rescale: str = "swap_ab/softmax/rescale"
    context: Mapping[str, Any] = field(default_factory=dict)


class SwapAbSoftmax:
    """Over registers (s) and rooms P and "of warps". `template`: of the mask and what follows it;
    `alpha`: what alpha is besides a register. `row_factors`: why each query row has a factor of
    its own in place of c; "": none has. `grains`: what the numbers of keys are multiples of."""

    def __init__(
        self, kernel: SwapAbKernel, weights: WeightForm, template: str, *, row_factors: str = "",
        alpha: tuple[str, ...] = ("alpha",), grains: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.kernel, self.weights, self.template, self.alpha = kernel, weights, template, alpha
        self.grains = grains
        self.p, self.warps = (
            touched(kernel.s.smem.scratches[name], at_least("bytes", size, what))
            for name, size, what in (
                ("P", weights.bytes * kernel.rows, "P of all query rows"),
                ("of warps", WARPS * FLOAT * kernel.rows, "maxima, then sums, of each warp"),
            )
        )
        each = kernel.held_rows
        kernel.names(
            ("alpha", ".f32", each, "what the tile's maximum does to O and l"),
            ("cm", ".f32", each, "c times the running maximum of this thread's query rows"),
            ("l", ".f32", each, "row sums of this thread's keys"),
            *([("of_scores", ".f32", each, row_factors)] if row_factors else ()),
        )
        kernel.name(("c", ".f32", "scale * log2(e)"))
        kernel.context.setdefault("of_scores", [kernel.context["c"]] * each)
        kernel.context.setdefault("factors", None)
        kernel.context |= {
            "p": self.p, "warps": self.warps, "weights": f"{weights.weights}.ptx.j2",
            "scaled_sums": False, "grained": False, **weights.context,
        }  # fmt: skip

    def clear(self) -> None:
        """Set O = 0, l = 0, M to the lowest finite number."""
        self.kernel.record("swap_ab/softmax/clear", None, defines=(Value("O"), Value("l")))

    def exponent(self, tile: Tile) -> None:
        """Mask S; M and alpha; P in place of S, and to SMEM; sums."""
        self.kernel.record(
            self.template, tile, name="softmax", role=self.kernel.scores, joins=True,
            uses=(Value("S"), Value("l"), *(Value(name, tile) for name in self.grains)),
            defines=(Value(self.p.name, tile), *self.alphas(tile), Value("l")),
        )  # fmt: skip

    def alphas(self, tile: Tile) -> tuple[Value, ...]:
        """Alpha of a tile, in registers or where it is handed on."""
        if self.alpha == ("alpha",):
            return (Value("alpha"),)
        return tuple(Value(name, tile) for name in self.alpha)

    def rescale(self, tile: Tile) -> None:
        """O *= alpha."""
        self.kernel.record(self.weights.rescale, tile, name="rescale", defines=(Value("O"),),
                           uses=(*self.alphas(tile), Value("O")))  # fmt: skip

    def store_sum(self) -> None:
        """Add up the row sums of all threads."""
        self.kernel.record(
            "swap_ab/softmax/store_sum", None, role=self.kernel.scores, joins=True,
            uses=(Value("l"),), defines=(Value(self.warps.name), Value("l")),
        )  # fmt: skip
