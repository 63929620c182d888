"""What becomes of one edited schedule: refused, or built and held against both oracles.

Runs in a fork of a process that has loaded everything and prepared the case (`prepare`): what goes
wrong there stays there, and there is a limit of time and of memory.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest.mock import patch

import emulated
import hopper_texts
import msgspec
from edit_sizes import inlined
from edits import Edited, edited
from fuzzed import ROOT, Case

from mlagen.artifact import Artifact
from mlagen.codegen import build
from mlagen.codegen.manifest import plain_facts
from mlagen.codegen.schedules import _loaded, load
from mlagen.codegen.target import schedule_of
from mlagen.dsl import ScheduleFunction
from mlagen.errors import MlagenError, ProofError, TemplateError

MEMORY = 8 << 30  # bytes of address space of one edit's process
# Knobs that change what the kernel is called with, or what it rounds: a case of its own where they
# differ.
FIXED = (
    "grid",
    "arguments",
    "feed",
    "persistent",
    "m_tile",
    "n_tile",
    "rows",
    "variant",
    "ctas",
    "rescale_threshold",
    "rows_by",
)
EXHAUSTED = 5  # draws for each edit that is wanted
SHOWN = 300  # characters of a message
SIZES = 1_000_000  # from this seed on, edits are of sizes alone
SHARED = ("mlagen.schedules.tables.", "mlagen.attention.latent.sm_100a.landing")
_COMMENT = re.compile(r"\s*(;|//).*$", re.M)
_PTX_COMMENT = re.compile(r"//.*$", re.M)  # where a semicolon ends a statement
_CODE = re.compile(r"error\[([\w-]+)\]")
_PYTHON = re.compile(r":\d+: (\w*Error|AssertionError|\w*Exception): ")


@dataclasses.dataclass
class Surveyed:
    """What the edits of a case start from."""

    case: Case
    folder: Path
    source: str
    executed: frozenset[int]
    spoken: frozenset[int]  # lines that recorded an operation
    choices: dict[str, tuple[Any, ...]]
    names: dict[str, dict[str, Any]]  # by function, what its names stand for when it ends


@dataclasses.dataclass
class Prepared:
    """What judging the edits of a case needs: its unedited text, inputs and oracles."""

    base: Surveyed
    digest: str
    trials: list[Any]


_surveyed: dict[str, Surveyed] = {}
_prepared: dict[str, Prepared] = {}


def survey(case: Case, folder: Path) -> Surveyed:
    """Run the schedule as it is, once a process; `folder`: where edited files are written."""
    if case.name in _surveyed:
        return _surveyed[case.name]
    folder.mkdir(parents=True, exist_ok=True)
    for beside in case.path.parent.iterdir():
        link = folder / beside.name
        if beside.name not in (case.path.name, "__pycache__", "__init__.py") and not link.exists():
            link.symlink_to(beside)
    source = inlined(case.path.read_text(), _shared_text)
    function = _function(case, folder, source)
    executed: set[int] = set()
    names: dict[str, dict[str, Any]] = {}
    with _lines_of(function, executed, names):
        schedule = schedule_of(function, _problem(case, function), case.knobs)
    spoken = frozenset(operation.line for operation in _operations(schedule))
    choices = {k: tuple(knob.choices) for k, knob in schedule.declared.items() if k not in FIXED}
    made = Surveyed(case, folder, source, frozenset(executed), spoken, choices, names)
    _surveyed[case.name] = made
    return made


def prepare(case: Case, folder: Path) -> Prepared:
    """Build the case as it is and make its inputs and oracles, once a process."""
    if case.name in _prepared:
        return _prepared[case.name]
    base = survey(case, folder)
    function = _function(case, base.folder, base.source)
    made = _built(case, function, dict(case.knobs))
    if case.target == "gfx950":
        trials: list[Any] = emulated.trials(case, made)
        emulated.wrong(trials[:1], made, str)  # loads the emulator's compiled code
    else:
        trials = hopper_texts.trials(case, _problem(case, function), dict(case.knobs))
        hopper_texts.wrong(trials[:1], made, str)
    _prepared[case.name] = Prepared(base, _digest(made), trials)
    return _prepared[case.name]


def _shared_text(module: str) -> str | None:
    """The text of a module of what schedules share, None for one of schedules."""
    if not module.startswith(SHARED):
        return None
    path = module.replace(".", "/") + ".py"
    text = (ROOT / path.removeprefix("mlagen/" * module.startswith("mlagen.schedules"))).read_text()
    return None if "@schedule(" in text else text


def _operations(schedule: Any) -> list[Any]:
    if hasattr(schedule, "operations"):
        return list(schedule.operations)
    parts = ("prologue", "items", "loop", "epilogue")
    return [x for stream in schedule.streams for part in parts for x in getattr(stream, part)]


def _problem(case: Case, function: ScheduleFunction) -> Any:
    return function.problem_type.from_fields(case.problem)  # type: ignore[attr-defined]


def _function(case: Case, folder: Path, text: str) -> ScheduleFunction:
    """The schedule of a source text, by the way that a user's file takes."""
    path = folder / case.path.name
    path.write_text(text)
    _loaded.clear()
    function = load(f"{path}:{case.function}", case.target, tables=True)
    if case.solves:
        table = function.function
        # After the problem and the space come what the case gives, then what the table leaves free.
        free = table.__code__.co_argcount - 2 - len(case.given)
        defaults = (*case.given, *(table.__defaults__ or ())[-free:]) if free else case.given
        given = FunctionType(table.__code__, table.__globals__, table.__name__, defaults)
        function = dataclasses.replace(function, problem_type=case.solves, function=given)
    return function


