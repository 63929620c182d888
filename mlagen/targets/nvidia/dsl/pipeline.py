"""Warp-specialized schedules: roles are different programs, and pipelines carry tiles between them.

On Hopper the assembler allocates registers and orders instructions, so there are no register banks
and nothing to interleave. A schedule says which role does what: each role (a group of warps) has
its own tile loop, and tiles pass from role to role through mbarrier pipelines.

    for i in tiles(producer):
        copy(feed, i)
    for i in tiles(math):
        gemm.mma(i)
        release(feed, i - 1)

mlagen derives which barrier phase each operation waits for and how many matrix groups may stay in
flight. The schedule chooses when a slot is filled again, and the proof checks it: consumers release
it to the producer, or the role that used it last copies into it.

Roles also exchange buffers at named barriers. An operation that defines an exchange writes it, one
that uses it reads it; mlagen derives where the writer arrives and where the reader waits.

    for i in tiles(left, step=2):            # tiles i and i + 1 a pass
        decode.store_p(P0, i)
        decode.pv(P1, i + 1)
        copy(cache, i + 2)

A block of a *persistent* kernel does one work item after another:

    with prologue(left): ...                 # once a block: `%items`, how many there are
    with each_item(left): ...                # what begins an item
    for i in tiles(left, step=2):
        seek(i + 2)                          # ahead: `%coming`, tiles of the next item
        copy(cache, i + 2)                   # ahead: fetches
    with epilogue(left): ...                 # what an item stores

Operations that are `ahead` run on into the next item: its first `step` tiles are fetched in the
last pass of the item before, where tiles past the end would be. So a schedule writes a fetch for a
later pass once, whichever item the tile belongs to.

Where roles go *apart*, each takes one item after another by itself: what begins an item sets
`%tiles`, its loop and its epilogue follow, and nothing is ahead. One that feeds others begins the
next item while they end this one. Slots, phases and tensor memory go on from item to item; what is
resident is filled once an item, when it was released.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from mlagen.dsl.builder import Builder, Named, Section
from mlagen.dsl.extents import Extent, declared_at, touched
from mlagen.dsl.function import ScheduleBase, ScheduleFunction, said
from mlagen.dsl.knobs import Knobs
from mlagen.dsl.operation import Operation, Step
from mlagen.dsl.plain import PipelineOrder
from mlagen.dsl.signature import Signature
from mlagen.dsl.tile import Tile, Value
from mlagen.dsl.words import moved, record
from mlagen.errors import CapacityError, ScheduleError
from mlagen.targets.nvidia.dsl.smem import Smem
from mlagen.targets.nvidia.dsl.tmem import Place, Tmem, TmemRegion
from mlagen.targets.nvidia.dsl.tmem_tile import TmemTile
from mlagen.targets.nvidia.limits import Nvidia

# How blocks take several items: the last pass of one is ahead for the next, or roles go apart.
Persistent = Literal["", "ahead", "apart"]
ACQUIRE, NOTHING = "acquire", "pipeline/nothing.ptx.j2"  # a mark in the order
CLUSTER = 2  # blocks of a CTA cluster: each of two has one other one


@dataclass(frozen=True, slots=True)
class WarpRole:
    """Warps that run one stream. `registers`: what each of their threads may use (setmaxnreg).
    `single`: one elected thread runs the whole stream. `barrier`: the named barrier of its warps,
    0 for a single thread. `leader`: of a CTA pair, it runs in the first block alone."""

    name: str
    warps: range
    registers: int
    single: bool
    barrier: int
    leader: bool = False
    place: str = field(default="", compare=False, repr=False)  # where it is declared
    kind: ClassVar[str] = "role"

    @property
    def threads(self) -> int:
        """Threads that run the stream."""
        return 1 if self.single else Nvidia.warp_size * len(self.warps)

    @property
    def first_thread(self) -> int:
        return Nvidia.warp_size * self.warps.start


@dataclass(frozen=True, slots=True)
class NamedRegisters:
    """`count` registers of PTX type `type`, named `%NAME0 ..` in templates."""

    kind: ClassVar[str] = "the block"
    name: str
    type: str
    count: int
    comment: str
    place: str = field(default="", compare=False, repr=False)  # where it is declared

    @property
    def registers(self) -> int:
        """How many; the unit of its extent."""
        return self.count


@dataclass(frozen=True)
class Stream:
    """What one role does: before the loop, for the `step` tiles from `i` on, and after it."""

    role: WarpRole
    prologue: tuple[Operation, ...]
    loop: tuple[Operation, ...]
    epilogue: tuple[Operation, ...]
    line: int
    step: int = 1
    items: tuple[Operation, ...] = ()  # at the head of every work item of a persistent kernel


@dataclass(frozen=True)
class PipelineSchedule(ScheduleBase):
    """The value that a pipeline schedule function makes."""

    target: Nvidia
    streams: tuple[Stream, ...]
    smem: Smem
    tmem: Tmem
    registers: tuple[NamedRegisters, ...]
    symbol: str  # of the entry
    persistent: Persistent = ""  # "": a block has one work item
    plain: PipelineOrder | None = None

    @property
    def blocks(self) -> int:
        """Blocks of a CTA cluster; 1: there are none."""
        return self.smem.blocks

    @property
    def cta_group(self) -> int:
        """Blocks whose tensor memory is allocated and written together."""
        return CLUSTER if self.smem.pair else 1

    @property
    def ptx_version(self) -> tuple[int, int]:
        """The PTX version that the text asks for."""
        least = self.target.ptx_version
        return max(least, self.target.ptx_version_clusters) if self.blocks > 1 else least

    @property
    def threads(self) -> int:
        return Nvidia.warp_size * self.streams[-1].role.warps.stop

    @property
    def share(self) -> int:
        """Registers a thread starts with: the launch's even share of an SM's, in eights, at most
        what setmaxnreg can ask for."""
        fair = Nvidia.fair_share(self.threads, self.signature.resident)
        return min(fair, Nvidia.setmaxnreg_max)


@dataclass
class PipelineSpace:
    """What a pipeline schedule function gets besides the problem. `symbol`: of the entry,
    where it is not the schedule's name. `persistent`: blocks do one work item after another. The
    prologue sets `%items`, how many. "ahead": an operation that seeks (`Operation.ahead`) sets
    `%coming`, the tiles of the next one, 0 where `%items` is 0; `%tiles` is then set and `%items`
    counted down by the generated code. "apart", with tensor memory: what begins an item sets
    `%tiles`, one or more. `plain`: the loop that the schedule rearranges; the kernel says it.
    `facts`: what hosts know of a kernel without variants, a dataclass of its family; its operations
    state it."""

    knobs: Knobs
    smem: Smem
    tmem: Tmem
    registers: dict[str, NamedRegisters] = field(default_factory=dict)
    signature: Signature | None = None
    symbol: str = ""
    persistent: Persistent = ""
    plain: PipelineOrder | None = None
    facts: Any = None
    roles: list[WarpRole] = field(default_factory=list)

    def choice(self, name: str, *choices: Any, comment: str = "") -> Any:
        return self.knobs.choice(name, *choices, comment=comment)

    def number(
        self, name: str, *choices: float, least: float, most: float, comment: str = ""
    ) -> float:
        return self.knobs.number(name, *choices, least=least, most=most, comment=comment)

    def cta_cluster(self, blocks: int, *, pair: bool = False) -> None:
        """Launch so many consecutive blocks at once. They reach each other's SMEM, and each runs
        this schedule for the same number of tiles. Pipelines may be filled "for all" of them.

        `pair`: two are a CTA pair, whose products have cta_group 2. A role that is declared
        `leader` issues them, in the first block alone: they read tiles of both blocks, and leave
        sums in the TMEM of both."""
        if blocks not in (1, CLUSTER):
            raise ScheduleError(
                f"a CTA cluster of {blocks} blocks", hint=f"{CLUSTER}, or 1, which is none"
            )
        if pair and (blocks != CLUSTER or not self.tmem.capacity):
            raise ScheduleError(
                f"a CTA pair of {blocks} blocks"
                if self.tmem.capacity
                else "a CTA pair, on a target without tensor memory",
                hint=f"{CLUSTER} blocks are a pair, where products have cta_group 2",
            )
        if self.smem.pipelines:
            raise ScheduleError("a CTA cluster is declared after pipelines", hint="before them")
        self.smem.blocks, self.smem.pair = blocks, pair

    def region(
        self, name: str, columns: int, *, producer: str, consumer: str, over: Place | None = None
    ) -> TmemRegion:
        """Declare columns of TMEM that products of `producer` write and `consumer` reads. Where
        both are one role, tcgen05.cp fills them, for its products. `over`: in place of others, from
        a column of these on, while they are not needed."""
        return self.tmem.region(
            self.smem, name, columns, producer=producer, consumer=consumer, over=over
        )

    def columns(
        self, name: str, columns: int, *, slots: int, over: Place | None = None
    ) -> TmemTile:
        """Declare a ring of columns of TMEM, for a pipeline that products fill, or threads. `over`:
        as for a region; slots over those of a ring lie in one of these each."""
        return self.tmem.tile(self.smem, name, columns, slots, over)

    def role(
        self,
        name: str,
        *,
        warpgroups: int = 0,
        warps: int = 0,
        registers: int = 0,
        single: bool = False,
        leader: bool = False,
    ) -> WarpRole:
        """Declare the next warpgroups, or warps, as a role. `registers`: what each of its threads
        uses, of whole warpgroups only; 0: the launch's share, for roles by warps. `leader`: of a
        CTA pair, in the first block alone."""
        first = self.roles[-1].warps.stop if self.roles else 0
        if warpgroups < 0 or warps < 0 or not (warpgroups or warps):
            raise ScheduleError(f"role {name!r} needs at least one warpgroup")
        if any(role.name == name for role in self.roles):
            raise ScheduleError(f"role {name!r} is declared twice")
        if leader and not self.smem.pair:
            raise ScheduleError(
                f"role {name!r} of a leader; the blocks are no CTA pair",
                hint="`s.cta_cluster(2, pair=True)` before it",
            )
        self.smem.leaders |= {name} if leader else set()
        least, most, step = Nvidia.setmaxnreg_min, Nvidia.setmaxnreg_max, Nvidia.setmaxnreg_step
        whole = not warps and first % Nvidia.warpgroup_warps == 0
        if registers and not whole:
            raise ScheduleError(
                f"role {name!r}: {registers} registers; setmaxnreg is for whole warpgroups, and it "
                f"begins at warp {first}" + (f" with {warps} warps" if warps else ""),
                hint="leave `registers` out, or declare the role by warpgroups, those first",
            )
        if (registers or not (warps or self.tmem.capacity)) and (
            registers % step or not least <= registers <= most
        ):
            raise ScheduleError(
                f"role {name!r}: {registers} registers; setmaxnreg takes {least} to {most} in "
                f"steps of {step}"
            )
        barrier = 0 if single else self.smem.named_barrier(name)
        count = Nvidia.warpgroup_warps * warpgroups + warps
        own = range(first, first + count)
        made = WarpRole(name, own, registers, single, barrier, leader, declared_at())
        self.roles.append(made)
        return made

    def named(self, name: str, type: str, count: int, comment: str) -> list[str]:
        """Declare registers; returns their names as templates write them."""
        if name in self.registers:
            raise ScheduleError(f"register name {name!r} is declared twice")
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise ScheduleError(
                f"register name {name!r} is no name", hint="letters, digits and _, such as sum"
            )
        if name in SPECIAL:
            raise ScheduleError(
                f"register name {name!r}: %{name}0 and so on are the machine's own",
                hint=f"another, such as my_{name}",
            )
        self.registers[name] = NamedRegisters(name, type, count, comment, declared_at())
        return self.names(name)

    def names(self, name: str, *extents: Extent) -> list[str]:
        """The names of declared registers, of which operations touch so many; ScheduleError where
        there are none of that name, or not as many."""
        if name not in self.registers:
            raise ScheduleError(
                f"no registers {name!r} are declared",
                hint="declared: " + (", ".join(self.registers) or "none"),
            )
        held = touched(self.registers[name], *extents)
        return [f"%{name}{index}" for index in range(held.count)]


# Predefined registers that end in a number, as those of a schedule do (PTX ISA, chapter 10).
SPECIAL = ("envreg", "pm", "clock", "reserved_smem_offset_")


class PipelineBuilder(Builder):
    """Collects one stream a role."""

    def __init__(self, author: ScheduleFunction) -> None:
        super().__init__(author)
        self.streams: dict[str, Stream] = {}
        self.open: tuple[WarpRole, Literal["prologue", "item", "loop", "epilogue"]] | None = None
        self.steps_of: dict[str, int] = {}

    def enter_loop(self, waves: Any, step: int) -> None:
        if not isinstance(waves, WarpRole):
            raise ScheduleError("tiles() takes a role here: every role has its own loop")
        if waves.name in self.streams and self.streams[waves.name].loop:
            raise ScheduleError(f"{self.file}: a second tile loop for role {waves.name!r}")
        if step < 1:
            raise ScheduleError(f"{self.file}:{self.line()}: a loop by {step} tiles")
        self.steps_of[waves.name] = step
        self.open = (waves, "loop")

    def enter_section(self, name: Section, role: Any) -> None:
        if not isinstance(role, WarpRole):
            raise ScheduleError(f"{self.file}:{self.line()}: {name}() takes a role here")
        self.open = (role, name)

    def leave(self) -> None:
        self.open = None

    def limited(self, operation: Operation) -> Operation:
        """The operation, unless it is written for other roles than the one whose code is open."""
        if self.open is not None and not operation.belongs(self.open[0].name):
            raise ScheduleError(
                f"{self.file}:{self.line()}: {operation} is for role "
                f"{' or '.join(operation.roles)}, not for {self.open[0].name}"
            )
        return operation

    def add(self, step: Step) -> None:
        if self.open is None or not isinstance(step, Operation):
            raise ScheduleError(
                f"{self.file}:{self.line()}: {step} stands outside any role's loop",
                hint="put it inside `for i in tiles(ROLE)`, `prologue(ROLE)` or `epilogue(ROLE)`",
            )
        role, section = self.open
        stream = self.streams.get(role.name) or Stream(role, (), (), (), step.line)
        part = "items" if section == "item" else section
        more: dict[str, Any] = {part: (*getattr(stream, part), step)}
        self.streams[role.name] = replace(stream, step=self.steps_of.get(role.name, 1), **more)

    def of_block(self, role: WarpRole, *, persistent: bool) -> Stream:
        """The role's stream. Where a block has one item, what begins it is of the prologue."""
        stream = self.streams[role.name]
        if persistent:
            return stream
        return replace(stream, prologue=(*stream.prologue, *stream.items), items=())


