"""Prints the streams of a persistent block as PTX lines: one piece of code for items of any length.

    ROLE        prologue, once a block
    ROLE_FETCH  fetches ahead for an item that no pass came before: the first, or after an empty one
    ROLE_ITEM   the item's own beginning, and the rest of the pass before its first one
    ROLE_LOOP   passes that have all their tiles
    ROLE_DRAIN  the last passes, by the remainder of the tiles, which fetch ahead for the next item
    ROLE_END    the epilogue, once: the next item, or the block's end

Barriers are not initialised between items. An item with an odd number of tiles fills the odd slot
once less than the even one, so each slot has a phase of its own, which stays where it was in a pass
that does not fill it.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlagen.dsl import Binding, Operation
from mlagen.targets.nvidia.codegen.emit import Cursor, Emitter
from mlagen.targets.nvidia.codegen.runs import (
    Loop,
    fetch_pass,
    head_pass,
    item_section,
    main_pass,
    offset,
)


class ItemEmitter(Emitter):
    """Prints the streams of a persistent schedule."""

    @property
    def registers(self) -> list[tuple[str, str, str]]:
        held = [(".b32", "%items, %coming", "items after this one; tiles of the next")]
        for stream in self.schedule.streams:
            role = stream.role.name
            turns = [name for slot in range(stream.step) for name in self._turns(role, slot)]
            held.append(
                (".b32", ", ".join(turns), "phases of each slot in this pass, and the next")
            )
            held.append((".b32", self._own(role), "phase of what is resident for an item"))
        return held

    def stream(self, loop: Loop) -> None:
        """One role's code."""
        stream, role, step = loop.stream, loop.stream.role, loop.edge.step
        name = role.name.upper()
        cursors = {id(op): self._cursor_of(loop, op) for op in loop.cluster.operations()}
        self._enter(stream)
        for operation in loop.prologue:
            self._operation(stream, operation, None, "start", Binding(0, False))
        for slot in range(step):  # the pass before the first one
            this, other = self._turns(role.name, slot)
            self._code(stream, f"mov.u32 {this}, 1;", f"mov.u32 {other}, 0;")
        self._code(stream, f"mov.u32 {self._own(role.name)}, 0;", "setp.eq.u32 %done, %items, 0;",
                   "@%done bra EXIT;", f"{name}_FETCH:")  # fmt: skip
        self._heading(f"{role.name}, ahead of an item after none")
        self._pass(loop, cursors, "fetch", fetch_pass(loop, step), end=0)
        self._item(loop, cursors)
        self._end(loop)
        self._code(stream, f"{name}_EMPTY:", "bar.sync 0;", f"bra {name}_END;")
        for rest in range(1, step):
            self._code(stream, f"{name}_DRAIN{rest}:")
            self._last_passes(loop, cursors, rest)
            self._code(stream, f"bra {name}_END;")
        for n in self._few(loop):
            self._code(stream, f"{name}_HEAD{n}:")
            self._head(loop, cursors, n)
            self._code(stream, f"bra {name}_DRAIN{n}_{n};")

    def _item(self, loop: Loop, cursors: dict[int, Cursor | None]) -> None:
        """From an item's beginning to the last passes of one of whole passes."""
        stream, edge = loop.stream, loop.edge
        name = stream.role.name.upper()
        self._code(stream, f"{name}_ITEM:", "mov.u32 %tiles, %coming;",
                   "sub.u32 %items, %items, 1;")  # fmt: skip
        for operation in stream.items:
            self._operation(stream, operation, None, "item", Binding(0, False))
        self._code(stream, "setp.eq.u32 %done, %tiles, 0;", f"@%done bra {name}_EMPTY;")
        for n in self._few(loop):
            self._code(stream, f"setp.eq.u32 %done, %tiles, {n};", f"@%done bra {name}_HEAD{n};")
        self._head(loop, cursors, edge.step)
        self._heading(f"{stream.role.name}, loop")
        self._code(stream, "mov.u32 %i, 0;", f"sub.u32 %last, %tiles, {edge.high};",
                   f"{name}_LOOP:", "setp.ge.s32 %done, %i, %last;",
                   f"@%done bra {name}_DRAIN;", '.pragma "nounroll";')  # fmt: skip
        n = edge.high + edge.step
        self._pass(loop, cursors, "loop", main_pass(loop, 0, n, 0))
        self._turn_over(loop, "loop", range(edge.step))
        self._code(stream, f"add.u32 %i, %i, {edge.step};", f"bra {name}_LOOP;")
        self._code(stream, f"{name}_DRAIN:", f"rem.u32 %last, %tiles, {edge.step};")
        for rest in range(1, edge.step):
            self._code(stream, f"setp.eq.u32 %done, %last, {rest};",
                       f"@%done bra {name}_DRAIN{rest};")  # fmt: skip
        self._last_passes(loop, cursors, 0)

    def _few(self, loop: Loop) -> list[int]:
        """Tiles of items that begin otherwise than those of a whole pass."""
        whole = head_pass(loop, loop.edge.step)
        return [n for n in range(1, loop.edge.step) if head_pass(loop, n) != whole]

    def _head(self, loop: Loop, cursors: dict[int, Cursor | None], n: int) -> None:
        """The pass before an item's first one; `n`: tiles, or as many as a pass has and more."""
        self._heading(f"{loop.stream.role.name}, an item's head" + f", {n} of it" * (n == 1))
        self._pass(loop, cursors, "head", head_pass(loop, n))
        own = self._own(loop.stream.role.name)
        self._code(loop.stream, f"xor.b32 {own}, {own}, 1;")
        self._turn_over(loop, "head", range(loop.edge.step))

    def _last_passes(self, loop: Loop, cursors: dict[int, Cursor | None], rest: int) -> None:
        """The last passes of items whose tiles leave this remainder."""
        stream, edge = loop.stream, loop.edge
        name = stream.role.name.upper()
        n = next(n for n in range(edge.high, edge.high + edge.step) if n % edge.step == rest)
        n += edge.step  # the loop once: all of what drains
        passes = [i for i in range(0, n, edge.step) if i >= n - edge.high]
        for i, following in zip(passes, [*passes[1:], None], strict=True):
            back = n - i
            if following is not None:  # an item that is shorter begins with the pass after it
                self._code(stream, f"setp.lt.u32 %done, %tiles, {back};",
                           f"@%done bra {name}_DRAIN{rest}_{n - following};")  # fmt: skip
            self._code(stream, f"{name}_DRAIN{rest}_{back}:")
            where = item_section(edge, i, n)
            self._heading(f"{stream.role.name}, {where}")
            steps, end = main_pass(loop, i, n, edge.step), -(-n // edge.step) * edge.step
            if following is None and rest:
                # Slots without a tile in this pass: what it fetches ahead comes next in them.
                self._turn_over(loop, where, range(rest, edge.step))
            self._pass(loop, cursors, where, steps, end=end)
            if following is not None:
                self._turn_over(loop, where, range(edge.step))

    def _end(self, loop: Loop) -> None:
        """What an item leaves; then the next one."""
        stream, name = loop.stream, loop.stream.role.name.upper()
        self._code(stream, f"{name}_END:")
        self._heading(f"{stream.role.name}, after the loop")
        if loop.final is not None:
            self._code(stream, f"wgmma.wait_group.sync.aligned {loop.final};")
        for operation in loop.epilogue:
            self._operation(stream, operation, None, "end", Binding(0, False))
        self._code(stream, "setp.eq.u32 %done, %items, 0;", "@%done bra EXIT;",
                   "setp.ne.u32 %done, %tiles, 0;", f"@%done bra {name}_ITEM;",
                   f"bra {name}_FETCH;")  # fmt: skip

    # ---- one pass ---------------------------------------------------------------------------

    def _pass(
        self,
        loop: Loop,
        cursors: dict[int, Cursor | None],
        where: str,
        steps: Iterable[tuple[Operation, int]],
        end: int | None = None,
    ) -> None:
        """Operations of a pass, with their tiles. What they fetch from tile `end` on is the next
        item's, and left out where that item does not have it."""

        def absent(op: Operation, tile: int) -> tuple[str, ...]:
            if end is None or op.ahead != "fetches" or tile < end:
                return ()
            return (f"setp.le.u32 %done, %coming, {tile - end};",)

        self._steps(loop, cursors, where, steps, absent)
        self._pass_end(loop, where)

    def _turn_over(self, loop: Loop, where: str, slots: Iterable[int]) -> None:
        for slot in slots:
            for register in self._turns(loop.stream.role.name, slot):
                self._code(loop.stream, f"xor.b32 {register}, {register}, 1;", section=where)

    def _cursor_of(self, loop: Loop, op: Operation) -> Cursor | None:
        pipeline = self.pipeline_of(op)
        if pipeline is None:
            return None
        role = loop.stream.role.name
        if pipeline.resident:
            return Cursor("0", self._own(role), 1, 0, 0)
        slot, later = offset(op) % pipeline.depth, offset(op) // pipeline.depth
        # A slot is empty for its n-th tile when the one before was released n - 1 times; a fresh
        # barrier counts as having completed the phase before its first one.
        turn = self._turns(role, slot)[(later + (op.name == "wait_empty")) & 1]
        return Cursor(str(slot), turn, pipeline.depth, 0, 0)

    @staticmethod
    def _turns(role: str, slot: int) -> tuple[str, str]:
        """Registers with the phase of a slot's tile of this pass, and of the next one."""
        return f"%{role}_turn{slot}0", f"%{role}_turn{slot}1"

    @staticmethod
    def _own(role: str) -> str:
        return f"%{role}_own"
