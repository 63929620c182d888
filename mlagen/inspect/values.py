"""What a wave can know before it has loaded anything: constants, its number, its lanes' addresses.

Constant propagation over the code of one wave. A scalar register holds a number, a vector register
64 of them, or nothing is known. Branches on known values are taken one way, which tells the parts
of the code that only some waves reach; the addresses of LDS accesses come out lane by lane.

Only integer instructions (`mlagen.binary.integers`) are evaluated; whatever another instruction
writes is unknown. The lanes that EXEC switches off are left out of account: a vector write counts
for all lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt

from mlagen.binary.banks import Lanes, dma_bytes
from mlagen.binary.effects import effects, is_lds_dma
from mlagen.binary.flow import Flow
from mlagen.binary.instruction import MachineInstruction
from mlagen.binary.integers import MASK, RELATIONS, SCALAR, SHORT, VECTOR, Wide
from mlagen.binary.integers import signed as as_signed
from mlagen.binary.operand import EXEC, M0, SCC, VCC, Operand
from mlagen.targets.gfx950.limits import GFX950

Value = int | Lanes
Key = tuple[str, int]  # ("s", number) or ("v", physical number)
State = dict[Key, Value]  # a register that is missing is unknown

LANES = GFX950.wave_size


@dataclass
class WaveView:
    """One wave's way through the code. `reached`: blocks, `taken`: edges between them.
    `addresses`: bytes of LDS that each lane of the access at an offset names, without the
    immediate offset."""

    wave: int
    reached: set[int] = field(default_factory=set)
    taken: set[tuple[int, int]] = field(default_factory=set)
    addresses: dict[int, Lanes] = field(default_factory=dict)


def view(flow: Flow, accum_offset: int, wave: int, block: tuple[int, int, int]) -> WaveView:
    """Follow wave number `wave` of a workgroup of `block` threads."""
    result = WaveView(wave)
    states: dict[int, State] = {0: _entry(wave, block)}
    work = [0]
    while work:
        at = work.pop()
        result.reached.add(at)
        state = dict(states[at])
        taken = _run(flow, flow.blocks[at].first, flow.blocks[at].last, state, accum_offset, result)
        for after in flow.blocks[at].successors:
            if taken is not None and after != taken:
                continue
            result.taken.add((at, after))
            known = states.get(after)
            merged = state if known is None else _merge(known, state)
            if known is None or len(merged) != len(known) or after not in result.reached:
                states[after] = dict(merged)
                if after not in work:
                    work.append(after)
    # Addresses as the final states have them, not as they were on the way there.
    result.addresses.clear()
    for at in result.reached:
        one = flow.blocks[at]
        _run(flow, one.first, one.last, dict(states[at]), accum_offset, result)
    return result


def _entry(wave: int, block: tuple[int, int, int]) -> State:
    """v0: the packed work-item id, 10 bits each of x, y, z (LLVM AMDGPUUsage, gfx90a+)."""
    thread = np.arange(LANES, dtype=np.uint32) + np.uint32(wave * LANES)
    x, y, _ = block
    packed = thread % x | (thread // x % y) << 10 | (thread // (x * y)) << 20
    return {("v", 0): packed.astype(np.uint32), ("s", EXEC): MASK, ("s", EXEC + 1): MASK}


def _merge(first: State, second: State) -> State:
    return {key: value for key, value in first.items() if _same(value, second.get(key))}


def _same(first: Value, second: Value | None) -> bool:
    if second is None:
        return False
    if isinstance(first, int) and isinstance(second, int):
        return first == second
    return bool(np.array_equal(first, second))


@cache
def _writes(ins: MachineInstruction, accum: int) -> tuple[Key, ...]:
    return tuple(
        (access.file, access.base + i)
        for access in effects(ins, accum).writes
        for i in range(access.count)
    )


def _run(
    flow: Flow, first: int, last: int, state: State, accum: int, result: WaveView
) -> int | None:
    """Run instructions; the block that the last one's branch goes to where that is known."""
    for index in range(first, last + 1):
        ins = flow.instructions[index]
        if ins.encoding == "DS":
            address = ins.operand("addr")
            held = state.get(_key(address, accum)) if address is not None else None
            if held is not None:
                result.addresses[ins.offset] = np.broadcast_to(np.uint32(held), (LANES,)).copy()
            else:
                result.addresses.pop(ins.offset, None)
        elif is_lds_dma(ins):
            # LDS address of a lane: M0 + immediate + lane * bytes a lane (CDNA4 ISA, MUBUF to LDS).
            base = state.get(("s", M0))
            if isinstance(base, int):
                lanes = np.arange(LANES, dtype=np.uint32) * np.uint32(dma_bytes(ins))
                result.addresses[ins.offset] = lanes + np.uint32(base)
            else:
                result.addresses.pop(ins.offset, None)
        step = _STEPS.get(ins.mnemonic)
        new = step(ins, state, accum) if step is not None else None
        for key in _writes(ins, accum):
            state.pop(key, None)
        if new:
            state.update(new)
    ins = flow.instructions[last]
    if ins.branch_target is None or not ins.mnemonic.startswith("s_cbranch"):
        return None
    way = _branches(ins, state)
    if way is None:
        return None
    if way:
        return flow.block_of[ins.branch_target]
    return flow.block_at.get(last + 1)


