"""Arithmetic and branches."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlagen.audit.ptx import operands
from mlagen.audit.ptx.agent import Agent
from mlagen.audit.ptx.arithmetic import compiled, evaluate, set_predicate
from mlagen.audit.ptx.lanes import split
from mlagen.audit.ptx.program import WINDOW_BITS
from mlagen.audit.ptx.state import State
from mlagen.audit.ptx.values import (
    UNKNOWN,
    Compare,
    Lanes,
    Linear,
    Logic,
    Mixed,
    Term,
    Unknown,
    Value,
    add,
    canonical,
    compare,
    comparisons,
    expanded,
    from_memory,
    is_number,
    key_of,
    key_of_predicate,
    mixed,
    plain,
    scale,
    term,
)
from mlagen.ptx import Instruction, MemoryOperand, Vector
from mlagen.ptx.types import bits_of

# Not modelled as arithmetic: their results are data.
_GIVES = ("atom", "ld")
_WORD = 4  # bytes
_BOTH = 2  # ends of a range
_DATA = frozenset(("atom", "call", "createpolicy", "activemask", "isspacep"))


def compute(state: State, agent: Agent, instruction: Instruction) -> None:
    """An instruction that only writes registers."""
    results = state.program.graph.writes[instruction.index]
    if not results:
        return
    values = _results(state, agent, instruction, len(results))
    lanes: int | Lanes = 1
    if instruction.name in _GIVES and all(value is UNKNOWN for value in values):
        values = _data(state, agent, instruction, len(results))
    if instruction.guard:
        guard: Value = UNKNOWN
        if not _some_load_data(state, agent, instruction, values):
            guard = operands.decided(state, agent, instruction, instruction.guard.register)
        if not is_number(guard):
            values = [UNKNOWN] * len(results)
        else:
            lanes = operands.holds(guard, negated=instruction.guard.negated)
    if isinstance(lanes, int) and not lanes:
        return
    # A size and a lane's number in one predicate: lanes that part keep the decision.
    values = [
        operands.decide(state, value) if isinstance(value, Logic) and _by_lane(value) else value
        for value in values
    ]
    for name, value in zip(results, values, strict=True):
        if isinstance(lanes, np.ndarray):
            old = agent.registers.get(name, UNKNOWN)
            if isinstance(value, Linear) or isinstance(old, (Linear, Mixed)):
                both = zip(
                    lanes.tolist(), *(expanded(v, lanes.size) for v in (value, old)), strict=True
                )
                agent.registers[name] = mixed([new if yes else was for yes, new, was in both])
                continue
            known = is_number(old) and is_number(value)
            value = plain(np.where(lanes != 0, value, old)) if known else UNKNOWN  # type: ignore[arg-type]
        agent.registers[name] = plain(value) if isinstance(value, np.ndarray) else value


def _data(state: State, agent: Agent, instruction: Instruction, count: int) -> list[Value]:
    """What one thread gets from memory that others may write: a name for this moment."""
    active = len(agent.threads)
    if instruction.guard:
        guard = operands.value(state, agent, instruction.guard.register)
        if isinstance(guard, np.ndarray):
            held = operands.holds(guard, negated=instruction.guard.negated)
            active = int(np.broadcast_to(held, guard.shape).sum())
    if active != 1:
        return [UNKNOWN] * count
    state.data += 1
    return [term("datum", instruction.line, state.data, at) for at in range(count)]


def _some_load_data(
    state: State, agent: Agent, instruction: Instruction, values: list[Value]
) -> bool:
    """Whether lanes load data that is not known, and a size decides which: no number tells more."""
    assert instruction.guard is not None
    if instruction.name != "ld" or any(value is not UNKNOWN for value in values):
        return False
    predicate = operands.value(state, agent, instruction.guard.register)
    if isinstance(predicate, Compare) and isinstance(predicate.value.constant, np.ndarray):
        state.path.loads_parts(predicate.value.terms)
        return True
    return False


def _results(state: State, agent: Agent, instruction: Instruction, count: int) -> list[Value]:
    name, parts, given = instruction.name, instruction.parts, instruction.operands
    if name == "ld":
        return _loaded(state, agent, instruction, count)
    if name == "setp":
        found = set_predicate(parts, [operands.value(state, agent, x) for x in given[1:]])
        return [found, evaluate(("not", "pred"), [found])][:count]
    if name == "mov" and isinstance(given[0], Vector):
        return _unpacked(operands.value(state, agent, given[1]), parts, given[0])
    if name == "mov" and isinstance(given[1], Vector):
        return [_packed(state, agent, parts, given[1])]
    if name in _DATA:
        return [UNKNOWN] * count
    if name in ("mapa", "getctarank"):
        return [_ranked(name, [operands.value(state, agent, x) for x in given[1:]])]
    args = [operands.value(state, agent, x) for x in given[1:]]
    if name == "mov" and isinstance(args[0], Mixed):
        return args
    if name == "selp" and isinstance(given[3], str):
        args[2] = operands.decided(state, agent, instruction, given[3])
    function = state.program.compiled.get(instruction.index)
    if function is None:
        function = state.program.compiled[instruction.index] = compiled(parts)
    try:
        found = function(args)
    except (OverflowError, TypeError, ValueError, IndexError):
        found = UNKNOWN  # numbers beyond 64 bits, or operands that arithmetic does not take
    return [found] if count == 1 else [found, *[UNKNOWN] * (count - 1)]


def _ranked(name: str, args: list[Value]) -> Value:
    """mapa: the address in another block; getctarank: the block of an address."""
    if not all(is_number(arg) for arg in args):
        return UNKNOWN
    address: Any = args[0]
    rank: Any = (address >> WINDOW_BITS) & 0xFF
    if name == "getctarank":
        return plain(rank)
    wanted: Any = args[1]
    return plain(address + ((wanted - rank) << WINDOW_BITS))


def _unpacked(whole: Value, parts: tuple[str, ...], target: Vector) -> list[Value]:
    width = bits_of(parts)[1] // max(len(target.items), 1)
    mask = (1 << width) - 1
    return [
        (whole >> (at * width)) & mask if is_number(whole) else UNKNOWN  # type: ignore[operator]
        for at, item in enumerate(target.items)
        if item != "_"
    ]


def _packed(state: State, agent: Agent, parts: tuple[str, ...], source: Vector) -> Value:
    width = bits_of(parts)[1] // max(len(source.items), 1)
    total: Value = 0
    for at, part in enumerate(source.items):
        piece = operands.value(state, agent, part)
        if not is_number(piece):
            return UNKNOWN
        low = piece & ((1 << width) - 1)  # type: ignore[operator]
        total = add(total, scale(low, 1 << (at * width)))
    return total


def _loaded(state: State, agent: Agent, instruction: Instruction, count: int) -> list[Value]:
    """Parameters and constant global memory have names; other data is unknown."""
    parts, memory = instruction.parts, instruction.operands[1]
    if not isinstance(memory, MemoryOperand):
        return [UNKNOWN] * count
    size = bits_of(parts)[1] // 8
    spaces = {part.partition("::")[0] for part in parts}
    if "param" in spaces:
        return _parameters(state, agent, memory, (size, bits_of(parts)[0] == "s"), count)
    fixed = not {"volatile", "relaxed", "acquire", "mmio"} & spaces
    address = operands.address(state, agent, memory)
    if fixed and {"global", "const"} & spaces and isinstance(plain(address), Linear):
        constant = address.constant if isinstance(address, Linear) else None
        if isinstance(constant, int):
            return [operands.unknown(state, "global", key_of(address), i) for i in range(count)]
    return [UNKNOWN] * count


def _parameters(
    state: State, agent: Agent, memory: MemoryOperand, kind: tuple[int, bool], count: int
) -> list[Value]:
    """Fields of a parameter, named by its offset, whether by name or through a register that holds
    its address; numbers where the launch tells them. `kind`: bytes of one, and whether signed."""
    size, signed = kind
    base, offset = memory.base, memory.offset
    if base not in state.program.sizes:
        found = operands.address(state, agent, memory)
        if not isinstance(found, Linear) or len(found.terms) != 1:
            return [UNKNOWN] * count
        (name, factor), *_ = found.terms
        if name[0] != "parameter" or factor != 1 or not isinstance(found.constant, int):
            return [UNKNOWN] * count
        base, offset = name[1], found.constant
    places = range(offset, offset + count * size, size)
    names = [("param", base, *([at] if at else [])) for at in places]
    if size == _WORD:
        state.program.words.update(names)
    begin, launch = state.program.places[base], state.setting.launch
    numbers = [launch.number(begin + at, size, signed=signed) for at in places]
    return [
        operands.unknown(state, *name) if number is None else number
        for name, number in zip(names, numbers, strict=True)
    ]


def branch(state: State, agent: Agent, instruction: Instruction) -> None:
    """Goes where the branch goes; threads that go different ways are split."""
    if instruction.guard is None:
        agent.pc = instruction.target
        return
    asked = value = agent.registers.get(instruction.guard.register, UNKNOWN)
    if isinstance(value, (Compare, Logic)):
        quiet = state.program.quiet(instruction.index)
        leaving = state.program.leaving(instruction.guard.register, instruction.index)
        if quiet:
            value = _settled(state, instruction, value)
        else:
            value = operands.decide(state, value, leaving)
    if not is_number(value):
        if state.program.quiet(instruction.index):
            _skip(state, agent, instruction)
            return
        taken = operands.guess(state, agent, instruction)
        agent.pc = instruction.target if taken else instruction.index + 1
        return
    goes = operands.holds(value, negated=instruction.guard.negated)
    if isinstance(goes, np.ndarray):
        yes, no = split(state, agent, goes != 0)
        yes.pc, no.pc = instruction.target, instruction.index + 1
        return
    if isinstance(asked, (Compare, Logic)) and not state.path.empty:
        state.path.empty = _empties(state, instruction, asked, bool(goes))
    agent.pc = instruction.target if goes else instruction.index + 1


def table(state: State, agent: Agent, instruction: Instruction) -> None:
    """brx.idx: goes where the table's entry of its index says."""
    index = plain(operands.value(state, agent, instruction.operands[0]))
    if isinstance(index, (np.ndarray, Mixed)):
        names = [None if isinstance(one, Unknown) else key_of(one)
                 for one in expanded(index, len(agent.threads))]  # fmt: skip
        split(state, agent, np.array([name == names[0] for name in names]))
        return
    last = len(instruction.targets) - 1
    if isinstance(index, int):
        if not 0 <= index <= last:
            state.lose(instruction, f"index {index} of `{instruction.text}` is not in its table")
        agent.pc = instruction.targets[min(max(index, 0), last)]
        return
    # One entry after the other, the last where it is none before.
    asks = [compare(index, at, "eq") for at in range(last)]
    if all(isinstance(one, Compare) and isinstance(one.value.constant, int) for one in asks):
        taken = next((at for at, one in enumerate(asks) if operands.decide(state, one)), last)
    else:
        taken = operands.guess_one(state, agent, instruction, last)
    agent.pc = instruction.targets[taken]


