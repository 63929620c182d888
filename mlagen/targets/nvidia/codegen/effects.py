"""What the PTX lines of one operation take from registers and what they leave there.

Read from the printed text, by the place of operands: the first operand is what an instruction
writes, all others are read (PTX ISA, "Instruction set"). The exceptions stand in a table, and what
is in no table is refused. Registers that a template declares for itself are no one else's.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from itertools import chain

from mlagen.codegen.dataflow import Effect

_FIRST = """
    abs activemask add addc and atom bfe bfi bfind bmsk brev clz cnot copysign cos
    createpolicy cvt cvta div dp2a dp4a elect ex2 fma fns getctarank isspacep ld ldmatrix
    ldu lg2 lop3 mad mad24 madc mapa match max min mma mov movmatrix mul mul24 neg not or
    popc prmt rcp redux rem rsqrt sad selp set setp shf shfl shl shr sin slct sqrt sub subc
    szext tanh testp vote xor
"""
_NONE = """
    applypriority bra brkpt cp discard exit fence griddepcontrol membar nanosleep pmevent
    prefetch prefetchu red ret setmaxnreg st stmatrix trap
"""
WRITES_FIRST, WRITES_NONE = frozenset(_FIRST.split()), frozenset(_NONE.split())
# A barrier's name stands first; only a reduction over it gives a value.
BARRIERS = frozenset({"bar", "barrier"})
SCALE_D = 3  # operand of wgmma.mma_async: whether it adds to what the accumulators hold
COMPARES = {"eq": int.__eq__, "ne": int.__ne__, "lt": int.__lt__, "le": int.__le__,
            "gt": int.__gt__, "ge": int.__ge__}  # fmt: skip

_REGISTER = re.compile(r"%[A-Za-z_]\w*")
_PARTS = re.compile(r"[][{}(),]")
_LABEL = re.compile(r"\s*([A-Za-z_$]\w*)\s*:(?!:)")
_STATEMENT = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)(?:\s+(.*))?$", re.DOTALL)


class UnknownInstruction(Exception):
    """An instruction whose operands no table tells."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A label, or an instruction. `guarded`: by a predicate. `adds`: the predicate without which it
    replaces what it writes. `holds`: what a compare of two numbers gives."""

    label: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    guarded: bool = False
    target: str = ""  # of a branch
    adds: str = ""
    holds: bool | None = None


@functools.lru_cache(maxsize=1 << 14)
def statements(line: str) -> tuple[Statement, ...]:
    """The statements of a line of PTX. Unknown: an instruction that no table has."""
    found: list[Statement] = []
    text = line.partition("//")[0]
    while (label := _LABEL.match(text)) is not None:
        found.append(Statement(label[1]))
        text = text[label.end() :]
    for part in text.split(";"):
        part = part.strip()
        if part in ("", "{", "}") or part.startswith("."):
            continue  # scopes, declarations, pragmas
        found.append(_statement(part))
    return tuple(found)


def effect_of(lines: Sequence[str], known: Set[str]) -> Effect:
    """What the lines of one operation take from the registers `known`, and what they leave there.
    After a branch over some lines, what these write may be what was there before; so may what a
    predicate guards. Unknown: an instruction that no table has."""
    body = list(chain.from_iterable(map(statements, lines)))
    place = {x.label: index for index, x in enumerate(body) if x.label}
    state = _State(known)
    ahead: set[str] = set()  # labels that may have been branched to
    for index, x in enumerate(body):
        if x.label:
            ahead.discard(x.label)
            state.meet()
            continue
        state.take(x, always=not ahead and not x.guarded)
        if x.target and place.get(x.target, -1) > index:
            ahead.add(x.target)
    return Effect(frozenset(state.reads), frozenset(state.writes), frozenset(state.may))


@dataclass(slots=True)
class _State:
    """What was seen so far. `here`: what is written on every way to this place since the last
    label; `constants`: predicates that are always the same."""

    known: Set[str]
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    may: set[str] = field(default_factory=set)
    here: set[str] = field(default_factory=set)
    constants: dict[str, bool] = field(default_factory=dict)

    def meet(self) -> None:
        self.here.clear()
        self.constants.clear()

    def take(self, x: Statement, *, always: bool) -> None:
        known, writes, here = self.known, self.writes, self.here
        for register in x.reads:
            if register in known and register not in writes and register not in here:
                self.reads.add(register)
        adds = x.adds and self.constants.get(x.adds) is not False
        for register in x.writes:
            if register in known:
                if adds and register not in writes and register not in here:
                    self.reads.add(register)
                if always:
                    writes.add(register)
                    self.may.discard(register)
                else:
                    if register not in writes:
                        self.may.add(register)
                    if not x.guarded:
                        here.add(register)
            else:
                self.constants.pop(register, None)
        if x.holds is not None and not x.guarded:
            self.constants[x.writes[0]] = x.holds


def _statement(text: str) -> Statement:
    match = _STATEMENT.match(text)
    if match is None:
        raise UnknownInstruction(text)
    guard, opcode, operands = match[2], match[3], _split(match[4] or "")
    parts = opcode.split(".")
    guards = (guard,) if guard else ()
    if parts[0] == "bra":
        return Statement(reads=guards, guarded=bool(guard), target=operands[0])
    adds, holds = "", None
    if parts[:2] == ["wgmma", "mma_async"]:
        first = True
        names = _REGISTER.findall(operands[SCALE_D])
        adds = names[0] if names else "-"
    else:
        first = _writes_first(parts, operands, text)
    if parts[0] == "setp" and len(operands) == 3:
        holds = _constant(parts[1], operands[1:])
    at = 1 if first else 0
    return Statement(
        reads=(*guards, *_registers(operands[at:])),
        writes=tuple(_registers(operands[:at])),
        guarded=bool(guard),
        adds=adds,
        holds=holds,
    )


def _writes_first(parts: Sequence[str], operands: Sequence[str], text: str) -> bool:
    if parts[0] in WRITES_FIRST:
        return True
    if parts[0] == "tcgen05":
        return parts[1] == "ld"
    if parts[0] in BARRIERS:
        return "red" in parts
    if parts[0] == "mbarrier":  # the barrier's address, or before it what tells of its phase
        return not operands[0].startswith("[")
    if parts[0] in WRITES_NONE or (parts[0] == "wgmma" and len(parts) > 1 and parts[1] in (
        "fence", "commit_group", "wait_group"
    )):  # fmt: skip
        return False
    raise UnknownInstruction(text)


def _registers(operands: Sequence[str]) -> list[str]:
    return [name for operand in operands for name in _REGISTER.findall(operand)]


def _constant(compare: str, operands: Sequence[str]) -> bool | None:
    """What a compare of two whole numbers gives."""
    if compare not in COMPARES or not all(re.fullmatch(r"-?\d+", x) for x in operands):
        return None
    return bool(COMPARES[compare](int(operands[0]), int(operands[1])))


def _split(text: str) -> list[str]:
    """Operands: what commas part outside of vectors and addresses."""
    found, depth, start = [], 0, 0
    for mark in _PARTS.finditer(text):
        if (sign := mark[0]) in "{[(":
            depth += 1
        elif sign in "}])":
            depth -= 1
        elif not depth:
            found.append(text[start : mark.start()].strip())
            start = mark.end()
    last = text[start:].strip()
    return [*found, last] if last else found
