"""How parts of a kernel record operations: templates, and what these may name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlagen.dsl import Access, Operation, RingTile, Tile, Value, record
from mlagen.dsl.builder import AccessKind, Mover
from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace

OPERATION_FIELDS = {one.name for one in dataclasses.fields(Operation)}


@dataclass
class Recording:
    """`k`: the problem. `context`: operands of all templates; each part adds its own."""

    k: Any
    s: PipelineSpace
    context: dict[str, Any] = field(default_factory=dict, kw_only=True)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.s.roles[-1].warps.stop * 32

    def record(self, template: str, tile: Tile | None, **more: Any) -> None:
        """Record the operation of a template, which has the name of its file. `more`: fields of
        `Operation`; the rest are operands of the template."""
        more.setdefault("name", template.rpartition("/")[2])
        record(self._operation(template, tile, more))

    def mover(
        self, pipeline: Pipeline, template: str, *uses: Value, loaded: str = "", **operands: Any
    ) -> Mover:
        """What `copy` of the pipeline is, by a template, of what was `loaded` of the tile to
        registers of that name; `release` is the same of all."""

        def mover(kind: AccessKind, tile: Tile) -> Operation:
            access = Access(kind, RingTile(pipeline.name, tile))
            if kind == "release":
                freed = {"pipeline": pipeline}
                return Operation(kind, "pipeline/release.ptx.j2", tile, lambda at: freed,
                                 access=access, last_tiles=int(pipeline.resident))  # fmt: skip
            used = (*uses, *([Value(loaded, tile)] if loaded else ()))
            return self._operation(template, tile, {
                "name": kind, "pipeline": pipeline, "access": access, "uses": used, **operands,
            })  # fmt: skip

        return mover

    def _operation(self, template: str, tile: Tile | None, more: Mapping[str, Any]) -> Operation:
        own = {name: more[name] for name in OPERATION_FIELDS & more.keys()}
        context = {**self.context, **{name: more[name] for name in more.keys() - own.keys()}}
        return Operation(
            template=f"{template}.ptx.j2", tile=tile,
            context=lambda at: {"first": at.first, **context}, **own,
        )  # fmt: skip
