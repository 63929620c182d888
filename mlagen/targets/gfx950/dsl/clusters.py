"""Schedules of clusters, which all roles pass: the value that a schedule function makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlagen.dsl.builder import Cluster
from mlagen.dsl.function import ScheduleBase, ScheduleFunction, said
from mlagen.dsl.knobs import Knobs
from mlagen.dsl.operation import Operation, operations_of
from mlagen.dsl.plain import PlainOrder
from mlagen.dsl.signature import Signature
from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.dsl.builder import ClusterBuilder
from mlagen.targets.gfx950.dsl.entry import EntryRegisters, declare_entry
from mlagen.targets.gfx950.dsl.lds import Lds
from mlagen.targets.gfx950.dsl.registers import Registers
from mlagen.targets.gfx950.dsl.roles import Roles
from mlagen.targets.gfx950.limits import Gfx950

# The setting of every schedule of this kind: see docs/fidelity.md, "Copies to LDS in their order".
LDS_DMA_WAIT, COUNTED, DRAIN = "lds_dma_wait", "counted", "drain"


@dataclass(frozen=True)
class Schedule(ScheduleBase):
    """The value that a schedule function makes; the code generator takes it."""

    target: Gfx950
    roles: Roles
    lds: Lds
    registers: Registers
    prologue: tuple[Operation, ...]
    items: tuple[Operation, ...]  # at the head of every work item; none: not persistent
    loop: tuple[Cluster, ...]
    epilogue: tuple[Operation, ...]
    plain: PlainOrder | None = None
    drains: bool = False  # no wait counts on the order in which copies to LDS end

    @property
    def operations(self) -> tuple[Operation, ...]:
        """All operations, in the order of the text."""
        looped = operations_of(step for cluster in self.loop for step in cluster.steps)
        return (*self.prologue, *self.items, *looped, *self.epilogue)

    @property
    def apart(self) -> bool:
        """Whether each role has code of its own: it is asked for, or some operation is limited."""
        return self.roles.apart or any(operation.roles for operation in self.operations)

    @property
    def persistent(self) -> bool:
        """Whether a workgroup does one work item after another."""
        return bool(self.items)


@dataclass
class Space:
    """What a schedule function gets besides the problem: knobs, LDS and registers. `plain`:
    the loop that the schedule rearranges, said by the kernel. `facts`: what hosts know of a kernel
    without variants, a dataclass of its family; its operations state it."""

    knobs: Knobs
    lds: Lds
    registers: Registers
    signature: Signature | None = None
    plain: PlainOrder | None = None
    facts: Any = None

    def choice(self, name: str, *choices: Any, comment: str = "") -> Any:
        return self.knobs.choice(name, *choices, comment=comment)

    def number(
        self, name: str, *choices: float, least: float, most: float, comment: str = ""
    ) -> float:
        return self.knobs.number(name, *choices, least=least, most=most, comment=comment)

    def entry(
        self, x: str, y: str = "one", z: str = "one", *, temporaries: int = 4, items: bool = False
    ) -> EntryRegisters:
        """Declare the registers that a kernel starts with, before all others. `x`, `y`, `z`: what
        the workgroup ids count. `items`: of a persistent kernel too (see `each_item`)."""
        return declare_entry(self.registers, (x, y, z), temporaries, items=items)


def run_clustered(
    function: ScheduleFunction, problem: Any, knobs: Mapping[str, Any], target: Gfx950
) -> Schedule:
    """A schedule whose roles share one stream of clusters."""
    builder, chosen = ClusterBuilder(function), Knobs(dict(knobs))
    space = Space(
        chosen,
        Lds(target.lds_bytes, target.lds_offset_bits),
        Registers(target.vgpr_budget(1), target.sgprs_per_wave, target.arch_vgprs_per_wave),
    )
    drains = (
        chosen.choice(
            LDS_DMA_WAIT,
            COUNTED,
            DRAIN,
            comment="waits while copies to LDS are on their way: by count, or for all of them",
            setting=True,
        )
        == DRAIN
    )
    function.run(builder, space, problem)
    parts = {
        "roles()": builder.roles is not None,
        "tile loop (for i in tiles(roles))": builder.clusters,
        "kernel signature, which the setup operation of a family declares": space.signature,
    }
    missing = [part for part, there in parts.items() if not there]
    if builder.roles is None or space.signature is None or missing:
        author = builder.author
        raise ScheduleError(f"{author.source}:{author.line}: {author.name} has no {missing[0]}")
    if ("ITEMS" in space.registers.scalars) != bool(builder.sections["item"]):
        raise ScheduleError(
            f"{function.name}: a persistent kernel declares entry(items=True) and says in "
            "`with each_item()` what begins a work item; here is one without the other"
        )
    # Only the roles say how many waves share a SIMD's registers.
    space.registers.limit(target.vgpr_budget(builder.roles.waves))
    return Schedule(
        **said(function, builder, problem, chosen, space.facts),
        target=target,
        roles=builder.roles,
        lds=space.lds,
        registers=space.registers,
        prologue=tuple(builder.sections["prologue"]),
        items=tuple(builder.sections["item"]),
        loop=tuple(builder.clusters),
        epilogue=tuple(builder.sections["epilogue"]),
        signature=space.signature,
        plain=space.plain,
        drains=drains,
    )
