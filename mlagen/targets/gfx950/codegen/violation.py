"""What a proof found, and how it reads the waits that are printed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mlagen.targets.gfx950.codegen.program import ProgramInstruction

_COUNT = re.compile(r"(vm|lgkm)cnt\((\d+)\)")


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that nothing orders, with the smallest N that shows it."""

    code: str  # wait-missing | race-raw | race-war | race-waw | race-item | barriers | unbounded
    text: str
    n: int
    deadline: int = 0  # cluster on the path at whose barrier a wait is still in time

    @classmethod
    def at(cls, code: str, where: str, what: str, n: int = 1, deadline: int = 0) -> Violation:
        """`where`: the schedule's file and line."""
        return cls(code, f"error[{code}] {where} {what}", n, deadline)


def waited(wait: ProgramInstruction) -> list[tuple[str, int]]:
    """(counter, count) of a printed s_waitcnt."""
    return [(counter, int(count)) for counter, count in _COUNT.findall(wait.text)]
