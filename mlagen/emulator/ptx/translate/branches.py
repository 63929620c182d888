"""Branches, exits, and what does nothing here."""

from __future__ import annotations

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.translate.rows import Row, Translator, not_modelled
from mlagen.ptx import Instruction


def _branch(t: Translator, i: Instruction) -> Row:
    if i.name == "brx":
        return Row(y.X_BRANCH, 1, a=t.source(i.operands[0]), items=i.targets)
    if i.target < 0:
        raise not_modelled(i, "its label is not in this kernel")
    return Row(y.X_BRANCH, target=i.target)


def _exit(t: Translator, i: Instruction) -> Row:
    return Row(y.X_EXIT)


def _trap(t: Translator, i: Instruction) -> Row:
    return Row(y.X_TRAP)


def _nothing(t: Translator, i: Instruction) -> Row:
    return Row(y.X_NOP)


def _call(t: Translator, i: Instruction) -> Row:
    """A call of a function without a body (others are inlined). What a kernel prints is not shown;
    an assertion that fails ends it."""
    names = {operand for operand in i.operands if isinstance(operand, str)}
    if "vprintf" in names:
        return Row(y.X_NOP)
    if "__assertfail" in names:
        return Row(y.X_TRAP)
    raise not_modelled(i, "the function has no body here")


TRANSLATIONS = {
    "bra": _branch,
    "call": _call,
    "brx": _branch,
    "ret": _exit,
    "exit": _exit,
    "trap": _trap,
    "brkpt": _trap,
    "pmevent": _nothing,
}
