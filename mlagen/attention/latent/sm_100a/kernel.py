"""What the parts of a kernel share: its problem, its space, and what their templates may name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlagen.attention.latent.nvidia.sizes import TILE
from mlagen.dsl import Access, Operation, RingTile, Tile, Value, record
from mlagen.dsl.builder import AccessKind, Mover
from mlagen.errors import ScheduleError
from mlagen.problem.fields import listed
from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace

OPERATION_FIELDS = {one.name for one in dataclasses.fields(Operation)}
VALUES = 256  # columns of V that a product has


@dataclass
class Kernel:
    """`k`: the problem, with `d_qk`, `d_v`, and `product_bytes` of an operand's number. `context`:
    operands of all templates; each part adds its own."""

    k: Any
    s: PipelineSpace
    context: dict[str, Any] = field(default_factory=dict)

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
    def threads(self) -> int:
        """Threads of a block."""
        return self.s.roles[-1].warps.stop * 32

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

    def record(self, template: str, tile: Tile | None, **more: Any) -> None:
        """Record the operation of a template, which has the name of its file. `more`: fields of
        `Operation`; the rest are operands of the template."""
        more.setdefault("name", template.rpartition("/")[2])
        record(self._operation(template, tile, more))

    def mover(self, pipeline: Pipeline, template: str, *uses: Value, **operands: Any) -> Mover:
        """What `copy` of the pipeline is, by a template; `release` is the same of all."""

        def mover(kind: AccessKind, tile: Tile) -> Operation:
            access = Access(kind, RingTile(pipeline.name, tile))
            if kind == "release":
                freed = {"pipeline": pipeline}
                return Operation(kind, "pipeline/release.ptx.j2", tile, lambda at: freed,
                                 access=access, last_tiles=int(pipeline.resident))  # fmt: skip
            return self._operation(template, tile, {
                "name": kind, "pipeline": pipeline, "access": access,
                "uses": tuple(Value(value.block, tile) for value in uses), **operands,
            })  # fmt: skip

        return mover

    def _operation(self, template: str, tile: Tile | None, more: Mapping[str, Any]) -> Operation:
        own = {name: more[name] for name in OPERATION_FIELDS & more.keys()}
        context = {**self.context, **{name: more[name] for name in more.keys() - own.keys()}}
        file = f"{template}.ptx.j2"
        return Operation(
            template=file, tile=tile, context=lambda at: {**context, "first": at.first}, **own
        )


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
