"""What an instruction reads, writes and does, by the class of its opcode.

Source: PTX ISA 9.0, chapter 9 (operand order of each instruction).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from mlagen.ptx.syntax import Address, Instruction, MemoryOperand, Operand, Vector


class Kind(Enum):
    """The instructions with a meaning beyond their registers."""

    PLAIN = "plain"
    BRANCH = "branch"
    TABLE_BRANCH = "brx.idx"
    EXIT = "exit"
    TRAP = "trap"
    SHARED_LOAD = "load from shared memory"
    SHARED_STORE = "store to shared memory"
    GENERIC_LOAD = "load through a generic address"
    GENERIC_STORE = "store through a generic address"
    MBARRIER_INIT = "mbarrier.init"
    MBARRIER_INVALIDATE = "mbarrier.inval"
    MBARRIER_ARRIVE = "mbarrier.arrive"
    MBARRIER_EXPECT = "mbarrier.expect_tx"
    MBARRIER_COMPLETE = "mbarrier.complete_tx"
    MBARRIER_WAIT = "mbarrier.try_wait"
    BULK_LOAD = "bulk copy to shared memory"
    BULK_STORE = "bulk copy from shared memory"
    BULK_COMMIT = "cp.async.bulk.commit_group"
    BULK_WAIT = "cp.async.bulk.wait_group"
    ASYNC_COPY = "cp.async"
    ASYNC_COMMIT = "cp.async.commit_group"
    ASYNC_WAIT = "cp.async.wait_group"
    ASYNC_ARRIVE = "cp.async.mbarrier.arrive"
    PROXY_FENCE = "fence.proxy.async"
    INIT_FENCE = "fence.mbarrier_init"
    MAP_EDIT = "tensormap"
    MAP_FENCE = "fence.proxy.tensormap"
    BARRIER = "bar"
    WARP_BARRIER = "bar.warp.sync"
    CLUSTER_ARRIVE = "barrier.cluster.arrive"
    CLUSTER_WAIT = "barrier.cluster.wait"
    WGMMA = "wgmma.mma_async"
    WGMMA_FENCE = "wgmma.fence"
    WGMMA_COMMIT = "wgmma.commit_group"
    WGMMA_WAIT = "wgmma.wait_group"
    REGISTERS = "setmaxnreg"
    COLLECTIVE = "warp collective"
    OPAQUE = "not modelled"  # atomics, other blocks' shared memory


_NO_RESULT = frozenset(
    {
        "st", "red", "bar", "barrier", "fence", "membar", "bra", "brx", "ret", "exit", "trap",
        "brkpt", "cp", "prefetch", "prefetchu", "setmaxnreg", "wgmma", "stmatrix",
        "nanosleep", "pmevent", "griddepcontrol", "discard", "applypriority", "sust", "tcgen05",
        "stackrestore", "multimem", "tensormap", "clusterlaunchcontrol",
    }
)  # fmt: skip

# What of them has a result, by the opcode's second part.
_SOMETIMES = {
    "tcgen05": ("ld",),
    "multimem": ("ld_reduce",),
    "clusterlaunchcontrol": ("query_cancel",),
}


@dataclass(frozen=True, slots=True)
class Wgmma:
    """The operands of a `wgmma.mma_async`. `a` is a descriptor or the fragment's registers."""

    m: int
    n: int
    k: int
    types: tuple[str, ...]
    accumulators: tuple[str, ...]
    a: str | tuple[str, ...] | int
    b: str | int
    transposed_a: bool
    transposed_b: bool

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of A and B (0 for the 1-bit form)."""
        name = self.types[1]
        return {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}.get(name, 0)


def kind_of(instruction: Instruction) -> Kind:
    """The class of an instruction; PLAIN for what only moves registers or global memory."""
    name, parts = instruction.name, instruction.parts
    kind = _KINDS.get(".".join(parts[:2])) or _KINDS.get(name)
    if kind is not None:
        return kind
    handler = _BY_NAME.get(name)
    return handler(parts) if handler else Kind.PLAIN


def _memory(parts: tuple[str, ...], load: bool) -> Kind:
    spaces = {part.partition("::")[0] for part in parts[1:]}
    if "async" in parts:
        return Kind.OPAQUE
    if "shared" in spaces:
        if "shared::cluster" in parts:
            return Kind.OPAQUE
        return Kind.SHARED_LOAD if load else Kind.SHARED_STORE
    if spaces & {"global", "local", "param", "const"}:
        return Kind.PLAIN
    return Kind.GENERIC_LOAD if load else Kind.GENERIC_STORE


def _atomic(parts: tuple[str, ...]) -> Kind:
    shared = any(part.partition("::")[0] == "shared" for part in parts)
    return Kind.OPAQUE if shared else Kind.PLAIN


def _cp(parts: tuple[str, ...]) -> Kind:
    if parts[1:3] == ("async", "bulk") or parts[1:4] == ("reduce", "async", "bulk"):
        if "commit_group" in parts:
            return Kind.BULK_COMMIT
        if "wait_group" in parts:
            return Kind.BULK_WAIT
        if "prefetch" in parts:
            return Kind.PLAIN
        spaces = [p for p in parts if p.partition("::")[0] in ("shared", "global")]
        if spaces and spaces[0].startswith("global"):
            return Kind.BULK_STORE
        return Kind.OPAQUE if spaces[1:2] == ["shared::cta"] else Kind.BULK_LOAD
    if parts[1] != "async":
        return Kind.PLAIN
    if "commit_group" in parts:
        return Kind.ASYNC_COMMIT
    if "wait_group" in parts or "wait_all" in parts:
        return Kind.ASYNC_WAIT
    if "mbarrier" in parts:
        return Kind.ASYNC_ARRIVE
    return Kind.ASYNC_COPY


def _barrier(parts: tuple[str, ...]) -> Kind:
    if "warp" in parts:
        return Kind.WARP_BARRIER
    if "cluster" in parts:
        return Kind.CLUSTER_ARRIVE if "arrive" in parts else Kind.CLUSTER_WAIT
    return Kind.BARRIER


def _fence(parts: tuple[str, ...]) -> Kind:
    if "mbarrier_init" in parts:
        return Kind.INIT_FENCE
    if "tensormap::generic" in parts:
        return Kind.MAP_FENCE
    if "proxy" in parts and any(part.startswith("async") for part in parts):
        # .global orders global memory alone.
        return Kind.PLAIN if "async::global" in parts or parts[-1] == "global" else Kind.PROXY_FENCE
    return Kind.PLAIN


# By the opcode's first part, or its first two.
_KINDS = {
    "bra": Kind.BRANCH,
    "brx": Kind.TABLE_BRANCH,
    "ret": Kind.EXIT,
    "exit": Kind.EXIT,
    "trap": Kind.TRAP,
    "setmaxnreg": Kind.REGISTERS,
    "tensormap": Kind.MAP_EDIT,
    "elect": Kind.COLLECTIVE,
    "shfl": Kind.COLLECTIVE,
    "vote": Kind.COLLECTIVE,
    "match": Kind.COLLECTIVE,
    "redux": Kind.COLLECTIVE,
    "ldmatrix": Kind.SHARED_LOAD,
    "stmatrix": Kind.SHARED_STORE,
    "mbarrier.init": Kind.MBARRIER_INIT,
    "mbarrier.inval": Kind.MBARRIER_INVALIDATE,
    "mbarrier.arrive": Kind.MBARRIER_ARRIVE,
    "mbarrier.arrive_drop": Kind.MBARRIER_ARRIVE,
    "mbarrier.expect_tx": Kind.MBARRIER_EXPECT,
    "mbarrier.complete_tx": Kind.MBARRIER_COMPLETE,
    "mbarrier.try_wait": Kind.MBARRIER_WAIT,
    "mbarrier.test_wait": Kind.MBARRIER_WAIT,
    "wgmma": Kind.WGMMA,
    "wgmma.fence": Kind.WGMMA_FENCE,
    "wgmma.commit_group": Kind.WGMMA_COMMIT,
    "wgmma.wait_group": Kind.WGMMA_WAIT,
}
_BY_NAME = {
    "ld": lambda parts: _memory(parts, True),
    "st": lambda parts: _memory(parts, False),
    "atom": _atomic,
    "red": _atomic,
    "cp": _cp,
    "bar": _barrier,
    "barrier": _barrier,
    "fence": _fence,
}


_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")


def names_in(operand: Operand) -> Iterator[str]:
    """Registers and symbols that an operand names."""
    if isinstance(operand, str):
        if operand != "_":
            yield operand.lstrip("!")
    elif isinstance(operand, Address):
        yield operand.symbol
    elif isinstance(operand, Vector):
        for item in operand.items:
            yield from names_in(item)
    elif isinstance(operand, MemoryOperand):
        if operand.base:
            yield operand.base
        for item in operand.coordinates:
            yield from names_in(item)


def has_result(instruction: Instruction) -> bool:
    """Whether the first operand is written."""
    name, parts = instruction.name, instruction.parts
    if name == "mbarrier":
        if parts[1] in ("arrive", "arrive_drop"):
            return bool(instruction.operands) and not isinstance(
                instruction.operands[0], MemoryOperand
            )
        return parts[1] in ("try_wait", "test_wait", "pending_count")
    if name in ("bar", "barrier"):
        return "red" in parts
    if name in _SOMETIMES:
        return parts[1:2] != () and parts[1] in _SOMETIMES[name]
    if name == "call":  # (result), function, (arguments)
        return isinstance(next(iter(instruction.operands), None), Vector)
    return name not in _NO_RESULT


def written(instruction: Instruction) -> tuple[str, ...]:
    """Registers an instruction writes (a wgmma's accumulators among them)."""
    if kind_of(instruction) is Kind.WGMMA:
        return tuple(names_in(instruction.operands[0]))
    if not instruction.operands or not has_result(instruction):
        return ()
    return tuple(names_in(instruction.operands[0]))


def read(instruction: Instruction) -> tuple[str, ...]:
    """Registers and symbols an instruction reads, its guard among them."""
    operands = instruction.operands
    if operands and has_result(instruction) and kind_of(instruction) is not Kind.WGMMA:
        operands = operands[1:]
    names = [name for operand in operands for name in names_in(operand)]
    if instruction.guard:
        names.append(instruction.guard.register)
    return tuple(names)


def wgmma_operands(instruction: Instruction) -> Wgmma:
    """The operands of a `wgmma.mma_async`, dense or sparse."""
    shapes = ((at, _SHAPE.match(part)) for at, part in enumerate(instruction.parts))
    at, shape = next((at, shape) for at, shape in shapes if shape)
    m, n, k = (int(x) for x in shape.groups())
    types = instruction.parts[at + 1 :]
    sparse = "sp" in instruction.parts
    operands = list(instruction.operands)
    accumulators = tuple(names_in(operands[0]))
    a, b = operands[1], operands[2]
    rest = operands[3 + (2 if sparse else 0) :]
    # scale-d, imm-scale-a, imm-scale-b, [imm-trans-a,] imm-trans-b
    trans = [x for x in rest[3:] if isinstance(x, int)]
    in_registers = isinstance(a, Vector)
    return Wgmma(
        m=m,
        n=n,
        k=k,
        types=types,
        accumulators=accumulators,
        a=tuple(names_in(a)) if in_registers else (a if isinstance(a, int) else str(a)),
        b=b if isinstance(b, int) else str(b),
        transposed_a=bool(trans[0]) if len(trans) > 1 else False,
        transposed_b=bool(trans[-1]) if trans else False,
    )
