"""Checks on instructions that exchange data between lanes: are the lanes that give it on, and have
they anything to give?"""

from __future__ import annotations

from mlagen.binary.operand import EXEC
from mlagen.emulator.gfx950 import layout as y
from mlagen.emulator.gfx950.state import register_slot, report
from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64


@compiled
def writer_of_exec(context: int, wave: int) -> int:
    """Program row that wrote EXEC last, -1 where nothing did."""
    slot = register_slot(wave, y.VECTOR_ROWS + EXEC)
    if load_i64(load_i64(context, y.C_WINFO), slot) < 0:
        return -1
    return load_i64(load_i64(context, y.C_WPC), slot)


@compiled
def refuse_partial(context: int, wave: int, row: int, lanes: int) -> None:
    """Report an instruction that needs all lanes where some are off (CDNA4 ISA guide, 11.4). Where
    none is on it does nothing."""
    if lanes != -1 and lanes != 0 and load_i64(context, y.C_SANITIZE):
        report(context, y.PARTIAL_EXEC, row, writer_of_exec(context, wave), wave, lanes, 0, 0)


@compiled
def tell_off_lane(context: int, wave: int, row: int, lane: int, source: int) -> None:
    """Report a lane that takes data from one that is off."""
    if load_i64(context, y.C_SANITIZE):
        report(context, y.OFF_LANE, row, writer_of_exec(context, wave), wave, lane, source, 0)


@compiled
def check_lane(context: int, wave: int, row: int, register: int, lane: int) -> None:
    """Report the read of one lane of a vector register that was never written."""
    if load_i64(context, y.C_SANITIZE) == 0:
        return
    slot = register_slot(wave, register)
    written = (load_i64(load_i64(context, y.C_DEFINED), slot) >> lane) & 1
    if written == 0 and load_i64(load_i64(context, y.C_PENDING), slot) == 0:
        report(context, y.UNDEFINED_REGISTER, row, -1, wave, register, 0, 0)


@compiled
def define_lane(context: int, wave: int, register: int, lane: int) -> None:
    """A lane is written that may be off."""
    defined = load_i64(context, y.C_DEFINED)
    slot = register_slot(wave, register)
    store_i64(defined, slot, load_i64(defined, slot) | (1 << lane))