def acquire(pipeline: Named, tile: Tile) -> Operation:
    """Wait here until the slot of `tile` is free, instead of right before it is filled: what comes
    between relies on what those who released it know."""
    marks: dict[str, Any] = {}
    return record(
        Operation(ACQUIRE, NOTHING, tile, lambda at: marks, uses=(Value(pipeline.name, tile),),
                  of=pipeline.name)
    )  # fmt: skip


def release(pipeline: Named, tile: Tile, *, when: bool = True) -> Operation | None:
    """Let the producer fill the slot of `tile` again. `when`: or elsewhere."""
    return moved(pipeline, "release", tile) if when else None


def run_pipelined(
    function: ScheduleFunction, problem: Any, knobs: Mapping[str, Any], target: Nvidia
) -> PipelineSchedule:
    """A schedule whose roles are streams of their own."""
    chosen = Knobs(dict(knobs))
    builder = PipelineBuilder(function)
    space = PipelineSpace(
        chosen, Smem(target.smem_bytes), Tmem(target.tmem_columns, target.tmem_alloc_min)
    )
    function.run(builder, space, problem)
    if not builder.streams or space.signature is None:
        raise ScheduleError(
            f"{function.name}: a schedule needs roles with tile loops and a kernel signature"
        )
    idle = [role.name for role in space.roles if role.name not in builder.streams]
    if idle:
        raise ScheduleError(f"{function.name}: role {idle[0]!r} does nothing")
    made = PipelineSchedule(
        **said(function, builder, problem, chosen, space.facts),
        target=target,
        streams=tuple(
            builder.of_block(role, persistent=bool(space.persistent)) for role in space.roles
        ),
        smem=space.smem,
        tmem=space.tmem,
        registers=tuple(space.registers.values()),
        signature=space.signature,
        symbol=space.symbol or builder.author.name,
        persistent=space.persistent,
        plain=space.plain,
    )
    _check_threads(made)
    _check_smem(made)
    _check_registers(made)
    _check_cluster(made)
    _check_tmem(made)
    return made


