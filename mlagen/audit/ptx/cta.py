"""One block, run symbolically along one path: its warps, mbarriers, named barriers, asynchronous
copies and shared memory.

Numbers are followed as far as addresses, counts and parities need them; data is not. Whether two
accesses are ordered is decided from what waits teach (see `shared`), so one interleaving speaks for
all of them; that arrivals are themselves ordered is a rule of its own (`mbarrier-order`,
`bar-order`), without which that would not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlagen.audit.ptx.agent import LANES, Agent, Sink, thread_set
from mlagen.audit.ptx.arithmetic import bits_of, evaluate, set_predicate
from mlagen.audit.ptx.barriers import Copy, Mbarrier, NamedBarrier, WgmmaOperation
from mlagen.audit.ptx.effects import Kind, names_in, wgmma_operands
from mlagen.audit.ptx.footprint import Descriptor, ranges
from mlagen.audit.ptx.graph import Graph
from mlagen.audit.ptx.paths import Path, Stuck
from mlagen.audit.ptx.report import Finding, Notes
from mlagen.audit.ptx.shared import CELL, Clash, Event, Knowledge, SharedMemory
from mlagen.audit.ptx.syntax import Entry, Instruction, Memory, Operand, Vector
from mlagen.audit.ptx.values import (
    GENERIC_SHARED,
    UNKNOWN,
    Compare,
    Lanes,
    Linear,
    Logic,
    Unknown,
    Value,
    add,
    is_number,
    key_of,
    logic,
    plain,
    scale,
    take,
    term,
)

# PTX ISA 9.0, mbarrier: "Valid Range of mbarrier object's expected arrival count 1 .. 2^20 - 1".
MAX_COUNT = (1 << 20) - 1
REGISTER_FILE = 65536  # 32-bit registers of an SM, compute capability 9.0
MAX_STEPS = 400_000

# Warp-wide instructions: all lanes of the warp must come to the same one.
_WARP_WIDE = {
    Kind.WGMMA,
    Kind.WGMMA_FENCE,
    Kind.WGMMA_COMMIT,
    Kind.WGMMA_WAIT,
    Kind.BARRIER,
    Kind.WARP_BARRIER,
    Kind.COLLECTIVE,
    Kind.REGISTERS,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run is told: the block, the boxes of tensor maps and when copies land."""

    threads: int
    shared_bytes: int  # static and dynamic; accesses beyond are out of bounds
    dynamic_base: int
    symbols: Mapping[str, int]  # shared variables
    boxes: Mapping[str, int]  # bytes of a tensor map's box
    late: bool = False  # copies land when nothing else can happen; else at once
    reverse: bool = False  # order in which warps get their turn
    solve: bool = False  # look for the boxes' bytes; no other checks
    cluster: bool = False  # other blocks take part


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells that lanes access, and the thread of each."""

    cells: Lanes
    threads: Lanes
    set: int  # the threads as a bit set
    whole: tuple[int, int]  # first byte and bytes up to the last


class Program:
    """An entry with what the runs need again and again."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.graph = Graph(entry)
        self.wgmma = {
            i: wgmma_operands(entry.instructions[i])
            for i, kind in enumerate(self.graph.kinds)
            if kind is Kind.WGMMA
        }
        relevant = self.graph.relevant
        count = len(entry.instructions)
        following = list(range(count + 1))
        for i in range(count - 1, -1, -1):
            plain_kind = self.graph.kinds[i] in (Kind.PLAIN, Kind.COLLECTIVE)
            if plain_kind and not relevant.intersection(self.graph.writes[i]):
                following[i] = following[i + 1]
        self.next = tuple(following)
        self.sizes = {p.name: p.size for p in entry.parameters}
        self.cells: dict[tuple[int, bytes, bytes], _Cells] = {}  # by size, addresses, threads
        self._quiet: dict[int, bool] = {}

    def way_out(self, branch: int) -> bool:
        """Whether taking a branch leaves the loop around it (False for other instructions)."""
        target = self.entry.instructions[branch].target
        return target >= 0 and not self.graph.comes_back(branch, target)

    def quiet(self, branch: int) -> bool:
        """Whether a branch decides nothing that the audit follows."""
        if branch not in self._quiet:
            from mlagen.audit.ptx.effects import PROTOCOL

            inside = self.graph.skipped(branch)
            self._quiet[branch] = not any(self.graph.kinds[i] in PROTOCOL for i in inside)
        return self._quiet[branch]


@dataclass(slots=True, eq=False)
class Blocked:
    """What an agent waits for."""

    what: str  # "mbarrier", "bar", "lanes", "wgmma", "registers", "cluster"
    instruction: Instruction
    target: Any = None
    value: int = 0


