"""Interleaving two instruction streams. Order inside each stream is kept."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mlagen.codegen.program import Instruction
from mlagen.errors import ScheduleError

_GROUP = re.compile(r"^(\d+)x(\d+):(\d+)$")


def weave(
    first: Sequence[Instruction], second: Sequence[Instruction], pattern: str, where: str
) -> list[Instruction]:
    """`first` and `second` interleaved by `pattern` ("even" or "6x1:3 10x1:5").

    ScheduleError when the streams touch each other's registers: then their order would matter.
    """
    check_independent(first, second, where)
    result: list[Instruction] = []
    a = b = 0
    for take_first, take_second in _groups(pattern, len(first), len(second), where):
        result += first[a : a + take_first]
        a += take_first
        result += second[b : b + take_second]
        b += take_second
    return result + list(first[a:]) + list(second[b:])


def _groups(pattern: str, n: int, m: int, where: str) -> list[tuple[int, int]]:
    if pattern == "even":
        marks = [(index + 1) * m // max(n, 1) for index in range(n)]
        return [(1, mark - before) for mark, before in zip(marks, [0, *marks], strict=False)]
    groups: list[tuple[int, int]] = []
    for word in pattern.split():
        match = _GROUP.match(word)
        if not match:
            raise ScheduleError(
                f"{where}: weave pattern {pattern!r}: {word!r} is not COUNTxFIRST:SECOND",
                hint='for example "6x1:3 10x1:5", or "even"',
            )
        count, take_first, take_second = map(int, match.groups())
        groups += [(take_first, take_second)] * count
    return groups


def check_independent(
    first: Sequence[Instruction], second: Sequence[Instruction], where: str
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
            f"{where}: woven streams touch register {guilty} in both: {', '.join(names)}",
            hint="streams are woven only when their order does not matter",
        )
