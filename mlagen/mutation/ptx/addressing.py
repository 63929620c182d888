"""Mutants of what tiles are found by: matrix descriptors, coordinates of copies, swizzled
addresses.

Bits of a descriptor: PTX ISA, "Matrix descriptor" of wgmma: start, LBO and SBO in 16 bytes at bits
0, 16 and 32, the swizzle at bit 62.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlagen.mutation.ptx.mutant import PtxMutant
from mlagen.mutation.ptx.mutated_kernel import (
    MutatedKernel,
    moved_operand,
    split_operands,
    with_operand,
)
from mlagen.ptx import Instruction, Kind, MemoryOperand, Vector
from mlagen.ptx.effects import names_in

# Field -> what is done to it.
_FIELDS = {
    "start + 16 bytes": "add 1",
    "start + 512 bytes": "add 32",
    "leading offset + 16 bytes": "add 0x10000",
    "stride offset + 16 bytes": "add 0x100000000",
    "another swizzle": "xor 0xC000000000000000",
}
_TENSOR = re.compile(r"\[[^\[\]{}]+,\s*\{([^{}]*)\}\s*\]")
_OFFSET = re.compile(r"\[\s*([^\]+,]+?)\s*(?:\+\s*(-?\d+)\s*)?\]")
_BITWISE = ("xor", "and", "or", "shl", "shr", "lop3", "bfe", "bfi", "mad", "add", "mul")
_ACCESSES = (Kind.SHARED_LOAD, Kind.SHARED_STORE, Kind.ASYNC_COPY)


def descriptor_mutants(kernel: MutatedKernel) -> Iterator[PtxMutant]:
    """Each field of each descriptor of each wgmma, and the constants that they are made of."""
    shared: dict[int, None] = {}
    for instruction, kind in kernel.each():
        if kind is not Kind.WGMMA:
            continue
        source = kernel.source(instruction)
        for number, place in enumerate(split_operands(source)[1:3]):
            if source[place[0]] == "{":
                continue  # operand A in registers
            for field, change in _FIELDS.items():
                text = moved_operand(source, place, 64, change)
                operator = f"{'AB'[number]}: {field}"
                yield kernel.mutant("descriptors", operator, instruction, text)
            names = list(names_in(instruction.operands[1 + number]))
            shared.update(dict.fromkeys(kernel.slice_of(names, instruction.index)))
    for index in sorted(shared):
        yield from _constants(kernel, "descriptors", kernel.entry.instructions[index])


def copy_mutants(kernel: MutatedKernel) -> Iterator[PtxMutant]:
    """Coordinates one on, coordinates swapped, copies that go 16 bytes further or are left out."""
    for instruction, kind in kernel.each():
        source = kernel.source(instruction)
        if kind in (Kind.BULK_LOAD, Kind.BULK_STORE) and (found := _TENSOR.search(source)):
            yield from _coordinates(kernel, instruction, found)
        if kind is Kind.BULK_STORE:
            yield kernel.mutant("copies", "store removed", instruction, "")
        if kind is Kind.ASYNC_COPY:
            yield kernel.mutant("copies", "copy removed", instruction, "")
        if kind in (Kind.ASYNC_COPY, Kind.BULK_LOAD, Kind.BULK_STORE):
            for number, place in enumerate(split_operands(source)):
                operand = instruction.operands[number]
                if isinstance(operand, MemoryOperand) and not operand.coordinates:
                    end = "to" if not number else "from or with"
                    text = with_operand(source, place, _further(source[slice(*place)], 16))
                    if number < 2:
                        operator = f"16 bytes further, {end}"
                        yield kernel.mutant("copies", operator, instruction, text)


def swizzle_mutants(kernel: MutatedKernel) -> Iterator[PtxMutant]:
    """Bits of the lane addresses of shared memory; a xor left out."""
    slices: dict[int, None] = {}
    for instruction, kind in kernel.each():
        if kind not in _ACCESSES:
            continue
        for operand in instruction.operands:
            if isinstance(operand, MemoryOperand):
                names = list(names_in(operand))
                slices.update(dict.fromkeys(kernel.slice_of(names, instruction.index)))
    for index in sorted(slices):
        instruction = kernel.entry.instructions[index]
        source = kernel.source(instruction)
        if instruction.name == "xor":
            places = split_operands(source)
            first, second = (source[slice(*place)] for place in places[:2])
            nothing = instruction.operands[-1] == 0
            excuse = "the xor is with 0, which is a move" if nothing else ""
            head = source[: source.index("xor")]
            text = f"{head}mov.{instruction.parts[-1]} {first}, {second};"
            yield kernel.mutant("swizzle", "xor removed", instruction, text, excuse)
        if instruction.name in _BITWISE:
            yield from _constants(kernel, "swizzle", instruction)


def _constants(kernel: MutatedKernel, kind: str, instruction: Instruction) -> Iterator[PtxMutant]:
    """Bits of the integers of an instruction: the lowest that is set, and the one of 16 bytes."""
    source = kernel.source(instruction)
    for place, operand in zip(split_operands(source), instruction.operands, strict=False):
        if not isinstance(operand, int):
            continue
        shift = instruction.name in ("shl", "shr")
        bits = {operand & -operand or 1, 1 if shift else 16}
        if operand >= 1 << 32:
            bits |= {1 << 16, 1 << 32, 1 << 62}
        for bit in sorted(bits):
            text = with_operand(source, place, hex(operand ^ bit))
            yield kernel.mutant(kind, "a bit of a constant", instruction, text)


def _coordinates(
    kernel: MutatedKernel, instruction: Instruction, found: re.Match[str]
) -> Iterator[PtxMutant]:
    source = kernel.source(instruction)
    start = found.start(1)
    names = found[1].split(",")
    at, places = start, []
    for name in names:
        places.append((at + len(name) - len(name.lstrip()), at + len(name.rstrip())))
        at += len(name) + 1
    for number, place in enumerate(places):
        text = moved_operand(source, place, 32, "add 1")
        yield kernel.mutant("copies", f"coordinate {number} + 1", instruction, text)
    operand = next(
        o for o in instruction.operands if isinstance(o, MemoryOperand) and o.coordinates
    )
    if len(names) > 1 and not isinstance(operand.coordinates[0], Vector):
        swapped = ",".join([names[1], names[0], *names[2:]])
        text = source[:start] + swapped + source[found.end(1) :]
        yield kernel.mutant("copies", "coordinates swapped", instruction, text)


def _further(operand: str, step: int) -> str:
    found = _OFFSET.fullmatch(operand)
    if not found:
        return operand
    return f"[{found[1]} + {int(found[2] or 0) + step}]"
