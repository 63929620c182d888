"""Immediates that lie outside of what their instruction takes, by table.

Source: PTX ISA 9.0, the section of each instruction. An assembler refuses some of these and takes
others as they are; registers in the place of an immediate are not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mlagen.ptx.syntax import Entry, Instruction, MemoryOperand, Operand, Vector

_OFFSET = range(-(1 << 31), 1 << 31)  # "immOff is a constant 32-bit value" (addresses as operands)
_COUNT = range(1, 1 << 20)  # of an mbarrier: expected arrivals, 1 to 2^20 - 1
_BYTES = range(1 << 20)  # of an mbarrier: tx-count, up to 2^20 - 1
_BARRIERS = range(16)
_THREADS = range(32, 1025, 32)  # of a barrier: multiples of the warp's size
_REGISTERS = range(24, 257, 8)
_COLUMNS = (32, 64, 128, 256, 512)
_MASK = range(-(1 << 31), 1 << 32)  # lanes of a warp
_LANES = range(32)
_PREFETCHED = ("L2::64B", "L2::128B", "L2::256B")
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")
_WGMMA_K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}


@dataclass(frozen=True, slots=True)
class Misfit:
    """An instruction and what one of its immediates should be."""

    instruction: Instruction
    why: str


def misfits(entry: Entry) -> Iterator[Misfit]:
    """Instructions with an immediate that its field does not hold, in the order of the text."""
    for instruction in entry.instructions:
        why = misfit(instruction)
        if why:
            yield Misfit(instruction, why)


def misfit(instruction: Instruction) -> str:
    """What an immediate of the instruction should be; "" where all fit."""
    for memory in _memories(instruction.operands):
        if memory.offset not in _OFFSET:
            return f"an offset of {memory.offset} bytes; an address takes 32 bits of them"
    rule = _RULES.get(instruction.name)
    return rule(instruction) if rule else ""


def _memories(operands: tuple[Operand, ...]) -> Iterator[MemoryOperand]:
    for operand in operands:
        if isinstance(operand, MemoryOperand):
            yield operand
        elif isinstance(operand, Vector):
            yield from _memories(operand.items)


def _told(value: Operand | None, legal: range | tuple[int, ...], what: str) -> str:
    """Whether a number is legal; what is no number is not known."""
    if not isinstance(value, int) or value in legal:
        return ""
    if isinstance(legal, range):
        step = f", a multiple of {legal.step}" if legal.step > 1 else ""
        return f"{what} {value}; it is {legal[0]} to {legal[-1]}{step}"
    return f"{what} {value}; it is one of {', '.join(map(str, legal))}"


def _at(instruction: Instruction, index: int) -> Operand | None:
    return instruction.operands[index] if len(instruction.operands) > index else None


def _values(instruction: Instruction) -> list[Operand]:
    """Operands behind the last address."""
    places = [at for at, x in enumerate(instruction.operands) if isinstance(x, MemoryOperand)]
    return list(instruction.operands[places[-1] + 1 :]) if places else []


def _mbarrier(instruction: Instruction) -> str:
    kind, values = instruction.parts[1] if len(instruction.parts) > 1 else "", _values(instruction)
    first = values[0] if values else None
    if kind == "init":
        return _told(first, _COUNT, "an mbarrier's count of")
    if kind in ("expect_tx", "complete_tx") or "expect_tx" in instruction.parts:
        return _told(first, _BYTES, "an mbarrier's bytes of")
    if kind in ("arrive", "arrive_drop"):
        return _told(first, _COUNT, "arrivals of")
    if "parity" in instruction.parts:
        return _told(first, range(2), "a parity of")
    return ""


def _barrier(instruction: Instruction) -> str:
    if "cluster" in instruction.parts:
        return ""
    reduces = "red" in instruction.parts
    given = list(instruction.operands)
    if reduces:
        given = given[1:]
        given = [x for x in given[:2] if isinstance(x, int) or len(instruction.operands) > 3]
    if instruction.name in ("bar", "barrier") and "warp" in instruction.parts:
        return _told(_at(instruction, 0), _MASK, "a mask of")
    first = given[0] if given else None
    second = given[1] if len(given) > 1 else None
    return _told(first, _BARRIERS, "barrier") or _told(second, _THREADS, "a barrier of threads")


def _registers(instruction: Instruction) -> str:
    return _told(_at(instruction, 0), _REGISTERS, "registers")


def _copy(instruction: Instruction) -> str:
    parts = instruction.parts
    if "bulk" in parts:
        return _bulk(instruction)
    if parts[1:2] != ("async",) or any(word in parts for word in _WAITING):
        return ""
    sizes = (16,) if "cg" in parts else (4, 8, 16)
    size, read = _at(instruction, 2), _at(instruction, 3)
    told = _told(size, sizes, "a copy of bytes:")
    if not told and isinstance(size, int):
        told = _told(read, range(size + 1), "bytes that are read:")
    return told


_WAITING = ("wait_group", "wait_all", "commit_group", "mbarrier")


def _bulk(instruction: Instruction) -> str:
    parts = instruction.parts
    if "wait_group" in parts:
        return _told(_at(instruction, 0), range(1 << 31), "groups")
    if "tensor" in parts or "commit_group" in parts:
        return ""
    numbers = [x for x in instruction.operands if isinstance(x, int)]
    size = numbers[0] if numbers else None
    if isinstance(size, int) and (size <= 0 or size % 16):
        return f"a bulk copy of {size} bytes; it is a multiple of 16"
    for memory in _memories(instruction.operands):
        if memory.base == "" and memory.offset % 16:
            return f"a bulk copy at {memory.offset}; addresses are multiples of 16"
    return ""


def _tcgen05(instruction: Instruction) -> str:
    kind = instruction.parts[1] if len(instruction.parts) > 1 else ""
    if kind not in ("alloc", "dealloc"):
        return ""
    return _told(_at(instruction, 1), _COLUMNS, "columns:")


def _shuffle(instruction: Instruction) -> str:
    given = instruction.operands
    if len(given) < 4:
        return ""
    lane, clamp = given[2], given[3]
    told = _told(lane, _LANES, "a lane, or a distance, of")
    if not told and isinstance(clamp, int) and (clamp & ~0x1F1F or clamp < 0):
        told = f"a clamp of {clamp:#x}; its bits are 0x1f1f"
    return told or _told(given[4] if len(given) > 4 else None, _MASK, "a mask of")


def _vote(instruction: Instruction) -> str:
    return _told(instruction.operands[-1] if instruction.operands else None, _MASK, "a mask of")


def _wgmma(instruction: Instruction) -> str:
    parts = instruction.parts
    if "wait_group" in parts:
        return _told(_at(instruction, 0), range(8), "groups")
    shape = next((found for part in parts if (found := _SHAPE.match(part))), None)
    if shape is None:
        return ""
    m, n, k = map(int, shape.groups())
    types = [part for part in parts[parts.index(shape[0]) + 1 :] if part in _WGMMA_K]
    sparse = 2 if "sp" in parts else 1
    if m != 64 or n % 8 or not 8 <= n <= 256:
        return f"shape {shape[0]}; it is m64, n a multiple of 8 up to 256"
    # The first type may be that of the result.
    if types and k != sparse * _WGMMA_K[types[-1]]:
        return f"shape {shape[0]}; of {types[-1]} it is k{sparse * _WGMMA_K[types[-1]]}"
    return ""


def _priority(instruction: Instruction) -> str:
    return _told(_at(instruction, 0), range(1 << 31), "nanoseconds")


def _loaded(instruction: Instruction) -> str:
    for part in instruction.parts:
        if part.startswith("L2::") and part.endswith("B") and part not in _PREFETCHED:
            return f"a prefetch of {part}; it is one of {', '.join(_PREFETCHED)}"
    return ""


_RULES: dict[str, Callable[[Instruction], str]] = {
    "mbarrier": _mbarrier,
    "bar": _barrier,
    "barrier": _barrier,
    "setmaxnreg": _registers,
    "cp": _copy,
    "tcgen05": _tcgen05,
    "shfl": _shuffle,
    "vote": _vote,
    "match": _vote,
    "redux": _vote,
    "wgmma": _wgmma,
    "nanosleep": _priority,
    "ld": _loaded,
}
