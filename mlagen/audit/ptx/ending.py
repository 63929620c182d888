"""The end of a run: threads that leave, what is still in flight, and why nothing can go on."""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.audit.ptx.agent import LANES, WARPS, Agent, Blocked
from mlagen.audit.ptx.state import State
from mlagen.ptx import Instruction


def leave(state: State, agent: Agent, instruction: Instruction | None) -> None:
    """Threads end."""
    for event in agent.bulk.all():
        state.tell(
            "bulk-unwaited",
            agent,
            event.instruction,
            "the thread ends while its bulk store may still read shared memory",
            needs="cp.async.bulk.wait_group.read 0 before the end",
        )
    state.agents.remove(agent)
    state.finished.append(agent)


def finish(state: State) -> None:
    """All threads have ended: copies in flight, warps whose registers differ."""
    known: dict[int, int] = {}  # by block
    for agent in state.finished:
        over = agent.over
        for more, _ in agent.partial.values():
            over |= more
        for number in agent.own:
            over |= 1 << number
        known[agent.block] = known.get(agent.block, 0) | over
    _ended_before(state, known)
    somewhere = 0
    for over in known.values():
        somewhere |= over
    for event in state.loads:
        if not somewhere >> event.number & 1:
            state.tell(
                "copy-unwaited",
                None,
                event.instruction,
                "the block ends without a wait for this copy; it may land in another block's"
                " shared memory",
                needs="a wait for its mbarrier",
            )
    groups: dict[int, list[tuple[int, list[int]]]] = {}
    warps = -(-state.setting.threads // LANES)
    for block in range(state.setting.blocks):
        for at in range(warps):
            warp = block * state.setting.stride // LANES + at
            groups.setdefault(warp // WARPS, []).append((warp, state.register_trace.get(warp, [])))
    for group in groups.values():
        longest = max((trace for _, trace in group), key=len)
        for warp, trace in group:
            if trace == longest:
                continue
            at = longest[len(trace)] if len(trace) < len(longest) else longest[0]
            alike = _counts(state, trace) == _counts(state, longest)
            state.tell(
                "setmaxnreg-diverged",
                None,
                state.program.entry.instructions[at],
                f"warp {warp} of the warpgroup does not execute this",
                needs="the same setmaxnreg in all four warps",
                lightly=alike,  # each warp's registers change alike, at another place
            )


def _counts(state: State, trace: list[int]) -> list[tuple[str, object]]:
    """What setmaxnreg instructions do, one after the other."""
    found = [state.program.entry.instructions[at] for at in trace]
    return [(one.opcode, one.operands[0]) for one in found]


def _ended_before(state: State, known: dict[int, int]) -> None:
    """Tells accesses from another block that the end of a block does not wait for; `known`: the
    events that some thread of a block knew to be over when it ended."""
    for block, event, what in state.remote:
        if not known.get(block, 0) >> event.number & 1:
            state.tell(
                "cluster-end",
                None,
                event.instruction,
                f"block {block} may have ended when {what} accesses its shared memory",
                needs="barrier.cluster.arrive and .wait of all blocks before their end"
                " (arrive.relaxed orders no access)",
            )


@dataclass(frozen=True, slots=True)
class _Reason:
    """Why an agent cannot go on; low ranks are causes, high ones follow from them."""

    rank: int
    rule: str
    message: str
    other: Instruction | None
    needs: str


def stuck(state: State) -> None:
    """Says why nothing can go on: the causes, without the waits that merely follow."""
    told = [(_reason(state, a, a.blocked), a, a.blocked) for a in state.agents if a.blocked]
    worst = min(reason.rank for reason, _, _ in told)
    for reason, agent, blocked in told:
        if reason.rank == worst:
            state.tell(
                reason.rule,
                agent,
                blocked.instruction,
                reason.message,
                other=reason.other,
                needs=reason.needs,
            )


def _reason(state: State, agent: Agent, blocked: Blocked) -> _Reason:
    if blocked.what == "mbarrier":
        return _mbarrier(state, blocked)
    if blocked.what == "lanes":
        return _Reason(
            1, "divergence", "not all lanes of the warp come here", None,
            "a warp-wide instruction outside of a lane's branch",
        )  # fmt: skip
    if blocked.what == "registers":
        threads = LANES * WARPS
        return _Reason(
            1, "setmaxnreg-pool",
            f"never satisfied: {blocked.value // threads} more registers a thread, the pool has"
            f" {state.pool.get(agent.block, 0) // threads}", None,
            "a setmaxnreg.dec elsewhere, by more or earlier",
        )  # fmt: skip
    if blocked.what == "wgmma":
        return _Reason(
            2, "deadlock", "not all four warps issue the wgmma that is waited for", None,
            "the same path in all four warps",
        )  # fmt: skip
    bar = state.bars[blocked.target]
    return _Reason(
        2, "deadlock",
        f"never satisfied: {bar.arrived} of {bar.count} threads come to {bar.title}",
        bar.first, "all its threads",
    )  # fmt: skip


def _mbarrier(state: State, blocked: Blocked) -> _Reason:
    bar = state.mbarriers.get(blocked.target)
    if bar is None:
        return _Reason(
            2, "deadlock", "never satisfied: the mbarrier was invalidated", None, "a later inval"
        )
    where = f"the mbarrier at {bar.address:#x} ({bar.state()})"
    if not bar.pending:
        other = bar.expects[-1] if bar.expects else bar.init.instruction
        return _Reason(
            0, "mbarrier-transaction", f"never satisfied: {where}", other,
            f"expect_tx of {bar.landed} bytes, which is what its copies bring",
        )  # fmt: skip
    if bar.pending < bar.count:
        return _Reason(
            1, "mbarrier-arrivals", f"never satisfied: {where}", bar.init.instruction,
            f"{bar.count} arrivals a phase",
        )  # fmt: skip
    return _Reason(
        3, "deadlock", f"never satisfied: waits for parity {blocked.value & 1} of {where}",
        bar.init.instruction, "an arrival, or the other parity",
    )  # fmt: skip
