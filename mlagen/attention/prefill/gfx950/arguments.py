"""Kernel arguments in scalar registers: where each goes, and the loads that bring them there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlagen.dsl import KernelArgument, Signature
from mlagen.targets.gfx950.dsl import Regs, Space

_LOADS = {8: "s_load_dwordx8", 4: "s_load_dwordx4", 2: "s_load_dwordx2", 1: "s_load_dword"}
# Register alignment of scalar loads (CDNA4 ISA, SMEM): pairs even, 4 dwords and more at 4.
_ALIGNMENT = {1: 1, 2: 2, 3: 2}
_MOST_ALIGNED = 4
# Pointers beyond the first four that a tile loop needs too.
_LASTING = ("k_rope", "page_table", "page_list")
ONCE = "PTRS"


@dataclass(frozen=True)
class Arguments:
    """Registers of each argument by name, and (mnemonic, registers, offset) of each load. `once`:
    the block of those that the setup alone needs."""

    regs: dict[str, Regs]
    once: Regs | None
    loads: tuple[tuple[str, Regs, str], ...]

    def __getitem__(self, name: str) -> Regs:
        return self.regs[name]


def argument_registers(s: Space, signature: Signature) -> Arguments:
    """Blocks for q, k, v, o, for further pointers, for the sizes and for the scale, each loaded by
    as few scalar loads as its length allows."""
    arguments = signature.arguments
    pointers = [a for a in arguments if a.kind == "pointer"]
    blocks: tuple[tuple[str, list[KernelArgument]], ...] = (
        ("PTR", pointers[:4]),
        (ONCE, [a for a in pointers[4:] if a.name not in _LASTING]),
        ("PTRX", [a for a in pointers[4:] if a.name in _LASTING]),
        ("SIZE", [a for a in arguments if a.kind == "u32"]),
        ("SCALE", [a for a in arguments if a.kind == "f32"]),
    )
    regs: dict[str, Regs] = {}
    loads: list[tuple[str, Regs, str]] = []
    once = None
    for name, held in blocks:
        if not held:
            continue
        words = sum(argument.size for argument in held) // 4
        names = ", ".join(argument.name for argument in held)
        block = s.registers.scalar(
            name, words, f"arguments {names}", align=_ALIGNMENT.get(words, _MOST_ALIGNED)
        )
        if name == ONCE:
            once = block
        at = 0
        for argument in held:
            regs[argument.name] = block[at : at + argument.size // 4]
            at += argument.size // 4
        at = 0
        for run in _runs(held):
            words = sum(argument.size for argument in run) // 4
            loads += _chunks(block[at : at + words], run[0].offset)
            at += words
    return Arguments(regs, once, tuple(loads))


def _runs(held: Sequence[KernelArgument]) -> Iterator[list[KernelArgument]]:
    """Arguments that follow each other in memory."""
    run: list[KernelArgument] = []
    for argument in held:
        if run and argument.offset != run[-1].offset + run[-1].size:
            yield run
            run = []
        run.append(argument)
    yield run


def _chunks(block: Regs, offset: int) -> list[tuple[str, Regs, str]]:
    """Loads of a block from consecutive bytes, the widest first, so that each stays aligned."""
    loads = []
    at = 0
    while at < len(block):
        width = next(width for width in _LOADS if width <= len(block) - at)
        loads.append((_LOADS[width], block[at : at + width], hex(offset + 4 * at)))
        at += width
    return loads
