"""What operations do to exchanges: which of their instructions write one or read one, and the
barriers that stand between the two inside of a cluster, a prologue or an epilogue.

Between clusters the barrier that ends the first one does. All waves pass all barriers, so where
each role has code of its own, writer and reader stand in clusters apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mlagen.dsl import Access, Operation, Tile, Value
from mlagen.dsl.tile import RingTile
from mlagen.errors import ScheduleError, TemplateError
from mlagen.targets.gfx950.codegen.program import Origin, ProgramInstruction
from mlagen.targets.gfx950.dsl import Schedule

_LANES_ONLY = ("ds_bpermute_b32", "ds_permute_b32", "ds_swizzle_b32")  # these touch no LDS


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The accesses of one operation; None: it does not write one, or read one."""

    write: Access | None = None
    read: Access | None = None

    def of(self, x: ProgramInstruction) -> Access | None:
        """The access of one of the operation's instructions."""
        if not touches_lds(x):
            return None
        return self.read if x.writes else self.write


NOTHING = Exchanged()


def touches_lds(x: ProgramInstruction) -> bool:
    """Whether it reads or writes LDS by addresses of lanes."""
    return x.pipe == "lds" and x.mnemonic not in _LANES_ONLY


def exchanged(schedule: Schedule) -> dict[int, Exchanged]:
    """By the id of each operation that does something to an exchange. ScheduleError for an exchange
    that is written or read by nobody, or from several places."""
    names = schedule.lds.exchanges
    if not names:
        return {}
    sections = (schedule.prologue, schedule.items, schedule.epilogue)
    placed = [(op, at) for at, section in enumerate(sections) for op in section]
    placed += [(op, -1) for cluster in schedule.loop for op in cluster.operations()]
    found: dict[int, Exchanged] = {}
    writers: dict[str, list[tuple[Operation, int]]] = {name: [] for name in names}
    readers: dict[str, list[tuple[Operation, int]]] = {name: [] for name in names}
    for op, place in placed:
        written = [value for value in op.defines if value.block in names]
        taken = [value for value in op.uses if value.block in names]
        if not written and not taken:
            continue
        where = f"{schedule.file}:{op.line} {op}"
        if op.access is not None or len(written) > 1 or len(taken) > 1:
            raise ScheduleError(
                f"{where} does more than write one exchange and read one",
                hint="an operation of its own for each ring or exchange that is read",
            )
        for value in written:
            writers[value.block].append((op, place))
        for value in taken:
            readers[value.block].append((op, place))
        found[id(op)] = Exchanged(
            _access("copy", written[0]) if written else None,
            _access("read", taken[0]) if taken else None,
        )
    for name in names:
        if name in schedule.registers.blocks:
            raise ScheduleError(
                f"{schedule.file}:{schedule.line} exchange {name!r} has the name of a register "
                f"block: `Value({name!r}, tile)` would mean both"
            )
        _check_ends(schedule, name, writers[name], readers[name])
    return found


def _access(kind: str, value: Value) -> Access:
    return Access(kind, RingTile(value.block, value.tile or Tile(0)))  # type: ignore[arg-type]


def _check_ends(
    schedule: Schedule,
    name: str,
    writers: Sequence[tuple[Operation, int]],
    readers: Sequence[tuple[Operation, int]],
) -> None:
    keys = {op.key for op, _ in writers}
    if not writers or not readers:
        raise ScheduleError(
            f"{schedule.file}:{schedule.line} exchange {name!r} is "
            f"{'read by nobody' if writers else 'written by nobody'}",
            hint=f"an operation writes it that defines Value({name!r}, tile), one reads it that "
            f"uses it",
        )
    if len(keys) > 1 or len({place for _, place in (*writers, *readers)}) > 1:
        last = writers[-1][0]
        raise ScheduleError(
            f"{schedule.file}:{last.line} exchange {name!r} is written by {len(keys)} operations, "
            f"or not where it is read",
            hint="declare an exchange for each writer; both ends stand in the tile loop, or in one "
            "of prologue, item and epilogue",
        )


def require_instructions(
    op: Operation, does: Exchanged, body: Sequence[ProgramInstruction]
) -> None:
    """TemplateError where a template lacks what its operation says of an exchange."""
    for access, verb, needed in (
        (does.write, "writes", "ds_write"),
        (does.read, "reads", "ds_read"),
    ):
        if access is not None and not any(x.access is access for x in body):
            raise TemplateError(
                f"{op.template}: {op} {verb} exchange {access.target.ring!r}, and there is no "
                f"{needed} in it"
            )


class Joints:
    """Puts barriers between writers and readers of exchanges inside of one piece."""

    def __init__(self, schedule: Schedule, does: Mapping[int, Exchanged]) -> None:
        self.schedule, self.does = schedule, does
        self.open: set[str] = set()  # written in this piece, and no barrier since

    def before(self, operation: Operation) -> list[ProgramInstruction]:
        """What comes before an operation that is not interleaved."""
        does = self.does.get(id(operation), NOTHING)
        joint: list[ProgramInstruction] = []
        if does.read is not None and does.read.target.ring in self.open:
            self._check_role(operation, does.read)
            joint, self.open = self._barrier(operation, does.read.target.ring), set()
        if does.write is not None:
            self.open.add(does.write.target.ring)
        return joint

    def beside(self, operations: Iterable[Operation]) -> None:
        """ScheduleError for interleaved operations that would need a barrier inside."""
        together = list(operations)
        for operation in together:
            does = self.does.get(id(operation), NOTHING)
            if does.write is not None:
                self.open.add(does.write.target.ring)
        for operation in together:
            does = self.does.get(id(operation), NOTHING)
            if does.read is not None and does.read.target.ring in self.open:
                raise ScheduleError(
                    f"{self.schedule.file}:{operation.line} {operation} is interleaved, and reads "
                    f"exchange {does.read.target.ring!r}, which is written in the same cluster",
                    hint="the barrier between them ends a cluster, or stands before an operation "
                    "that is not interleaved",
                )

    def _check_role(self, operation: Operation, access: Access) -> None:
        if self.schedule.apart:
            raise ScheduleError(
                f"{self.schedule.file}:{operation.line} {operation} reads exchange "
                f"{access.target.ring!r}, which is written in the same cluster, and roles have "
                f"code of their own",
                hint="write it in one cluster and read it in a later one: all roles pass their "
                "barriers",
            )

    def _barrier(self, operation: Operation, name: str) -> list[ProgramInstruction]:
        origin = Origin(f"exchange {name}", "", 0, operation.line)
        return [
            ProgramInstruction("s_waitcnt lgkmcnt(0)", "s_waitcnt", "wait", origin=origin),
            ProgramInstruction("s_barrier", "s_barrier", "barrier", origin=origin),
        ]