def _check_threads(made: PipelineSchedule) -> None:
    """ScheduleError unless a block is launched with the threads that its roles have."""
    x, y, z = made.signature.block
    if x * y * z != made.threads:
        raise ScheduleError(
            f"{made.name}: the roles have {made.threads} threads, a block is launched with "
            f"{x * y * z}"
        )


def _check_cluster(made: PipelineSchedule) -> None:
    """ScheduleError for what blocks of a CTA cluster cannot be."""
    single = not made.smem.pair and any(stream.role.single for stream in made.streams)
    several = made.persistent and not (made.smem.pair and made.persistent == "apart")
    if made.blocks > 1 and (several or single):
        what = "a role of one thread" if single else "blocks that do one item after another"
        raise ScheduleError(
            f"{made.name}: {what} in a CTA cluster",
            hint="blocks of a CTA cluster have one item each, and all threads of a role run it; of "
            "a CTA pair roles may go apart",
        )


def _check_smem(made: PipelineSchedule) -> None:
    """CapacityError where fewer blocks fit on an SM than registers are left for."""
    blocks, used = made.signature.resident, made.smem.used
    fits = Nvidia.smem_per_sm // blocks - Nvidia.smem_reserved
    if used > fits:
        raise CapacityError(
            f"{made.name}: {blocks} blocks an SM with {used} bytes of SMEM each; {fits} fit",
            hint=f"an SM has {Nvidia.smem_per_sm}, {Nvidia.smem_reserved} of a block are reserved",
        )


