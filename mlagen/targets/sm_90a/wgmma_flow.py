"""Which instructions of a PTX text touch registers of a `wgmma` that may still be running.

ptxas says that it serialises a kernel, and why, but often not where. This follows every path of the
text with the rules that ptxas follows and names the lines. It explains a refusal that ptxas has
made already; it decides nothing, and a text that ptxas takes is never judged by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
_LABEL = re.compile(r"\s*([A-Za-z_$%][\w$]*)\s*:(?!:)")
_GUARD = re.compile(r"@!?\s*[%\w$]+\s+")
_REGISTER = re.compile(r"[%A-Za-z_$][\w$]*")
_GROUP = re.compile(r"\{([^}]*)\}")
_OLDEST = 9  # groups told apart; a wait for more than that in flight is never asked for

# A wgmma in flight: its statement, the commits since it was issued, and whether a back edge was
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


@dataclass(frozen=True, slots=True)
class _Statement:
    line: int
    mnemonic: str
    operands: str
    guarded: bool
    target: int = -1  # of a branch, as a statement's index

    def named(self) -> set[str]:
        return set(_REGISTER.findall(self.operands))

    def written(self) -> set[str]:
        if self.mnemonic.startswith(("st.", "red.", "bra", "bar", "wgmma", "cp.", "fence")):
            return set()
        first = _GROUP.match(self.operands)
        return set(_REGISTER.findall(first[1] if first else self.operands.partition(",")[0]))


def touches(text: str) -> list[Touch]:
    """All such uses in the order of the text, each line once."""
    statements = list(_statements(text))
    groups = [_wgmma_registers(s) for s in statements]
    states: list[set[_Flight]] = [set() for _ in statements]
    pending = list(range(len(statements)))
    while pending:
        index = pending.pop(0)
        after = _after(statements[index], index, states[index])
        for successor in _successors(statements, index):
            crossing = successor <= index
            new = {(mma, age, crossed or crossing) for mma, age, crossed in after}
            if not new <= states[successor]:
                states[successor] |= new
                if successor not in pending:
                    pending.append(successor)
    found: dict[int, Touch] = {}
    for statement, flying in zip(statements, states, strict=True):
        if statement.mnemonic.startswith("wgmma."):
            continue
        named, written = statement.named(), statement.written()
        for mma, _, crossed in sorted(flying):
            accumulators, inputs = groups[mma]
            for registers, role in ((named & accumulators, "accumulator"), (written & inputs, "")):
                if registers and statement.line not in found:
                    found[statement.line] = Touch(
                        statement.line,
                        min(registers, key=lambda name: (len(name), name)),
                        role or "input",
                        statements[mma].line,
                        crossed,
                    )
    return [found[line] for line in sorted(found)]


def lines_of(text: str, prefix: str) -> list[int]:
    """Lines of the instructions whose mnemonic starts with `prefix`."""
    return [s.line for s in _statements(text) if s.mnemonic.startswith(prefix)]


def _statements(text: str) -> Iterator[_Statement]:
    """The instructions of a text with their lines; branches know the statement they go to."""
    blank = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    raw: list[tuple[int, str]] = []
    labels: dict[str, int] = {}
    position = 0
    for end in (found.start() for found in re.finditer(";", blank)):
        piece = blank[position:end]
        # Declarations' braces are dropped; those of operands are not at a statement's start.
        start = position + len(piece) - len(piece.lstrip("{} \t\r\n"))
        while label := _LABEL.match(blank, start, end):
            labels[label[1]] = len(raw)
            start = label.end()
            start += len(blank[start:end]) - len(blank[start:end].lstrip("{} \t\r\n"))
        raw.append((blank.count("\n", 0, start) + 1, blank[start:end]))
        position = end + 1
    for line, piece in raw:
        guard = _GUARD.match(piece)
        body = piece[guard.end() :] if guard else piece
        mnemonic, _, operands = body.strip().partition(" ")
        target = labels.get(operands.strip(), -1) if mnemonic.startswith("bra") else -1
        yield _Statement(line, mnemonic, operands.strip(), bool(guard), target)


def _wgmma_registers(statement: _Statement) -> tuple[set[str], set[str]]:
    """Accumulators and input registers of a wgmma; nothing for anything else."""
    if not statement.mnemonic.startswith("wgmma.mma_async"):
        return set(), set()
    groups = [set(_REGISTER.findall(group)) for group in _GROUP.findall(statement.operands)]
    return (groups[0] if groups else set()), (groups[1] if len(groups) > 1 else set())


def _after(statement: _Statement, index: int, flying: set[_Flight]) -> set[_Flight]:
    mnemonic = statement.mnemonic
    if mnemonic.startswith("wgmma.mma_async"):
        return flying | {(index, 0, False)}
    if mnemonic.startswith("wgmma.commit_group"):
        return {(mma, min(age + 1, _OLDEST), crossed) for mma, age, crossed in flying}
    if mnemonic.startswith("wgmma.wait_group"):
        left = int(statement.operands) if statement.operands.isdigit() else 0
        return {
            (mma, age, crossed)
            for mma, age, crossed in flying
            if age == 0 or (left and (age <= left or crossed))
        }
    return flying


def _successors(statements: list[_Statement], index: int) -> Iterator[int]:
    statement = statements[index]
    if 0 <= statement.target < len(statements):
        yield statement.target
    ends = statement.mnemonic.startswith(("bra", "ret", "exit", "trap"))
    if index + 1 < len(statements) and (statement.guarded or not ends):
        yield index + 1
