"""Rows of what lanes of a warp exchange."""

from __future__ import annotations

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.memory import memory_rows as z
from mlagen.emulator.ptx.translate.memory.modifiers import destination, operands, source
from mlagen.emulator.ptx.translate.rows import Row, Translator, not_modelled
from mlagen.ptx import Instruction, Vector
from mlagen.ptx.syntax import Operand

_SHFL = {"idx": z.SHFL_IDX, "up": z.SHFL_UP, "down": z.SHFL_DOWN, "bfly": z.SHFL_BFLY}
_VOTE = {"all": z.VOTE_ALL, "any": z.VOTE_ANY, "uni": z.VOTE_UNI, "ballot": z.VOTE_BALLOT}
_REDUX = {
    "add": z.REDUX_ADD,
    "and": z.REDUX_AND,
    "or": z.REDUX_OR,
    "xor": z.REDUX_XOR,
    "min": z.REDUX_MIN,
    "max": z.REDUX_MAX,
}
_REDUX_TYPES = {"u32": z.UNSIGNED_WORD, "s32": z.SIGNED_WORD, "b32": z.UNSIGNED_WORD}


def _parts(i: Instruction, *forms: tuple[str, ...]) -> tuple[str, ...]:
    """The modifiers but for a .sync at the beginning, where they are of one of these forms: a word
    for each place, several divided by `|`."""
    parts = i.parts[2:] if i.parts[1:2] == ("sync",) else i.parts[1:]
    for form in forms:
        if len(form) == len(parts) and all(
            p in f.split("|") for p, f in zip(parts, form, strict=True)
        ):
            return parts
    raise not_modelled(i, "no form of it that is known")


def _result(t: Translator, i: Instruction, operand: Operand) -> tuple[int, int]:
    """Places of `d|p` or `d`: a register of 32 bits, a predicate."""
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) > 2:
        raise not_modelled(i, "it has more than two results")
    place, bits = destination(t, i, items[0], 32)
    if bits != 32:
        raise not_modelled(i, f"{items[0]} has not 32 bits")
    return place, _predicate(t, i, items[1]) if len(items) == 2 else y.NONE


def _word(t: Translator, i: Instruction, operand: Operand, bits: int = 32) -> int:
    """The place of a source of 32 or 64 bits."""
    place, found = source(t, i, operand, bits)
    if found != bits:
        raise not_modelled(i, f"{operand} has not {bits} bits")
    return place


def _predicate(t: Translator, i: Instruction, operand: Operand) -> int:
    """The place of a predicate register that is written; NONE for the sink."""
    if operand == "_":
        return y.NONE
    if not isinstance(operand, str) or t.width(operand) != 1:
        raise not_modelled(i, f"{operand} is no predicate")
    return t.register(operand, 1)


def _asked(t: Translator, i: Instruction, operand: Operand) -> tuple[int, int]:
    """The place of a predicate that is read, and the flag of a negated one."""
    if isinstance(operand, int):
        return t.constant(y.ALL if operand else 0, 1), 0
    negated = isinstance(operand, str) and operand.startswith("!")
    place = _predicate(t, i, operand.lstrip("!") if isinstance(operand, str) else operand)
    if place == y.NONE:
        raise not_modelled(i, "it reads no predicate")
    return place, z.NEGATED if negated else 0


def _members(t: Translator, i: Instruction) -> tuple[tuple[Operand, ...], int]:
    """The operands without the member mask, and its place: NONE without .sync."""
    if "sync" not in i.parts:
        return i.operands, y.NONE
    if not i.operands:
        raise not_modelled(i, "it has no member mask")
    return i.operands[:-1], _word(t, i, i.operands[-1])


def _shfl(t: Translator, i: Instruction) -> Row:
    mode, _ = _parts(i, ("idx|up|down|bfly", "b32"))
    rest, members = _members(t, i)
    result, a, b, c = rest
    dst, dst2 = _result(t, i, result)
    return Row(
        y.X_COLLECTIVE,
        _SHFL[mode],
        dst=dst,
        dst2=dst2,
        a=_word(t, i, a),
        b=_word(t, i, b),
        c=_word(t, i, c),
        d=members,
    )


def _vote(t: Translator, i: Instruction) -> Row:
    mode, _ = _parts(i, ("all|any|uni", "pred"), ("ballot", "b32"))
    rest, members = _members(t, i)
    result, asked = rest
    a, flags = _asked(t, i, asked)
    dst = _result(t, i, result)[0] if mode == "ballot" else _predicate(t, i, result)
    return Row(y.X_COLLECTIVE, _VOTE[mode], dst=dst, a=a, d=members, flags=flags)


def _match(t: Translator, i: Instruction) -> Row:
    mode, _, kind = _parts(i, ("any|all", "sync", "b32|b64"))
    (result, a), members = _members(t, i)
    dst, dst2 = _result(t, i, result)
    if dst2 != y.NONE and mode == "any":
        raise not_modelled(i, "match.any has one result")
    bits = int(kind[1:])
    op = z.MATCH_ANY if mode == "any" else z.MATCH_ALL
    return Row(y.X_COLLECTIVE, op, dst=dst, dst2=dst2, a=_word(t, i, a, bits), d=members, type=bits)


def _redux(t: Translator, i: Instruction) -> Row:
    parts = _parts(
        i,
        ("add|min|max", "u32|s32"),
        ("and|or|xor", "b32"),
        ("min|max", "f32"),
        ("min|max", "abs|NaN", "f32"),
        ("min|max", "abs", "NaN", "f32"),
    )
    (result, a), members = _members(t, i)
    if members == y.NONE:
        raise not_modelled(i, "it has no .sync")
    flags = z.MAGNITUDE if "abs" in parts else 0
    flags |= z.KEEPS_NAN if "NaN" in parts else 0
    return Row(
        y.X_COLLECTIVE,
        _REDUX[parts[0]],
        dst=_result(t, i, result)[0],
        a=_word(t, i, a),
        d=members,
        type=_REDUX_TYPES.get(parts[-1], z.FLOAT_WORD),
        flags=flags,
    )


def _elect(t: Translator, i: Instruction) -> Row:
    if i.parts != ("elect", "sync"):
        raise not_modelled(i, "no form of it that is known")
    result, members = operands(i, 2, False)
    dst, dst2 = _result(t, i, result)
    return Row(y.X_COLLECTIVE, z.ELECT, dst=dst, dst2=dst2, d=_word(t, i, members))


def _activemask(t: Translator, i: Instruction) -> Row:
    _parts(i, ("b32",))
    return Row(y.X_COLLECTIVE, z.ACTIVEMASK, dst=_result(t, i, operands(i, 1, False)[0])[0])


def warp_barrier(t: Translator, i: Instruction) -> Row:
    """bar.warp.sync."""
    if i.parts[1:] != ("warp", "sync"):
        raise not_modelled(i, "no form of it that is known")
    return Row(y.X_COLLECTIVE, z.WARP_BARRIER, d=_word(t, i, operands(i, 1, False)[0]))


TRANSLATIONS = {
    "shfl": _shfl,
    "vote": _vote,
    "match": _match,
    "redux": _redux,
    "elect": _elect,
    "activemask": _activemask,
    "bar.warp": warp_barrier,
}