def _empties(state: State, branch: Instruction, asked: Compare | Logic, taken: bool) -> bool:
    """Whether a branch leads around a loop because a range in memory ends at or before its begin:
    both are from there, or one is and more follows."""
    if state.program.skips_work(branch.index) is not taken:
        return False
    ends = state.program.graph.post_dominator[branch.index] == state.program.graph.end
    assert branch.guard is not None
    holds = taken is not branch.guard.negated
    return any(
        from_memory(one.value.terms) >= (_BOTH if ends else 1) and _no_more(one, holds)
        for one in comparisons(asked)
    )


def _no_more(one: Compare, holds: bool) -> bool:
    """Whether a comparison of two numbers says that one is no more than the other; `holds`: whether
    it is true."""
    if not isinstance(one.value.constant, int):
        return False
    terms, factor, constant = canonical(one.value)
    if len(terms) != _BOTH or {coefficient for _, coefficient in terms} != {1, -1}:
        return False
    if one.op in ("eq", "ne"):
        return constant == 0 and (one.op == "eq") is holds
    # factor * T + constant < 0, or <= 0: T or -T, which is larger than -bound or no larger.
    bound = (-constant - (one.op == "lt")) // abs(factor)
    return bound <= 0 if holds else -bound - 1 <= 0


def _settled(state: State, instruction: Instruction, predicate: Compare | Logic) -> Value:
    """A predicate that the path has settled before any thread came here with it; UNKNOWN else.
    Code that one thread skipped, others skip as well: what it leaves behind has one name."""
    key = (instruction.index, key_of_predicate(predicate))
    if key in state.path.skipped:
        return UNKNOWN
    found = operands.known(state, predicate)
    if not is_number(found):
        state.path.skipped.add(key)
        return UNKNOWN
    return found


