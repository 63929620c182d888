"""Operations to instructions: their templates, rendered and read line by line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mlagen.codegen.templates import Templates
from mlagen.dsl.operation import Binding, Operation
from mlagen.errors import ScheduleError, TemplateError
from mlagen.targets.gfx950.codegen.exchanges import NOTHING, Exchanged, require_instructions
from mlagen.targets.gfx950.codegen.isa import M0, Parser
from mlagen.targets.gfx950.codegen.program import Origin, ProgramInstruction
from mlagen.targets.gfx950.dsl import Registers

EXIT = "EXIT"  # the label where a workgroup ends, until the layout names it


class Lowering:
    """Renders operations, each (operation, binding) once."""

    def __init__(
        self,
        templates: Templates,
        registers: Registers,
        schedule: str,
        exchanges: Mapping[int, Exchanged] | None = None,
    ) -> None:
        self.templates = templates
        self.exchanges = exchanges or {}
        self.parser = Parser(registers.physical(), registers.sizes(), schedule)
        self.schedule = schedule
        self._cache: dict[tuple[int, str, int, bool], list[ProgramInstruction]] = {}

    def lower(self, operation: Operation, binding: Binding) -> list[ProgramInstruction]:
        """The instructions of `operation` for a concrete tile phase."""
        first = binding.first and operation.first_differs
        key = (id(operation), binding.role, binding.phase, first)
        if key not in self._cache:
            self._cache[key] = [
                replace(x, owner=operation, index=index)
                for index, x in enumerate(self._render(operation, binding))
            ]
        return self._cache[key]

    def _render(self, operation: Operation, binding: Binding) -> list[ProgramInstruction]:
        asked_by = f"{self.schedule}:{operation.line}, {operation}"
        try:
            context = {"skip": "SKIP", "exit": EXIT, **operation.context(binding)}
        except ScheduleError as error:  # such as registers that a tile does not have
            if ".py:" in error.message:
                raise
            raise type(error)(f"{asked_by}: {error.message}", hint=error.hint) from error
        does = self.exchanges.get(id(operation), NOTHING)
        result: list[ProgramInstruction] = []
        note = ""
        for source, number, text in self.templates.render(operation.template, context, asked_by):
            if not text.strip():
                continue
            origin = Origin(str(operation), source, number, operation.line)
            if text.strip().startswith(";"):
                note = text.strip().lstrip("; ")
                continue
            instruction = self.parser.line(text, origin)
            if instruction is None:
                continue
            access = operation.access if instruction.counter else None
            result.append(replace(instruction, access=access or does.of(instruction), note=note))
            note = ""
        require_instructions(operation, does, result)
        return check_guard(operation, result)


def check_guard(operation: Operation, body: list[ProgramInstruction]) -> list[ProgramInstruction]:
    """A guarded operation may skip arithmetic and stores only, nothing that may be waited for.

    A store that may be skipped takes no ticket. A wait that is counted without it is right on both
    ways: where the store was issued, the same count waits for more.

    What is loading when the branch comes must not be waited for after it, on one of two ways: it
    is waited for ahead of a branch that may skip its use.
    """
    leaving = [x for x in body if x.pipe == "branch" and x.target == EXIT]
    if bool(leaving) != operation.leaves:
        state = "leaves but is not declared" if leaving else "does not leave but is declared"
        raise TemplateError(f"{operation.template}: {operation} {state} leaving")
    branches = [x for x in body if x.pipe == "branch" and x.target != EXIT]
    if bool(branches) != operation.guarded:
        state = "branches but is not declared" if branches else "does not branch but is declared"
        raise TemplateError(f"{operation.template}: {operation} {state} guarded")
    checked = []
    inside = False
    for instruction in body:
        if inside and is_store(instruction):
            instruction = replace(instruction, counter="")
        elif inside and (instruction.counter or instruction.pipe in ("barrier", "wait")):
            raise TemplateError(
                f"{operation.template}:{instruction.origin and instruction.origin.template_line}: "
                f"{instruction.mnemonic} stands inside a skipped block; only arithmetic and stores "
                f"may"
            )
        checked.append(instruction)
        if instruction in branches:
            inside = True
        elif instruction.pipe == "label":
            inside = False
    return [_with_skipped(x, checked[at:]) if x in branches else x for at, x in enumerate(checked)]


def _with_skipped(
    branch: ProgramInstruction, later: list[ProgramInstruction]
) -> ProgramInstruction:
    """The branch with the registers that the instructions up to its label read and write."""
    touched: dict[int, None] = {}
    for x in later:
        if x.pipe == "label":
            break
        touched.update(dict.fromkeys((*x.reads, *x.writes)))
    return replace(branch, skips=tuple(touched))


def is_store(instruction: ProgramInstruction) -> bool:
    """It counts, but puts nothing into a register or LDS that a wait could be for."""
    return instruction.pipe == "vmem" and not instruction.writes and M0[0] not in instruction.reads
