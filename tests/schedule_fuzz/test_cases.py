"""That the fuzzer reaches what it says it does: every kernel's variants, every loop of every table,
every line that records an operation, and enough different edits of each."""

from __future__ import annotations

import ast
import functools
import random
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import judge
import pytest
from edits import table_of
from fuzzed import CASES, ROOT, Case, named
from plan import Plan, within

from mlagen.codegen.schedules import load, names
from mlagen.codegen.target import schedule_of

SEEDS = 60
DIFFERENT = 30  # texts of so many seeds, at least
# Of a kernel with few numbers: texts that its edits of sizes have.
FEW_SIZES = {"vector_add": 9, "fold": 26}
NAMES = [case.name for case in CASES]


@pytest.fixture(scope="module")
def surveyed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("cases")
    return functools.partial(_surveyed, folder)


def _surveyed(folder: Path, name: str) -> judge.Surveyed:
    return judge.survey(named(name), folder / name.replace(" ", "_"))


@pytest.mark.parametrize("name", NAMES)
def test_seeds_are_different_edits(name: str, surveyed: Any) -> None:
    base = surveyed(name)
    for first, least in ((0, DIFFERENT), (judge.SIZES, FEW_SIZES.get(name, DIFFERENT))):
        texts: set[str] = set()
        for seed in range(first, first + SEEDS):
            texts.add(judge.draw(base, seed).text)
            if len(texts) >= least:
                break
        assert len(texts) >= least, f"seeds from {first}"


@pytest.mark.parametrize("name", NAMES)
def test_every_line_that_records_is_edited(name: str, surveyed: Any) -> None:
    """Those of loops that stand in another file, or behind an else, too."""
    assert not _lost(surveyed(name))


def test_loops_that_are_not_edited_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a table calls of a file that is not read: one line is all that it says."""
    case = named("mla_decode_sm90")
    before, loop, after = re.split(r"(?=    for i in tiles\(left)|(?=    for i in tiles\(right)",
                                   case.path.read_text())  # fmt: skip
    called = "    turns(d, rows, knobs, left)\n"
    (tmp_path / "turns.py").write_text(
        f"from mlagen.dsl import tiles\n\n\ndef {called.strip()}:\n{loop}"
    )
    cut = tmp_path / "cut.py"
    cut.write_text(before.replace("@schedule", "from turns import turns\n\n\n@schedule")
                   + called + after)  # fmt: skip
    monkeypatch.syspath_prepend(tmp_path)
    base = judge.survey(replace(case, path=cut, name="loops elsewhere"), tmp_path / "out")
    assert _lost(base) == [called.strip()]


def _lost(base: judge.Surveyed) -> list[str]:
    """Lines that record operations and are not among the words of edits."""
    module = ast.parse(base.source)
    table = table_of(module, base.case.function)
    plan = Plan(module, table, base.executed, base.spoken, {}, {}, random.Random(0))
    plan.survey()
    words = [block.body[index] for block, index in plan.words()]
    lost = [n for n in base.spoken if not any(within(x, frozenset({n})) for x in words)]
    return [base.source.splitlines()[line - 1].strip() for line in sorted(lost)]


@pytest.mark.parametrize("name", [x for x in NAMES if x.split()[0] in names()])
def test_a_case_is_a_form_of_its_kernel(name: str, surveyed: Any) -> None:
    """The table that a case gives its parts is the one that the kernel has."""
    base = surveyed(name)
    table = judge._function(base.case, base.folder, base.source)
    own, kernels = (
        schedule_of(table, judge._problem(base.case, table), base.case.knobs),
        _kernels(base.case),
    )
    assert _said(own) == _said(kernels)
    assert own.knobs.items() <= kernels.knobs.items()


def test_every_variant_has_a_case() -> None:
    found = defaultdict(set)
    for case in CASES:
        kernel = case.name.split()[0]
        if kernel in names():
            found[kernel].add(_kernels(case).knobs.get("variant"))
    for kernel in names():
        wanted = {variant.name for variant in load(kernel).variants} or {None}
        assert found[kernel] == wanted, kernel


def _kernels(case: Case) -> Any:
    """The case's schedule as its shipped kernel records it."""
    kernel = load(case.name.split()[0])
    problem = (case.solves or kernel.problem_type).from_fields(case.problem)  # type: ignore[attr-defined]
    variant = {"variant": case.variant} if case.variant else {}
    return schedule_of(kernel, problem, {**case.knobs, **variant})


def _said(schedule: Any) -> list[str]:
    return [f"{type(x).__name__} {x}" for x in judge._operations(schedule)]


def test_every_loop_of_every_table_runs_in_a_case(surveyed: Any) -> None:
    executed: dict[Path, set[int]] = defaultdict(set)
    sources = {}
    for case in CASES:
        base = surveyed(case.name)
        executed[case.path] |= base.executed
        sources[case.path] = base.source
    for path, source in sources.items():
        if path.is_relative_to(ROOT / "schedules"):
            ran = frozenset(executed[path])
            idle = [ast.unparse(x) for x in _recording(ast.parse(source)) if not within(x, ran)]
            assert not idle, path.name


def _recording(module: ast.Module) -> list[ast.stmt]:
    """Calls in loops and sections."""
    bodies = [x for x in ast.walk(module) if isinstance(x, ast.For | ast.With)]
    return [stmt for body in bodies for stmt in ast.walk(body)
            if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call)]  # fmt: skip