def _check_tmem(made: PipelineSchedule) -> None:
    """ScheduleError where warps read lanes that they cannot reach, CapacityError where the blocks
    of an SM would wait for each other's columns."""
    tmem, blocks = made.tmem, made.signature.resident
    group = made.target.warpgroup_warps
    for role in (stream.role for stream in made.streams if stream.role.name == tmem.owner):
        if role.single or role.warps.start % group or len(role.warps) % group:
            raise ScheduleError(
                f"{made.name}: role {role.name!r} has warps {role.warps.start} to "
                f"{role.warps.stop - 1}; whole warpgroups read TMEM, each warp a quarter of its "
                f"lanes",
                hint="declare the role by `warpgroups`, before those of single warps",
            )
    if tmem.used and made.persistent == "ahead":
        raise ScheduleError(
            f"{made.name}: {tmem.used} columns of TMEM, and passes ahead for the next item",
            hint='a region is handed over once an item where roles go "apart"',
        )
    if made.persistent == "apart" and not tmem.handed:
        raise ScheduleError(
            f"{made.name}: roles go apart from item to item, and no region of TMEM is handed over",
            hint='persistent="ahead", where sums are in registers',
        )
    if tmem.used and not tmem.owner:
        raise ScheduleError(
            f"{made.name}: {tmem.used} columns of TMEM, and no region: nobody gives them back",
            hint="the role that reads a region last, in its epilogue, does",
        )
    if tmem.owner in made.smem.leaders:
        raise ScheduleError(
            f"{made.name}: role {tmem.owner!r} of the leader gives TMEM back; both blocks of a CTA "
            f"pair do",
            hint="let a role of both read what lies there last",
        )
    if blocks * tmem.allocated > tmem.capacity:
        raise CapacityError(
            f"{made.name}: {blocks} blocks an SM with {tmem.allocated} columns of TMEM each; an SM "
            f"has {tmem.capacity}"
        )


def _check_registers(made: PipelineSchedule) -> None:
    """CapacityError for roles that take more registers than others give up: setmaxnreg.inc waits
    for registers of its own block (PTX ISA), and would wait for ever."""
    held = made.share * made.threads
    wanted = sum(
        (s.role.registers or made.share) * Nvidia.warp_size * len(s.role.warps)
        for s in made.streams
    )
    if wanted > held:
        roles = ", ".join(
            f"{s.role.name} {s.role.registers or made.share} x "
            f"{Nvidia.warp_size * len(s.role.warps)}"
            for s in made.streams
        )
        raise CapacityError(
            f"{made.name}: roles take {wanted} registers ({roles}); a block of {made.threads} "
            f"threads has {held}",
            hint=f"{made.share} a thread on average",
        )
