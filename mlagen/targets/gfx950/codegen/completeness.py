"""Checks that a schedule has each operation of its kernel once, in the right place, by the right
waves.

This is the cheap half of the proof of what is computed: it reads the schedule alone, before
anything is rendered. `flow` checks what order and overlap make of the operations.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlagen.dsl import Operation, PlainOrder
from mlagen.dsl.operation import operations_of
from mlagen.targets.gfx950.codegen.program import streams_of
from mlagen.targets.gfx950.codegen.violation import Violation
from mlagen.targets.gfx950.dsl import Schedule
from mlagen.targets.gfx950.limits import GFX950

LANES = GFX950.wave_size


def plain_order(schedule: Schedule) -> PlainOrder:
    """What the kernel declares, or else the loop's own order."""
    return schedule.plain or own_order(schedule)


def check_words(schedule: Schedule) -> list[Violation]:
    """Words that are missing, said twice, or said where or by whom the kernel does not do them."""
    plain = plain_order(schedule)
    return _undeclared(schedule, plain) or _shares(schedule, plain)


def own_order(schedule: Schedule) -> PlainOrder:
    """The order of a loop that is not declared: the schedule's own, without its overlap."""
    looped = operations_of(step for cluster in schedule.loop for step in cluster.steps)
    ahead = sorted(looped, key=lambda op: -(op.tile.offset if op.tile else 0))
    members = {role.name: role.waves for role in schedule.roles.members}
    doing: dict[str, set[str]] = {}
    for op in schedule.operations:
        doing.setdefault(op.key, set()).update(op.roles or members)

    def names(operations: Iterable[Operation]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(op.key for op in operations))

    return PlainOrder(
        before=names(schedule.prologue),
        item=names(schedule.items),
        tile=names(ahead),
        after=names(schedule.epilogue),
        share={
            key: (name, members[name])
            for key, (name, *others) in doing.items()
            if not others and len(members) > 1
        },
    )


def _undeclared(schedule: Schedule, plain: PlainOrder) -> list[Violation]:
    """Words of a role that stand where the kernel has none, twice, or not at all."""
    looped = operations_of(step for cluster in schedule.loop for step in cluster.steps)
    sections = (
        ("prologue", plain.before, schedule.prologue),
        ("each_item", plain.item, schedule.items),
        ("tile loop", plain.tile, looped),
        ("epilogue", plain.after, schedule.epilogue),
    )
    found: dict[str, Violation] = {}

    def add(code: str, line: int, text: str) -> None:
        made = Violation.at(code, f"{schedule.file}:{line}", text)
        found.setdefault(made.text, made)

    for stream in streams_of(schedule):
        role = stream.role
        who = f" of role {role}" if role else ""
        for where, names, operations in sections:
            first: dict[str, Operation] = {}
            for op in operations:
                if not op.belongs(role):
                    continue
                if op.key not in names:
                    does = ", ".join(names) or "nothing"
                    add("not-of-kernel", op.line, f"{spelled(op)} stands in the {where}, where the "
                        f"kernel does: {does}")  # fmt: skip
                elif op.key in first:
                    other = first[op.key]
                    often = " a tile" if where == "tile loop" else ""
                    add("done-twice", op.line, f"{spelled(op)} is there already, at :{other.line} "
                        f"as {spelled(other)}: it is done once{often}")  # fmt: skip
                elif plain.share.get(op.key, (role,))[0] != role:
                    add("roles", op.line, f"{spelled(op)} is done by role {role or 'all'}; the "
                        f"kernel has role {plain.share[op.key][0]} do it, alone")  # fmt: skip
                first.setdefault(op.key, op)
            for name in names:
                if name not in first and plain.share.get(name, (role,))[0] == role:
                    line = operations[0].line if operations else schedule.line
                    add("not-done", line, f"{name!r} is missing in the {where}{who}: the "
                        f"kernel does {', '.join(names)}")  # fmt: skip
    return list(found.values())


def _shares(schedule: Schedule, plain: PlainOrder) -> list[Violation]:
    """Roles of other waves than those that their operations are written for."""
    found = []

    def add(line: int, text: str) -> None:
        found.append(Violation.at("roles", f"{schedule.file}:{line}", text))

    members = {role.name: role for role in schedule.roles.members}
    x, y, z = schedule.signature.block
    if x * y * z != LANES * schedule.roles.waves:
        add(schedule.line, f"the roles have {schedule.roles.waves} waves, the kernel is launched "
            f"with {x * y * z // LANES}")  # fmt: skip
    copies: dict[str, set[str]] = {}
    for op in schedule.operations:
        name, waves = plain.share.get(op.key, ("", range(0)))
        if name and members[name].waves != waves:
            add(op.line, f"{spelled(op)} is written for waves {_waves(waves)}, role {name} has "
                f"{_waves(members[name].waves)}")  # fmt: skip
        if op.access is not None and op.access.kind == "copy":
            held = copies.setdefault(op.access.target.ring, set())
            held.update(op.roles or members)
    for ring, does in copies.items():
        waves_done = sum(len(members[role].waves) for role in does)
        if waves_done != schedule.lds.rings[ring].waves:
            add(schedule.line, f"copy({ring}): {waves_done} waves do it, the tile is split over "
                f"{schedule.lds.rings[ring].waves}")  # fmt: skip
    return found


def spelled(op: Operation) -> str:
    """An operation as the schedule writes it."""
    if op.access is not None and op.access.kind == op.name:
        return str(op)
    return f"{op.name}({op.tile})" if op.tile is not None else f"{op.name}()"


def _waves(waves: range) -> str:
    return f"{waves.start}..{waves.stop - 1}"
