"""A plain interpreter of the PTX that the Hopper kernels are made of, for their numbers.

One block at a time, warpgroups in turn; copies land at once, so nothing here says that waits are
right: that is what the proof and the audit are for. Arithmetic is fp32 of numpy, the matrix
instruction adds up in fp64 and rounds once. What is not known raises.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from mlagen.ptx import Instruction, Memory, Real, Vector, read_ptx

BF16 = np.dtype(ml_dtypes.bfloat16)
SMEM_BASE, SMEM_BYTES = 1024, 232448
GROUP = 128


@dataclass
class Map:
    """A tensor map: `array` [rows, cols], read in boxes of `box_rows` x 128 bytes."""

    array: Any
    box_rows: int


@dataclass
class Barrier:
    count: int
    pending: int
    bytes: int = 0
    phase: int = 0

    def settle(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = self.phase + 1, self.count


class Global:
    """Arrays of the host at made-up addresses."""

    def __init__(self) -> None:
        self.held: list[tuple[int, Any]] = []

    def add(self, array: Any) -> int:
        base = (len(self.held) + 1) << 36
        self.held.append((base, array.reshape(-1).view(np.uint8)))
        return base

    def bytes_of(self, addresses: Any, size: int) -> tuple[Any, Any]:
        """The array that all addresses lie in, and [addresses, size] indices into it."""
        which = int(addresses[0]) >> 36
        base, held = self.held[which - 1]
        index = addresses.astype(np.int64)[:, None] - base + np.arange(size)
        assert index.min() >= 0 and index.max() < len(held), "out of bounds"
        return held, index


def run(
    text: str, grid: tuple[int, int], arguments: Mapping[str, Any], *, only: Any = None
) -> None:
    """Runs the text's kernel; arrays of `arguments` are read and written in place."""
    entry = read_ptx(text).entries[0]
    memory = Global()
    given = {
        name: memory.add(value) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }
    assert {p.name for p in entry.parameters} == set(given), set(given)
    for y in range(grid[1]):
        for x in range(grid[0]):
            if only is None or (x, y) in only:
                Block(entry, memory, given, (x, y)).run()


