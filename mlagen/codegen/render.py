"""jinja2: operation templates to instructions, and the skeleton to the text of the `.s`."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from mlagen.codegen.gfx950.isa import M0, Parser
from mlagen.codegen.program import Instruction, Origin
from mlagen.dsl.operation import Binding, Operation
from mlagen.errors import MlagenError, TemplateError

EXIT = "EXIT"  # the label where a workgroup ends, until the layout names it
_MARK = "\x01"  # ends an output line, followed by the template and the line that made it


class Templates:
    """The template environment of one target: the given folders in this order, then ours."""

    def __init__(self, target: str, *directories: Path | None) -> None:
        given = [directory for directory in directories if directory is not None]
        for directory in given:
            if not directory.is_dir():
                raise TemplateError(f"template folder {directory} does not exist")
        self.target = target
        self.folders = [*map(str, given), "mlagen's own"]
        self.environment = _environment(*given) if given else _shipped()

    def render(
        self, name: str, context: Mapping[str, Any], asked_by: str
    ) -> list[tuple[str, int, str]]:
        """(template, its line, text) of every line that `name` of the target renders to."""
        path = f"{self.target}/{name}"
        try:
            text = self.environment.get_template(path).render(context)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"{error.name}:{error.lineno}: {error.message}") from error
        except jinja2.TemplateNotFound as error:
            raise TemplateError(
                f"template {error.name} does not exist ({asked_by})",
                hint=f"looked in {', '.join(self.folders)}",
            ) from error
        except jinja2.UndefinedError as error:
            raise TemplateError(
                f"{_failing_place(error, path)}: {error.message} ({asked_by})",
                hint="names come from the context of the operation that asked",
            ) from error
        except Exception as error:  # a template computes with what it is given
            what = f"{type(error).__name__}: {error}"
            if isinstance(error, MlagenError):
                what = error.message
            raise TemplateError(f"{_failing_place(error, path)}: {what} ({asked_by})") from error
        lines = []
        for line in text.splitlines():
            body, *marks = line.split(_MARK)
            source, _, number = marks[0].rpartition(":") if marks else (name, "", "0")
            lines.append((source, int(number), body))
        return lines


def _environment(*folders: Path) -> jinja2.Environment:
    """Where templates are looked up: these folders in this order, then ours."""
    places = [*map(str, folders), str(resources.files("mlagen.templates"))]
    loaders = [jinja2.FileSystemLoader(place) for place in places]
    return jinja2.Environment(
        loader=_NumberedLoader(jinja2.ChoiceLoader(loaders)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


@functools.cache
def _shipped() -> jinja2.Environment:
    """The environment for our templates alone is kept with what it has compiled, which saves a
    fifth of a build. An edited file is read again, but not one that comes to stand before it: with
    other folders nothing is kept."""
    return _environment()


class _NumberedLoader(jinja2.BaseLoader):
    """Marks every output line of an operation template with its own line number, so that an
    instruction finds the template line that made it."""

    def __init__(self, inner: jinja2.BaseLoader) -> None:
        self.inner = inner

    def get_source(self, environment: jinja2.Environment, template: str) -> Any:
        source, filename, uptodate = self.inner.get_source(environment, template)
        name = template.partition("/")[2]
        if template.endswith((".s.j2", ".ptx.j2")) and "/" in name:
            lines = []
            comment = False
            for number, line in enumerate(source.split("\n"), 1):
                opened = comment
                for mark in re.findall(r"\{#|#\}", line):
                    comment = mark == "{#"
                code = line.strip()
                plain = code and not opened and not comment and not code.startswith("{%")
                plain = plain and not code.startswith("{#")
                lines.append(f"{line}{_MARK}{name}:{number}" if plain else line)
            source = "\n".join(lines)
        return source, filename, uptodate


def _failing_place(error: BaseException, path: str) -> str:
    """The line of `path`, or of a template that it takes macros from, at which the traceback of a
    render error ends (jinja2 rewrites frames)."""
    place, trace = f"{path}:0", error.__traceback__
    folder = path.partition("/")[0]
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.endswith(path):
            place = f"{path}:{trace.tb_lineno}"
        elif name.endswith(".j2"):
            place = f"{folder}/{name.rpartition(f'/{folder}/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


class Lowering:
    """Renders operations, each (operation, binding) once."""

    def __init__(self, templates: Templates, symbols: Mapping[str, int], schedule: str) -> None:
        self.templates = templates
        self.parser = Parser(symbols)
        self.schedule = schedule
        self._cache: dict[tuple[int, str, int, bool], list[Instruction]] = {}

    def lower(self, operation: Operation, binding: Binding) -> list[Instruction]:
        """The instructions of `operation` for a concrete tile phase."""
        first = binding.first and operation.first_differs
        key = (id(operation), binding.role, binding.phase, first)
        if key not in self._cache:
            self._cache[key] = [
                replace(x, owner=operation, index=index)
                for index, x in enumerate(self._render(operation, binding))
            ]
        return self._cache[key]

    def _render(self, operation: Operation, binding: Binding) -> list[Instruction]:
        asked_by = f"{self.schedule}:{operation.line}, {operation}"
        context = {"skip": "SKIP", "exit": EXIT, **operation.context(binding)}
        result: list[Instruction] = []
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
            counted = bool(instruction.counter) and operation.access is not None
            result.append(
                replace(instruction, access=operation.access if counted else None, note=note)
            )
            note = ""
        return check_guard(operation, result)


def check_guard(operation: Operation, body: list[Instruction]) -> list[Instruction]:
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


def _with_skipped(branch: Instruction, later: list[Instruction]) -> Instruction:
    """The branch with the registers that the instructions up to its label read and write."""
    touched: dict[int, None] = {}
    for x in later:
        if x.pipe == "label":
            break
        touched.update(dict.fromkeys((*x.reads, *x.writes)))
    return replace(branch, skips=tuple(touched))


def is_store(instruction: Instruction) -> bool:
    """It counts, but puts nothing into a register or LDS that a wait could be for."""
    return instruction.pipe == "vmem" and not instruction.writes and M0[0] not in instruction.reads
