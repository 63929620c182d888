"""Interleaving two instruction streams. Order inside each stream is kept."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.codegen.program import ProgramInstruction

_GROUP = re.compile(r"^(\d+)x(\d+):(\d+)$")


def interleave(
    first: Sequence[ProgramInstruction],
    second: Sequence[ProgramInstruction],
    pattern: str,
    where: str,
    *,
    ordered: bool = False,
) -> list[ProgramInstruction]:
    """`first` and `second` interleaved by `pattern` ("even" or "6x1:3 10x1:5").

    ScheduleError when the streams touch each other's registers: then their order would matter. With
    `ordered` it is kept instead: an instruction of `second` stands after all of `first` that write
    what it touches or read what it writes, and a slot it cannot take yet goes to `first`.
    """
    if ordered:
        needed = _needed(first, second)
    else:
        check_independent(first, second, where)
        needed = [0] * len(second)
    result: list[ProgramInstruction] = []
    a = b = 0
    for take_first, take_second in _groups(pattern, len(first), len(second), where):
        result += first[a : a + take_first]
        a = min(a + take_first, len(first))
        for _ in range(min(take_second, len(second) - b)):
            if needed[b] <= a:
                result.append(second[b])
                b += 1
            else:
                result.append(first[a])
                a += 1
    return result + list(first[a:]) + list(second[b:])


def _needed(first: Sequence[ProgramInstruction], second: Sequence[ProgramInstruction]) -> list[int]:
    """How many instructions of `first` must be out before each of `second`."""
    written: dict[int, int] = {}  # register: after its last write
    touched: dict[int, int] = {}  # register: after its last read or write
    for index, x in enumerate(first, 1):
        for register in (*x.reads, *x.writes):
            touched[register] = index
        for register in x.writes:
            written[register] = index
    return [
        max(
            (*(written.get(r, 0) for r in x.reads), *(touched.get(r, 0) for r in x.writes)),
            default=0,
        )
        for x in second
    ]


def _groups(pattern: str, n: int, m: int, where: str) -> list[tuple[int, int]]:
    if pattern == "even":
        marks = [(index + 1) * m // max(n, 1) for index in range(n)]
        return [(1, mark - before) for mark, before in zip(marks, [0, *marks], strict=False)]
    groups: list[tuple[int, int]] = []
    for word in pattern.split():
        match = _GROUP.match(word)
        if not match:
            raise ScheduleError(
                f"{where}: interleave pattern {pattern!r}: {word!r} is not COUNTxFIRST:SECOND",
                hint='for example "6x1:3 10x1:5", or "even"',
            )
        count, take_first, take_second = map(int, match.groups())
        groups += [(take_first, take_second)] * count
    return groups


def check_independent(
    first: Sequence[ProgramInstruction], second: Sequence[ProgramInstruction], where: str
) -> None:
    """ScheduleError unless neither stream writes a register that the other reads or writes."""
    touched = [
        ({r for i in stream for r in i.writes}, {r for i in stream for r in i.reads})
        for stream in (first, second)
    ]
    (writes_a, reads_a), (writes_b, reads_b) = touched
    shared = (writes_a & (writes_b | reads_b)) | (writes_b & reads_a)
    if shared:
        guilty = min(shared)
        names = sorted(
            {
                str(i.origin.operation)
                for i in (*first, *second)
                if i.origin and (guilty in i.writes or guilty in i.reads)
            }
        )
        raise ScheduleError(
            f"{where}: interleaved streams touch register {guilty} in both: {', '.join(names)}",
            hint="the order of interleaved streams must not matter; ordered=True keeps it",
        )
