"""Tensor maps that a kernel edits: what has to lie between the edit and a copy through the map.

PTX ISA 9.0, "Proxies" and "membar, fence": tensor maps are read through the tensormap proxy. What
the generic proxy wrote to one (tensormap.replace, tensormap.cp_fenceproxy) is seen by it behind
`fence.proxy.tensormap::generic.release` of the writer, which cp_fenceproxy has in it, and then
`fence.proxy.tensormap::generic.acquire` of the map's 128 bytes by whoever uses it, or by another
who tells the user. A map is known by its address; stores of single words to one are not followed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mlagen.audit.ptx import operands
from mlagen.audit.ptx.agent import Agent, thread_set
from mlagen.audit.ptx.shared import Event
from mlagen.audit.ptx.state import State
from mlagen.audit.ptx.values import Lanes, Linear, Term, is_number, key_of, plain
from mlagen.ptx import Instruction, MemoryOperand

_ACQUIRE = (
    "fence.proxy.tensormap::generic.acquire of the map's 128 bytes between the edit and the copy"
)
_RELEASE = "fence.proxy.tensormap::generic.release by the thread that edits, before it tells others"


@dataclass(frozen=True, slots=True)
class Edit:
    """The last edit of a tensor map. `released`: its writer has fenced it; `acquired`: fences of
    those who knew of it."""

    event: Event
    released: bool = False
    acquired: tuple[Event, ...] = ()


def edit(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """tensormap.replace and tensormap.cp_fenceproxy, of a map in global memory."""
    if "shared::cta" in instruction.parts and "cp_fenceproxy" not in instruction.parts:
        return  # nobody uses it there: it is copied first
    name = _map(state, agent, instruction, instruction.operands[0])
    if name is None:
        return
    event = state.event(instruction, "the edit of a tensor map", thread_set(agent.threads[lanes]))
    agent.did(event, True)
    state.maps[name] = Edit(event, "cp_fenceproxy" in instruction.parts)


def fence(state: State, agent: Agent, instruction: Instruction, lanes: Lanes) -> None:
    """fence.proxy.tensormap::generic."""
    threads = thread_set(agent.threads[lanes])
    if "release" in instruction.parts:
        for edited, last in state.maps.items():
            if _knows(agent, last.event, threads):
                state.maps[edited] = replace(last, released=True)
        return
    name = _map(state, agent, instruction, instruction.operands[0])
    one = state.maps.get(name) if name is not None else None
    if name is None or one is None or not _knows(agent, one.event, threads):
        return
    event = state.event(instruction, "the fence of a tensor map", threads)
    agent.did(event, True)
    state.maps[name] = replace(one, acquired=(*one.acquired, event))


def use(
    state: State, agent: Agent, instruction: Instruction, memory: MemoryOperand, thread: int
) -> None:
    """A thread's copy through a tensor map, which this kernel may have edited."""
    if not state.maps:
        return
    name = _map(state, agent, instruction, memory)
    one = state.maps.get(name) if name is not None else None
    if one is None:
        return
    line = one.event.instruction.line
    said = "the copy goes through a tensor map that line {} edited, {}"
    if not _knows(agent, one.event, 1 << thread):
        why, needs = "which this thread may not know", "a synchronisation between the two"
    elif not one.released:
        why, needs = "and that was not fenced by the thread that did", _RELEASE
    elif not any(_knows(agent, each, 1 << thread) for each in one.acquired):
        why, needs = "without the fence of whoever uses it", _ACQUIRE
    else:
        return
    state.tell(
        "tensormap-fence", agent, instruction, said.format(line, why),
        other=one.event.instruction, needs=needs,
    )  # fmt: skip


def _knows(agent: Agent, event: Event, threads: int) -> bool:
    """Whether threads know that an event is over: they did it, or a synchronisation told."""
    mine = event.number in agent.own and not threads & ~event.threads
    return mine or bool(agent.knowledge(threads).over >> event.number & 1)


def _map(state: State, agent: Agent, instruction: Instruction, memory: object) -> Term | None:
    """The name of a map, by its address; None where that is not known."""
    if not isinstance(memory, MemoryOperand):
        return None
    found = plain(operands.address(state, agent, memory))
    if isinstance(found, Linear) and not isinstance(found.constant, int):
        found = Linear(found.terms, plain(found.constant))  # type: ignore[arg-type]
    if not (is_number(found) or isinstance(found, Linear)):
        if instruction.name == "tensormap" or state.maps:
            state.gap(
                f"line {instruction.line}: the tensor map of `{instruction.text}` is not known, so"
                " that its fences are not checked"
            )
        return None
    return key_of(found)
