"""What a build says to a schedule with one statement changed, without assembling it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forms import Form, program
from statements import Edit, Place, applied, drops, function_of, recorded, shifts, swaps

from mlagen.errors import MlagenError
from mlagen.targets.gfx950.codegen.build import generate
from mlagen.targets.gfx950.codegen.build import render as render_gfx950
from mlagen.targets.gfx950.codegen.proof import require
from mlagen.targets.nvidia.codegen.build import prove_pipeline
from mlagen.targets.nvidia.codegen.text import render_pipeline

KINDS: dict[str, Callable[[Place, Any], list[Edit]]] = {
    "drop": drops,
    "swap": swaps,
    "shift": shifts,
}


@dataclass(frozen=True)
class Outcome:
    """`word`: same (it changed no operation of this form), refused, survived, or crashed; `said`:
    by whom, or what."""

    form: Form
    edit: Edit
    word: str
    said: str

    def __str__(self) -> str:
        return f"{self.word}: {self.form}: {self.edit}: {self.said}"


def text_of(form: Form) -> str:
    """The proved text of a form; raises as a build does, but for the assembler."""
    function, schedule, templates = form.run()
    with function.own_code():
        if hasattr(schedule, "streams"):
            printed, _ = prove_pipeline(schedule, templates)
            return render_pipeline(schedule, templates, printed)[0]
        program = generate(schedule, templates)
        require(program.proof.violations)
        return render_gfx950(schedule, program, templates)[0]


def tables(form: Form) -> frozenset[str]:
    """The files whose statements are edited: the schedule's, and what shipped ones share."""
    source = form.function().source
    shared = Path(source).parent / "shared"
    return frozenset({source, *map(str, shared.glob("*.py"))})


def edits(form: Form, kinds: tuple[str, ...] = ("drop",)) -> list[tuple[Edit, int]]:
    """All edits of a form, with how many operations their statement recorded."""
    _, counts, codes = recorded(form.run, tables(form))
    return [
        (edit, counts[place])
        for place in sorted(counts)
        for kind in kinds
        for edit in KINDS[kind](place, codes[place])
    ]


def attempt(form: Form, edit: Edit) -> Outcome:
    """What becomes of one edit."""
    before = program(form.run()[1])
    with applied(edit, function_of(edit.place)):
        try:
            if program(form.run()[1]) == before:
                return Outcome(form, edit, "same", "")
            text_of(form)
        except MlagenError as error:
            return Outcome(form, edit, "refused", f"{type(error).__name__}: {error.message[:200]}")
        except Exception as error:
            return Outcome(form, edit, "crashed", f"{type(error).__name__}: {error}")
    return Outcome(form, edit, "survived", "")
