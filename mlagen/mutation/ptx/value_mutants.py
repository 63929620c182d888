"""Mutants of values: an instruction dropped, a constant changed, operands swapped, another
comparison, the other predicate, a neighbouring opcode."""

from __future__ import annotations

from collections.abc import Iterator

from mlagen.mutation.ptx.mutant import PtxMutant
from mlagen.mutation.ptx.mutated_kernel import MutatedKernel, split_operands, with_operand
from mlagen.ptx import Instruction, Kind, MemoryOperand, Real

_KINDS = (
    Kind.PLAIN, Kind.SHARED_LOAD, Kind.SHARED_STORE, Kind.GENERIC_LOAD, Kind.GENERIC_STORE,
    Kind.COLLECTIVE, Kind.WGMMA, Kind.BRANCH,
)  # fmt: skip
_LEFT_ALONE = ("fence", "membar", "nop", "pragma", "griddepcontrol", "prefetch", "nanosleep")
_ORDERED = {"sub": (1, 2), "div": (1, 2), "rem": (1, 2), "shl": (1, 2), "shr": (1, 2),
            "setp": (1, 2), "set": (1, 2), "selp": (1, 2), "fma": (2, 3), "mad": (2, 3),
            "prmt": (1, 2), "copysign": (1, 2)}  # fmt: skip
_COMPARISONS = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq",
                "lo": "ls", "ls": "lo", "hi": "hs", "hs": "hi", "ltu": "leu"}  # fmt: skip
_NEIGHBOURS = {"add": "sub", "sub": "add", "min": "max", "max": "min", "and": "or", "or": "and",
               "shl": "shr", "shr": "shl"}  # fmt: skip


def value_mutants(kernel: MutatedKernel) -> Iterator[PtxMutant]:
    """All of a kernel; those that nothing executes are left out later."""
    for instruction, kind in kernel.each():
        if kind in _KINDS and instruction.name not in _LEFT_ALONE:
            source = kernel.source(instruction)
            if kind is not Kind.BRANCH:
                yield kernel.mutant("values", "dropped", instruction, "")
            for operator, text in _changed(instruction, source):
                yield kernel.mutant("values", operator, instruction, text)


def _changed(instruction: Instruction, source: str) -> Iterator[tuple[str, str]]:
    name, parts = instruction.name, instruction.parts
    places = split_operands(source)
    if instruction.guard:
        guard = source[: source.index(instruction.opcode.split(".")[0])]
        other = guard.replace("@!", "@") if instruction.guard.negated else guard.replace("@", "@!")
        yield "predicate negated", other + source[len(guard) :]
    if name in ("setp", "set") and parts[1] in _COMPARISONS:
        other = _COMPARISONS[parts[1]]
        yield f"{parts[1]} -> {other}", source.replace(f".{parts[1]}.", f".{other}.", 1)
    if other := _neighbour(parts):
        yield f"{name} -> {other}", source.replace(f"{name}.", f"{other}.", 1)
    if name in _ORDERED and len(places) > 2:
        one, two = (places[at] for at in _ORDERED[name])
        first, second = source[slice(*one)], source[slice(*two)]
        if first != second:
            yield "operands swapped", with_operand(with_operand(source, two, first), one, second)
    for place, operand in zip(places, instruction.operands, strict=False):
        for told, text in _constants(operand, source[slice(*place)]):
            yield told, with_operand(source, place, text)


def _neighbour(parts: tuple[str, ...]) -> str:
    """Another opcode that takes the same modifiers; "" for none."""
    name = parts[0]
    if name in ("add", "sub") and ("cc" in parts or "bf16x2" in parts or "sat" in parts):
        return ""
    if name in ("and", "or") and parts[-1] == "pred":
        return _NEIGHBOURS[name]
    if name in ("shl", "shr"):
        return "shr" if name == "shl" else ("shl" if parts[-1].startswith("b") else "")
    return _NEIGHBOURS.get(name, "")


def _constants(operand: object, text: str) -> Iterator[tuple[str, str]]:
    """One up; of a float's bits, twice or half the value; of an address 16 bytes further."""
    if isinstance(operand, int):
        yield "constant", str(operand + 1)
    elif isinstance(operand, Real):
        sign, bit = (1 << 31, 1 << 23) if operand.width == 32 else (1 << 63, 1 << 52)
        endless = operand.bits | sign == sign | sign - bit
        changed = operand.bits ^ (sign if endless else bit)
        digits = operand.width // 4
        yield "constant", f"0{'f' if operand.width == 32 else 'd'}{changed:0{digits}X}"
    elif (
        isinstance(operand, MemoryOperand)
        and operand.base.startswith("%")
        and not operand.coordinates
    ):
        base = text.strip("[] ").partition("+")[0].strip()
        yield "offset", f"[{base} + {operand.offset + 16}]"