def _branches(ins: MachineInstruction, state: State) -> bool | None:
    name = ins.mnemonic
    if name.endswith(("scc0", "scc1")):
        scc = state.get(("s", SCC))
        return None if scc is None else bool(scc) == name.endswith("1")
    number = VCC if "vcc" in name else EXEC
    low, high = state.get(("s", number)), state.get(("s", number + 1))
    if low is None or high is None:
        return None
    zero = not low and not high
    return zero if name.endswith(("vccz", "execz")) else not zero


def _key(operand: Operand | None, accum: int) -> Key:
    if operand is None:
        return "s", -1
    if operand.kind == "s":
        return "s", operand.index
    return "v", operand.index + (accum if operand.kind == "a" else 0)


def _source(operand: Operand, state: State, accum: int) -> Value | None:
    if operand.is_register:
        return state.get(_key(operand, accum))
    if operand.kind in ("inline", "literal"):
        return operand.bits
    return None


Step = Callable[[MachineInstruction, State, int], State | None]
_STEPS: dict[str, Step] = {}


def _sources(ins: MachineInstruction, state: State, accum: int) -> list[Value] | None:
    found = []
    for name, operand in ins.operands:
        if "src" in name:
            value = _source(operand, state, accum)
            if value is None:
                return None
            found.append(value)
    return found


def _destination(ins: MachineInstruction) -> Operand | None:
    return ins.operand("vdst") or ins.operand("sdst")


def _plain(function: Callable[..., Wide], *, scc: str = "") -> Step:
    """An instruction whose 32-bit result depends on its sources only. `scc`: "nonzero" sets it by
    the result; other scalar results leave it unknown."""

    def step(ins: MachineInstruction, state: State, accum: int) -> State | None:
        if ins.encoding.endswith(("_DPP", "_SDWA")):
            return None
        if any(name in ("neg", "abs", "opsel", "omod", "clmp") for name, _ in ins.modifiers):
            return None
        sources, target = _sources(ins, state, accum), _destination(ins)
        if sources is None or target is None or target.count != 1:
            return None
        vector = target.kind != "s"
        wide = [np.asarray(s, dtype=np.int64) if vector else int(s) for s in sources]
        result = function(*wide)
        if vector:
            lanes = np.broadcast_to(np.asarray(result) & MASK, (LANES,)).astype(np.uint32)
            return {_key(target, accum): lanes}
        value = int(result) & MASK
        new: State = {_key(target, accum): value}
        if scc == "nonzero":
            new["s", SCC] = int(value != 0)
        return new

    return step


def _compare(relation: Callable[[int, int], bool], *, signed: bool) -> Step:
    """s_cmp, and s_cmpk: a register against a 16-bit constant."""

    def step(ins: MachineInstruction, state: State, accum: int) -> State | None:
        sources: Sequence[Value | None] | None = _sources(ins, state, accum)
        if ins.mnemonic.startswith("s_cmpk"):
            constant = ins.modifier("simm16")
            constant -= 0x10000 if signed and constant & 0x8000 else 0
            sources = (state.get(_key(ins.operands[0][1], accum)), constant)
        known = [source for source in sources or () if isinstance(source, int)]
        if len(known) != 2:
            return None
        a, b = (as_signed(source) if signed else source for source in known)
        return {("s", SCC): int(relation(a, b))}

    return step