@contextmanager
def _lines_of(
    function: ScheduleFunction, executed: set[int], names: dict[str, dict[str, Any]]
) -> Iterator[None]:
    """Adds the lines of the schedule's file that are run inside, and what names of its functions
    stand for in the end."""
    file = function.function.__code__.co_filename

    def local(frame: Any, event: str, argument: Any) -> Any:
        executed.add(frame.f_lineno)
        if event == "return":
            names[frame.f_code.co_name] = frame.f_globals | frame.f_locals
        return local

    def trace(frame: Any, event: str, argument: Any) -> Any:
        return local if frame.f_code.co_filename == file else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def _digest(made: Artifact) -> str:
    """Of what is executed of a kernel's text: without comments, names of files and versions."""
    gfx950 = made.manifest.target == "gfx950"
    return _digest_of(made.text, _COMMENT if gfx950 else _PTX_COMMENT)


def _digest_of(text: str, comment: re.Pattern[str]) -> str:
    lines = "\n".join(x for x in comment.sub("", text).splitlines() if x.strip())
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


class _Unchanged(Exception):
    pass


def _built(
    case: Case, function: ScheduleFunction, knobs: dict[str, Any], digest: str = ""
) -> Artifact:
    """The artifact, for NVIDIA without its code; _Unchanged where the text is that of `digest`,
    before it is assembled."""
    problem = _problem(case, function)
    if case.target != "gfx950":
        made = hopper_texts.unassembled(function, problem, knobs)
        if _digest(made) == digest:
            raise _Unchanged
        return _with_facts(case, made, problem)
    module = sys.modules["mlagen.targets.gfx950.codegen.build"]
    assemble = module.assemble  # type: ignore[attr-defined]

    def asked(text: str, **named: Any) -> bytes:
        if _digest_of(text, _COMMENT) == digest:
            raise _Unchanged
        return assemble(text, **named)  # type: ignore[no-any-return]

    with patch.object(module, "assemble", asked):
        return _with_facts(case, build(function, problem, knobs=knobs), problem)


