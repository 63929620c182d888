"""Puts waits, priorities and closing barriers into the pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mlagen.dsl import Cluster
from mlagen.targets.gfx950.codegen.program import (
    Layout,
    Origin,
    Piece,
    ProgramInstruction,
    WaitPoint,
)
from mlagen.targets.gfx950.dsl import Schedule, Wait


def place(schedule: Schedule, layout: Layout, waits: Mapping[WaitPoint, Wait]) -> list[str]:
    """Insert everything into `layout` and return, as text, the slack that waits placed by hand
    lose against the derived ones."""
    slack: list[str] = []
    for piece in layout.pieces():
        body: list[ProgramInstruction] = []
        for index, instruction in enumerate(piece.body):
            wait = waits.get(WaitPoint(piece.key, index))
            if wait is not None:
                body.append(_wait(wait, instruction.origin))
            body.append(instruction)
        if piece.cluster is not None:
            body = _close(schedule, piece, piece.cluster, body, waits, slack)
        elif WaitPoint(piece.key, len(piece.body)) in waits:
            origin = Origin(piece.section, "", 0, schedule.line)
            body.append(_wait(waits[WaitPoint(piece.key, len(piece.body))], origin))
        piece.body = body
    return list(dict.fromkeys(slack))


def _close(
    schedule: Schedule,
    piece: Piece,
    cluster: Cluster,
    body: list[ProgramInstruction],
    waits: Mapping[WaitPoint, Wait],
    slack: list[str],
) -> list[ProgramInstruction]:
    origin = Origin(f"cluster {cluster.name}", "", 0, cluster.line)
    if cluster.priority and body:
        body.insert(0, ProgramInstruction(f"s_setprio {cluster.priority}", "s_setprio", "scalar",
                                          origin=origin))  # fmt: skip
        body.append(ProgramInstruction("s_setprio 0", "s_setprio", "scalar", origin=origin))
    wait = waits.get(WaitPoint(piece.key, len(piece.body)), Wait())
    needed = ""
    if cluster.wait is not None:
        needed = str(wait)
        wait = _by_hand(schedule, piece, cluster, wait, slack)
    if wait != Wait():
        body.append(replace(_wait(wait, origin), needed=needed))
    if piece.closed:
        body.append(ProgramInstruction("s_barrier", "s_barrier", "barrier", origin=origin))
    return body


def _by_hand(
    schedule: Schedule, piece: Piece, cluster: Cluster, derived: Wait, slack: list[str]
) -> Wait:
    """The wait that stands at the end of a cluster with a hand-placed one: the written counts, but
    never weaker than derived where the loop fills or drains. A counter left out stays left out."""
    assert cluster.wait is not None
    steady = piece.section.startswith("loop")
    placed = {}
    for name in ("vm", "lgkm"):
        hand, needed = getattr(cluster.wait, name), getattr(derived, name)
        if hand and name == "vm" and schedule.drains:
            hand = 0
        if hand is not None and not steady and needed is not None:
            hand = min(hand, needed)
        placed[name] = hand
        if hand is not None and steady and (needed is None or hand < needed):
            lost = "none is needed" if needed is None else f"{name}cnt({needed}) would do"
            slack.append(
                f"{schedule.file}:{cluster.line} cluster {cluster.name} waits for "
                f"{name}cnt({hand}), {lost}"
            )
    return Wait(**placed)


def _wait(wait: Wait, origin: Origin | None) -> ProgramInstruction:
    return ProgramInstruction(f"s_waitcnt {wait}", "s_waitcnt", "wait", origin=origin)
