"""Prints the streams of a persistent block whose roles go apart as PTX lines: each takes one item
after another, with the code of a block that has one.

    ROLE        prologue, once a block
    ROLE_ITEM   the item's own beginning; then its passes, as of a block of one item
    ROLE_END    the epilogue; the next item
    ROLE_OVER   what the block leaves

Barriers are not initialised between items: slots and phases of operations go on. What is filled or
handed over once an item changes its phase with each of them.
"""

from __future__ import annotations

from mlagen.dsl import Binding, Operation
from mlagen.targets.nvidia.codegen.derived import WAITS
from mlagen.targets.nvidia.codegen.emit import Cursor, Emitter
from mlagen.targets.nvidia.codegen.runs import Loop
from mlagen.targets.nvidia.dsl.pipeline import Stream


class ApartEmitter(Emitter):
    """Prints the streams of a persistent schedule whose roles go apart."""

    @property
    def registers(self) -> list[tuple[str, str, str]]:
        held = [(".b32", "%items", "items from this one on")]
        held += [
            (".b32", ", ".join(self._phases(stream.role.name)), "phase of the item, and the other")
            for stream in self.schedule.streams
        ]
        return held + super().registers

    def _tiles(self, loop: Loop, cursors: dict[int, Cursor | None]) -> None:
        """All items."""
        stream, name = loop.stream, loop.stream.role.name.upper()
        for phase, register in enumerate(self._phases(stream.role.name)):
            self._code(stream, f"mov.u32 {register}, {phase};")
        self._code(stream, "setp.eq.u32 %done, %items, 0;", f"@%done bra {name}_OVER;",
                   f"{name}_ITEM:")  # fmt: skip
        self._around(stream, stream.items, "item")
        super()._tiles(loop, cursors)

    def _done(self, loop: Loop) -> None:
        """The epilogue stands once."""
        self._code(loop.stream, f"bra {loop.stream.role.name.upper()}_END;")

    def _end(self, loop: Loop) -> None:
        """What an item leaves; then the next one, or the block's end."""
        stream, name = loop.stream, loop.stream.role.name.upper()
        self._heading(f"{stream.role.name}, after the loop")
        self._around(stream, loop.epilogue, "end")
        for register in self._phases(stream.role.name):
            self._code(stream, f"xor.b32 {register}, {register}, 1;")
        self._code(stream, "sub.u32 %items, %items, 1;", "setp.ne.u32 %done, %items, 0;",
                   f"@%done bra {name}_ITEM;", f"{name}_OVER:")  # fmt: skip
        self._around(stream, loop.leaving, "leave")
        self._code(stream, f"bra {self.out};")

    def _around(self, stream: Stream, operations: tuple[Operation, ...], where: str) -> None:
        """Operations of an item, outside of its passes. Waits have the item's phase."""
        for operation in operations:
            held = self._of_item(stream, operation) if operation.name in WAITS else None
            self._operation(stream, operation, held, where, Binding(0, False))

    def _cursor(self, loop: Loop, index: int, op: Operation) -> Cursor | None:
        pipeline = self.pipeline_of(op)
        if pipeline is not None and pipeline.resident:
            return self._of_item(loop.stream, op)
        return super()._cursor(loop, index, op)

    def _of_item(self, stream: Stream, op: Operation) -> Cursor | None:
        """The phase of what is filled once an item; None for an arrival there."""
        if op.name not in ("wait_full", "wait_empty", "wait_committed"):
            return Cursor("0", "0", 1, 0, 0) if self.pipeline_of(op) else None
        # A fresh barrier counts as having completed the phase before its first one.
        phase = self._phases(stream.role.name)[op.name == "wait_empty"]
        return Cursor("0", phase, 1, 0, 0)

    @staticmethod
    def _phases(role: str) -> tuple[str, str]:
        """Registers with the phase of a role's item, and with the other one."""
        return f"%{role}_item0", f"%{role}_item1"
