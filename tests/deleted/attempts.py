"""What a build says to a schedule with one statement changed, without assembling it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from schedule_forms import Form, program
from statements import Edit, Place, applied, drops, places, shifts, swaps

from mlagen.dsl import Operation, ScheduleFunction
from mlagen.dsl.operation import steps_of
from mlagen.errors import MlagenError
from mlagen.targets.gfx950.codegen.build import generate
from mlagen.targets.gfx950.codegen.build import render as render_gfx950
from mlagen.targets.gfx950.codegen.proof import require
from mlagen.targets.nvidia.codegen.build import prove_pipeline
from mlagen.targets.nvidia.codegen.ptx_text import render_pipeline

SECTIONS = ("prologue", "items", "loop", "epilogue")
KINDS: dict[str, Callable[[Place], Iterator[Edit]]] = {
    "drop": drops,
    "swap": swaps,
    "shift": shifts,
}


@dataclass(frozen=True)
class Outcome:
    """`word`: same (it changed no operation of this form), refused, survived, or crashed; `said`:
    by whom, or what; `gone`: names of the operations that the changed schedule does not have."""

    form: Form
    edit: str
    word: str
    said: str = ""
    gone: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        return self.edit.partition(" ")[0]

    def __str__(self) -> str:
        return f"{self.word}: {self.form}: {self.edit}: {self.said}"


def text_of(function: ScheduleFunction, schedule: Any, templates: Any) -> str:
    """The proved text of a schedule; raises as a build does, but for the assembler."""
    with function.own_code():
        if hasattr(schedule, "streams"):
            printed, _ = prove_pipeline(schedule, templates)
            return render_pipeline(schedule, templates, printed)[0]
        made = generate(schedule, templates)
        require(made.proof.violations)
        return render_gfx950(schedule, made, templates)[0]


def tables(form: Form) -> frozenset[str]:
    """The files whose statements are edited: the schedule's, and what shipped ones share."""
    source = form.function().source
    shared = Path(source).parent / "shared"
    return frozenset({source, *map(str, shared.glob("*.py"))})


def edits(form: Form, kinds: tuple[str, ...] = ("drop",)) -> list[Edit]:
    """All edits of a form's statements."""
    held = places(form.run, tables(form))
    return [edit for place in held for kind in kinds for edit in KINDS[kind](place)]


def attempt(form: Form, edit: Edit) -> Outcome:
    """What becomes of one edit."""
    before = form.run()[1]
    with applied(edit):
        return _outcome(form, str(edit), before, form.run)


def attempts_by_value(form: Form) -> Iterator[Callable[[], Outcome]]:
    """A form without one of its operations, for each of them: also those that a statement records
    with others."""
    function, schedule, templates = form.run()
    for op in operations(schedule):
        made = function, without(schedule, op), templates
        edit = f"drop {op} ({op.key}) of :{op.line}"
        yield partial(_outcome, form, edit, schedule, lambda made=made: made)


def _outcome(form: Form, edit: str, before: Any, run: Callable[[], Any]) -> Outcome:
    try:
        made = run()
        if program(made[1]) == program(before):
            return Outcome(form, edit, "same")
        text_of(*made)
    except MlagenError as error:
        return Outcome(form, edit, "refused", f"{type(error).__name__}: {error.message[:200]}")
    except Exception as error:
        return Outcome(form, edit, "crashed", f"{type(error).__name__}: {error}")
    gone = Counter(op.key for op in operations(before))
    gone -= Counter(op.key for op in operations(made[1]))
    return Outcome(form, edit, "survived", gone=frozenset(gone))


# What may be left out, and why. A kernel calls these hints in its plain order, and what it calls so
# may leave nothing behind (`tests/codegen/test_hints.py`).
HARMLESS = {
    "prefetch": "brings to L2 what is fetched later: it changes when that comes, not what",
    "late_arrive": "says where the arrival of an exchange stands; without it the arrival follows "
    "the operation that fills it",
}


def harmless(outcome: Outcome) -> str:
    """Why a survivor without some of its operations is right all the same; "refused" and "same" for
    what is none, "" for no reason."""
    if outcome.word in ("refused", "same"):
        return outcome.word
    plain = outcome.form.run()[1].plain
    hints = getattr(plain, "hints", frozenset())
    if not outcome.gone or not outcome.gone <= hints:
        return ""
    return "; ".join(HARMLESS.get(name, "") for name in sorted(outcome.gone))


# ---- a schedule as a value -----------------------------------------------------------------------


def operations(schedule: Any) -> list[Operation]:
    """All operations of a schedule."""
    if hasattr(schedule, "streams"):
        return [op for s in schedule.streams for name in SECTIONS for op in getattr(s, name)]
    return list(schedule.operations)


def without(schedule: Any, dropped: Operation) -> Any:
    """The schedule without one of its operations."""

    def kept(held: tuple[Operation, ...]) -> tuple[Operation, ...]:
        return tuple(op for op in held if op is not dropped)

    if hasattr(schedule, "streams"):
        streams = tuple(
            replace(s, **{name: kept(getattr(s, name)) for name in SECTIONS})
            for s in schedule.streams
        )
        return replace(schedule, streams=streams)
    loop = tuple(
        replace(c, steps=steps_of(c.steps, lambda op: op is not dropped)) for c in schedule.loop
    )
    around = {name: kept(getattr(schedule, name)) for name in SECTIONS if name != "loop"}
    return replace(schedule, loop=loop, **around)