def _compare_lanes(relation: Callable[..., npt.NDArray[np.bool_]], *, signed: bool) -> Step:
    """v_cmp: one bit a lane into VCC or a pair of scalars."""

    def step(ins: MachineInstruction, state: State, accum: int) -> State | None:
        sources = _sources(ins, state, accum)
        if sources is None or ins.encoding.endswith(("_DPP", "_SDWA")):
            return None
        a, b = (np.broadcast_to(np.uint32(s), (LANES,)) for s in sources)
        if signed:
            a, b = a.astype(np.int32), b.astype(np.int32)
        bits = sum(1 << lane for lane in np.flatnonzero(relation(a, b)).tolist())
        target = ins.operand("vdst") or ins.operand("sdst")
        number = target.index if target is not None else VCC
        return {("s", number): bits & MASK, ("s", number + 1): bits >> 32}

    return step


def _first_lane(ins: MachineInstruction, state: State, accum: int) -> State | None:
    sources, target = _sources(ins, state, accum), _destination(ins)
    if sources is None or target is None:
        return None
    value = sources[0]
    return {("s", target.index): int(value) if isinstance(value, int) else int(value[0])}


def _move_pair(ins: MachineInstruction, state: State, accum: int) -> State | None:
    """s_mov_b64, s_and_b64, s_or_b64 and s_and_saveexec_b64, where all of their bits are known."""
    target = ins.operand("sdst")
    if target is None:
        return None
    values = []
    for name, operand in ins.operands:
        if "src" not in name:
            continue
        if operand.is_register:
            low = state.get(("s", operand.index))
            high = state.get(("s", operand.index + 1))
        else:
            low, high = operand.bits, MASK if operand.bits & 0x80000000 else 0
        if not isinstance(low, int) or not isinstance(high, int):
            return None
        values.append(low | high << 32)
    if "saveexec" in ins.mnemonic:
        low, high = state.get(("s", EXEC)), state.get(("s", EXEC + 1))
        if not isinstance(low, int) or not isinstance(high, int):
            return None
        active = low | high << 32
        result = values[0] & active
        return _pair(target.index, active) | _pair(EXEC, result) | {("s", SCC): int(result != 0)}
    if ins.mnemonic == "s_mov_b64":
        return _pair(target.index, values[0])
    result = values[0] & values[1] if "and" in ins.mnemonic else values[0] | values[1]
    return _pair(target.index, result) | {("s", SCC): int(result != 0)}


def _pair(number: int, value: int) -> State:
    return {("s", number): value & MASK, ("s", number + 1): value >> 32 & MASK}


def _short(function: Callable[[int, int], int]) -> Step:
    """s_movk, s_addk, s_mulk."""

    def step(ins: MachineInstruction, state: State, accum: int) -> State | None:
        target = ins.operand("sdst")
        if target is None:
            return None
        constant = ins.modifier("simm16")
        constant -= 0x10000 if constant & 0x8000 else 0
        value = state.get(("s", target.index), 0 if ins.mnemonic == "s_movk_i32" else None)
        if not isinstance(value, int):
            return None
        return {("s", target.index): function(value, constant) & MASK}

    return step


def _mbcnt(shift: int) -> Step:
    """Active lanes below this one: of the lower or the upper 32, for a known mask."""

    def step(ins: MachineInstruction, state: State, accum: int) -> State | None:
        sources = _sources(ins, state, accum)
        if sources is None or len(sources) != 2 or not isinstance(sources[0], int):
            return None
        mask = sources[0]
        below = [
            (mask & (1 << max(0, min(lane - shift, 32))) - 1).bit_count() for lane in range(LANES)
        ]
        target = _destination(ins)
        total = (np.array(below, dtype=np.int64) + np.asarray(sources[1], np.int64)) & MASK
        return {_key(target, accum): total.astype(np.uint32)}

    return step


def _install() -> None:
    for name, integer in {**VECTOR, **SCALAR}.items():
        _STEPS[name] = _plain(integer.function, scc=integer.scc)
    for name in SHORT:
        _STEPS[name] = _short(SHORT[name])
    _STEPS["v_readfirstlane_b32"] = _first_lane
    _STEPS["v_mbcnt_lo_u32_b32"] = _mbcnt(0)
    _STEPS["v_mbcnt_hi_u32_b32"] = _mbcnt(32)
    for name in ("s_mov_b64", "s_and_b64", "s_or_b64", "s_and_saveexec_b64"):
        _STEPS[name] = _move_pair
    for name, relation in RELATIONS.items():
        for kind in ("i32", "u32"):
            for form in ("s_cmp", "s_cmpk"):
                _STEPS[f"{form}_{name}_{kind}"] = _compare(relation, signed=kind == "i32")
            _STEPS[f"v_cmp_{name}_{kind}"] = _compare_lanes(relation, signed=kind == "i32")


_install()
