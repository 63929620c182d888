"""What the parts of a kernel share: its problem, its space, and what their templates may name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlagen.attention.latent.nvidia.recording import Recording
from mlagen.attention.latent.nvidia.sizes import TILE
from mlagen.errors import ScheduleError
from mlagen.problem.fields import listed
from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace

VALUES = 256  # columns of V that a product has


@dataclass
class TensorMemoryKernel(Recording):
    """Of a problem with `d_qk`, `d_v`, and `product_bytes` of an operand's number."""

    def __post_init__(self) -> None:
        self.context |= {
            "k": self.k, "pair": self.pair, "persistent": bool(self.s.persistent),
            "tile_rows": TILE, "value_columns": VALUES, "element_bytes": self.k.product_bytes,
            "row_bytes": self.k.d_qk * self.k.product_bytes,
        }  # fmt: skip

    @property
    def pair(self) -> bool:
        """Whether blocks are CTA pairs."""
        return self.s.smem.pair

    @property
    def rows(self) -> tuple[Pipeline, ...]:
        """The pipelines of rows: K and V of a CTA pair, or one of both."""
        pipelines = self.s.smem.pipelines
        return tuple(pipelines[name] for name in ("keys", "values") if name in pipelines)

    def half(self, pipeline: Pipeline) -> str:
        """What the second block of a pair has instead of the first one's: the other "rows" of a
        tile, or the next "columns" of V. "": there is no other block."""
        return ("rows" if pipeline is self.rows[0] else "columns") if self.pair else ""

    def producer_threads(self, pipeline: Pipeline) -> int:
        """Threads of the role that fills a pipeline."""
        return next(role.threads for role in self.s.roles if role.name == pipeline.producer)

    def name(self, *registers: tuple[str, str, str]) -> None:
        """Declare registers (operand of templates, type, why), one each."""
        for operand, type, why in registers:
            self.context[operand] = self.s.named(f"{operand}_", type, 1, why)[0]


def check_roles(s: PipelineSpace, threads: Mapping[str, int]) -> None:
    """ScheduleError for roles with other threads than operations are written for: `threads` of
    those that are named, one of all others."""
    for role in s.roles:
        legal = threads.get(role.name, 1)
        if role.threads != legal or len(role.warps) != -(-role.threads // 32):
            raise ScheduleError(
                f"role {role.name!r} has {role.threads} threads, of {len(role.warps)} warps",
                hint=f"it has {listed((legal,))}; one thread multiplies",
            )