class Cta:
    """A run. `run()` follows all warps to their end, or to a deadlock, and tells `notes`."""

    def __init__(self, program: Program, setting: Setting, path: Path, notes: Notes) -> None:
        self.program, self.setting, self.path, self.notes = program, setting, path, notes
        self.instructions = program.entry.instructions
        self.kinds = program.graph.kinds
        self.events: list[Event] = []
        self.memory = SharedMemory(setting.shared_bytes, self.events)
        self.mbarriers: dict[int, Mbarrier] = {}
        self.bars: dict[int, NamedBarrier] = {}
        self.wgmma: dict[int, list[WgmmaOperation]] = {}
        self.loads: list[Event] = []
        self.registers: dict[int, int] = {}
        self.pool = 0
        self.register_trace: dict[int, list[int]] = {}
        self.equations: list[tuple[int, list[str]]] = []
        self.targets: dict[str, set[int]] = {}  # where copies through each box go
        self.finished: list[Agent] = []
        self.findings: list[Finding] = []
        self.steps = 0
        self.slots: dict[int, set[int]] = {}  # mbarriers that each wait was seen on
        warps = -(-setting.threads // LANES)
        self.agents = [
            Agent(w, np.arange(w * LANES, min((w + 1) * LANES, setting.threads)))
            for w in range(warps)
        ]
        self._handlers: dict[Kind, Callable[[Agent, Instruction, Lanes], None]] = {
            Kind.SHARED_LOAD: self._load,
            Kind.SHARED_STORE: self._store,
            Kind.GENERIC_LOAD: self._load,
            Kind.GENERIC_STORE: self._store,
            Kind.MBARRIER_INIT: self._init,
            Kind.MBARRIER_INVALIDATE: self._invalidate,
            Kind.MBARRIER_ARRIVE: self._arrive,
            Kind.MBARRIER_EXPECT: self._expect,
            Kind.MBARRIER_COMPLETE: self._complete_tx,
            Kind.BULK_LOAD: self._bulk_load,
            Kind.BULK_STORE: self._bulk_store,
            Kind.BULK_COMMIT: self._bulk_commit,
            Kind.BULK_WAIT: self._bulk_wait,
            Kind.ASYNC_COPY: self._async_copy,
            Kind.ASYNC_COMMIT: self._async_commit,
            Kind.ASYNC_WAIT: self._async_wait,
            Kind.ASYNC_ARRIVE: self._async_arrive,
            Kind.PROXY_FENCE: self._fence,
            Kind.INIT_FENCE: self._init_fence,
            Kind.WARP_BARRIER: self._warp_barrier,
            Kind.WGMMA: self._wgmma,
            Kind.WGMMA_COMMIT: self._wgmma_commit,
            Kind.COLLECTIVE: self._collective,
            Kind.OPAQUE: self._opaque,
        }

    # -- the run ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Follows the path to its end."""
        while self.agents:
            moved = False
            for agent in sorted(self.agents, key=self._turn):
                if agent in self.agents:
                    moved |= self._advance(agent)
            if not moved and not self._land():
                self._stuck()
                return
        self._finish()

    def _turn(self, agent: Agent) -> tuple[int, int]:
        first = int(agent.threads[0])
        return (-agent.warp, first) if self.setting.reverse else (agent.warp, first)

    def _advance(self, agent: Agent) -> bool:
        """Runs an agent until it blocks; whether it moved."""
        if agent.blocked is not None and not self._wake(agent):
            return False
        moved = False
        while agent.blocked is None and not agent.exited and agent in self.agents:
            before = agent.pc
            self._step(agent)
            moved |= agent.blocked is None or agent.pc != before or agent.exited
        return moved

    def _step(self, agent: Agent) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise Stuck
        pc = agent.pc = self.program.next[agent.pc]
        if pc >= len(self.instructions):
            self._exit(agent)
            return
        instruction, kind = self.instructions[pc], self.kinds[pc]
        if kind in _WARP_WIDE or instruction.name in ("ldmatrix", "stmatrix"):
            met = self._meet(agent, instruction)
            if met is None:
                return
            agent = met
        if kind is Kind.BRANCH:
            self._branch(agent, instruction)
            return
        if kind is Kind.PLAIN:
            self._compute(agent, instruction)
            agent.pc = pc + 1
            return
        lanes = self._active(agent, instruction)
        if lanes is None:
            return  # split; the parts go on by themselves
        if not lanes.size:
            agent.pc = pc + 1
            return
        if kind in (Kind.EXIT, Kind.TRAP):
            self._exit(agent)
        elif kind is Kind.MBARRIER_WAIT:
            self._wait(agent, instruction)
        elif kind is Kind.BARRIER:
            self._bar(agent, instruction)
        elif kind in (Kind.CLUSTER_ARRIVE, Kind.CLUSTER_WAIT):
            self._cluster(agent, instruction, kind)
        elif kind is Kind.WGMMA_WAIT:
            self._wgmma_wait(agent, instruction)
        elif kind is Kind.REGISTERS:
            self._setmaxnreg(agent, instruction)
        else:
            if kind is not Kind.COLLECTIVE:
                agent.failed = -1
            handler = self._handlers.get(kind)
            if handler:
                handler(agent, instruction, lanes)
            agent.pc = pc + 1

    def _exit(self, agent: Agent) -> None:
        for event in agent.bulk.all():
            self._tell(
                "bulk-unwaited",
                agent,
                event.instruction,
                "the thread ends while its bulk store may still read shared memory",
                needs="cp.async.bulk.wait_group.read 0 before the end",
            )
        agent.exited = True
        self.agents.remove(agent)
        self.finished.append(agent)

    def _wake(self, agent: Agent) -> bool:
        """Whether a blocked agent can go on (mbarriers and named barriers wake by themselves)."""
        blocked: Blocked = agent.blocked
        if blocked.what == "lanes":
            return self._meet(agent, blocked.instruction) is not None
        if blocked.what == "wgmma" and all(op.warps == 15 for op in blocked.target):
            agent.blocked = None
            return True
        if blocked.what == "registers" and blocked.value <= self.pool:
            agent.blocked = None
            return True
        return False

    # -- lanes -----------------------------------------------------------------------------------

    def _split(self, agent: Agent, mask: Lanes) -> tuple[Agent, Agent]:
        yes, no = agent.part(np.flatnonzero(mask)), agent.part(np.flatnonzero(~mask))
        at = self.agents.index(agent)
        self.agents[at : at + 1] = [yes, no]
        return yes, no

    def _meet(self, agent: Agent, instruction: Instruction) -> Agent | None:
        """The agent of all live lanes of the warp that a warp-wide instruction names, once they
        are here; None until then."""
        if len(agent.threads) == LANES:
            agent.blocked = None
            return agent
        mates = [a for a in self.agents if a.warp == agent.warp]
        mask = self._member_mask(agent, instruction)
        needed = [a for a in mates if thread_set(a.threads % LANES) & mask]
        here = [
            a
            for a in needed
            if a is agent or (a.blocked and a.blocked.what == "lanes" and a.pc == agent.pc)
        ]
        if len(here) < len(needed):
            agent.blocked = Blocked("lanes", instruction)
            return None
        if len(here) == 1:
            agent.blocked = None
            return agent
        merged = Agent.merge(here)
        at = self.agents.index(here[0])
        for a in here:
            self.agents.remove(a)
        self.agents.insert(at, merged)
        return merged

    def _member_mask(self, agent: Agent, instruction: Instruction) -> int:
        full = (1 << LANES) - 1
        if self.kinds[instruction.index] in (Kind.COLLECTIVE, Kind.WARP_BARRIER):
            mask = plain(self._value(agent, instruction.operands[-1]))
            if isinstance(mask, int):
                return mask & full or full
        return full

    def _active(self, agent: Agent, instruction: Instruction) -> Lanes | None:
        """Indices of the lanes whose guard holds; None if the agent was split over it."""
        everyone = np.arange(len(agent.threads))
        if instruction.guard is None:
            return everyone
        value = self._predicate(agent, instruction)
        if isinstance(value, int):
            return everyone if value else everyone[:0]
        kind = self.kinds[instruction.index]
        blocking = (Kind.MBARRIER_WAIT, Kind.BARRIER, Kind.EXIT, Kind.TRAP, Kind.WGMMA_WAIT)
        if kind in blocking or kind in _WARP_WIDE:
            self._split(agent, value != 0)
            return None
        return np.flatnonzero(value)

    def _predicate(self, agent: Agent, instruction: Instruction) -> int | Lanes:
        """The guard, for each lane or for all; unknown ones are decided."""
        guard = instruction.guard
        assert guard is not None
        value = agent.registers.get(guard.register, UNKNOWN)
        if isinstance(value, (Compare, Logic)):
            value = self._decide(value)
        if isinstance(value, (Unknown, Linear)):
            kind = self.kinds[instruction.index]
            if kind in (Kind.SHARED_LOAD, Kind.SHARED_STORE, Kind.ASYNC_COPY):
                return 1  # whether data moves changes no wait; taken to move
            return int(self._guess(agent, instruction))
        assert is_number(value)
        if guard.negated:
            value = 1 - value  # type: ignore[operator]
        return plain(value)  # type: ignore[return-value]

    def _decide(self, value: Value) -> Value:
        """A predicate with its unknown sizes decided; UNKNOWN where data decides."""
        if isinstance(value, Compare):
            if isinstance(value.value.constant, np.ndarray):
                self.path.leave_open(value.value.terms)
                return UNKNOWN
            return int(self.path.decide(value))
        if isinstance(value, Logic):
            return logic(value.op, *(self._decide(arg) for arg in value.args))
        return value

    def _guess(self, agent: Agent, instruction: Instruction) -> bool:
        self.notes.gap(
            f"line {instruction.line}: `{instruction.text}` depends on data; both ways were tried"
            " for the first two times, all warps alike"
        )
        seen = agent.guesses.get(instruction.index, 0)
        agent.guesses[instruction.index] = seen + 1
        way_out = self.program.way_out(instruction.index)
        return self.path.guess(instruction.index, seen, way_out)

    # -- values ----------------------------------------------------------------------------------

    def _value(self, agent: Agent, operand: Operand) -> Value:
        if isinstance(operand, int):
            return operand
        if isinstance(operand, str):
            if operand.startswith("!"):
                return evaluate(("not", "pred"), [self._value(agent, operand[1:])])
            found = agent.registers.get(operand)
            if found is not None:
                return found
            return self._named(agent, operand)
        if isinstance(operand, Memory):
            return self._address(agent, operand)
        return UNKNOWN

    def _named(self, agent: Agent, name: str) -> Value:
        """A symbol or special register."""
        if name in self.setting.symbols:
            return self.setting.symbols[name]
        if name in self.program.sizes:
            return self._unknown("parameter", name)
        if name.startswith("%"):
            return self._special(agent, name)
        if name in ("WARP_SZ",):
            return LANES
        return UNKNOWN if name.isdigit() or "@" in name else self._unknown("symbol", name)

    def _unknown(self, *name: Any) -> Value:
        """A value with a name, unless the path gives it a number."""
        return self.path.fixed[name] if name in self.path.fixed else term(*name)

    def _special(self, agent: Agent, name: str) -> Value:
        block = (*self.program.entry.block, 1, 1, 1)[:3]
        if not self.program.entry.block:
            block = (self.setting.threads, 1, 1)
        register, _, axis = name.partition(".")
        if register == "%tid":
            x, y, _ = block
            by_axis = {
                "x": agent.threads % x,
                "y": agent.threads // x % y,
                "z": agent.threads // (x * y),
            }
            return plain(by_axis[axis].astype(np.int64)) if axis in by_axis else UNKNOWN
        if register == "%ntid":
            return dict(zip("xyz", block, strict=True)).get(axis, UNKNOWN)
        if register == "%laneid":
            return plain((agent.threads % LANES).astype(np.int64))
        if register == "%warpid":
            return agent.warp
        if register in ("%cluster_ctarank", "%cluster_ctaid") and not self.setting.cluster:
            return 0
        if register in ("%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_ctarank",
                        "%cluster_nctarank", "%cluster_ctaid", "%cluster_nctaid", "%smid",
                        "%nsmid", "%dynamic_smem_size", "%total_smem_size"):  # fmt: skip
            return self._unknown("special", name.lstrip("%"))
        return UNKNOWN

    def _address(self, agent: Agent, memory: Memory) -> Value:
        base: Value = self._value(agent, memory.base) if memory.base else 0
        return add(base, memory.offset)

    def _shared_address(self, agent: Agent, memory: Memory, lanes: Lanes) -> int | Lanes | None:
        """Byte address in the block's shared memory of each active lane; None: not known, or
        elsewhere."""
        value = take(self._address(agent, memory), lanes)
        if not is_number(value):
            if isinstance(value, Linear):
                self.path.leave_open(value.terms)
            return None
        if np.all(np.asarray(value) >= GENERIC_SHARED):
            value = value - GENERIC_SHARED  # type: ignore[operator]
        return value  # type: ignore[return-value]

    def _compute(self, agent: Agent, instruction: Instruction) -> None:
        results = self.program.graph.writes[instruction.index]
        if not results:
            return
        values = self._results(agent, instruction, len(results))
        lanes: int | Lanes = 1
        if instruction.guard:
            guard = agent.registers.get(instruction.guard.register, UNKNOWN)
            if isinstance(guard, (Compare, Logic)):
                guard = self._decide(guard)
            if not is_number(guard):
                values = [UNKNOWN] * len(results)
            else:
                lanes = plain(1 - guard if instruction.guard.negated else guard)  # type: ignore[assignment,operator]
        if isinstance(lanes, int) and not lanes:
            return
        for name, value in zip(results, values, strict=True):
            if isinstance(value, Logic) and _by_lane(value):
                # A size and a lane's number in one predicate: lanes that part keep the decision.
                value = self._decide(value)
            if isinstance(lanes, np.ndarray):
                old = agent.registers.get(name, UNKNOWN)
                known = is_number(old) and is_number(value)
                value = plain(np.where(lanes != 0, value, old)) if known else UNKNOWN  # type: ignore[arg-type]
            agent.registers[name] = plain(value)

    def _results(self, agent: Agent, instruction: Instruction, count: int) -> list[Value]:
        name, parts, operands = instruction.name, instruction.parts, instruction.operands
        if name == "ld":
            return self._loaded(agent, instruction, count)
        if name == "setp":
            found = set_predicate(parts, [self._value(agent, x) for x in operands[1:]])
            return [found, evaluate(("not", "pred"), [found])][:count]
        if name == "mov" and isinstance(operands[0], Vector):
            width = bits_of(parts)[1] // len(operands[0].items)
            whole = self._value(agent, operands[1])
            mask = (1 << width) - 1
            return [
                (whole >> (at * width)) & mask  # type: ignore[operator]
                if is_number(whole)
                else UNKNOWN
                for at, item in enumerate(operands[0].items)
                if item != "_"
            ]
        if name == "mov" and isinstance(operands[1], Vector):
            width = bits_of(parts)[1] // len(operands[1].items)
            total: Value = 0
            for at, part in enumerate(operands[1].items):
                piece = self._value(agent, part)
                if not is_number(piece):
                    return [UNKNOWN]
                low = piece & ((1 << width) - 1)  # type: ignore[operator]
                total = add(total, scale(low, 1 << (at * width)))
            return [total]
        if name in ("atom", "mapa", "createpolicy", "activemask", "isspacep", "getctarank"):
            return [UNKNOWN] * count
        args = [self._value(agent, x) for x in operands[1:]]
        if name == "selp" and isinstance(args[2], (Compare, Logic)):
            args[2] = self._decide(args[2])
        try:
            return [evaluate(parts, args)] + [UNKNOWN] * (count - 1)
        except (OverflowError, TypeError):
            return [UNKNOWN] * count

    def _loaded(self, agent: Agent, instruction: Instruction, count: int) -> list[Value]:
        """Parameters and constant global memory have names; other data is unknown."""
        parts, memory = instruction.parts, instruction.operands[1]
        if not isinstance(memory, Memory):
            return [UNKNOWN] * count
        size = bits_of(parts)[1] // 8
        spaces = {part.partition("::")[0] for part in parts}
        if "param" in spaces and memory.base in self.program.sizes:
            return [
                self._unknown("param", memory.base, memory.offset + i * size)
                if memory.offset or count > 1
                else self._unknown("param", memory.base)
                for i in range(count)
            ]
        fixed = not {"volatile", "relaxed", "acquire", "mmio"} & spaces
        address = self._address(agent, memory)
        if fixed and {"global", "const"} & spaces and isinstance(plain(address), Linear):
            constant = address.constant if isinstance(address, Linear) else None
            if isinstance(constant, int):
                return [self._unknown("global", key_of(address), i) for i in range(count)]
        return [UNKNOWN] * count

    # -- control ---------------------------------------------------------------------------------

    def _branch(self, agent: Agent, instruction: Instruction) -> None:
        if instruction.guard is None:
            agent.pc = instruction.target
            return
        value: Value = agent.registers.get(instruction.guard.register, UNKNOWN)
        if isinstance(value, (Compare, Logic)):
            value = UNKNOWN if self.program.quiet(instruction.index) else self._decide(value)
        if not is_number(value):
            if self.program.quiet(instruction.index):
                self._skip(agent, instruction)
                return
            taken = self._guess(agent, instruction)
            agent.pc = instruction.target if taken else instruction.index + 1
            return
        if instruction.guard.negated:
            value = 1 - value  # type: ignore[operator]
        value = plain(value)
        if isinstance(value, np.ndarray):
            yes, no = self._split(agent, value != 0)
            yes.pc, no.pc = instruction.target, instruction.index + 1
            return
        agent.pc = instruction.target if value else instruction.index + 1

    def _skip(self, agent: Agent, instruction: Instruction) -> None:
        """Goes to where both ways of a branch meet; what either computes is unknown there."""
        graph = self.program.graph
        for node in graph.skipped(instruction.index):
            for name in graph.writes[node]:
                agent.registers[name] = UNKNOWN
        agent.pc = graph.post_dominator[instruction.index]

    # -- telling ---------------------------------------------------------------------------------

    def _tell(
        self,
        rule: str,
        agent: Agent | None,
        instruction: Instruction,
        message: str,
        *,
        other: Instruction | None = None,
        needs: str = "",
    ) -> None:
        if self.setting.solve:
            return
        self.findings.append(
            Finding(
                rule=rule,
                function=self.program.entry.name,
                line=instruction.line,
                text=instruction.text,
                message=message,
                other_line=other.line if other else 0,
                other_text=other.text if other else "",
                needs=needs,
                who=agent.who if agent else "",
            )
        )

    def _event(
        self, instruction: Instruction, what: str, threads: int = 0, *, generic: bool = False
    ) -> Event:
        event = Event(len(self.events), instruction, what, threads, generic)
        self.events.append(event)
        return event

    def _clashes(
        self, agent: Agent, instruction: Instruction, what: str, found: list[Clash]
    ) -> None:
        for clash in found:
            earlier = clash.earlier
            at = f"shared memory at {clash.address:#x}"
            if clash.kind == "smem-raw":
                message = f"{what} reads {at}, which {earlier.what} may still be writing"
                needs = "a wait for it before this read"
            elif clash.kind == "smem-war":
                message = f"{what} overwrites {at}, which {earlier.what} may still be reading"
                needs = "a release by the readers, and a wait for it, before this write"
            elif clash.kind == "smem-waw":
                message = f"{what} overwrites {at}, which {earlier.what} may still be writing"
                needs = "an order between the two writes"
            else:
                message = f"{what} accesses {at}, written by {earlier.what} without a proxy fence"
                needs = "fence.proxy.async between the write and the synchronisation"
            self._tell(
                clash.kind, agent, instruction, message, other=earlier.instruction, needs=needs
            )

    def _gap_address(self, instruction: Instruction) -> None:
        self.notes.gap(
            f"line {instruction.line}: the shared-memory address of `{instruction.text}` is not"
            " known, so this access is checked against none"
        )

    def _inside(self, agent: Agent, instruction: Instruction, start: int, size: int) -> bool:
        if start >= 0 and start + size <= self.setting.shared_bytes:
            return True
        self._tell(
            "smem-bounds",
            agent,
            instruction,
            f"bytes {start:#x}..{start + size - 1:#x} are outside the block's"
            f" {self.setting.shared_bytes} bytes of shared memory",
        )
        return False

    # -- ordinary accesses -----------------------------------------------------------------------

    def _cells(
        self, agent: Agent, instruction: Instruction, lanes: Lanes, memory: Memory, size: int
    ) -> _Cells | None:
        """What `size` bytes at every lane's address are; None where that is not known."""
        kind = self.kinds[instruction.index]
        address = self._shared_address(agent, memory, lanes)
        if address is None:
            if kind in (Kind.SHARED_LOAD, Kind.SHARED_STORE, Kind.ASYNC_COPY):
                self._gap_address(instruction)
            return None
        starts = np.broadcast_to(np.asarray(address), lanes.shape)
        if kind in (Kind.GENERIC_LOAD, Kind.GENERIC_STORE):
            raw = self._address(agent, memory)
            if not (is_number(raw) and np.all(np.asarray(raw) >= GENERIC_SHARED)):
                return None
        key = (size, starts.tobytes(), agent.threads[lanes].tobytes())
        found = self.program.cells.get(key)
        if found is None:
            span = np.arange(max(-(-size // CELL), 1))
            cells = (starts[:, None] // CELL + span[None, :]).ravel()
            threads = np.repeat(agent.threads[lanes], len(span))
            whole = int(starts.min()), int(starts.max() - starts.min()) + size
            found = _Cells(cells, threads, thread_set(agent.threads[lanes]), whole)
            self.program.cells[key] = found
        return found if self._inside(agent, instruction, *found.whole) else None

    def _width(self, instruction: Instruction) -> int:
        vector = next((int(p[1:]) for p in instruction.parts if p in ("v2", "v4", "v8")), 1)
        return vector * max(bits_of(instruction.parts)[1] // 8, 1)

    def _rows(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> Lanes:
        """Lanes whose addresses ldmatrix / stmatrix use: 8 for each matrix."""
        count = next((int(p[1:]) for p in instruction.parts if p in ("x1", "x2", "x4")), 1)
        return lanes[agent.threads[lanes] % LANES < 8 * count]

    def _load(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        for name in self.program.graph.writes[instruction.index]:
            agent.registers[name] = UNKNOWN
        memory = instruction.operands[1]
        matrix = instruction.name == "ldmatrix"
        if not isinstance(memory, Memory):
            return
        if matrix:
            lanes = self._rows(agent, instruction, lanes)
        found = self._cells(
            agent, instruction, lanes, memory, 16 if matrix else self._width(instruction)
        )
        if found is None:
            return
        threads = found.set
        event = self._event(instruction, f"the {instruction.name} of {agent.who}", threads)
        clashes = self.memory.read_cells(
            found.cells, found.threads, event, agent.knowledge(threads)
        )
        agent.own[event.number] = True
        self._clashes(agent, instruction, instruction.name, clashes)

    def _store(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        memory = instruction.operands[0]
        matrix = instruction.name == "stmatrix"
        if not isinstance(memory, Memory):
            return
        if matrix:
            lanes = self._rows(agent, instruction, lanes)
        found = self._cells(
            agent, instruction, lanes, memory, 16 if matrix else self._width(instruction)
        )
        if found is None:
            return
        threads = found.set
        event = self._event(
            instruction, f"the {instruction.name} of {agent.who}", threads, generic=True
        )
        clashes = self.memory.write_cells(
            found.cells, found.threads, event, agent.knowledge(threads)
        )
        agent.own[event.number] = False
        self._clashes(agent, instruction, instruction.name, clashes)

    def _opaque(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        for name in self.program.graph.writes[instruction.index]:
            agent.registers[name] = UNKNOWN
        self.notes.gap(
            f"line {instruction.line}: `{instruction.opcode}` (shared-memory atomics and other"
            " blocks' shared memory) is not modelled"
        )

    # -- cp.async --------------------------------------------------------------------------------

    def _async_copy(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        target, size = instruction.operands[0], instruction.operands[2]
        if not isinstance(target, Memory) or not isinstance(size, int):
            return
        found = self._cells(agent, instruction, lanes, target, size)
        if found is None:
            return
        threads = found.set
        event = self._event(instruction, f"the cp.async of {agent.who}", threads, generic=True)
        self._clashes(
            agent,
            instruction,
            "cp.async",
            self.memory.write_cells(found.cells, found.threads, event, agent.knowledge(threads)),
        )
        agent.cp_async.open.append(event)
        self.loads.append(event)

    def _async_commit(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        agent.cp_async.commit()

    def _async_wait(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        if "wait_all" in instruction.parts:
            agent.cp_async.commit()
            pending: Value = 0
        else:
            pending = self._value(agent, instruction.operands[0])
        for event in agent.cp_async.wait(pending if isinstance(pending, int) else 0):
            agent.own[event.number] = False

    def _async_arrive(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        for bar, subset in self._mbarriers(agent, instruction, instruction.operands[0], lanes):
            threads = thread_set(agent.threads[subset])
            for event in agent.cp_async.all():
                bar.sink.done[event.number] = bar.sink.done.get(event.number, 0) | threads
            knows = agent.knowledge(threads)
            bar.sink.over |= knows.over
            bar.sink.fenced |= knows.fenced
            if "noinc" in instruction.parts:
                self._arrivals(agent, instruction, bar, len(subset), threads, pass_on=False)

    # -- mbarriers -------------------------------------------------------------------------------

    def _mbarriers(
        self, agent: Agent, instruction: Instruction, operand: Operand, lanes: Lanes
    ) -> list[tuple[Mbarrier, Lanes]]:
        """The mbarriers an operand names, each with the lanes that name it."""
        if not isinstance(operand, Memory):
            return []
        address = self._shared_address(agent, operand, lanes)
        if address is None:
            self.notes.gap(
                f"line {instruction.line}: the mbarrier of `{instruction.text}` is not known"
            )
            return []
        starts = np.broadcast_to(np.asarray(address), lanes.shape)
        found = []
        for start in dict.fromkeys(starts.tolist()):
            bar = self._known_mbarrier(agent, instruction, start, lanes[starts == start])
            if bar:
                found.append((bar, lanes[starts == start]))
        return found

    def _known_mbarrier(
        self, agent: Agent, instruction: Instruction, address: int, lanes: Lanes
    ) -> Mbarrier | None:
        bar = self.mbarriers.get(address)
        if bar is None:
            self._tell(
                "mbarrier-uninitialised",
                agent,
                instruction,
                f"no mbarrier was initialised at {address:#x}",
                needs="mbarrier.init before",
            )
            return None
        knows = agent.knowledge(thread_set(agent.threads[lanes]))
        number = bar.init.number
        mine = number in knows.own and bar.init.threads == thread_set(agent.threads[lanes])
        if not (knows.over >> number & 1 or mine):
            self._tell(
                "mbarrier-visible",
                agent,
                instruction,
                f"the mbarrier at {address:#x} is used without a synchronisation after its"
                " initialisation",
                other=bar.init.instruction,
                needs="a barrier of the block after mbarrier.init",
            )
        return bar

    def _init(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        memory, count = instruction.operands[0], self._value(agent, instruction.operands[1])
        if not isinstance(memory, Memory):
            return
        address = self._shared_address(agent, memory, lanes)
        if address is None or not isinstance(count, int):
            self.notes.gap(
                f"line {instruction.line}: address or count of mbarrier.init is not known"
            )
            return
        starts = np.broadcast_to(np.asarray(address), lanes.shape).tolist()
        for start, thread in zip(starts, agent.threads[lanes].tolist(), strict=True):
            if not 1 <= count <= MAX_COUNT or start % 8:
                self._tell(
                    "mbarrier-count",
                    agent,
                    instruction,
                    f"count {count} at {start:#x}: counts are 1..{MAX_COUNT}, addresses multiples"
                    " of 8",
                )
                count = max(count, 1)
            if not self._inside(agent, instruction, start, 8):
                continue
            event = self._event(instruction, "mbarrier.init", 1 << thread, generic=True)
            agent.own[event.number] = False
            cells = np.array([start // CELL, start // CELL + 1])
            clashes = self.memory.write_cells(
                cells, np.array([thread, thread]), event, agent.knowledge(1 << thread)
            )
            self._clashes(agent, instruction, "mbarrier.init", clashes)
            self.mbarriers[start] = Mbarrier(start, count, event, count)

    def _invalidate(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        for bar, _ in self._mbarriers(agent, instruction, instruction.operands[0], lanes):
            self.mbarriers.pop(bar.address, None)

    def _arrive(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        operands = list(instruction.operands)
        state = None
        if not isinstance(operands[0], Memory):
            state = next(names_in(operands.pop(0)), None)
        count: Value = 1
        expects: Value = 0
        if "expect_tx" in instruction.parts:
            expects = self._value(agent, operands[1])
        elif len(operands) > 1:
            count = self._value(agent, operands[1])
        if not isinstance(count, int) or not isinstance(expects, int):
            self.notes.gap(f"line {instruction.line}: count or bytes of the arrival are not known")
            count = count if isinstance(count, int) else 1
            expects = expects if isinstance(expects, int) else 0
        for bar, subset in self._mbarriers(agent, instruction, operands[0], lanes):
            if state:
                agent.registers[state] = bar.phase & 1
            if "expect_tx" in instruction.parts:
                bar.expected += expects * len(subset)
                bar.expects.append(instruction)
            threads = thread_set(agent.threads[subset])
            if "drop" in instruction.opcode:
                bar.count = max(bar.count - len(subset), 0)
            self._arrivals(agent, instruction, bar, count * len(subset), threads)

    def _arrivals(
        self,
        agent: Agent,
        instruction: Instruction,
        bar: Mbarrier,
        number: int,
        threads: int,
        *,
        pass_on: bool = True,
    ) -> None:
        """`number` arrivals; those beyond a phase's count go to the next one."""
        if pass_on:
            agent.release(bar.sink, threads)
        while number:
            self._ordered(agent, instruction, bar, threads)
            if not bar.pending:
                self._tell(
                    "mbarrier-arrivals",
                    agent,
                    instruction,
                    f"an arrival on a phase that has all its {bar.count} arrivals"
                    f" (mbarrier at {bar.address:#x})",
                    other=bar.init.instruction,
                    needs=f"{bar.count} arrivals a phase, or another count at initialisation",
                )
                return
            taken = min(number, bar.pending)
            bar.pending -= taken
            number -= taken
            bar.arrivals.append(instruction)
            self._try_complete(bar)

    def _ordered(self, agent: Agent, instruction: Instruction, bar: Mbarrier, threads: int) -> None:
        if bar.completion is None:
            return
        if agent.knowledge(threads).over >> bar.completion.number & 1:
            return
        self._tell(
            "mbarrier-order",
            agent,
            instruction,
            f"this arrival on the mbarrier at {bar.address:#x} may fall into the phase before:"
            " nothing tells this thread that it has completed",
            other=bar.completion.instruction,
            needs=f"a wait between; {bar.count} arrivals complete a phase",
        )

    def _expect(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        size = self._value(agent, instruction.operands[1])
        if not isinstance(size, int):
            self.notes.gap(f"line {instruction.line}: the expected bytes are not known")
            return
        for bar, subset in self._mbarriers(agent, instruction, instruction.operands[0], lanes):
            self._ordered(agent, instruction, bar, thread_set(agent.threads[subset]))
            bar.expected += size * len(subset)
            bar.expects.append(instruction)

    def _complete_tx(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        size = self._value(agent, instruction.operands[1])
        for bar, subset in self._mbarriers(agent, instruction, instruction.operands[0], lanes):
            if isinstance(size, int):
                bar.landed += size * len(subset)
                self._try_complete(bar)

    def _try_complete(self, bar: Mbarrier) -> None:
        if not bar.full() or (self.setting.solve and any(not c.landed for c in bar.copies)):
            return
        over, fenced = bar.sink.settle(self.events)
        last = (bar.arrivals or [bar.init.instruction])[-1]
        for event, wait in bar.observers:
            if not over >> event.number & 1:
                self._tell(
                    "mbarrier-overrun",
                    None,
                    last,
                    f"the mbarrier at {bar.address:#x} completes again before a waiter is known"
                    " to have seen the phase before; its parity will look unchanged",
                    other=wait,
                    needs="an arrival after that wait, in this phase",
                )
        bar.completion = self._event(last, "the completion of a phase")
        for copy in bar.copies:
            if copy.landed:
                over |= copy.event.bit
        bar.copies = [copy for copy in bar.copies if not copy.landed]
        bar.over = over | bar.completion.bit
        bar.fenced = fenced
        bar.observers = []
        bar.sink = Sink(over, fenced)
        bar.phase += 1
        bar.pending, bar.expected, bar.landed = bar.count, 0, 0
        bar.expects, bar.arrivals = [], []
        for agent in self.agents:
            blocked = agent.blocked
            if blocked and blocked.what == "mbarrier" and blocked.target is bar:
                self._passed(agent, blocked.instruction, bar, blocked.value)

    def _wait(self, agent: Agent, instruction: Instruction) -> None:
        result, memory, parity = instruction.operands[0], *instruction.operands[1:3]
        lanes = np.arange(len(agent.threads))
        name = next(names_in(result))
        value = plain(self._value(agent, parity))
        address = self._shared_address(agent, memory, lanes) if isinstance(memory, Memory) else None
        address = plain(address) if address is not None else None  # type: ignore[assignment]
        varying = next((x for x in (address, value) if isinstance(x, np.ndarray)), None)
        if varying is not None:
            self._split(agent, varying == varying[0])
            return
        if not isinstance(value, int) or not isinstance(address, int):
            self.notes.gap(
                f"line {instruction.line}: mbarrier or parity of `{instruction.text}` is not known;"
                " the wait is taken to pass and to order nothing"
            )
            agent.registers[name] = 1
            agent.pc += 1
            return
        bar = self._known_mbarrier(agent, instruction, address, lanes)
        self.slots.setdefault(instruction.index, set()).add(address)
        if bar is None:
            agent.registers[name] = 1
            agent.pc += 1
            return
        if agent.failed != instruction.index and (self.setting.late or not bar.passed(value)):
            # try_wait may give up: the loop around it must come back.
            agent.failed = instruction.index
            agent.registers[name] = 0
            agent.pc += 1
            return
        if not self._passed(agent, instruction, bar, value):
            agent.blocked = Blocked("mbarrier", instruction, bar, value)

    def _passed(self, agent: Agent, instruction: Instruction, bar: Mbarrier, parity: int) -> bool:
        """Lets an agent through if the phase it waits for is complete."""
        if not bar.passed(parity):
            return False
        event = self._event(instruction, "the wait")
        agent.learn(bar.over | event.bit, bar.fenced)
        if bar.phase:
            bar.observers.append((event, instruction))
        agent.registers[next(names_in(instruction.operands[0]))] = 1
        agent.failed = -1
        agent.blocked = None
        agent.pc = instruction.index + 1
        return True

    # -- bulk copies -----------------------------------------------------------------------------

    def _bulk_load(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        operands = instruction.operands
        target, source = operands[0], operands[1]
        if not isinstance(target, Memory) or not isinstance(source, Memory):
            return
        tensor = "tensor" in instruction.parts
        barrier = operands[2] if tensor else operands[3]
        for lane in lanes:
            one = np.array([lane])
            thread = int(agent.threads[lane])
            found = self._mbarriers(agent, instruction, barrier, one)
            name, size = self._copy_size(agent, instruction, source, operands, one, tensor)
            event = self._event(instruction, f"the copy at line {instruction.line}")
            self.loads.append(event)
            address = self._shared_address(agent, target, one)
            start = int(np.asarray(address).ravel()[0]) if address is not None else None
            knows = agent.knowledge(1 << thread, thread)
            if start is None:
                self._gap_address(instruction)
            elif size and self._inside(agent, instruction, start, size):
                self._aligned(agent, instruction, start, 128 if tensor else 16)
                clashes = self.memory.write_range(start, size, event, knows)
                self._clashes(agent, instruction, "the copy", clashes)
            if start is not None and name:
                self.targets.setdefault(name, set()).add(start)
            for bar, _ in found:
                number = bar.init.number
                own = number in knows.own
                if not (knows.fenced >> number & 1 or (own and knows.own[number])):
                    self._tell(
                        "mbarrier-visible",
                        agent,
                        instruction,
                        f"the copy completes on the mbarrier at {bar.address:#x}, whose"
                        " initialisation was not fenced for asynchronous accesses",
                        other=bar.init.instruction,
                        needs="fence.mbarrier_init or fence.proxy.async after mbarrier.init",
                    )
                copy = Copy(event, size or 0, name)
                bar.copies.append(copy)
                if not self.setting.late and not self.setting.solve:
                    self._land_one(bar, copy)

    def _aligned(self, agent: Agent, instruction: Instruction, start: int, align: int) -> None:
        if start % align:
            self._tell(
                "smem-alignment",
                agent,
                instruction,
                f"shared-memory address {start:#x} is no multiple of {align}",
                needs=f"{align}-byte alignment",
            )

    def _copy_size(
        self,
        agent: Agent,
        instruction: Instruction,
        source: Memory,
        operands: tuple[Operand, ...],
        lanes: Lanes,
        tensor: bool,
    ) -> tuple[str, int | None]:
        """The box's name and the bytes of a copy; None where they are not known."""
        if tensor:
            name = box_name(self._address(agent, source), source)
            return name, self.setting.boxes.get(name)
        size = take(self._value(agent, operands[2]), lanes)
        if isinstance(size, int):
            return "", size
        self.notes.gap(f"line {instruction.line}: the size of the bulk copy is not known")
        return f"line {instruction.line}", self.setting.boxes.get(f"line {instruction.line}")

    def _land_one(self, bar: Mbarrier, copy: Copy) -> None:
        copy.landed = True
        bar.landed += copy.size
        if bar.landed > bar.expected and not bar.pending:
            return  # told as a deadlock
        self._try_complete(bar)

    def _land(self) -> bool:
        """Nothing can run: whatever is in flight lands. Whether something did."""
        moved = False
        for bar in list(self.mbarriers.values()):
            waiting = [copy for copy in bar.copies if not copy.landed]
            if self.setting.solve and waiting:
                if bar.pending:
                    continue
                names = [copy.box for copy in waiting if not copy.size]
                known = sum(copy.size for copy in waiting) + bar.landed
                self.equations.append((bar.expected - known, names))
                for copy in waiting:
                    copy.landed = True
                bar.landed = bar.expected
                self._try_complete(bar)
                moved = True
                continue
            for copy in waiting:
                self._land_one(bar, copy)
                moved = True
            if not moved and self.setting.cluster and self._from_outside(bar):
                moved = True
        return moved

    def _from_outside(self, bar: Mbarrier) -> bool:
        """In a cluster, other blocks may bring what a phase lacks."""
        waits = any(
            a.blocked and a.blocked.what == "mbarrier" and a.blocked.target is bar
            for a in self.agents
        )
        if not waits:
            return False
        self.notes.gap(
            "the block is part of a cluster: arrivals and bytes that other blocks may bring are"
            " taken to come when nothing else can happen"
        )
        bar.pending, bar.landed = 0, bar.expected
        self._try_complete(bar)
        return True

    def _bulk_store(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        source = next(o for o in instruction.operands[1:] if isinstance(o, Memory))
        tensor = "tensor" in instruction.parts
        for lane in lanes:
            one = np.array([lane])
            thread = int(agent.threads[lane])
            if tensor:
                target = instruction.operands[0]
                assert isinstance(target, Memory)
                size = self.setting.boxes.get(box_name(self._address(agent, target), target))
                if size is None and not self.setting.solve:
                    self.notes.gap(
                        f"line {instruction.line}: the box of `{target.base}` is not known; taken"
                        " as one cell"
                    )
                    size = CELL
            else:
                value = take(self._value(agent, instruction.operands[2]), one)
                size = value if isinstance(value, int) else None
            event = self._event(instruction, f"the bulk store at line {instruction.line}")
            address = self._shared_address(agent, source, one)
            if address is None:
                self._gap_address(instruction)
            elif size:
                start = int(np.asarray(address).ravel()[0])
                if self._inside(agent, instruction, start, size):
                    self._aligned(agent, instruction, start, 128 if tensor else 16)
                    clashes = self.memory.read_range(
                        start, size, event, agent.knowledge(1 << thread, thread)
                    )
                    self._clashes(agent, instruction, "the bulk store", clashes)
            agent.bulk.open.append(event)

    def _bulk_commit(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        agent.bulk.commit()

    def _bulk_wait(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        pending = self._value(agent, instruction.operands[0])
        for event in agent.bulk.wait(pending if isinstance(pending, int) else 0):
            agent.learn(event.bit, 0)

    # -- fences and barriers ---------------------------------------------------------------------

    def _fence(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        agent.fence()

    def _init_fence(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        for number in agent.own:
            if self.kinds[self.events[number].instruction.index] is Kind.MBARRIER_INIT:
                agent.own[number] = True

    def _warp_barrier(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        sink = Sink()
        agent.release(sink)
        agent.partial = []
        agent.learn(*sink.settle(self.events))
        agent.forget()

    def _bar(self, agent: Agent, instruction: Instruction) -> None:
        numbers = [self._value(agent, x) for x in instruction.operands if not isinstance(x, Vector)]
        if "red" in instruction.parts:
            for name in self.program.graph.writes[instruction.index]:
                agent.registers[name] = UNKNOWN
            numbers = numbers[1:-1]
        number = plain(numbers[0]) if numbers else 0
        count = plain(numbers[1]) if len(numbers) > 1 else self.setting.threads
        if not isinstance(number, int) or not isinstance(count, int):
            self.notes.gap(
                f"line {instruction.line}: number or threads of `{instruction.text}` are not known"
            )
            agent.pc += 1
            return
        if not 0 <= number <= 15:
            self._tell("bar-id", agent, instruction, f"named barrier {number}: there are 0..15")
        if count % LANES or count <= 0:
            self._tell(
                "bar-count", agent, instruction, f"{count} threads: must be a multiple of {LANES}"
            )
            count = -(-max(count, 1) // LANES) * LANES
        bar = self.bars.setdefault(number, NamedBarrier(number))
        agent.failed = -1
        self._join(agent, instruction, bar, count)
        if "arrive" in instruction.parts:
            agent.pc = instruction.index + 1
        if bar.arrived == bar.count and bar.count:
            self._bar_complete(bar)

    def _join(self, agent: Agent, instruction: Instruction, bar: NamedBarrier, count: int) -> None:
        name = f"named barrier {bar.number}" if bar.number >= 0 else "the cluster barrier"
        if bar.completion and not agent.over >> bar.completion.number & 1:
            self._tell(
                "bar-order",
                agent,
                instruction,
                f"{name} may not have completed for the ones before: nothing tells this warp",
                other=bar.completion.instruction,
                needs="another barrier, or a synchronisation with those who wait on it",
            )
        if bar.arrived and bar.count != count:
            self._tell(
                "bar-count",
                agent,
                instruction,
                f"{name} is used with {count} threads here and {bar.count} there",
                other=bar.first,
            )
        if not bar.arrived:
            bar.count, bar.first = count, instruction
        bar.arrived += LANES
        agent.release(bar.sink)
        if "arrive" not in instruction.parts:
            agent.blocked = Blocked("bar", instruction, bar, bar.generation)

    def _bar_complete(self, bar: NamedBarrier) -> None:
        assert bar.first is not None
        bar.completion = self._event(bar.first, "the barrier")
        over, fenced = bar.sink.settle(self.events)
        bar.over, bar.fenced = over | bar.completion.bit, fenced
        bar.sink = Sink()
        bar.generation += 1
        bar.arrived = 0
        for agent in self.agents:
            blocked = agent.blocked
            if blocked and blocked.what == "bar" and blocked.target is bar:
                agent.blocked = None
                agent.pc = blocked.instruction.index + 1
                agent.learn(bar.over, bar.fenced)
                agent.forget()

    def _cluster(self, agent: Agent, instruction: Instruction, kind: Kind) -> None:
        """A cluster barrier, seen from one block: a barrier of all its threads."""
        bar = self.bars.setdefault(-1, NamedBarrier(-1))
        waiting = agent.guesses.get(-1, -1)
        if kind is Kind.CLUSTER_ARRIVE:
            agent.guesses[-1] = bar.generation
            if not bar.arrived:
                bar.count, bar.first = self.setting.threads, instruction
            bar.arrived += len(agent.threads)
            agent.release(bar.sink)
            agent.pc = instruction.index + 1
            if bar.arrived >= bar.count:
                self._bar_complete(bar)
        elif bar.generation > waiting:
            agent.learn(bar.over, bar.fenced)
            agent.forget()
            agent.pc = instruction.index + 1
        else:
            agent.blocked = Blocked("bar", instruction, bar, waiting)

    # -- wgmma -----------------------------------------------------------------------------------

    def _wgmma(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        group = self.wgmma.setdefault(agent.warp // 4, [])
        at = agent.wgmma_issued
        agent.wgmma_issued += 1
        agent.wgmma_open.append(at)
        first = at == len(group)
        if first:
            group.append(
                WgmmaOperation(
                    instruction, self._event(instruction, f"the wgmma at line {instruction.line}")
                )
            )
        operation = group[at]
        if operation.instruction.index != instruction.index:
            self._tell(
                "wgmma-diverged",
                agent,
                instruction,
                "another warp of the warpgroup issues another wgmma at this point",
                other=operation.instruction,
                needs="the same sequence of wgmma in all four warps",
            )
        operation.warps |= 1 << agent.warp % 4
        operation.over |= agent.over
        operation.fenced |= agent.fenced
        parsed = self.program.wgmma[instruction.index]
        depth = parsed.k * parsed.element_bytes
        for operand, extent, mn_major in (
            (parsed.a, parsed.m, parsed.transposed_a),
            (parsed.b, parsed.n, parsed.transposed_b),
        ):
            if isinstance(operand, tuple):
                continue
            value = plain(self._value(agent, operand))
            if not isinstance(value, int) or not depth:
                self.notes.gap(
                    f"line {instruction.line}: descriptor {operand} of the wgmma is not known, so"
                    " its reads are checked against none"
                )
                continue
            self._wgmma_reads(
                agent, instruction, operation.event, Descriptor.decode(value), first,
                extent=extent, depth=depth, mn_major=mn_major, element=parsed.element_bytes,
            )  # fmt: skip

    def _wgmma_reads(
        self,
        agent: Agent,
        instruction: Instruction,
        event: Event,
        descriptor: Descriptor,
        keep: bool,
        *,
        extent: int,
        depth: int,
        mn_major: bool,
        element: int,
    ) -> None:
        if why := descriptor.misaligned():
            self._tell("smem-alignment", agent, instruction, f"a matrix descriptor: {why}")
        pieces = ranges(
            descriptor, extent=extent, depth_bytes=depth, mn_major=mn_major, element_bytes=element
        )
        for start, size in pieces:
            if not self._inside(agent, instruction, start, size):
                return
            clashes = self.memory.read_range(start, size, event, agent.knowledge(), keep=keep)
            self._clashes(agent, instruction, "the wgmma", clashes)

    def _wgmma_commit(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        agent.wgmma_groups.append(agent.wgmma_open)
        agent.wgmma_open = []

    def _wgmma_wait(self, agent: Agent, instruction: Instruction) -> None:
        agent.failed = -1
        pending = self._value(agent, instruction.operands[0])
        count = max(len(agent.wgmma_groups) - (pending if isinstance(pending, int) else 0), 0)
        group = self.wgmma.get(agent.warp // 4, [])
        done = [group[i] for numbers in agent.wgmma_groups[:count] for i in numbers]
        short = [operation for operation in done if operation.warps != 15]
        if short:
            agent.blocked = Blocked("wgmma", instruction, short)
            return
        for operation in done:
            agent.learn(operation.over | operation.event.bit, operation.fenced)
        agent.wgmma_groups = agent.wgmma_groups[count:]
        agent.pc += 1

    # -- registers and warp-wide results ---------------------------------------------------------

    def launch_registers(self) -> int:
        """Registers per thread that a launch gives: the whole file, in steps of 8."""
        entry = self.program.entry
        return entry.max_registers or min(REGISTER_FILE // self.setting.threads // 8 * 8, 255)

    def _setmaxnreg(self, agent: Agent, instruction: Instruction) -> None:
        wanted = instruction.operands[0]
        if not isinstance(wanted, int):
            agent.pc += 1
            return
        agent.failed = -1
        now = self.registers.get(agent.warp, self.launch_registers())
        raises = "inc" in instruction.parts
        if (wanted < now) if raises else (wanted > now):
            self._tell(
                "setmaxnreg-value",
                agent,
                instruction,
                f"{'inc' if raises else 'dec'} to {wanted} from {now} registers",
                needs="inc to raise, dec to lower",
            )
            agent.pc += 1
            return
        more = (wanted - now) * LANES
        if more > self.pool:
            agent.blocked = Blocked("registers", instruction, None, more)
            return
        self.pool -= more
        self.registers[agent.warp] = wanted
        self.register_trace.setdefault(agent.warp, []).append(instruction.index)
        agent.pc += 1

    def _collective(self, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
        name, parts, operands = instruction.name, instruction.parts, instruction.operands
        results = list(names_in(operands[0]))
        values: list[Value] = [UNKNOWN] * len(results)
        if name == "elect":
            chosen = np.zeros(len(agent.threads), np.int64)
            chosen[0] = 1
            values = [int(agent.threads[0] % LANES), plain(chosen)][-len(results) :]
        elif name == "shfl":
            source, lane = self._value(agent, operands[1]), plain(self._value(agent, operands[2]))
            if not isinstance(source, np.ndarray):
                values[0] = source
            elif "idx" in parts and isinstance(lane, int) and lane < len(source):
                values[0] = int(source[lane])
        elif name == "vote":
            source = self._value(agent, operands[1])
            if isinstance(source, np.ndarray):
                values[0] = {
                    "all": int(source.all()),
                    "any": int(source.any()),
                    "uni": int((source == source[0]).all()),
                    "ballot": int(sum(1 << int(t) % LANES for t in agent.threads[source != 0])),
                }[parts[2]]
            elif isinstance(source, int):
                full = thread_set(agent.threads % LANES)
                values[0] = {"all": source, "any": source, "uni": 1, "ballot": full * source}[
                    parts[2]
                ]
            elif parts[2] in ("all", "any"):
                values[0] = source
        for register, value in zip(results, values, strict=True):
            agent.registers[register] = value

    # -- the end ---------------------------------------------------------------------------------

    def _finish(self) -> None:
        over = 0
        for agent in self.finished:
            over |= agent.over
            for number in agent.own:
                over |= 1 << number
        for event in self.loads:
            if not over >> event.number & 1:
                self._tell(
                    "copy-unwaited",
                    None,
                    event.instruction,
                    "the block ends without a wait for this copy; it may land in another block's"
                    " shared memory",
                    needs="a wait for its mbarrier",
                )
        groups: dict[int, list[tuple[int, list[int]]]] = {}
        for agent in self.finished:
            trace = self.register_trace.get(agent.warp, [])
            groups.setdefault(agent.warp // 4, []).append((agent.warp, trace))
        for warps in groups.values():
            longest = max((trace for _, trace in warps), key=len)
            for warp, trace in warps:
                if trace != longest:
                    self._tell(
                        "setmaxnreg-diverged",
                        None,
                        self.instructions[
                            longest[len(trace) :][0] if len(trace) < len(longest) else longest[0]
                        ],
                        f"warp {warp} of the warpgroup does not execute this",
                        needs="the same setmaxnreg in all four warps",
                    )

    def _stuck(self) -> None:
        """Says why nothing can go on: the causes, without the waits that merely follow."""
        told: list[tuple[int, str, Agent, Instruction, str, Instruction | None, str]] = []
        for agent in self.agents:
            blocked: Blocked = agent.blocked
            told.append((*self._reason(agent, blocked),))
        worst = min(rank for rank, *_ in told)
        for rank, rule, agent, instruction, message, other, needs in told:
            if rank == worst:
                self._tell(rule, agent, instruction, message, other=other, needs=needs)

    def _reason(
        self, agent: Agent, blocked: Blocked
    ) -> tuple[int, str, Agent, Instruction, str, Instruction | None, str]:
        at = blocked.instruction
        if blocked.what == "mbarrier":
            bar: Mbarrier = blocked.target
            where = f"the mbarrier at {bar.address:#x} ({bar.state()})"
            if not bar.pending:
                other = bar.expects[-1] if bar.expects else bar.init.instruction
                return (
                    0, "mbarrier-transaction", agent, at,
                    f"never satisfied: {where}", other,
                    f"expect_tx of {bar.landed} bytes, which is what its copies bring",
                )  # fmt: skip
            if bar.pending < bar.count:
                return (
                    1, "mbarrier-arrivals", agent, at, f"never satisfied: {where}",
                    bar.init.instruction, f"{bar.count} arrivals a phase",
                )  # fmt: skip
            return (
                3, "deadlock", agent, at,
                f"never satisfied: waits for parity {blocked.value & 1} of {where}",
                bar.init.instruction, "an arrival, or the other parity",
            )  # fmt: skip
        if blocked.what == "lanes":
            return (
                1, "divergence", agent, at, "not all lanes of the warp come here", None,
                "a warp-wide instruction outside of a lane's branch",
            )  # fmt: skip
        if blocked.what == "registers":
            return (
                1, "setmaxnreg-pool", agent, at,
                f"never satisfied: {blocked.value // LANES} more registers a lane, the pool has"
                f" {self.pool // LANES}", None, "a setmaxnreg.dec elsewhere, by more or earlier",
            )  # fmt: skip
        if blocked.what == "wgmma":
            return (
                2, "deadlock", agent, at, "not all four warps issue the wgmma that is waited for",
                blocked.target[0].instruction, "the same path in all four warps",
            )  # fmt: skip
        nb: NamedBarrier = blocked.target
        return (
            2, "deadlock", agent, at,
            f"never satisfied: {nb.arrived} of {nb.count} threads come to"
            f" {'named barrier ' + str(nb.number) if nb.number >= 0 else 'the cluster barrier'}",
            nb.first, "all its threads",
        )  # fmt: skip


def box_name(value: Value, memory: Memory) -> str:
    """What a tensor map is called: its parameter (and offset), or the register."""
    if isinstance(value, Linear) and len(value.terms) == 1:
        name = value.terms[0][0]
        if name[0] in ("param", "parameter", "symbol") and isinstance(value.constant, int):
            more = (name[2] if len(name) > 2 else 0) + value.constant
            return f"{name[1]}+{more}" if more else str(name[1])
    return memory.base


def _by_lane(value: Value) -> bool:
    if isinstance(value, Logic):
        return any(_by_lane(arg) for arg in value.args)
    return isinstance(value, np.ndarray)


__all__ = ["Cta", "Knowledge", "Program", "Setting", "box_name"]
