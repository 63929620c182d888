"""Which instructions of a PTX text touch registers of a `wgmma` that may still be running.

ptxas says that it serialises a kernel, and why, but often not where. This follows every path of the
text with the rules that ptxas follows and names the lines. It explains a refusal that ptxas has
made already; it decides nothing, and a text that ptxas takes is never judged by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.errors import MissingError, UnsupportedError
from mlagen.ptx import Entry, Graph, Kind, Vector, read_ptx
from mlagen.ptx.effects import names_in
from mlagen.ptx.wellformed import check

_OLDEST = 9  # groups told apart; a wait for more than that in flight is never asked for

# A wgmma in flight: its instruction, the commits since it was issued, and whether a back edge was
# crossed since. ptxas understands only `wait_group 0` for one that crossed (seen: 12.8 to 13.5).
_Flight = tuple[int, int, bool]


@dataclass(frozen=True, slots=True)
class Touch:
    """Line `line` uses `register` while the wgmma of line `wgmma_line` may be running."""

    line: int
    register: str
    role: str  # "accumulator" or "input"
    wgmma_line: int
    crossed: bool  # issued before a loop's back edge


def touches(text: str) -> list[Touch]:
    """All such uses in the order of the text, each line once; none where it is not understood."""
    return [touch for entry in _entries(text) for touch in _touches(Graph(entry))]


def lines_of(text: str, prefix: str) -> list[int]:
    """Lines of the instructions whose opcode starts with `prefix`."""
    code = (instruction for entry in _entries(text) for instruction in entry.instructions)
    return [instruction.line for instruction in code if instruction.opcode.startswith(prefix)]


def _entries(text: str) -> tuple[Entry, ...]:
    try:
        entries = read_ptx(text).entries
        for entry in entries:
            check(entry)
    except (MissingError, UnsupportedError):
        return ()
    return entries


def _touches(graph: Graph) -> list[Touch]:
    code = graph.instructions
    states: list[set[_Flight]] = [set() for _ in range(graph.end + 1)]
    pending = list(range(graph.end))
    while pending:
        index = pending.pop(0)
        after = _after(graph, index, states[index])
        for successor in graph.successors[index]:
            crossing = successor <= index
            new = {(mma, age, crossed or crossing) for mma, age, crossed in after}
            if not new <= states[successor]:
                states[successor] |= new
                if successor not in pending and successor < graph.end:
                    pending.append(successor)
    found: dict[int, Touch] = {}
    for index, instruction in enumerate(code):
        if instruction.name == "wgmma":
            continue
        written = set(graph.writes[index])
        named = written | set(graph.reads[index])
        for mma, _, crossed in sorted(states[index]):
            accumulators, a = code[mma].operands[:2]
            inputs = set(names_in(a)) if isinstance(a, Vector) else set()
            for registers, role in (
                (named & set(names_in(accumulators)), "accumulator"),
                (written & inputs, "input"),
            ):
                if registers and instruction.line not in found:
                    register = min(registers, key=lambda name: (len(name), name)).partition("@")[0]
                    issued = code[mma].line
                    found[instruction.line] = Touch(
                        instruction.line, register, role, issued, crossed
                    )
    return [found[line] for line in sorted(found)]


def _after(graph: Graph, index: int, flying: set[_Flight]) -> set[_Flight]:
    """What is in flight after an instruction."""
    kind = graph.kinds[index]
    if kind is Kind.WGMMA:
        return flying | {(index, 0, False)}
    if kind is Kind.WGMMA_COMMIT:
        return {(mma, min(age + 1, _OLDEST), crossed) for mma, age, crossed in flying}
    if kind is Kind.WGMMA_WAIT:
        left = graph.instructions[index].operands[0]
        assert isinstance(left, int)  # it is well formed
        return {
            (mma, age, crossed)
            for mma, age, crossed in flying
            if age == 0 or (left and (age <= left or crossed))
        }
    return flying
