"""A plan of MLA decode calls: the work items, merges and workspaces on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from mlagen.attention.latent.call_tensors import Memory
from mlagen.attention.latent.known_calls import fact
from mlagen.attention.latent.outputs import Outputs
from mlagen.attention.latent.split_work import Ints32
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.call import DecodeCall, takes_call
from mlagen.families.mla_decode.plan import ITEM_INTS, MlaDecodeWork, merge_blocks, plan_work
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.unit import HOPPER, Unit


@dataclass(eq=False, repr=False)
class PlanTensors:
    """What a launch needs of a plan. `tokens`: rows of a packed q, None where each sequence has
    q_len of them."""

    config: MlaDecodeConfig
    batch: int
    tokens: int | None
    items: Any  # int32 [room, 12]
    merges: Any  # int32 [merge room, 8]; None where no plan in this room splits
    partial_o: Any  # fp32 [slots, 64 or as many rows as a block has, 512]
    partial_lse: Any  # fp32 [slots, as many]
    # Of persistent blocks: int32 [blocks + 1]; of those that take parts in or put them together:
    # int32 [2 * slots], zero between calls.
    shares: Any = field(default=None, kw_only=True)
    arrivals: Any = field(default=None, kw_only=True)
    together: int = field(default=1, kw_only=True)  # parts that their blocks put together

    def __repr__(self) -> str:
        rows = f"{self.tokens} tokens" if self.tokens is not None else f"q_len {self.config.q_len}"
        items, slots = int(self.items.shape[0]), int(self.partial_o.shape[0])
        name = type(self).__name__
        return f"<{name}: {self.batch} sequences, {rows}, {items} items, {slots} slots>"

    @property
    def key(self) -> Any:
        """Equal for plans with the same tensors; None where torch did not make them."""
        tensors = [self.items, self.partial_o, self.partial_lse]
        more = (self.merges, self.shares, self.arrivals)
        tensors += [tensor for tensor in more if tensor is not None]
        try:
            of_tensors = ((t.data_ptr(), *fact(t)) for t in tensors)
            return self.batch, self.tokens, self.together, *of_tensors
        except AttributeError:
            return None

    @cached_property
    def outputs(self) -> Outputs:
        """What its calls write."""
        rows = (self.batch, self.config.q_len) if self.tokens is None else (self.tokens,)
        return Outputs.of(self.config, rows)

    @property
    def lse_stride(self) -> int:
        """Elements of lse from head to head."""
        return self.config.q_len if self.tokens is None else self.tokens

    def grid(self, unit: Unit) -> dict[str, int]:
        """What the decode kernel's blocks are as many as: its items, or itself where it has
        shares. `unit`: the kernel's."""
        if self.shares is None:
            return unit.grid(int(self.items.shape[0]))
        return {"blocks": unit.ctas * (int(self.shares.shape[0]) - 1)}


class Dealt(NamedTuple):
    """How the work of calls is dealt out; see `plan_work`."""

    q_lens: tuple[int, ...] | None
    blocks: int
    split_keys: int | None
    persistent: bool
    takes_in: bool
    unit: Unit = HOPPER
    together: int | None = 1
    counted: bool = False  # whether the kernel takes `arrivals`

    def work(self, config: MlaDecodeConfig, lengths: Sequence[int] | Any) -> MlaDecodeWork:
        """The work of a call for sequences of `lengths` keys."""
        given = self._asdict()
        del given["counted"]
        return plan_work(config, lengths, **given)


