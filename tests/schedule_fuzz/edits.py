"""Random edits of a schedule's source: what a person may write by mistake, or to try something.

A schedule file is read as a syntax tree; an edit changes the tree of its function and says in one
line what it did. The same seed gives the same edits. Only statements that the schedule executes for
its problem are touched: a change of what is not run is no edit.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import edit_choices
import edit_clusters
import edit_sizes
import edit_words
from plan import Plan


@dataclass(frozen=True)
class Edit:
    """One change: its kind, and what it did."""

    kind: str
    text: str


@dataclass(frozen=True)
class Edited:
    """A schedule after its edits: source text and knobs."""

    text: str
    knobs: Mapping[str, Any]
    edits: tuple[Edit, ...]

    @property
    def kind(self) -> str:
        return self.edits[0].kind if len(self.edits) == 1 else "several"


KINDS: dict[str, Callable[[Plan], str | None]] = {
    "offset": edit_words.offset,
    "order": edit_words.order,
    "move": edit_words.move,
    "drop": edit_words.drop,
    "double": edit_words.double,
    "section": edit_words.section,
    "message": edit_words.message,
    "argument": edit_words.argument,
    "clusters": edit_clusters.clusters,
    "priority": edit_clusters.priority,
    "wait": edit_clusters.wait,
    "roles": edit_clusters.roles,
    "only": edit_clusters.only,
    "step": edit_clusters.step,
    "pattern": edit_choices.pattern,
    "interleave": edit_choices.interleave,
    "slots": edit_choices.slots,
    "knobs": edit_choices.knobs,
    "size": edit_sizes.size,
    "flag": edit_sizes.flag,
    "left out": edit_sizes.left_out,
}
SIZES = {"size": 8, "flag": 1, "left out": 2}  # a campaign of sizes alone
# How often a kind is drawn. The first of several edits may be any; what is refused almost always
# need not be tried as often as what may be right or wrong.
WEIGHTS = {
    "gfx950": {
        "offset": 12, "order": 12, "move": 12, "drop": 5, "double": 6, "section": 6, "argument": 4,
        "clusters": 10, "priority": 3, "wait": 6, "roles": 5, "only": 5, "pattern": 7,
        "interleave": 8, "slots": 8, "knobs": 8,
    },
    "sm_90a": {
        "offset": 12, "order": 22, "drop": 5, "double": 6, "section": 8, "message": 14,
        "argument": 6, "roles": 3, "step": 3, "slots": 6, "knobs": 8,
    },
}  # fmt: skip
WEIGHTS["sm_100a"] = WEIGHTS["sm_90a"]
TRIES = 40


def table_of(module: ast.Module, name: str) -> ast.FunctionDef:
    """The function of that name, or the one of the file that it does nothing but call."""
    found = {x.name: x for x in module.body if isinstance(x, ast.FunctionDef)}
    last = found[name].body[-1]
    call = last.value if isinstance(last, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in found:
        return found[call.func.id]
    return found[name]


def edited(
    text: str,
    name: str,
    seed: str,
    *,
    target: str,
    executed: frozenset[int],
    spoken: frozenset[int],
    knobs: Mapping[str, Any],
    choices: Mapping[str, Sequence[Any]],
    names: Mapping[str, Mapping[str, Any]],
    sizes: bool = False,
) -> Edited:
    """The schedule `name` of the source `text` after one to three random edits, or after one of
    `sizes`. `executed`: lines
    that the unedited schedule runs; `spoken`: those that record an operation; `choices`: of its
    knobs; `names`: what those of its functions stand for."""
    rng = random.Random(seed)
    module = ast.parse(text)
    function = table_of(module, name)
    plan = Plan(module, function, executed, spoken, dict(knobs), choices, rng, names)
    weights = SIZES if sizes else WEIGHTS[target]
    wanted = 1 if sizes else rng.choices((1, 2, 3), (75, 18, 7))[0]
    made: list[Edit] = []
    for _ in range(TRIES):
        kind = rng.choices([*weights], [*weights.values()])[0]
        plan.survey()
        said = KINDS[kind](plan)
        if said is not None:
            made.append(Edit(kind, said))
        if len(made) == wanted:
            break
    module.body.insert(
        _behind_imports(module), ast.parse("import mlagen.targets.gfx950.dsl as mlagen_dsl").body[0]
    )
    return Edited(ast.unparse(ast.fix_missing_locations(module)) + "\n", plan.knobs, tuple(made))


def _behind_imports(module: ast.Module) -> int:
    """After the docstring and what comes from __future__."""
    first = 1 if isinstance(module.body[0], ast.Expr) else 0
    while isinstance(module.body[first], ast.ImportFrom) and (
        module.body[first].module == "__future__"  # type: ignore[attr-defined]
    ):
        first += 1
    return first
