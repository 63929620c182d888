"""Another way to the same answer: every path of a small program, walked one by one.

Queues are plain lists here. Of what a wait leaves outstanding the worst is assumed: DS and vector
memory operations return in order, so the newest are left; any scalar load may be left until the
count is 0.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Line:
    """`op`: ds, vm, smem, wait, use, branch or end. `reg`: number of the register it fills or
    uses. `vm`, `lgkm`: counts of a wait. `target`: line that a branch may go to."""

    op: str
    reg: int = 0
    vm: int = 63
    lgkm: int = 15
    target: int = 0

    def asm(self) -> str:
        reg = self.reg
        return {
            "ds": f"ds_read_b32 v{reg}, v0",
            "vm": f"global_load_dword v{reg}, v0, s[0:1]",
            "smem": f"s_load_dword s{reg}, s[0:1], 0x0",
            "use": f"v_mov_b32 v40, v{reg}",
            "suse": f"s_mov_b32 s40, s{reg}",
            "wait": f"s_waitcnt vmcnt({self.vm}) & lgkmcnt({self.lgkm})",
            "branch": f"s_cbranch_scc0 L{self.target}",
            "end": "s_endpgm",
        }[self.op]


OPS = ("ds", "ds", "vm", "vm", "smem", "wait", "wait", "use", "use", "suse", "branch")


def text(program: list[Line]) -> str:
    return "\n".join(f"L{i}:\n  {line.asm()}" for i, line in enumerate(program))


def draw(seed: int, length: int = 14) -> list[Line]:
    """A random program; branches go back and forth."""
    rng = random.Random(seed)
    lines = []
    for _ in range(length):
        op = rng.choice(OPS)
        if op == "smem" or op == "suse":
            lines.append(Line(op, reg=rng.randrange(20, 23)))
        elif op == "wait":
            vm, lgkm = rng.choice([(rng.randrange(4), 15), (63, rng.randrange(4)), (1, 1), (0, 2)])
            lines.append(Line(op, vm=vm, lgkm=lgkm))
        elif op == "branch":
            lines.append(Line(op, target=rng.randrange(length)))
        else:
            lines.append(Line(op, reg=rng.randrange(1, 5)))
    return [*lines, Line("end")]


Flying = tuple[int, bool]  # a load's line, and whether its register is still to be looked at


def broken(program: list[Line]) -> set[tuple[int, int]]:
    """(use, load) pairs that some path breaks: the first use of a result that may be in flight."""
    found: set[tuple[int, int]] = set()
    seen = set()
    work: list[tuple[int, dict[str, tuple[Flying, ...]]]] = [(0, {"vm": (), "ds": (), "smem": ()})]
    while work:
        at, queues = work.pop()
        state = (at, *queues.values())
        if state in seen:
            continue
        seen.add(state)
        line = program[at]
        if line.op == "end":
            continue
        queues = dict(queues)
        if line.op == "wait":
            if line.vm < 63:
                queues["vm"] = newest(queues["vm"], line.vm)
            if line.lgkm < 15:
                queues["ds"] = newest(queues["ds"], line.lgkm)
                queues["smem"] = queues["smem"] if line.lgkm else ()
        elif line.op != "branch":
            for name in ("smem",) if line.op in ("suse", "smem") else ("vm", "ds"):
                for load, watched in queues[name]:
                    in_order = name == line.op and name != "smem"
                    if watched and program[load].reg == line.reg and not in_order:
                        found.add((at, load))
                queues[name] = tuple(
                    (load, watched and program[load].reg != line.reg)
                    for load, watched in queues[name]
                )
            if line.op in queues:
                older = tuple((load, w and load != at) for load, w in queues[line.op])
                queues[line.op] = (*older, (at, True))[-8:]  # no wait here counts further
        work.append((at + 1, queues))
        if line.op == "branch":
            work.append((line.target, queues))
    return found


def newest(queue: tuple[Flying, ...], count: int) -> tuple[Flying, ...]:
    return queue[len(queue) - min(len(queue), count) :]


def weakest(program: list[Line], at: int) -> tuple[int | None, int | None]:
    """The weakest counts of a wait that break nothing new, None where it may be left out."""
    before = broken(program)
    line = program[at]

    def good(**change: int) -> bool:
        changed = [*program[:at], replace(line, **change), *program[at + 1 :]]
        return broken(changed) == before

    vm = next((n for n in range(line.vm, 9) if not good(vm=n + 1 if n < 8 else 63)), None)
    lgkm = next((n for n in range(line.lgkm, 9) if not good(lgkm=n + 1 if n < 8 else 15)), None)
    return (vm if line.vm < 63 else None, lgkm if line.lgkm < 15 else None)
