"""Schedule functions: the `@schedule` decorator, and how one becomes a value.

A schedule function runs once for a problem and a choice of knobs. It calls operations; what it
calls is recorded, with the line it was called on.
"""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlagen.dsl.builder import Builder, current, listening
from mlagen.dsl.knobs import Knob, Knobs, UnknownKnobError
from mlagen.dsl.signature import Signature
from mlagen.dsl.variant import KNOB, Variant, taken
from mlagen.errors import MlagenError, ScheduleError
from mlagen.targets.registry import TARGETS
from mlagen.untrusted import Spent, words

_PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class ScheduleFunction:
    """A schedule that can be built: `fn(problem, space)` with its target and problem type, or, of a
    kernel that has variants, `fn(problem, space, variant)`."""

    name: str
    target: str
    problem_type: type
    function: Callable[..., None]
    path: Path
    doc: str
    templates: Path | None = None  # folder of templates that go before the shipped ones
    variants: tuple[Variant, ...] = ()

    def __call__(self, problem: Any, space: Any, *more: Any, **named: Any) -> None:
        """Inside another schedule function: pass its problem on to this schedule, to its table and
        its knobs, with what `more` and `named` it takes. The lines and the file of what is made are
        then this one's; the name stays.

        ScheduleError: not inside a schedule function, another target, or templates of its own."""
        builder = current()
        first = builder.author
        if self.target != first.target:
            raise ScheduleError(
                f"{first.name} is for {first.target} and passes its problem on to {self.name}, "
                f"which is for {self.target}"
            )
        if self.templates not in (None, first.templates):
            raise ScheduleError(
                f"{first.name} passes its problem on to {self.name}, which has templates of its "
                f"own: {self.templates}",
                hint=f"give {first.name} that folder",
            )
        builder.author = self
        self.function(problem, space, *more, **named)

    @property
    def takes(self) -> tuple[str, ...]:
        """Names of what it needs beside problem, space and variant: it is a table for others."""
        own = [*inspect.signature(self.function).parameters.values()]
        more = own[3 if self.variants else 2 :]
        return tuple(one.name for one in more if one.default is one.empty and one.kind in _PLAIN)

    @property
    def source(self) -> str:
        """The file that the function's lines belong to."""
        return self.function.__code__.co_filename

    @property
    def line(self) -> int:
        return self.function.__code__.co_firstlineno

    @contextmanager
    def own_code(self) -> Iterator[None]:
        """Where code of the schedule's folder runs: what a user's file raises there is told by its
        line, without a traceback, sys.exit too. What a shipped one raises is a defect of ours, and
        stays."""
        try:
            yield
        except (KeyboardInterrupt, Spent):
            raise
        except BaseException as error:
            file, line = last_line(error, lambda file: file.startswith(str(self.path.parent)))
            if not file or self.function.__module__.startswith("mlagen."):
                raise
            place = f"{file}:{line}"
            if not isinstance(error, MlagenError):
                raise ScheduleError(f"{place}: {words(error)}") from error
            if not isinstance(error, ScheduleError) or ".py:" in error.message:
                raise
            raise type(error)(f"{place}: {error.message}", hint=error.hint) from error

    def run(self, builder: Builder, space: Any, problem: Any) -> None:
        """Call the function with `builder` listening. UnknownKnobError: it did not declare one."""
        with listening(builder), self.own_code():
            variants = (taken(self.variants, problem, space.knobs),) if self.variants else ()
            self.function(problem, space, *variants)
        unknown = sorted(set(space.knobs.chosen) - set(space.knobs.declared))
        if unknown:
            raise UnknownKnobError(self.name, unknown, space.knobs.declared)


def schedule(
    *, problem: type, target: str, templates: str | None = None, variants: Sequence[Variant] = ()
) -> Callable[[Callable[..., None]], ScheduleFunction]:
    """Mark a function as a schedule of `problem` for `target`. `templates`: a folder of its own
    templates, relative to the schedule's file; they go before the shipped ones. `variants`: the
    kernel's forms, of which the function gets one; the first that serves a problem is usual."""
    if target not in TARGETS:
        raise ScheduleError(
            f"target {target!r} is not known", hint="targets: " + ", ".join(sorted(TARGETS))
        )

    def decorate(function: Callable[..., None]) -> ScheduleFunction:
        path = Path(function.__code__.co_filename)
        doc = inspect.getdoc(function) or inspect.getdoc(sys.modules[function.__module__]) or ""
        folder = path.parent / templates if templates is not None else None
        return ScheduleFunction(
            function.__name__, target, problem, function, path, doc, folder, tuple(variants)
        )

    return decorate


@dataclass(frozen=True)
class ScheduleBase:
    """What a schedule function said, as a value: what is alike for all targets. `target`: the table
    of its capacities; `line`: where the function begins in `file`; `facts`: of its variant, or
    those that its operations state; None where neither says any."""

    name: str
    file: str
    doc: str
    target: Any
    problem: Any
    knobs: Mapping[str, Any]
    declared: Mapping[str, Knob]
    signature: Signature
    line: int
    facts: Any


def said(
    function: ScheduleFunction, builder: Builder, problem: Any, knobs: Knobs, facts: Any
) -> dict[str, Any]:
    """Fields of `ScheduleBase` that follow from the function and what it called. `facts`: those
    that its operations state."""
    return {
        "name": function.name,
        "file": display_path(builder.author.path),
        "doc": function.doc,
        "problem": problem,
        "knobs": dict(knobs.values),
        "declared": dict(knobs.declared),
        "line": builder.author.line,
        "facts": _facts(function, problem, knobs.values) or facts,
    }


def _facts(function: ScheduleFunction, problem: Any, knobs: Mapping[str, Any]) -> Any:
    """What the variant says of itself; None where the kernel has no variants."""
    taken = (one for one in function.variants if one.name == knobs[KNOB])
    return next((one.facts(problem, knobs) for one in taken), None)


def last_line(error: BaseException, fits: Callable[[str], bool]) -> tuple[str, int]:
    """Where the traceback of an error is last in a file that `fits`: its name, and the line; "" and
    0 where it never is."""
    found = "", 0
    for frame, line in traceback.walk_tb(error.__traceback__):
        if fits(frame.f_code.co_filename):
            found = frame.f_code.co_filename, line
    return found


def display_path(path: Path) -> str:
    """A schedule's path as messages and listings show it: the last folder and the file."""
    return f"{path.parent.name}/{path.name}"


def first_sentence(doc: str) -> str:
    """The first sentence of a schedule's docstring, on one line."""
    paragraph = " ".join(doc.strip().split("\n\n", 1)[0].split())
    return re.split(r"(?<=\w)\.(?= [A-Z]|$)", paragraph, maxsplit=1)[0]