def _with_facts(case: Case, made: Artifact, problem: Any) -> Artifact:
    """The artifact; of a case whose table is that of a variant with what the variant says."""
    if case.facts is None:
        return made
    facts = plain_facts(case.facts(problem, made.manifest.knobs))
    return dataclasses.replace(made, manifest=msgspec.structs.replace(made.manifest, facts=facts))


# ---- one edit ------------------------------------------------------------------------------------


def draw(base: Surveyed, seed: int) -> Edited:
    """The edit that a seed stands for; -1: none."""
    case = base.case
    if seed < 0:
        return Edited(base.source, dict(case.knobs), ())
    return edited(
        base.source, case.function, f"{case.name}:{seed}", target=case.target,
        executed=base.executed, spoken=base.spoken, knobs=case.knobs, choices=base.choices,
        names=base.names, sizes=seed >= SIZES,
    )  # fmt: skip


def different(base: Surveyed, count: int, first: int = 0) -> list[int]:
    """The seeds from `first` on whose edits are `count` different ones, fewer where there are no
    more."""
    seen: set[tuple[str, str]] = set()
    seeds = []
    for seed in range(first, first + EXHAUSTED * count):
        change = draw(base, seed)
        key = change.text, repr(sorted(change.knobs.items()))
        if key not in seen and change.edits:
            seen.add(key)
            seeds.append(seed)
        if len(seeds) == count:
            break
    return seeds


def attempt(case: Case, folder: Path, seed: int) -> dict[str, Any]:
    """What becomes of edit `seed` of a case, as plain values. `seed` -1: the case as it is."""
    prepared = prepare(case, folder)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    change = draw(prepared.base, seed)
    said: dict[str, Any] = {
        "case": case.name,
        "seed": seed,
        "kind": change.kind if change.edits else "none",
        "edits": [f"{edit.kind}: {edit.text}" for edit in change.edits],
    }

    def doing(what: str) -> None:
        (folder / "doing").write_text(what)

    doing("build")
    started = _seconds()
    try:
        function = _function(case, prepared.base.folder, change.text)
        digest = prepared.digest if seed >= 0 else ""
        made = _built(case, function, dict(change.knobs), digest)
    except _Unchanged:
        return {**said, "outcome": "unchanged", "build": _since(started)}
    except MlagenError as error:
        said |= {"error": code_of(error), "message": _short(str(error))}
        return {**said, "outcome": "refused", "build": _since(started)}
    except MemoryError:
        raise
    except Exception as error:
        said |= {"error": type(error).__name__, "message": _where(error)}
        return {**said, "outcome": "crash", "build": _since(started)}
    said |= {"build": _since(started), "text": _digest(made)}
    started = _seconds()
    if case.target == "gfx950":
        found = emulated.wrong(prepared.trials, made, doing)
    else:
        found = hopper_texts.wrong(prepared.trials, made, doing)
    said["judge"] = _since(started)
    if found:
        return {**said, "outcome": "wrong", "message": _short(found)}
    return {**said, "outcome": "right"}


def code_of(error: MlagenError) -> str:
    """What refused: the class, with the code of a proof's error or what Python raised."""
    code, raised = _CODE.search(str(error)), _PYTHON.search(str(error))
    name = type(error).__name__
    if code:
        return f"{name} {code[1]}"
    if isinstance(error, TemplateError) and "assembler" in str(error):
        return f"{name} assembler"
    return f"{name} {raised[1]}" if raised and not isinstance(error, ProofError) else name


def _seconds() -> float:
    """Of one core, that this process and those that it waited for have used."""
    return sum(os.times()[:4])


def _since(started: float) -> float:
    return round(_seconds() - started, 3)


def _short(text: str) -> str:
    text = " ".join(text.split()).replace(str(ROOT), ".")
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def _where(error: Exception) -> str:
    """An unforeseen exception with the last line of mlagen that it passed."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if "mlagen" in code.co_filename:
            place = f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}"
        trace = trace.tb_next
    return _short(f"{type(error).__name__}: {error} at {place}")
