"""Which pipe an instruction keeps busy, and what a run of instructions mostly does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mlagen.binary.effects import TRANSCENDENTAL, is_lds_dma, is_matrix
from mlagen.binary.instruction import MachineInstruction
from mlagen.inspect.model import PIPES, CodeLine, Pipe

_VECTOR_WORK = 16  # instructions
_BRANCHES = ("s_branch", "s_cbranch", "s_endpgm", "s_setpc", "s_swappc", "s_call")


def pipe_of(ins: MachineInstruction) -> Pipe:
    """The pipe of a gfx950 instruction."""
    name, form = ins.mnemonic, ins.encoding
    if form.startswith("VOP"):
        if is_matrix(ins):
            return "matrix"
        return "transcendental" if name in TRANSCENDENTAL else "vector"
    if form == "DS":
        return "lds"
    if form in ("MUBUF", "MTBUF", "GLOBAL", "FLAT", "SCRATCH"):
        return "dma" if is_lds_dma(ins) else "vmem"
    if form == "SMEM":
        return "smem"
    if name == "s_barrier":
        return "barrier"
    if name.startswith("s_waitcnt"):
        return "wait"
    return "branch" if name.startswith(_BRANCHES) else "scalar"


# First match wins. Names: PTX ISA, "Instruction Set".
_PTX: tuple[tuple[Pipe, tuple[str, ...]], ...] = (
    ("matrix", ("wgmma.mma_async", "mma.", "wmma.mma", "tcgen05.mma")),
    ("wait", ("wgmma.wait_group", "cp.async.wait", "cp.async.bulk.wait", "mbarrier.try_wait",
              "mbarrier.test_wait", "tcgen05.wait")),
    ("barrier", ("bar.", "barrier.", "mbarrier.", "cp.async.mbarrier", "wgmma.fence",
                 "wgmma.commit_group", "fence.", "cp.async.commit", "cp.async.bulk.commit",
                 "tcgen05.commit", "tcgen05.fence", "tcgen05.alloc", "tcgen05.dealloc",
                 "tcgen05.relinquish")),
    ("dma", ("cp.async", "cp.reduce", "prefetch")),
    ("lds", ("ld.shared", "st.shared", "ldmatrix", "stmatrix", "atom.shared", "red.shared",
             "tcgen05.ld", "tcgen05.st", "tcgen05.cp", "tcgen05.shift")),
    ("vmem", ("ld.global", "st.global", "ld.nc", "ld.local", "st.local", "atom.", "red.", "ld.v",
              "st.v")),
    ("smem", ("ld.param", "ld.const")),
    ("transcendental", ("ex2.", "lg2.", "rcp.", "rsqrt.", "sqrt.", "sin.", "cos.", "tanh.")),
    ("branch", ("bra", "ret", "exit", "call", "brx", "trap")),
    ("scalar", ("setmaxnreg", "griddepcontrol", "elect.", "activemask", "nanosleep")),
)  # fmt: skip


def ptx_pipe_of(opcode: str) -> Pipe:
    """The pipe of a PTX instruction; registers and scalars share a file there, so whatever
    computes is "vector"."""
    for pipe, prefixes in _PTX:
        if opcode.startswith(prefixes):
            return pipe
    return "vector"


def mix_of(lines: Iterable[CodeLine]) -> tuple[tuple[Pipe, int], ...]:
    """(pipe, instructions) of the pipes that occur, in the order of PIPES."""
    counts = Counter(line.pipe for line in lines)
    return tuple((pipe, counts[pipe]) for pipe in PIPES if counts[pipe])


def kind_of(mix: Iterable[tuple[Pipe, int]]) -> str:
    """What a cluster does, by the pipes it uses: "matrix", "vector", "memory" and their sums.

    Moves and address arithmetic stand in every cluster: vector work counts from 16 instructions
    on, or where there is nothing else; so do single loads and stores.
    """
    counts = dict(mix)
    total = sum(counts.values())
    vector = counts.get("vector", 0) + counts.get("transcendental", 0)
    memory = sum(counts.get(pipe, 0) for pipe in ("lds", "dma", "vmem"))
    parts = []
    if counts.get("matrix"):
        parts.append("matrix")
    if counts.get("transcendental", 0) > 1:
        parts.append("vector + transcendental")
    elif vector >= _VECTOR_WORK:
        parts.append("vector")
    if counts.get("dma") or memory > 1:
        parts.append("memory")
    if parts:
        return " + ".join(parts)
    around = sum(counts.get(pipe, 0) for pipe in ("barrier", "wait", "scalar"))
    if counts.get("barrier") and total == around and counts.get("scalar", 0) <= 1:
        return "bare barrier"
    return "memory" if memory else "vector" if vector else "control"
