"""Mutants of tensor memory and its products: what waits for them and what fences, descriptors,
columns and lanes, and which blocks of a CTA pair a commit tells.

Bits of a matrix descriptor and of an instruction descriptor: PTX ISA, chapter on tcgen05.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlagen.mutation.ptx.mutant import PtxMutant
from mlagen.mutation.ptx.mutated_kernel import (
    FRESH,
    MutatedKernel,
    moved_operand,
    split_operands,
    with_operand,
)
from mlagen.ptx import Instruction

# By the word behind tcgen05, of which class its removal is.
_REMOVED = {
    "commit": "waits", "cp": "copies", "wait::ld": "waits", "wait::st": "waits", "dealloc": "waits",
    "fence::before_thread_sync": "fences", "fence::after_thread_sync": "fences",
}  # fmt: skip
_ADDRESS = re.compile(r"\[\s*([^\]+,]+?)\s*(?:\+\s*(-?\d+)\s*)?\]")
LANES = 32 << 16  # the lanes of a warp, in an address of tensor memory
# Field of a matrix descriptor -> what is done to it.
_FIELDS = {
    "start + 16 bytes": "add 1",
    "start + 512 bytes": "add 32",
    "leading offset + 16 bytes": "add 0x10000",
    "stride offset + 16 bytes": "add 0x100000000",
    "another swizzle": "xor 0xC000000000000000",
}
# Field of an instruction descriptor -> its lowest bit.
_WORD = {"type of sums": 4, "type of A": 7, "type of B": 10, "A turned": 15, "B turned": 16,
         "N": 17, "M": 24}  # fmt: skip


def tensor_mutants(kernel: MutatedKernel) -> Iterator[PtxMutant]:
    """All of a kernel."""
    for instruction, _ in kernel.each():
        if instruction.name != "tcgen05":
            continue
        word = instruction.parts[1]
        if word in _REMOVED:
            yield kernel.mutant(_REMOVED[word], f"{word} removed", instruction, "")
        if word == "commit" and "multicast::cluster" in instruction.parts:
            yield from _masks(kernel, instruction)
        if word in ("ld", "st", "mma", "cp"):
            yield from _places(kernel, instruction)
        if word == "cp":
            yield from _fields(kernel, instruction, 1, "copied from")
        if word == "mma":
            yield from _operands(kernel, instruction)


def _masks(kernel: MutatedKernel, commit: Instruction) -> Iterator[PtxMutant]:
    """A commit that tells one block of a CTA pair alone."""
    source = kernel.source(commit)
    place = split_operands(source)[1]
    for told, block in ((1, "leader"), (2, "other block")):
        changed = with_operand(source, place, FRESH)
        text = f"{{ .reg .b16 {FRESH}; mov.b16 {FRESH}, {told}; {changed} }}"
        yield kernel.mutant("arrivals", f"for the {block} alone", commit, text)


def _places(kernel: MutatedKernel, instruction: Instruction) -> Iterator[PtxMutant]:
    """Other columns and other lanes."""
    source = kernel.source(instruction)
    number = 1 if instruction.parts[1] == "ld" else 0
    place = split_operands(source)[number]
    found = _ADDRESS.fullmatch(source[slice(*place)])
    if found is None:
        return
    for what, step in (("one column further", 1), ("lanes of the next warp", LANES)):
        if step == LANES and instruction.parts[1] in ("mma", "cp"):
            continue
        text = with_operand(source, place, _further(found, step))
        yield kernel.mutant("descriptors", what, instruction, text)


def _further(found: re.Match[str], step: int) -> str:
    """An address of tensor memory that goes `step` on."""
    return f"[{found[1]} + {int(found[2] or 0) + step}]"


def _fields(
    kernel: MutatedKernel, instruction: Instruction, number: int, what: str
) -> Iterator[PtxMutant]:
    """Fields of the matrix descriptor that operand `number` is."""
    source = kernel.source(instruction)
    for field, change in _FIELDS.items():
        text = moved_operand(source, split_operands(source)[number], 64, change)
        yield kernel.mutant("descriptors", f"{what}: {field}", instruction, text)


def _operands(kernel: MutatedKernel, product: Instruction) -> Iterator[PtxMutant]:
    """Fields of both matrix descriptors and of the instruction descriptor; sums that are begun
    where they are added to, and added to where they begin."""
    source = kernel.source(product)
    places = split_operands(source)
    if found := _ADDRESS.fullmatch(source[slice(*places[1])]):  # A in tensor memory
        text = with_operand(source, places[1], _further(found, 1))
        yield kernel.mutant("descriptors", "A: one column further", product, text)
    else:
        yield from _fields(kernel, product, 1, "A")
    yield from _fields(kernel, product, 2, "B")
    word = product.operands[3]
    if isinstance(word, int):
        for field, bit in _WORD.items():
            text = with_operand(source, places[3], str(word ^ 1 << bit))
            yield kernel.mutant("descriptors", f"another {field}", product, text)
    adds = source[slice(*places[4])]
    changed = with_operand(source, places[4], FRESH)
    text = f"{{ .reg .pred {FRESH}; not.pred {FRESH}, {adds}; {changed} }}"
    yield kernel.mutant("descriptors", "sums begun, not added to, or added to", product, text)
