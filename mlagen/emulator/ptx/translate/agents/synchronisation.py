"""Rows of mbarriers, barriers and fences."""

from __future__ import annotations

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.agents import barriers as b
from mlagen.emulator.ptx.agents import fences as f
from mlagen.emulator.ptx.agents import mbarriers as m
from mlagen.emulator.ptx.order.clocks import IN_GLOBAL, OTHER_SHARED, OWN_SHARED
from mlagen.emulator.ptx.translate.agents.agent_operands import (
    SHARED,
    counted,
    known,
    number,
    operand,
    operands,
)
from mlagen.emulator.ptx.translate.rows import Row, Translation, Translator, not_modelled
from mlagen.ptx import Instruction

_SCOPES = ("cta", "cluster")
_COMMON = {"b64", *SHARED}
_MODIFIERS = {
    "init": set(),
    "inval": set(),
    "arrive": {"release", "relaxed", "expect_tx", "noComplete", *_SCOPES},
    "arrive_drop": {"release", "relaxed", "expect_tx", "noComplete", *_SCOPES},
    "expect_tx": {"relaxed", *_SCOPES},
    "complete_tx": {"relaxed", *_SCOPES},
    "test_wait": {"parity", "acquire", "relaxed", *_SCOPES},
    "try_wait": {"parity", "acquire", "relaxed", *_SCOPES},
    "pending_count": set(),
}
_PLAIN = {"init": m.INIT, "inval": m.INVAL, "expect_tx": m.EXPECT, "complete_tx": m.COMPLETE}


def _flags(i: Instruction) -> int:
    flags = {"relaxed": m.RELAXED, "parity": m.PARITY, "shared::cluster": m.REMOTE}
    flags |= {"noComplete": m.NO_COMPLETE}
    found = sum(value for name, value in flags.items() if name in i.parts)
    if i.parts[1] == "arrive_drop":
        found |= m.DROPS
    if "expect_tx" in i.parts[2:]:
        found |= m.EXPECTS
    return found


def _mbarrier(t: Translator, i: Instruction) -> Row:
    what = i.parts[1]
    if what not in _MODIFIERS:
        raise not_modelled(i)
    known(i, _COMMON | _MODIFIERS[what], 2)
    if what in _PLAIN:
        counted(i, 1 if what == "inval" else 2, 1 if what == "inval" else 2)
        items = operands(t, i.operands)
        return Row(
            y.X_MBARRIER, _PLAIN[what], flags=_flags(i), items=items + number(0) * (len(items) < 6)
        )
    bits = {"pending_count": 32, "test_wait": 1, "try_wait": 1}.get(what, 64)
    dst = t.register(i.operands[0], bits)
    if what == "pending_count":
        counted(i, 2, 2)
        if dst == y.NONE:
            raise not_modelled(i, "it has no result")
        return Row(y.X_MBARRIER, m.PENDING, dst=dst, items=operand(t, i.operands[1]))
    if what in ("test_wait", "try_wait"):
        counted(i, 3, 4 if what == "try_wait" else 3)
        items = operands(t, i.operands[1:3])
        op = m.TRY if what == "try_wait" else m.TEST
        return Row(y.X_MBARRIER, op, dst=dst, flags=_flags(i), items=items)
    counted(i, 2, 3)
    items = operand(t, i.operands[1])
    items += operand(t, i.operands[2]) if len(i.operands) == 3 else number(1)
    return Row(y.X_MBARRIER, m.ARRIVE, dst=dst, flags=_flags(i), items=items)


_REDUCTIONS = {"and": b.RED_AND, "or": b.RED_OR, "popc": b.RED_POPC}


def _barrier(t: Translator, i: Instruction) -> Row:
    parts = i.parts
    if len(parts) > 1 and parts[1] == "cluster":
        return _cluster(i)
    known(i, {"cta", "sync", "arrive", "red", "aligned", "and", "or", "popc", "pred", "u32"})
    aligned = i.name == "bar" or "aligned" in parts
    values = list(i.operands)
    row = Row(y.X_BARRIER, b.ARRIVE if "arrive" in parts else b.SYNC, aligned=aligned)
    if "red" in parts:
        row.type = next(_REDUCTIONS[part] for part in parts if part in _REDUCTIONS)
        row.dst = t.register(values.pop(0), 32 if row.type == b.RED_POPC else 1)
        predicate = values.pop()
        if isinstance(predicate, str) and predicate.startswith("!"):
            row.flags, predicate = b.NEGATED, predicate[1:]
        row.c = t.constant(y.ALL, 1) if predicate == 1 else t.source(predicate, 1)
    if not 1 <= len(values) <= 2 or (row.op == b.ARRIVE and len(values) != 2):
        raise not_modelled(i, f"{len(i.operands)} operands")
    if len(values) == 2:
        row.flags |= b.COUNTED
    row.items = operands(t, values)
    return row


def _cluster(i: Instruction) -> Row:
    known(i, {"cluster", "arrive", "wait", "aligned", "release", "acquire", "relaxed"})
    op = b.CLUSTER_ARRIVE if "arrive" in i.parts else b.CLUSTER_WAIT
    flags = b.RELAXED if "relaxed" in i.parts else 0
    return Row(y.X_BARRIER, op, flags=flags, aligned="aligned" in i.parts)


_SPACES: dict[tuple[str, ...], int] = {
    (): OWN_SHARED | OTHER_SHARED | IN_GLOBAL,
    ("shared::cta",): OWN_SHARED,
    ("shared::cluster",): OWN_SHARED | OTHER_SHARED,
    ("global",): IN_GLOBAL,
}
_SEMANTICS = {"sc", "acq_rel", "acquire", "release"}
_WIDTHS = {"cta", "cluster", "gpu", "sys", "gl"}


def _fence(t: Translator, i: Instruction) -> Row:
    parts = i.parts[1:]
    if parts[:1] == ("mbarrier_init",):
        known(i, {"mbarrier_init", "release", "cluster"})
        return Row(y.X_FENCE, f.MBARRIER_INIT)
    if parts[:1] == ("proxy",):
        rest = parts[1:]
        if rest[:1] == ("async",) and rest[1:] in _SPACES:
            return Row(y.X_FENCE, f.PROXY_ASYNC, flags=_SPACES[rest[1:]])
        if rest == ("alias",):
            return Row(y.X_FENCE, f.PROXY_ALIAS)
        if rest[:1] == ("tensormap::generic",):
            return _map_fence(t, i)
        raise not_modelled(i)
    known(i, _SEMANTICS | _WIDTHS)
    return Row(y.X_FENCE, f.SCOPE)


def _map_fence(t: Translator, i: Instruction) -> Row:
    """Of all edits of its warp, or of the map at an address, whose 128 bytes are said."""
    known(i, {"proxy", "tensormap::generic", "acquire", "release", *_WIDTHS})
    if "release" in i.parts:
        counted(i, 0, 0)
        return Row(y.X_FENCE, f.MAP_RELEASE)
    counted(i, 2, 2)
    return Row(y.X_FENCE, f.MAP_ACQUIRE, items=operands(t, i.operands[:1]))


TRANSLATIONS: dict[str, Translation] = {
    "mbarrier": _mbarrier,
    "bar": _barrier,
    "barrier": _barrier,
    "fence": _fence,
    "membar": _fence,
}
