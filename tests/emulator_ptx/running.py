"""Running a few PTX instructions in the emulator's engine, for the tests beside this.

ran = run(kernel("ld.param.u64 %rd1, [p]; st.global.u32 [%rd1], 7; ret;", "p"), {"p": array})
assert ran.ended and not ran.findings and array[0] == 7
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.host.findings import merge
from mlagen.emulator.ptx.host.grid import ClusterEnd, run_grid
from mlagen.emulator.ptx.host.map_records import passed, record
from mlagen.emulator.ptx.machine import CheckedLaunch, ClusterState, GlobalBuffer
from mlagen.emulator.ptx.program import Program, translate
from mlagen.emulator.tensor_maps import BYTES, TensorMap
from mlagen.ptx import read_ptx

_APART = 1 << 38
KINDS = {
    getattr(y, name): name
    for name in (
        "RACE", "UNDEFINED_REGISTER", "REGISTER_IN_FLIGHT", "UNDEFINED_SHARED", "DIVERGED",
        "BARRIER_COUNT", "MBARRIER_MISUSE", "BYTES_UNCOUNTED", "PENDING_AT_EXIT", "SHARED_GONE",
        "REGISTERS_BUDGET", "WGMMA_MISUSE", "GLOBAL_BOUNDS", "SHARED_BOUNDS", "ALIGNMENT",
        "MAP_MISUSE", "TENSOR_MISUSE", "SHARED_EARLY", "BARRIER_ORDER", "MAP_FENCE",
    )
}  # fmt: skip
FAULTS = {v: n for n, v in vars(y).items() if n.startswith("FAULT_")}


@dataclass(frozen=True)
class Found:
    """A finding as the engine keeps it; `kind` is the name of its number in `layout`. `text` and
    `other` are the instructions; `a`, `b`, `c` what the kind says."""

    kind: str
    text: str
    other: str
    warp: int
    other_warp: int
    a: int
    b: int
    c: int
    count: int
    line: int


@dataclass
class Ran:
    """What came of a run. `code`: an R_ number of `layout`; `fault`: the name of a FAULT_, "" for
    none, at `fault_text`. `counts`: executions (of a warp) an instruction, by its text."""

    code: int
    fault: str
    fault_text: str
    fault_a: int
    findings: list[Found]
    executed: int
    counts: dict[str, int] = field(default_factory=dict)
    states: list[ClusterState] = field(default_factory=list)  # of all clusters

    @property
    def ended(self) -> bool:
        """Whether all warps of all clusters that were to run came to their end."""
        return self.code == y.R_DONE

    def kinds(self) -> list[str]:
        """The kinds of the findings, each once, sorted."""
        return sorted({found.kind for found in self.findings})


def kernel(
    body: str,
    parameters: str = "",
    *,
    registers: str = "",
    head: str = "",
    directives: str = "",
    version: str = "8.6",
    target: str = "sm_90a",
) -> str:
    """The text of a kernel `k`. `parameters`: names of 64-bit ones, or declarations
    (".param .u32 n"), separated by commas. There are registers %p0.., %h0.. (b16), %r0.. (b32),
    %f0.. (f32), %rd0.. (b64), %d0.. (f64) and %q0.. (b128), 64 of each, and the declarations of
    `registers`. `head` stands before the entry (.shared variables), `directives` after its
    parameters (.reqntid)."""
    declared = [
        part if part.startswith(".param") else f".param .u64 {part}"
        for part in (p.strip() for p in parameters.split(","))
        if part
    ]
    kinds = {"p": "pred", "h": "b16", "r": "b32", "f": "f32", "rd": "b64", "d": "f64", "q": "b128"}
    lines = "\n".join(f".reg .{kind} %{name}<64>;" for name, kind in kinds.items())
    if float(version) < 8.3:
        lines = "\n".join(line for line in lines.splitlines() if "b128" not in line)
    return (
        f".version {version}\n.target {target}\n.address_size 64\n{head}\n"
        f".visible .entry k({', '.join(declared)})\n{directives}\n{{\n{lines}\n{registers}\n"
        f"{body}\n}}\n"
    )


@dataclass(frozen=True)
class At:
    """A value at a byte offset of a parameter that is a structure."""

    offset: int
    value: Any


def run(
    text: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    grid: Sequence[int] = (1, 1, 1),
    block: Sequence[int] = (32, 1, 1),
    cluster: Sequence[int] = (1, 1, 1),
    dynamic_shared: int = 0,
    mode: str = "latest",
    seed: int = 0,
    sanitize: bool = True,
    exact: bool = True,
    max_instructions: int | None = 5_000_000,
    entry: int = 0,
    read_only: Sequence[str] = (),
    maps: Mapping[str, TensorMap] | None = None,
    buffers: Sequence[tuple[int, np.ndarray]] = (),
) -> Ran:
    """Run a kernel. `mode` "drawn" is "random". `arguments`: by the name of a parameter an array
    (its address is passed, and the kernel reads and writes it in place, unless it is named in
    `read_only`), a number of numpy, bytes, or a list of `At`s. `maps`: by a parameter's name a
    tensor map instead. `buffers`: more memory, at addresses of its own."""
    module = read_ptx(text)
    program = translate(module, module.entries[entry])
    memory = [GlobalBuffer(at, _bytes(array), 3) for at, array in buffers]
    parameters = np.zeros(max(program.parameter_bytes, 8), np.uint8)
    for name, value in (arguments or {}).items():
        for part in value if isinstance(value, list) else [At(0, value)]:
            at = program.parameters[name] + part.offset
            raw = _encoded(part.value, memory, 1 if name in read_only else 3, name)
            parameters[at : at + len(raw)] = np.frombuffer(raw, np.uint8)
    rows = []
    for name, made in (maps or {}).items():
        at = program.parameters[name]
        parameters[at : at + BYTES] = np.frombuffer(passed(len(rows)), np.uint8)
        rows.append(mapped(made, memory))
    setup = CheckedLaunch(
        program,
        tuple(grid),
        tuple(block),
        tuple(cluster),
        dynamic_shared,
        parameters,
        memory,
        np.array(rows, np.int64) if rows else np.zeros((0, 32), np.int64),
        "random" if mode == "drawn" else mode,
        seed,
        sanitize,
        exact,
        max_instructions,
    )
    states: list[ClusterState] = []
    ends = run_grid(setup, ended=states.append)
    states += [end.state for end in ends if end.state is not None]
    return _ran(program, ends, states)


def mapped(made: TensorMap, memory: list[GlobalBuffer]) -> list[int]:
    """The words of a tensor map, whose buffer becomes memory."""
    base = _place(memory, made.buffer.array, 3, made.buffer.name) + made.buffer_offset
    made.check("map", base)
    return record(made, base)


def _bytes(array: np.ndarray) -> np.ndarray:
    assert array.flags.c_contiguous
    return array.reshape(-1).view(np.uint8)


def _place(memory: list[GlobalBuffer], array: np.ndarray, access: int, name: str) -> int:
    """The address of an array: far from all others, a boundary of 4 GiB through its middle."""
    for held in memory:
        if held.array.ctypes.data == array.ctypes.data and held.array.nbytes == array.nbytes:
            return held.base
    base = (len(memory) + 1) * _APART - max(array.nbytes // 2 // 256, 1) * 256
    memory.append(GlobalBuffer(base, _bytes(array), access, name))
    return base


def _encoded(value: Any, memory: list[GlobalBuffer], access: int, name: str) -> bytes:
    if isinstance(value, np.ndarray):
        return np.uint64(_place(memory, value, access, name)).tobytes()
    return value if isinstance(value, bytes) else np.asarray(value).tobytes()


def _ran(program: Program, ends: list[ClusterEnd], states: list[ClusterState]) -> Ran:
    instructions = program.entry.instructions

    def text_of(row: int) -> str:
        return instructions[row].text if 0 <= row < len(instructions) else ""

    found = [
        Found(
            KINDS.get(int(w[y.F_KIND]), str(w[y.F_KIND])),
            text_of(int(w[y.F_ROW])),
            text_of(int(w[y.F_OTHER])),
            *(int(w[f]) for f in (y.F_WARP, y.F_OTHER_WARP, y.F_A, y.F_B, y.F_C, y.F_COUNT)),
            instructions[int(w[y.F_ROW])].line if 0 <= w[y.F_ROW] < len(instructions) else 0,
        )
        for w in merge([end.findings for end in ends])
    ]
    context = states[-1].context
    kind = int(context[y.C_FAULT_KIND])
    counts: dict[str, int] = {}
    for end in ends:
        for instruction, times in zip(instructions, end.counts, strict=False):
            counts[instruction.text] = counts.get(instruction.text, 0) + int(times)
    return Ran(
        ends[-1].code,
        FAULTS.get(kind, ""),
        text_of(int(context[y.C_FAULT])) if kind else "",
        int(context[y.C_FAULT_A]),
        found,
        sum(int(end.counts.sum()) for end in ends),
        counts,
        states,
    )