@dataclass(eq=False, repr=False)
class MlaDecodePlan(PlanTensors):
    """All that the host decides for calls of one shape. `kernel.plan(..)` makes it.

    It is right for any lengths; those it was made for decide how even the work is and, with
    `split_keys`, where sequences are split. `update` plans anew in place, for a captured graph.
    """

    work: MlaDecodeWork
    memory: Memory
    dealt: Dealt
    call: Callable[[DecodeCall], tuple[Any, Any]]  # the kernel's `enqueue`
    serial: int = field(default_factory=count().__next__)

    @property
    def key(self) -> Any:
        """Its number: its tensors stay the same."""
        return self.serial

    @takes_call
    def run(self, call: DecodeCall) -> tuple[Any, Any]:
        """(output, log-sum-exp) of its kernel on these tensors: `kernel(.., plan=plan)`.
        ConfigError for another plan's."""
        if call.plan is not None and call.plan is not self:
            raise ConfigError("plan.run(.., plan=..): the plan is the one whose `run` is called")
        return self.enqueue(call)

    def enqueue(self, call: DecodeCall) -> tuple[Any, Any]:
        """The same with all arguments together."""
        return self.call(call.of(self))

    @property
    def splits(self) -> tuple[tuple[int, ...], ...]:
        """The first tile of 64 keys of each split of each sequence; oracles take it."""
        return self.work.splits

    def update(self, lengths: Sequence[int] | Any) -> None:
        """Plans for other lengths into the same tensors, in the current stream. ConfigError where
        the plan's room does not suffice; `kernel.plan(.., room=..)` sets it."""
        work = self.dealt.work(self.config, lengths)
        if len(work.splits) != self.batch:
            raise ConfigError(f"{len(work.splits)} lengths for a plan of {self.batch} sequences")
        for what, need, have in (
            ("work items", len(work.items), int(self.items.shape[0])),
            ("merges", len(work.merges), 0 if self.merges is None else int(self.merges.shape[0])),
            ("slots", work.slots, int(self.partial_o.shape[0])),
        ):
            if need > have:
                raise ConfigError(
                    f"these lengths need {need} {what}; the plan has room for {have}",
                    hint="plan with room= for the longest sequences, or with lengths near to them",
                )
        self.memory.write(self.items, padded(work.items, int(self.items.shape[0])))
        if self.merges is not None:
            self.memory.write(self.merges, padded(work.merges, int(self.merges.shape[0])))
        if work.shares is not None:
            self.memory.write(self.shares, work.shares)
        self.work = work


def make_plan(
    config: MlaDecodeConfig,
    lengths: Sequence[int] | Any,
    memory: Memory,
    call: Callable[[DecodeCall], tuple[Any, Any]],
    dealt: Dealt,
    room: Sequence[int] | Any | None,
) -> MlaDecodePlan:
    """The plan with its tensors; see `MlaDecodeKernel.plan`."""
    work, tokens = dealt.work(config, lengths), dealt.q_lens
    dealt = dealt._replace(together=work.together)  # as often for all later lengths
    items, merges, slots = len(work.items), len(work.merges), work.slots
    if room is not None:
        most = dealt.work(config, room)
        # Shorter sequences may be split more often: as many items as can run at once, and again.
        row_blocks = len(most.items) - most.slots + len({*most.merges[:, 0].tolist()})
        spare = 2 * dealt.blocks + row_blocks
        items = max(items, len(most.items) + spare)
        slots = max(slots, most.slots + spare)
        merges = max(merges, merge_blocks(slots, row_blocks, work.slot_rows))
    return MlaDecodePlan(
        config=config,
        batch=len(work.splits),
        tokens=None if tokens is None else sum(tokens),
        work=work,
        items=memory.upload(padded(work.items, max(items, 1))),
        merges=memory.upload(padded(work.merges, merges)) if merges else None,
        partial_o=memory.empty((max(slots, 1), work.slot_rows, config.d_v), "fp32"),
        partial_lse=memory.empty((max(slots, 1), work.slot_rows), "fp32"),
        shares=None if work.shares is None else memory.upload(work.shares),
        arrivals=memory.upload(np.zeros(2 * max(slots, 1), np.int32)) if dealt.counted else None,
        together=work.together,
        memory=memory,
        dealt=dealt,
        call=call,
    )


def padded(rows: Ints32, count: int) -> Ints32:
    """The items or merges with empty ones after them: no rows, so nothing is written."""
    width = rows.shape[1]
    whole = np.zeros((count, width), np.int32)
    whole[: len(rows)] = rows
    if width == ITEM_INTS:
        whole[len(rows) :, 7] = -1  # no slot
    return whole
