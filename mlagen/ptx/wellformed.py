"""Instructions whose operands are not what the PTX ISA says: refused with their line.

Only what the audit relies on is looked at; whether a file is valid PTX is the assembler's to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from mlagen.errors import UnsupportedError
from mlagen.ptx.effects import Kind, has_result, kind_of, names_in
from mlagen.ptx.syntax import Address, Entry, Instruction, MemoryOperand, Operand, Real, Vector

_SHAPE = re.compile(r"m\d+n\d+k\d+$")
# PTX ISA 9.0, wgmma.mma_async: m64, n a multiple of 8 up to 256, k up to 512 (1-bit, sparse).
_SHAPES = re.compile(r"m64n(\d{1,2}|1\d\d|2[0-4]\d|25[0-6])k\d{1,3}$")
_LARGEST = 1 << 64  # numbers are of 64 bits at most
# Meaningless without a modifier.
_MODIFIED = frozenset(("mbarrier", "wgmma", "cp", "setp", "fence", "tcgen05"))
_UNFIT = "operands that this instruction does not take"
_LEAST = {"setp": 3, "mov": 2, "ld": 2, "selp": 4, "shfl": 4, "vote": 3, "elect": 2, "bra": 1}

_Form = tuple[type[Any] | tuple[type[Any], ...], ...]
_ANY = (str, int, Real, Address, MemoryOperand, Vector)
_VALUE = (str, int)

# The operands that the audit reads, from the first one on.
_FORMS: dict[Kind, _Form] = {
    Kind.MBARRIER_INIT: (MemoryOperand, _VALUE),
    Kind.MBARRIER_INVALIDATE: (MemoryOperand,),
    Kind.MBARRIER_EXPECT: (MemoryOperand, _VALUE),
    Kind.MBARRIER_COMPLETE: (MemoryOperand, _VALUE),
    Kind.MBARRIER_WAIT: ((str, Vector), MemoryOperand, _VALUE),
    Kind.ASYNC_COPY: (MemoryOperand, MemoryOperand, int),
    Kind.ASYNC_ARRIVE: (MemoryOperand,),
    Kind.WGMMA: (Vector, (str, int, Vector), _VALUE),
    Kind.WGMMA_WAIT: (int,),
    Kind.BULK_WAIT: (int,),
    Kind.REGISTERS: (_VALUE,),
    Kind.BARRIER: (_VALUE,),
    Kind.WARP_BARRIER: (_VALUE,),
    Kind.SHARED_LOAD: (_ANY, MemoryOperand),
    Kind.GENERIC_LOAD: (_ANY, MemoryOperand),
    Kind.SHARED_STORE: (MemoryOperand,),
    Kind.GENERIC_STORE: (MemoryOperand,),
    Kind.COLLECTIVE: ((str, Vector), _ANY),
}


def check(entry: Entry) -> None:
    """Raises UnsupportedError at the first instruction that is not understood."""
    for instruction in entry.instructions:
        why = _why(instruction)
        if why:
            raise UnsupportedError(f"line {instruction.line}: {why}: {instruction.text[:80]}")


def _why(instruction: Instruction) -> str:
    name, parts, given = instruction.name, instruction.parts, instruction.operands
    if name in _MODIFIED and len(parts) < 2:
        return f"{name} without a modifier"
    if len(given) < _LEAST.get(name, 0):
        return f"{name} takes {_LEAST[name]} operands or more"
    if any(not -_LARGEST < number < _LARGEST for operand in given for number in _numbers(operand)):
        return "a number of more than 64 bits"
    kind = kind_of(instruction)
    if has_result(instruction) and given and kind is not Kind.WGMMA:
        bad = not isinstance(given[0], (str, Vector))
        if bad and kind is not Kind.OPAQUE:
            return "the result is no register"
    special = _tensor_memory if name == "tcgen05" else _SPECIAL.get(kind)
    if special:
        return special(instruction)
    form = _FORMS.get(kind, ())
    return "" if _fits(given, form) else _UNFIT


def _fits(given: tuple[Operand, ...], form: _Form) -> bool:
    return len(given) >= len(form) and all(
        isinstance(operand, kinds) for operand, kinds in zip(given, form, strict=False)
    )


def _numbers(operand: Operand) -> list[int]:
    if isinstance(operand, int):
        return [operand]
    if isinstance(operand, MemoryOperand):
        return [operand.offset, *(n for item in operand.coordinates for n in _numbers(item))]
    if isinstance(operand, Vector):
        return [number for item in operand.items for number in _numbers(item)]
    return []


def _wait(instruction: Instruction) -> str:
    if not _fits(instruction.operands, _FORMS[Kind.MBARRIER_WAIT]):
        return "a wait takes a predicate, an mbarrier and a parity or state"
    return "" if any(names_in(instruction.operands[0])) else "a wait whose result goes nowhere"


def _arrive(instruction: Instruction) -> str:
    given = instruction.operands
    if given and not isinstance(given[0], MemoryOperand):
        given = given[1:]
    least = 2 if "expect_tx" in instruction.parts else 1
    fits = len(given) >= least and isinstance(given[0], MemoryOperand)
    return "" if fits else "an arrival takes an mbarrier, and expect_tx its bytes"


def _bulk_load(instruction: Instruction) -> str:
    tensor = "tensor" in instruction.parts
    form: _Form = (
        (MemoryOperand, MemoryOperand, MemoryOperand)
        if tensor
        else (MemoryOperand, MemoryOperand, _VALUE, MemoryOperand)
    )
    return "" if _fits(instruction.operands, form) else "a bulk copy names target, source, mbarrier"


def _bulk_store(instruction: Instruction) -> str:
    form: _Form = (
        (MemoryOperand, MemoryOperand)
        if "tensor" in instruction.parts
        else (MemoryOperand, MemoryOperand, _VALUE)
    )
    return "" if _fits(instruction.operands, form) else "a bulk store names target and source"


def _async_wait(instruction: Instruction) -> str:
    whole = "wait_all" in instruction.parts or _fits(instruction.operands, (int,))
    return "" if whole else "wait_group takes a number"


def _async_copy(instruction: Instruction) -> str:
    if not _fits(instruction.operands, _FORMS[Kind.ASYNC_COPY]):
        return "a cp.async names target, source and bytes"
    size = instruction.operands[2]
    return "cp.async copies 4, 8 or 16 bytes" if size not in (4, 8, 16) else ""


def _wgmma(instruction: Instruction) -> str:
    at = next((i for i, part in enumerate(instruction.parts) if _SHAPE.match(part)), None)
    if at is None or len(instruction.parts) < at + 3:
        return "a wgmma without its shape and types"
    if not _SHAPES.match(instruction.parts[at]):
        return f"a wgmma of shape {instruction.parts[at]:.40}, which there is not"
    return "" if _fits(instruction.operands, _FORMS[Kind.WGMMA]) else "operands of a wgmma"


def _opaque(instruction: Instruction) -> str:
    """Copies, loads and stores between the blocks of a cluster are followed."""
    name, parts = instruction.name, instruction.parts
    if name == "cp" and "bulk" in parts:
        return _bulk_load(instruction)
    form: _Form = ()
    if name == "ld":
        form = (_ANY, MemoryOperand)
    elif name == "st":
        form = (MemoryOperand, _ANY, MemoryOperand) if "async" in parts else (MemoryOperand, _ANY)
    return "" if _fits(instruction.operands, form) else _UNFIT


def _tensor_memory(instruction: Instruction) -> str:
    """Columns are taken and freed by address and number."""
    few = instruction.parts[1] in ("alloc", "dealloc") and len(instruction.operands) < 2
    return "tensor memory is taken and freed by address and columns" if few else ""


def _branch(instruction: Instruction) -> str:
    return "" if instruction.target >= 0 else "a branch to nowhere"


_SPECIAL: dict[Kind, Callable[[Instruction], str]] = {
    Kind.MBARRIER_WAIT: _wait,
    Kind.MBARRIER_ARRIVE: _arrive,
    Kind.BULK_LOAD: _bulk_load,
    Kind.BULK_STORE: _bulk_store,
    Kind.ASYNC_WAIT: _async_wait,
    Kind.ASYNC_COPY: _async_copy,
    Kind.WGMMA: _wgmma,
    Kind.BRANCH: _branch,
    Kind.OPAQUE: _opaque,
}
