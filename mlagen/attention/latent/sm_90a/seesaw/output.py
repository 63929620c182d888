"""What an item ends with: row sums that the math roles exchange, and O / l and LSE in memory."""

from __future__ import annotations

from typing import Any

from mlagen.attention.latent.nvidia.sizes import ROWS
from mlagen.attention.latent.sm_90a.registers import FLOAT
from mlagen.attention.latent.sm_90a.seesaw.kernel import SeesawKernel
from mlagen.dsl import Value
from mlagen.targets.nvidia.dsl import WarpRole
from mlagen.targets.nvidia.dsl.smem import Exchange

PART_PAIRS = 8  # 64-byte pieces of a part's row of which a thread has its loads in flight
# Times that a block asks for a part which another one has begun before it: half a microsecond each,
# and a second in all. Nobody waits so long for work that fits in a GPU's memory.
MOST_ASKS = 1 << 21
BANKS_APART = 32  # bytes between rows of a part in SMEM: a quarter of a warp's stores hit own banks


class SeesawOutput:
    """`staged`: where a role's columns of O lie on their way, in place of rows that it has no use
    for any more; nothing where the next item's Q is loaded there meanwhile."""

    def __init__(self, kernel: SeesawKernel) -> None:
        self.kernel = kernel
        middle = kernel.value_parts // 2
        of_left, of_right = kernel.queries[:middle], kernel.queries[middle : kernel.value_parts]
        # A part in fp32 takes more: the right one's lies in columns of the cache that no one else
        # has as values.
        if not kernel.feeder:
            of_left, of_right = kernel.queries, kernel.keys[middle:]
        self.staged = () if kernel.persistent else (
            kernel.s.smem.scratch("O left", *of_left), kernel.s.smem.scratch("O right", *of_right)
        )  # fmt: skip

    def exchanges(self, left: Exchange, right: Exchange) -> None:
        """Declare those of row sums. `left` and `right`: those of maxima, in whose place they may
        be: who stores sums has read the other one's last M."""
        (a, b), s, over = self.kernel.names, self.kernel.s, self.kernel.numbers.sums_over_maxima
        self.left, self.right = (
            s.smem.exchange(f"l {own}", ROWS * FLOAT, producer=own, consumer=other,
                            over=place if over else None)
            for own, other, place in ((a, b, right), (b, a, left))
        )  # fmt: skip
        # In an item of one tile no exchange goes from right to left before the sums.
        self.read = s.smem.exchange("l is read", 0, producer=b, consumer=a) if (
            self.kernel.persistent
        ) else None  # fmt: skip

    def store_sum(self, role: WarpRole) -> None:
        """Store this warpgroup's row sums for the other one."""
        own = self._of(role, self.left, self.right)
        self.kernel.record("store_sum", None, exchange=own, of=own.name,
                           defines=(Value(own.name),))  # fmt: skip

    def finish(self, role: WarpRole) -> None:
        """Store O / l to memory, this warpgroup's columns, and LSE by the left one: O in bf16, by
        way of SMEM where that is free, so that a warp writes a row at a time, or a part in fp32. In
        a persistent block the second part of a row block may merge the first."""
        kernel, half = self.kernel, self.kernel.k.d_v // 2
        staged = self._of(role, *self.staged) if self.staged else None
        other = self._of(role, self.right, self.left)
        kernel.record(
            "finish", None, exchange=other, left=role is kernel.left, role=role, staged=staged,
            of=other.name, box_bytes=kernel.queries[0].bytes,
            first_column=half * (role is kernel.right),
            part_row=half * FLOAT + BANKS_APART if staged and not kernel.feeder else 0,
            block_rows=ROWS, together=PART_PAIRS,
            arrivals_last=kernel.form.arrivals - 1, most_asks=MOST_ASKS,
            uses=(Value(other.name), Value("O")),
            defines=(Value(staged.name),) if staged else (), joins=staged is not None,
        )  # fmt: skip

    def sync_sums(self, role: WarpRole) -> None:
        """Where a block has several items, the right warpgroup arrives when it has read the left
        one's sums, and the left one waits before the next item overwrites them."""
        if self.read and role is self.kernel.left:
            self.kernel.record(
                "pipeline/nothing", None, name="wait_sums", uses=(Value(self.read.name),)
            )
        elif self.read:
            self.kernel.record("pipeline/nothing", None, name="arrive_sums",
                               defines=(Value(self.read.name),))  # fmt: skip

    def _of(self, role: WarpRole, left: Any, right: Any) -> Any:
        return left if role is self.kernel.left else right
