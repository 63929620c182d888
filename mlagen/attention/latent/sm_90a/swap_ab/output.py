"""What is done with O: it is divided by the row sums and stored, with the LSE; of a part to a slot,
and blocks may combine the parts of a row block.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlagen.attention.latent.sm_90a.parts import parts_over
from mlagen.attention.latent.sm_90a.swap_ab.kernel import SwapAbKernel
from mlagen.dsl import Value
from mlagen.targets.nvidia.dsl import TmaTile


class SwapAbOutput:
    """`template` stores it; `sums`: where the role with O has row sums. Where blocks combine parts,
    the weights of these lie over `tiles`, which are done with by then."""

    def __init__(
        self, kernel: SwapAbKernel, template: str, tiles: Sequence[TmaTile] = (), *, sums: str = "l"
    ) -> None:
        self.kernel, self.template, d_v = kernel, template, kernel.k.d_v
        self.parts = parts_over(kernel.s, tiles, kernel.rows, d_v, kernel.math) if tiles else None
        kernel.context["parts"] = self.parts
        self.uses = (Value("O"), Value(sums)) if sums == "l" else (Value(sums), Value("O"))

    def store(self) -> None:
        """Store O / l, LSE and maxima."""
        rooms = self.parts.rooms.values() if self.parts else ()
        self.kernel.record(
            self.template, None, name="finish", joins=bool(rooms), uses=self.uses,
            defines=tuple(Value(room.name) for room in rooms),
        )  # fmt: skip