class Block:
    """One block of threads on its way through the kernel."""

    def __init__(self, entry: Any, memory: Global, given: dict[str, Any], at: Any) -> None:
        self.code, self.memory, self.given = entry.instructions, memory, given
        self.threads = int(np.prod(entry.block))
        self.smem = np.full(SMEM_BASE + SMEM_BYTES, 0xFF, np.uint8)  # NaN
        self.registers: dict[str, Any] = {}
        self.barriers: dict[int, Barrier] = {}
        self.pc = np.zeros(self.threads, np.int64)
        self.blocked: dict[int, Callable[[], bool]] = {}
        self.named: dict[int, list[set[int]]] = {}
        tid = np.arange(self.threads, dtype=np.uint32)
        self.special = {"%tid.x": tid, "%ctaid.x": at[0], "%ctaid.y": at[1]}
        self.asked = 0
        self.steps = [self._step_of(i) for i in self.code]

    def run(self) -> None:
        groups = [np.arange(s, s + GROUP) for s in range(0, self.threads, GROUP)]
        end = len(self.code)
        moved = True
        while moved:
            moved = False
            for group in groups:
                while self._advance(group, end):
                    moved = True
        assert (self.pc >= end).all(), f"deadlock at {set(self.pc.tolist())}"

    def _advance(self, group: Any, end: int) -> bool:
        """One instruction of the threads of a group that lag most."""
        pcs = self.pc[group]
        waiting = self._waiting(group)
        if waiting:
            pcs[np.array(waiting) - group[0]] = end
        low = int(pcs.min())
        if low >= end:
            return False
        lanes = group[pcs == low]
        instruction = self.code[low]
        if instruction.guard is not None:
            taken = self.registers[instruction.guard.register][lanes]
            taken = ~taken if instruction.guard.negated else taken
        else:
            taken = None
        active = lanes if taken is None else lanes[taken]
        self.pc[lanes] = low + 1
        if len(active):
            self.steps[low](instruction, active)
        return True

    def _waiting(self, group: Any) -> list[int]:
        """Threads of a group that go on waiting."""
        if not self.blocked:
            return []
        first, last = int(group[0]), int(group[-1])
        mine = [t for t in self.blocked if first <= t <= last]
        over = {wait: wait() for wait in {self.blocked[t] for t in mine}}
        for t in mine:
            if over[self.blocked[t]]:
                del self.blocked[t]
        return [t for t in mine if t in self.blocked]

    # ---- operands -------------------------------------------------------------------------

    def get(self, operand: Any, lanes: Any, dtype: Any) -> Any:
        dtype = np.dtype(dtype)
        if isinstance(operand, int):
            raw = np.array(operand & ((1 << 8 * dtype.itemsize) - 1),
                           f"u{dtype.itemsize}").view(dtype)  # fmt: skip
            return np.broadcast_to(raw, len(lanes))
        if isinstance(operand, Real):
            return np.broadcast_to(np.array(operand.value, dtype), len(lanes))
        if operand in self.registers:
            held = self.registers[operand][lanes]
            if held.dtype.itemsize != dtype.itemsize:
                held = held.astype(f"u{dtype.itemsize}")
            return held.view(dtype)
        if operand in self.special:
            value = np.broadcast_to(np.asarray(self.special[operand], np.uint32), self.threads)
            return value[lanes].astype(f"u{dtype.itemsize}").view(dtype)
        if isinstance(operand, str) and operand.lower().startswith("0f"):
            bits = struct.unpack(">f", bytes.fromhex(operand[2:]))[0]
            return np.broadcast_to(np.array(bits, np.float32), len(lanes))
        if operand == "mlagen_smem":
            return np.broadcast_to(np.array(SMEM_BASE, dtype), len(lanes))
        raise KeyError(f"{operand} has no value")

    def put(self, name: str, lanes: Any, value: Any) -> None:
        value = np.asarray(value)
        raw = value if value.dtype == bool else value.view(f"u{value.dtype.itemsize}")
        held = self.registers.get(name)
        if held is None or held.dtype != raw.dtype:
            held = self.registers[name] = np.zeros(self.threads, raw.dtype)
        held[lanes] = raw

    def shared(self, operand: Memory, lanes: Any) -> Any:
        return self.get(operand.base, lanes, np.uint32).astype(np.int64) + operand.offset

    # ---- instructions ---------------------------------------------------------------------

    def _step_of(self, instruction: Instruction) -> Callable[[Instruction, Any], None]:
        name, parts = instruction.name, instruction.parts
        special: dict[str, Any] = {
            "bra": self._bra, "ret": self._ret, "bar": self._bar, "ld": self._ld, "st": self._st,
            "red": self._red,
            "setp": self._setp, "selp": self._selp, "cvt": self._cvt, "shfl": self._shfl,
            "vote": self._vote, "wgmma": self._wgmma, "ldmatrix": self._ldmatrix,
            "stmatrix": self._stmatrix, "mbarrier": self._mbarrier, "cp": self._cp,
            "fence": self._nothing, "griddepcontrol": self._nothing,
            "setmaxnreg": self._nothing, "prefetch": self._nothing,
            "createpolicy": self._nothing, "prmt": self._prmt, "mov": self._mov, "cvta": self._mov,
            "trap": self._trap,
        }  # fmt: skip
        if name in special:
            return special[name]
        if "wide" in parts:
            return self._wide
        if parts[-1] == "bf16x2":
            assert name == "mul"
            return self._bf16x2
        assert name in OPERATIONS, instruction.text
        return self._arithmetic

    def _nothing(self, i: Instruction, lanes: Any) -> None: ...

    def _trap(self, i: Instruction, lanes: Any) -> None:
        raise AssertionError(f"line {i.line}: trap")

    def _bra(self, i: Instruction, lanes: Any) -> None:
        self.pc[lanes] = i.target

    def _ret(self, i: Instruction, lanes: Any) -> None:
        self.pc[lanes] = len(self.code)

    def _mov(self, i: Instruction, lanes: Any) -> None:
        target, source = i.operands
        if isinstance(source, str) and source in self.given:
            self.registers[target] = np.full(self.threads, 0, np.uint64)
            self.special[target] = source
            return
        if source in self.special and isinstance(self.special[source], str):
            self.special[target] = self.special[source]
        self.put(target, lanes, self.get(source, lanes, TYPES[i.parts[-1]]))

    def _arithmetic(self, i: Instruction, lanes: Any) -> None:
        target, *sources = i.operands
        if i.parts[-1] == "pred":
            held = (self.registers[s][lanes] for s in sources)
            self.put(target, lanes, OPERATIONS[i.name](*held))
            return
        dtype = TYPES[i.parts[-1]]
        values = [
            self.get(s, lanes, np.uint32 if i.name in ("shl", "shr") and n == 1 else dtype)
            for n, s in enumerate(sources)
        ]
        with np.errstate(all="ignore"):
            self.put(target, lanes, np.asarray(OPERATIONS[i.name](*values), dtype))

    def _prmt(self, i: Instruction, lanes: Any) -> None:
        target, a, b, selector = i.operands
        both = [self.get(x, lanes, np.uint32).astype(np.uint64) for x in (a, b)]
        whole = both[0] | both[1] << np.uint64(32)
        made = np.zeros(len(lanes), np.uint64)
        for n in range(4):
            byte = whole >> np.uint64(8 * (selector >> 4 * n & 7)) & np.uint64(0xFF)
            made |= byte << np.uint64(8 * n)
        self.put(target, lanes, made.astype(np.uint32))

    def _bf16x2(self, i: Instruction, lanes: Any) -> None:
        target, a, b = i.operands
        a, b = (
            np.ascontiguousarray(self.get(x, lanes, np.uint32)).view(BF16).astype(np.float32)
            for x in (a, b)
        )
        self.put(target, lanes, (a * b).astype(BF16).view(np.uint32))

    def _wide(self, i: Instruction, lanes: Any) -> None:
        target, a, b = i.operands
        a, b = (self.get(x, lanes, np.uint32).astype(np.uint64) for x in (a, b))
        assert "u32" in i.parts and i.name == "mul"
        self.put(target, lanes, a * b)

    def _setp(self, i: Instruction, lanes: Any) -> None:
        target, a, b, *rest = i.operands
        dtype = TYPES[i.parts[-1]]
        a, b = (self.get(x, lanes, dtype) for x in (a, b))
        made = COMPARISONS[i.parts[1]](a, b)
        if rest:
            assert "and" in i.parts
            made = made & self.registers[rest[0]][lanes]
        self.put(target, lanes, made)

    def _selp(self, i: Instruction, lanes: Any) -> None:
        target, a, b, p = i.operands
        dtype = TYPES[i.parts[-1]]
        a, b = (self.get(x, lanes, dtype) for x in (a, b))
        self.put(target, lanes, np.where(self.registers[p][lanes], a, b))

    def _cvt(self, i: Instruction, lanes: Any) -> None:
        target, *sources = i.operands
        if "bf16x2" in i.parts:
            high, low = (self.get(s, lanes, np.float32).astype(BF16) for s in sources)
            packed = np.stack([low, high], axis=1).view(np.uint16).astype(np.uint32)
            self.put(target, lanes, packed[:, 0] | packed[:, 1] << np.uint32(16))
            return
        assert i.parts[-2:] == ("u64", "u32"), i.text
        self.put(target, lanes, self.get(sources[0], lanes, np.uint32).astype(np.uint64))

    def _shfl(self, i: Instruction, lanes: Any) -> None:
        target, source, distance, *_ = i.operands
        whole = self.get(source, np.arange(self.threads), np.uint32)
        assert len(lanes) % 32 == 0
        self.put(target, lanes, whole[lanes ^ distance])

    def _vote(self, i: Instruction, lanes: Any) -> None:
        target, source, _ = i.operands
        assert len(lanes) % 32 == 0
        votes = self.registers[source][lanes].reshape(-1, 32).all(axis=1)
        self.put(target, lanes, np.repeat(votes, 32))

    def _bar(self, i: Instruction, lanes: Any) -> None:
        if "warp" in i.parts:  # threads of a group keep together
            return
        number = int(i.operands[0])
        threads = int(i.operands[1]) if len(i.operands) > 1 else self.threads
        phases = self.named.setdefault(number, [set()])
        index = len(phases) - 1
        phases[index].update(lanes.tolist())
        assert len(phases[index]) <= threads
        if len(phases[index]) == threads:
            phases.append(set())
        if "sync" in i.parts:
            for t in lanes.tolist():
                self.blocked[t] = lambda: len(phases) > index + 1

    # ---- memory ---------------------------------------------------------------------------

    def _ld(self, i: Instruction, lanes: Any) -> None:
        target, memory = i.operands
        dtype = TYPES[i.parts[-1]]
        if "param" in i.parts:
            value = self.given[memory.base]
            self.put(target, lanes, np.full(len(lanes), value, dtype))
            return
        names = list(target.items) if isinstance(target, Vector) else [target]
        size = np.dtype(dtype).itemsize * len(names)
        if "shared" in i.parts:
            held, index = self.smem, self.shared(memory, lanes)[:, None] + np.arange(size)
        else:
            where = self.get(memory.base, lanes, np.uint64) + np.uint64(memory.offset)
            held, index = self.memory.bytes_of(where, size)
        values = np.ascontiguousarray(held[index]).view(dtype)
        if "acquire" in i.parts:  # blocks come one after the other: what is asked for must be there
            self.asked += 1
            assert self.asked < 1000, f"nobody arrives: {i.text}"
        for column, name in enumerate(names):
            self.put(name, lanes, np.ascontiguousarray(values[:, column]))

    def _st(self, i: Instruction, lanes: Any) -> None:
        memory, source = i.operands
        dtype = TYPES[i.parts[-1]]
        names = list(source.items) if isinstance(source, Vector) else [source]
        values = np.stack([self.get(n, lanes, dtype) for n in names], axis=1)
        raw = np.ascontiguousarray(values).view(np.uint8)
        if "shared" in i.parts:
            index = self.shared(memory, lanes)[:, None] + np.arange(raw.shape[1])
            self.smem[index] = raw
        else:
            where = self.get(memory.base, lanes, np.uint64) + np.uint64(memory.offset)
            held, index = self.memory.bytes_of(where, raw.shape[1])
            held[index] = raw

    def _red(self, i: Instruction, lanes: Any) -> None:
        assert "inc" in i.parts and len(lanes) == 1
        memory, most = i.operands
        where = self.get(memory.base, lanes, np.uint64) + np.uint64(memory.offset)
        held, index = self.memory.bytes_of(where, 4)
        (old,) = np.ascontiguousarray(held[index[0]]).view(np.uint32)
        held[index[0]] = np.array([0 if old >= most else old + 1], np.uint32).view(np.uint8)

    def _matrix_rows(self, i: Instruction, memory: Memory, lanes: Any) -> Any:
        """[warps, 4 matrices, 8 rows, 16] indices into SMEM."""
        assert len(lanes) == GROUP and "x4" in i.parts
        starts = self.shared(memory, lanes).reshape(4, 4, 8)
        return starts[..., None] + np.arange(16)

    def _ldmatrix(self, i: Instruction, lanes: Any) -> None:
        target, memory = i.operands
        rows = self.smem[self._matrix_rows(i, memory, lanes)].view(np.uint32)  # [4, 4, 8, 4]
        for n, name in enumerate(target.items):
            self.put(name, lanes, np.ascontiguousarray(rows[:, n]).reshape(-1))

    def _stmatrix(self, i: Instruction, lanes: Any) -> None:
        memory, source = i.operands
        index = self._matrix_rows(i, memory, lanes)
        for n, name in enumerate(source.items):
            held = np.ascontiguousarray(self.get(name, lanes, np.uint32)).reshape(4, 8, 4)
            self.smem[index[:, n]] = held.view(np.uint8).reshape(4, 8, 16)

    # ---- barriers and copies --------------------------------------------------------------

    def _mbarrier(self, i: Instruction, lanes: Any) -> None:
        if "init" in i.parts:
            (at,) = set(self.shared(i.operands[0], lanes).tolist())
            self.barriers[at] = Barrier(i.operands[1], i.operands[1])
        elif "try_wait" in i.parts:
            p, memory, parity = i.operands
            at, phase = self.shared(memory, lanes), self.get(parity, lanes, np.uint32)
            done = [
                (self.barriers[int(a)].phase - 1) % 2 == int(f)
                for a, f in zip(at, phase, strict=False)
            ]
            if not all(done):  # come again when it is
                self.pc[lanes] -= 1
                bars = {(int(a), int(f)) for a, f in zip(at, phase, strict=False)}
                for t in lanes.tolist():
                    self.blocked[t] = lambda: all(
                        (self.barriers[a].phase - 1) % 2 == f for a, f in bars
                    )
                return
            self.put(p, lanes, np.ones(len(lanes), bool))
        else:
            assert "arrive" in i.parts
            memory = i.operands[1]
            for at in self.shared(memory, lanes).tolist():
                bar = self.barriers[at]
                bar.bytes += int(i.operands[2]) if "expect_tx" in i.parts else 0
                bar.pending -= 1
                bar.settle()

    def _cp(self, i: Instruction, lanes: Any) -> None:
        if {"mbarrier", "arrive"} <= {*i.parts}:
            for at in self.shared(i.operands[0], lanes).tolist():
                self.barriers[at].pending -= 1
                self.barriers[at].settle()
        elif "tensor" in i.parts:
            self._tensor(i, lanes)
        else:
            target, source, size, count = i.operands
            assert size == 16
            exist = self.get(count, lanes, np.uint32)
            starts = self.shared(target, lanes)
            where = self.get(source.base, lanes, np.uint64) + np.uint64(source.offset)
            index = starts[:, None] + np.arange(16)
            self.smem[index[exist == 0]] = 0
            some = exist == 16
            if some.any():
                held, at = self.memory.bytes_of(where[some], 16)
                self.smem[index[some]] = held[at]

    def _tensor(self, i: Instruction, lanes: Any) -> None:
        assert len(lanes) == 1
        if "prefetch" in i.parts:  # to L2
            return
        target, source, bar, *_policy = i.operands
        spec: Map = self.given[self.special[source.base]]
        x, y = (int(self.get(c, lanes, np.int32)[0]) for c in source.coordinates)
        size = spec.array.itemsize
        kind = np.dtype(f"u{size}")
        box = np.zeros((spec.box_rows, 128 // size), kind)
        rows, cols = spec.array.shape
        ys, xs = np.arange(y, y + spec.box_rows), np.arange(x, x + box.shape[1])
        fits = np.ix_((ys >= 0) & (ys < rows), (xs >= 0) & (xs < cols))
        box[fits] = spec.array.view(kind)[np.ix_(ys[(ys >= 0) & (ys < rows)],
                                                 xs[(xs >= 0) & (xs < cols)])]  # fmt: skip
        start = int(self.shared(target, lanes)[0])
        at = start + np.arange(spec.box_rows)[:, None] * 128 + np.arange(128)
        self.smem[swizzled(at)] = box.view(np.uint8)
        barrier = self.barriers[int(self.shared(bar, lanes)[0])]
        barrier.bytes -= box.nbytes
        barrier.settle()

    # ---- the matrix instruction -----------------------------------------------------------

    def _wgmma(self, i: Instruction, lanes: Any) -> None:
        if "mma_async" not in i.parts:
            return
        assert len(lanes) == GROUP
        shape = next(p for p in i.parts if p.startswith("m64n"))
        n = int(shape[4:].partition("k")[0])
        _, a, b, add, *_ = i.operands
        first = None if isinstance(a, Vector) else int(self.get(a, lanes, np.uint64)[0])
        second = int(self.get(b, lanes, np.uint64)[0])
        self._multiply(i, lanes, n, first, second, bool(self.registers[add][lanes].all()))

    def _multiply(
        self, i: Instruction, lanes: Any, n: int, first: int | None, second: int, keeps: bool
    ) -> None:
        """What the matrix instruction does; `first`, `second`: descriptors, None for registers."""
        target, a = i.operands[:2]
        transposed = int(i.operands[-1])
        left = self._fragment(a, lanes) if first is None else self._operand(first, 64, False)
        right = self._operand(second, n, bool(transposed))
        with np.errstate(all="ignore"):
            made = left.astype(np.float64) @ right.astype(np.float64).T
        rows = np.arange(64).reshape(4, 2, 8)  # warp, half, row
        for j in range(n // 8):
            part = made[:, 8 * j : 8 * j + 8][rows].reshape(4, 2, 8, 4, 2)
            for half in range(2):
                for e in range(2):
                    name = target.items[4 * j + 2 * half + e]
                    value = part[:, half, :, :, e].reshape(-1)
                    if keeps:
                        value = value + self.get(name, lanes, np.float32)
                    with np.errstate(all="ignore"):  # hidden keys may be anything
                        self.put(name, lanes, value.astype(np.float32))

    def _fragment(self, a: Vector, lanes: Any) -> Any:
        made = np.zeros((64, 16), np.float32)
        for index, name in enumerate(a.items):
            raw = np.ascontiguousarray(self.get(name, lanes, np.uint32)).view(BF16)
            block = raw.astype(np.float32).reshape(4, 8, 8)  # warp, row, column
            for warp in range(4):
                row = 16 * warp + 8 * (index % 2)
                made[row : row + 8, 8 * (index // 2) : 8 * (index // 2) + 8] = block[warp]
        return made

    def _operand(self, descriptor: int, rows: int, transposed: bool) -> Any:
        """[rows, 16] of an operand in SMEM under the 128-byte swizzle."""
        assert descriptor >> 62 == 1
        start = (descriptor & 0x3FFF) << 4
        leading = (descriptor >> 16 & 0x3FFF) << 4
        stride = (descriptor >> 32 & 0x3FFF) << 4
        m, k = np.arange(rows)[:, None], np.arange(16)[None]
        if transposed:
            at = start + m // 64 * leading + k // 8 * stride + k % 8 * 128 + m % 64 * 2
        else:
            at = start + m // 8 * stride + m % 8 * 128 + k * 2
        at = swizzled(at)
        return np.ascontiguousarray(self.smem[at[..., None] + np.arange(2)]).view(BF16)[..., 0]


def swizzled(at: Any) -> Any:
    return at ^ (at >> 7 & 7) << 4


def _mad(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def _fma(a: Any, b: Any, c: Any) -> Any:
    return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(np.float32)


TYPES: dict[str, Any] = {
    "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "f32": np.float32,
    "u64": np.uint64, "s64": np.int64, "b64": np.uint64,
}  # fmt: skip
COMPARISONS: dict[str, Any] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "neu": np.not_equal,
}  # fmt: skip
OPERATIONS: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "mad": _mad, "fma": _fma,
    "max": np.fmax, "min": np.fmin, "neg": np.negative, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "div": np.floor_divide, "rem": np.remainder,
    "shl": lambda a, b: a << b.astype(a.dtype), "shr": lambda a, b: a >> b.astype(a.dtype),
    "not": np.invert, "ex2": np.exp2, "lg2": np.log2, "rcp": np.reciprocal,
}  # fmt: skip