def _skip(state: State, agent: Agent, instruction: Instruction) -> None:
    """Goes to where both ways of a branch meet. What either computes is not known there, but it is
    the same for whoever comes with the same values."""
    graph, at = state.program.graph, instruction.index
    known = {
        name: _either(state, at, name, came)
        for name, names in state.program.deciding(at).items()
        if (came := _came_with(state, agent, names)) is not None
    }
    written = {name for node in graph.skipped(at) for name in graph.writes[node]}
    if agent.loads:
        read = {name for node in graph.skipped(at) for name in graph.reads[node]}
        agent.loading.blur(read, written)
    for name in written:
        agent.registers[name] = known.get(name, UNKNOWN)
    agent.pc = graph.post_dominator[at]


def _either(state: State, branch: int, name: str, came: tuple[Term, ...]) -> Value:
    """A result of code that was skipped, by what it came from."""
    found = operands.unknown(state, "either", branch, name, *came)
    predicate = state.program.entry.registers.get(name) == "pred"
    return compare(found, 0, "ne") if predicate and not isinstance(found, Unknown) else found


def _came_with(
    state: State, agent: Agent, deciding: frozenset[str] | None
) -> tuple[Term, ...] | None:
    """Names of the values that decide a result; None where data or a lane's number does."""
    if deciding is None:
        return None
    found: list[Term] = []
    for name in sorted(deciding):
        value = operands.value(state, agent, name) if name[:1] == "%" else 0
        op = ""
        if isinstance(value, Compare):
            op, value = value.op, value.value
        if isinstance(value, np.ndarray) or not (isinstance(value, Linear) or is_number(value)):
            return None
        if isinstance(value, Linear) and not isinstance(value.constant, int):
            return None
        found.append((op, key_of(value)))
    return tuple(found)


def _by_lane(value: Value) -> bool:
    if isinstance(value, Logic):
        return any(_by_lane(arg) for arg in value.args)
    return isinstance(value, np.ndarray)
