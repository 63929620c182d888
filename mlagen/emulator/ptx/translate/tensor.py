"""Rows of tcgen05."""

from __future__ import annotations

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.tensor import tensor_memory as s
from mlagen.emulator.ptx.tensor.pipe import EACH, HALVES_01_23, HALVES_02_13, QUARTERS
from mlagen.emulator.ptx.translate.agents.agent_operands import (
    SHARED,
    counted,
    known,
    operand,
    operands,
)
from mlagen.emulator.ptx.translate.rows import Row, Translation, Translator, not_modelled
from mlagen.ptx import Instruction
from mlagen.ptx.syntax import MemoryOperand, Operand, Vector

_GROUPS = {"cta_group::1": 0, "cta_group::2": s.PAIR}
_SYNC = {"sync", "aligned"}
# Shape → P_TYPE, registers a lane for .x1, greatest .xN (PTX ISA, tcgen05.ld).
_SHAPES = {
    "32x32b": (s.S32X32, 1, 128),
    "16x64b": (s.S16X64, 1, 128),
    "16x128b": (s.S16X128, 2, 64),
    "16x256b": (s.S16X256, 4, 32),
    "16x32bx2": (s.S16X32X2, 1, 128),
}
_TIMES = {f"x{1 << n}": 1 << n for n in range(8)}
_KINDS = {"kind::f16": s.F16, "kind::tf32": s.TF32, "kind::f8f6f4": s.F8F6F4, "kind::i8": s.I8}
_SCALED = {"kind::f16", "kind::tf32"}  # may divide D
_BLOCKS = {"kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4"}
# (shape, multicast) → P_TYPE, rows, 16-byte chunks of a row.
_COPIES = {
    ("128x256b", ""): (EACH, 128, 2),
    ("128x128b", ""): (EACH, 128, 1),
    ("64x128b", "warpx2::02_13"): (HALVES_02_13, 64, 1),
    ("64x128b", "warpx2::01_23"): (HALVES_01_23, 64, 1),
    ("32x128b", "warpx4"): (QUARTERS, 32, 1),
}


def _flags(i: Instruction) -> int:
    """The flag of the .cta_group."""
    found = [_GROUPS[part] for part in i.parts if part in _GROUPS]
    if len(found) != 1:
        raise not_modelled(i, "its .cta_group")
    return found[0]


def _alloc(t: Translator, i: Instruction) -> Row:
    known(i, {*_GROUPS, *_SYNC, *SHARED, "b32"}, 2)
    counted(i, 2, 2)
    return Row(y.X_TENSOR, s.ALLOC, flags=_flags(i), items=operands(t, i.operands), aligned=True)


def _dealloc(t: Translator, i: Instruction) -> Row:
    known(i, {*_GROUPS, *_SYNC, "b32"}, 2)
    counted(i, 2, 2)
    return Row(y.X_TENSOR, s.DEALLOC, flags=_flags(i), items=operands(t, i.operands), aligned=True)


def _relinquish(t: Translator, i: Instruction) -> Row:
    known(i, {*_GROUPS, *_SYNC}, 2)
    counted(i, 0, 0)
    return Row(y.X_TENSOR, s.RELINQUISH, flags=_flags(i), aligned=True)


def _move(t: Translator, i: Instruction) -> Row:
    """tcgen05.ld and .st."""
    loads = i.parts[1] == "ld"
    halves = "pack::16b" if loads else "unpack::16b"
    known(i, {*_SYNC, *_SHAPES, *_TIMES, halves, "b32"}, 2)
    shape = [part for part in i.parts if part in _SHAPES]
    times = [_TIMES[part] for part in i.parts if part in _TIMES]
    if len(shape) != 1 or len(times) != 1:
        raise not_modelled(i, "its shape")
    kind, each, most = _SHAPES[shape[0]]
    if times[0] > most:
        raise not_modelled(i, f".{shape[0]} goes up to .x{most}")
    values = list(i.operands)
    registers = values.pop(0 if loads else -1)
    between = 0
    if kind == s.S16X32X2:
        at = values.pop()
        if not isinstance(at, int) or not 0 <= at < 512:
            raise not_modelled(i, "the columns between its halves")
        between = at
    if len(values) != 1 or not isinstance(values[0], MemoryOperand):
        raise not_modelled(i, f"{len(i.operands)} operands")
    items = registers.items if isinstance(registers, Vector) else (registers,)
    if len(items) != each * times[0]:
        raise not_modelled(i, f"{len(items)} registers, not {each * times[0]}")
    places = [t.register(item, 32) if loads else t.source(item, 32) for item in items]
    if y.NONE in places:
        raise not_modelled(i, "a sink among its registers")
    return Row(
        y.X_TENSOR, s.LOAD if loads else s.STORE, type=kind, immediate=between,
        flags=s.PACKED if halves in i.parts else 0,
        items=(*operand(t, values[0]), *places), aligned=True,
    )  # fmt: skip


def _plain(op: int, aligned: bool) -> Translation:
    """An instruction without operands."""

    def translated(t: Translator, i: Instruction) -> Row:
        known(i, _SYNC if aligned else (), 2)
        counted(i, 0, 0)
        return Row(y.X_TENSOR, op, aligned=aligned)

    return translated


def _masks(t: Translator, i: Instruction, value: Operand, count: int) -> list[int]:
    if not isinstance(value, Vector) or len(value.items) != count:
        raise not_modelled(i, f"the lanes that are not written are {count} registers")
    return operands(t, value.items)


def _mma(t: Translator, i: Instruction) -> Row:
    parts = i.parts[2:]
    if _BLOCKS.intersection(parts) or "block_scale" in parts:
        raise not_modelled(i, "products with scales of blocks")
    weights = "ws" in parts
    for part in parts:
        collector = part.startswith("collector::") and part != "collector::a::discard_all"
        if part == "sp" or part == "ashift":
            raise not_modelled(i, f".{part}")
        if not collector and part not in {*_GROUPS, *_KINDS, "ws"}:
            raise not_modelled(i, f".{part}")
    kinds = [part for part in parts if part in _KINDS]
    if len(kinds) != 1 or not 5 <= len(i.operands) <= 7:
        raise not_modelled(i, "its kind and operands")
    flags = _flags(i)
    if weights and flags:
        raise not_modelled(i, ".ws has .cta_group::1")
    to, a, b, word, *rest = i.operands
    if not isinstance(to, MemoryOperand):
        raise not_modelled(i, "D is in tensor memory")
    flags |= s.IN_TENSOR if isinstance(a, MemoryOperand) else 0
    flags |= s.WEIGHTS if weights else 0
    items = operands(t, (to, a, b, word))
    if isinstance(rest[0], Vector):
        flags |= s.MASKED
        items += _masks(t, i, rest.pop(0), 8 if flags & s.PAIR else 4)
    adds, *rest = rest
    if weights and rest == [0]:  # no column of B is left out
        rest = []
    scale = 0
    if rest:
        if weights or kinds[0] not in _SCALED or not isinstance(rest[0], int):
            raise not_modelled(i, "its last operand")
        scale = rest[0]
    if len(rest) > 1 or not 0 <= scale <= 15:
        raise not_modelled(i, "scale-input-d is 0 to 15")
    constant = isinstance(adds, int)
    adds_at = t.constant(y.ALL if adds else 0, 1) if constant else t.source(adds, 1)
    return Row(
        y.X_TENSOR, s.MMA, type=_KINDS[kinds[0]], flags=flags, c=adds_at, immediate=scale,
        items=items,
    )  # fmt: skip


def _cp(t: Translator, i: Instruction) -> Row:
    parts = [part for part in i.parts[2:] if part not in _GROUPS]
    if any(part in ("b8x16", "b6x16_p32", "b4x16_p64") for part in parts):
        raise not_modelled(i, "copies that widen elements")
    shape = next((part for part in parts if not part.startswith("warpx")), "")
    cast = next((part for part in parts if part.startswith("warpx")), "")
    if (shape, cast) not in _COPIES or len(parts) != 1 + bool(cast):
        raise not_modelled(i, "its shape")
    counted(i, 2, 2)
    kind, rows, chunks = _COPIES[shape, cast]
    return Row(
        y.X_TENSOR, s.COPY, type=kind, flags=_flags(i), immediate=chunks,
        items=operands(t, i.operands), aux=(rows,),
    )  # fmt: skip


def _commit(t: Translator, i: Instruction) -> Row:
    one = "mbarrier::arrive::one"
    known(i, {*_GROUPS, *SHARED, one, "multicast::cluster", "b64"}, 2)
    if one not in i.parts:
        raise not_modelled(i, "its completion")
    several = "multicast::cluster" in i.parts
    counted(i, 1 + several, 1 + several)
    flags = _flags(i) | (s.MULTICAST if several else 0)
    return Row(y.X_TENSOR, s.COMMIT, flags=flags, items=operands(t, i.operands))


def _shift(t: Translator, i: Instruction) -> Row:
    raise not_modelled(i, "no source says which row goes where")


TRANSLATIONS: dict[str, Translation] = {
    "tcgen05.alloc": _alloc,
    "tcgen05.dealloc": _dealloc,
    "tcgen05.relinquish_alloc_permit": _relinquish,
    "tcgen05.ld": _move,
    "tcgen05.st": _move,
    "tcgen05.wait::ld": _plain(s.WAIT_LOAD, True),
    "tcgen05.wait::st": _plain(s.WAIT_STORE, True),
    "tcgen05.fence::before_thread_sync": _plain(s.BEFORE, False),
    "tcgen05.fence::after_thread_sync": _plain(s.AFTER, False),
    "tcgen05.mma": _mma,
    "tcgen05.cp": _cp,
    "tcgen05.commit": _commit,
    "tcgen05.shift": _shift,
}
